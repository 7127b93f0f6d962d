package prims

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: condKind, Version: condVersion, Repair: repairCond, Complete: completeCond, Wake: wakeFirstOfCond,
		Check: checkCond, Inspect: inspectCond,
	})
}

// bareCond makes a bare handle, which a reaper or a tool uses and which cannot wait. ok is false if the object is
// so damaged that no process can open it.
func bareCond(a *arenakernel.Arena, o arenakernel.Object) (k *condCore, ok bool) {
	if o.Size < condBytes(a) {
		return nil, false
	}
	k, err := buildCond(a, o, true)
	return k, err == nil
}

// repairCond takes the waits of the participant named dead off the queue. If a Signal or a Broadcast had woken
// waits of that participant, repairCond passes these wakes on to other waits. To pass a wake on, this process needs
// a slot record. If it has not opened the Cond, repairCond makes one.
func repairCond(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
	if o.Size < condBytes(a) {
		return false
	}
	nodes := a.NodesOfDead(o.Offset, dead)
	w, _ := condAt(a, o)
	if last := recordCommit(w.commit.Load()); len(nodes) == 0 && (dead == a.Self() || last.slot() != dead.Slot()) {
		return true // the dead participant left nothing here: it had no wait, and no unfinished change
	}
	k, ok := bareCond(a, o)
	return ok && k.repairBare(dead, bareRepair{
		reap: func(x *recordedChange, b *wakes) {
			k.reap(x, b, func() []arenakernel.Offset { return nodes })
			k.serve(x, b, k.limit)
		},
		owes:       func(*recordedChange, *wakes) bool { return len(nodes) > 0 },
		makeRecord: k.slots.makeRecord,
	})
}

// wakeFirstOfCond is called when this process reaps a participant. If this process has no record, it cannot change the
// queue. Then wakeFirstOfCond wakes the first waiters, and a woken waiter takes the waits of the dead participant off
// the queue.
func wakeFirstOfCond(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	if k, ok := bareCond(a, o); ok {
		k.wakeBare()
	}
}

// completeCond completes the last change of the Cond, if the process that began it has not completed it.
func completeCond(a *arenakernel.Arena, o arenakernel.Object) bool {
	k, ok := bareCond(a, o)
	return ok && k.completeBare()
}

// reapIfDue reaps if a participant has died since the last reap.
func (k *condCore) reapIfDue(x *recordedChange, b *wakes) {
	if k.reapDue() {
		k.reap(x, b, k.nodesOfAllDead)
	}
}

// nodesOfAllDead returns the wait nodes of all participants that are marked dead.
func (k *condCore) nodesOfAllDead() []arenakernel.Offset {
	return k.a.NodesOfAllDead(k.object.Offset, 0)
}

// reap recovers what dead participants left in the Cond. First it takes their waits off the queue, so that nobody
// wakes these waits any more. Then it looks for waits of dead participants that were woken earlier; the function
// nodes returns the wait nodes to examine. It passes the Signals of these waits on in the order in which the
// Signals were given, because a later Signal may wake waits that an earlier Signal may not wake. If a peer has
// overwritten the links of some waits, reap still recovers the other waits. The caller holds k.private.
//
// reap makes the list of nodes after beginReap has stored the count of deaths. In the other order, a participant
// might die between the two steps. Its nodes would be missing in the list, and no later reap would look for them.
func (k *condCore) reap(x *recordedChange, b *wakes, nodes func() []arenakernel.Offset) {
	k.beginReap(x, b)
	// Another process may have committed a change that wakes a wait of a dead participant, and not have carried out the
	// change yet. begin carries it out.
	if k.begin(x, b) != nil {
		return
	}
	var all []condDebt
	for _, off := range nodes() {
		if n, err := k.a.NodeAt(off); err == nil && k.ofDead(n) {
			extra := valueIn(n.Extra()) &^ condSignal
			all = append(all, condDebt{wait{off, n}, condBound(extra, k.load().version())})
		}
	}
	slices.SortStableFunc(all, func(p, q condDebt) int { return cmp.Compare(p.bound, q.bound) })
	for _, d := range all {
		until := k.until()
		k.settle(x, b, d.wait, arenakernel.RecordedRemoved)
		if k.overtaken >= until { // the next reap settles the debts that are left, in the same order
			k.unreaped.Store(true)
			return
		}
	}
}

// condDebt is a wait node that owes a Signal: the wait was woken by a Signal that has to pass on to another wait.
// The field bound is the bound of that Signal; see condSignal.
type condDebt struct {
	wait
	bound uint64
}

// ofDead reports whether n is the node of a wait on this Cond whose owner is dead.
func (k *condCore) ofDead(n *arenakernel.Node) bool {
	return n.Object() == k.object.Offset && n.Stamp().Load()&arenakernel.RecordedStamp != 0 && k.absent(n.Owner())
}

func (k *condCore) ofDeadAt(off arenakernel.Offset) bool {
	n, err := k.a.NodeAt(off)
	return err == nil && k.ofDead(n)
}

// condDeathAge bounds how long periodic checks may miss a death that is marked in the slot of the participant, but is
// not in the arena's count of deaths yet.
const condDeathAge = 50 * time.Millisecond

// check is called ten times a second while a goroutine of this process waits. It completes the changes that a dead
// or a stopped process has left undone. It also stores the time in the first wait of the queue; see dateFirst.
//
// Suppose that waiters of a Broadcast were woken, but none of them has locked L since the last check. These waiters
// may be stopped, or another process may hold L for long. So check wakes all other waiters of the Broadcast.
func (k *condCore) check() {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	// The process that marked a participant dead may have been stopped before it counted the death, and
	// the processes that watch a participant may be stopped.
	nodes := k.a.NodesOfAllDead(k.object.Offset, condDeathAge)
	if k.reapDue() || slices.ContainsFunc(nodes, k.ofDeadAt) {
		k.reap(x, b, k.nodesOfAllDead)
	}
	k.serve(x, b, k.limit)
	flying := uint64(0)
	if first := valueIn(k.first); first != 0 && first != valueIn(k.boundary) {
		flying = k.words.flying.Load()
	}
	if k.before.Swap(flying) == flying && flying != 0 {
		k.serve(x, b, math.MaxUint32)
	}
	k.dateFirst()
}

// torn reports whether a peer has damaged the queue, so that a wait of this process may never end; see isTorn.
func (k *condCore) torn(s *park.WaitNode) bool {
	return k.isTorn(s, oneQueue, func(x *recordedChange, b *wakes) error { return k.serve(x, b, k.limit) })
}

func checkCond(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < condBytes(a) {
		return wrongKind("cond.check", o, condKind, condVersion)
	}
	_, err := buildCond(a, o, true)
	return err
}

func (k *condCore) state() (st CondState) {
	boundary := uint64(math.MaxUint64) // a Broadcast has covered all queued waits
	if v := valueIn(k.boundary); v != 0 {
		if n, err := k.a.NodeAt(arenakernel.Offset(v) * linkUnit); err == nil {
			boundary = n.Wanted().Load()
		}
	}
	k.a.EachNode(k.object.Offset, func(_ arenakernel.Offset, n *arenakernel.Node) {
		switch v := valueIn(n.Next()); {
		case v == arenakernel.RecordedOwes, queuedValue(v) && n.Wanted().Load() < boundary:
			st.Woken++
		case queuedValue(v):
			st.Waiting++
		}
	})
	return st
}
