//go:build crashpoint && linux

package arenakernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// prepare makes the object that "everything" uses, and a poller node that waits on it.
	agentOrders["prepare"] = func(s *agent, o order, a *answer) error {
		obj, _, err := s.arena.OpenObject(spec("there"))
		if err != nil {
			return err
		}
		node, err := s.arena.PollerNode(obj, s.arena.u64(obj.Body), anyNode)
		if err != nil {
			return err
		}
		s.arena.SetWaiting(node)
		return nil
	}
	agentOrders["everything"] = func(s *agent, o order, a *answer) error { return everything(s.arena) }
	agentOrders["delete"] = func(s *agent, o order, a *answer) error { return s.arena.Delete(o.Text) }
	// "locked" waits until it gets a lock. The N of its answer is the time when it got the lock.
	agentOrders["locked"] = func(s *agent, o order, a *answer) error {
		l, err := openTestLock(s.arena, o.Text)
		if err != nil {
			return err
		}
		pollUntil(l.tryLock)
		a.N = shmsync.Monotonic()
		l.owner.Store(0)
		return nil
	}
}

// The function everything reaches all crash points that a healthy participant can reach while it is
// in the arena.
func everything(a *Arena) error {
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	for _, size := range []uint64{100, 20000, 4 * chunkSize} {
		off, err := a.Alloc(size, 0)
		try(err)
		if err == nil {
			a.Free(off)
		}
	}
	a.sweep(1, roomOfAll)
	there, _, err := a.OpenObject(spec("there"))
	try(err)
	head := a.u64(there.Body)
	a.ReadyOne(head, 0)
	for range 2 {
		node, err := a.PollerNode(there, head, anyNode)
		try(err)
		a.ReleasePollerNode(node)
	}
	a.CloseObject(there)

	own, _, err := a.OpenObject(spec("own"))
	try(err)
	_, err = a.PollerNode(own, a.u64(own.Body), anyNode)
	try(err)
	_, err = a.SlotRecord(own, 128)
	try(err)
	a.CloseObject(own)
	try(a.Delete("own"))
	stopDeleting(a, "doomed")
	doomed, _, err := a.OpenObject(spec("doomed"))
	try(err)
	a.CloseObject(doomed)
	try(a.Delete("doomed"))
	nameless, _, err := a.OpenObject(spec(""))
	try(err)
	a.CloseObject(nameless)
	try(a.DeleteObject(nameless))

	contested := spec("contested")
	contested.Init = func([]byte) { // another participant is faster
		_, _, err := a.OpenObject(spec("contested"))
		try(err)
	}
	_, _, err = a.OpenObject(contested)
	try(err)

	node, err := a.ClaimNode()
	try(err)
	try(a.freeNode(node))
	waits, _, err := a.OpenObject(spec("waits"))
	try(err)
	left, err := a.ClaimNode() // a node that its owner has discarded
	try(err)
	a.node(left).SetObject(waits.Offset)
	a.node(left).enqueue()
	a.node(left).swapState(NodeIdle, NodeLeft)
	a.CloseObject(waits)
	try(a.Delete("waits"))
	reaped, err := a.ClaimNode()
	try(err)
	a.reapNode(reaped, a.node(reaped), a.self, nil)
	return errors.Join(errs...)
}

// goOn is the time limit for survivors to make progress in these tests.
func goOn() time.Duration { return proctest.Scale(proctest.DefaultTimeout) }

// TestDeathAtEveryPoint kills a process at every crash point. Participants that joined before and
// participants that join later must make progress.
func TestDeathAtEveryPoint(t *testing.T) {
	for _, point := range crashpoint.All() {
		if point == "shm.create.before_unlink" {
			// A creator reaches this point only where renameat2 is missing, and the kernels that run these tests have it.
			// TestCreatorDies of package shm reaches the point without renameat2.
			continue
		}
		t.Run(point, func(t *testing.T) {
			// A subtest for shm.sweep does not run in parallel: a creator in another subtest would
			// also remove the file that this subtest has left.
			if !strings.HasPrefix(point, "shm.sweep.") {
				t.Parallel()
			}
			switch {
			case strings.HasPrefix(point, "shm."):
				creatorDies(t, point)
			case strings.HasPrefix(point, "arena.enter."):
				joinerDies(t, point)
			case strings.HasPrefix(point, "arena.gate."), strings.HasPrefix(point, "arena.remove."):
				claimantDies(t, point)
			case strings.HasPrefix(point, "arena.upgrade."):
				upgraderDies(t, point, 1)
			case strings.HasPrefix(point, "arena.inherit."):
				successorsDie(t, point)
			case strings.HasPrefix(point, "arena.renew."):
				renewerDies(t, point)
			case strings.HasPrefix(point, "arena.close."):
				leaverDies(t, point)
			case strings.HasPrefix(point, "arena.reap."), strings.HasPrefix(point, "arena.finish."), strings.HasPrefix(point, "arena.act."),
				point == "arena.record.numbered":
				reaperDies(t, point)
			default:
				workerDies(t, point)
			}
		})
	}
}

// creatorDies kills a creator at the given crash point. Two processes then open the arena. At most
// one of them creates it, and both use the same arena.
func creatorDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	env := ""
	if strings.Contains(point, "temp_") || strings.Contains(point, "rename") || strings.HasPrefix(point, "shm.sweep.") {
		env = "otmpfile"
	}
	leftover := filepath.Join(shm.Dir, fmt.Sprintf(".%s.1.%016x.tmp~", ta.name, os.Getpid()))
	if strings.HasPrefix(point, "shm.sweep.") {
		require.NoError(t, os.WriteFile(leftover, nil, 0o600))
		defer os.Remove(leftover)
	}
	v := ta.start(t, proctest.Env("SHMSYNC_DISABLE="+env))
	v.must(t, order{Do: "arm", Text: point})
	v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	v.WaitSignal(t, unix.SIGKILL)

	one := ta.join(t, "one", proctest.Env("SHMSYNC_DISABLE=otmpfile"))
	two := ta.join(t, "two")
	two.must(t, order{Do: "use", Text: "x"})
	one.close(t)
	require.Equal(t, []string{"two"}, labels(two.alone(t, 1)))
	two.stats(t)
	entries, err := filepath.Glob(filepath.Join(shm.Dir, "."+ta.name+"*"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// joinerDies kills a joiner at the given crash point, before or just after it becomes a participant.
func joinerDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	s, v := ta.join(t, "survivor"), ta.join(t, "former")
	v.close(t)
	v.must(t, order{Do: "arm", Text: point})
	v.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	v.WaitSignal(t, unix.SIGKILL)
	begin := shmsync.Monotonic()
	s.must(t, order{Do: "use", Text: "x"})
	for i := range 3 {
		ta.join(t, fmt.Sprint("late ", i)).must(t, order{Do: "use", Text: fmt.Sprint("own ", i)})
	}
	s.alone(t, 4)
	requireWithin(t, 3*goOn(), begin, shmsync.Monotonic(), "four participants")
	for _, d := range s.deaths(t, 0) {
		require.NotEqual(t, "former", d.Label, "the dead joiner is taken for whoever had its slot before")
	}
	s.leftovers(t)
}

// TestFullArenaWaitsForADeadJoiner checks that a joiner that finds no free slot waits for the slot of a dead joiner.
// No process can see the death before the kernel frees the byte lock of the dead joiner.
func TestFullArenaWaitsForADeadJoiner(t *testing.T) {
	ta := newTestArena(t, 2)
	s, j, n := ta.join(t, "survivor"), ta.start(t), ta.start(t)
	j.must(t, order{Do: "arm to stop", Text: "arena.enter.joining"})
	j.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	j.AwaitStop(t)
	end := j.KeepFile(t, ta.path())
	j.Kill(t)
	n.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
	for range 20 { // n gets some time
		s.must(t, order{Do: "use", Text: "x"})
	}
	end()
	var a answer
	n.Recv(t, &a)
	require.Empty(t, a.Err)
	require.Equal(t, 2, a.Self.Slot())
	n.must(t, order{Do: "use", Text: "x"})
}

// renewerDies kills a joiner that renews slots, at the given crash point. In one of three rounds, it
// also stops another joiner that renews slots. The next joiner must make progress.
func renewerDies(t *testing.T, point string) {
	ta := newTestArena(t, 2)
	v := ta.join(t, "former")
	a := ta.peek(t)
	stopped := int64(0) // when the joiner stopped
	for lap := range 3 {
		one, two := a.mustWindow(t, 1), a.mustWindow(t, 2)
		v.must(t, order{Do: "use", Text: "x"})
		if lap%2 == 0 && !strings.HasPrefix(point, "arena.renew.step") {
			v.close(t)
			a.leaveAt(1, one.last())
		} else {
			v.Kill(t) // the joiner that takes the slot over gets the last generation of the window
			ta.awaitUnlocked(t, 1)
			a.u32(a.slot(1) + slotReclaimed).Store(one.last() - 2)
			a.u32(a.slot(1) + slotState).Store(uint32(makeSlotWord(phaseLive, one.last()-1)))
		}
		a.leaveAt(2, two.last())
		j := ta.start(t)
		j.must(t, order{Do: "arm", Text: point})
		j.die(order{Do: "open", Arena: ta.name})
		j.WaitSignal(t, unix.SIGKILL)
		ta.awaitUnlocked(t, 1)
		if lap == 1 {
			j = ta.start(t)
			j.must(t, order{Do: "arm to stop", Text: "arena.renew.searched"})
			a.leaveAt(1, a.mustWindow(t, 1).last())
			a.leaveAt(2, a.mustWindow(t, 2).last())
			j.Send(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
			j.AwaitStop(t)
			stopped = shmsync.Monotonic()
		}
		v = ta.join(t, fmt.Sprint("newcomer ", lap))
		w := ta.join(t, "beside it")
		for k, r := range []*remote{v, w} {
			require.True(t, a.mustWindow(t, k+1).has(r.self.Generation()), "%v in %v", r.self, a.mustWindow(t, k+1))
			require.Greater(t, a.mustWindow(t, k+1).number(), []window{one, two}[k].number())
		}
		w.must(t, order{Do: "use", Text: "y"})
		w.close(t)
		if lap == 1 { // the stopped joiner now takes a slot, long after its search for IDs
			is := []window{a.mustWindow(t, 1), a.mustWindow(t, 2)}
			// The joiner must search again, and must not renew slots by the result of the old search.
			pollUntil(func() bool { return shmsync.Monotonic() > stopped+2*takeTimeout })
			j.Cont(t)
			var got answer
			j.Recv(t, &got)
			require.Empty(t, got.Err)
			require.Equal(t, is, []window{a.mustWindow(t, 1), a.mustWindow(t, 2)})
			j.close(t)
		}
		v.alone(t, 1)
		v.stats(t)
	}
}

// TestLastOfAWindowDiesAsItStepsBack: a joiner takes over the only slot of an arena, with the last generation of its
// window. The joiner cleans up, and dies before it has freed the slot; see stepBack. The next joiner records the death,
// and joins.
func TestLastOfAWindowDiesAsItStepsBack(t *testing.T) {
	ta := newTestArena(t, 1)
	v := ta.join(t, "former")
	a := ta.peek(t)
	for range 2 {
		v.must(t, order{Do: "use", Text: "x"})
		v.Kill(t)
		was := a.mustWindow(t, 1)
		ta.dieAsItStepsBack(t, a)
		v = ta.join(t, "newcomer")
		require.Equal(t, was.number()+1, a.mustWindow(t, 1).number())
		require.True(t, a.hasDeathRecord(makeParticipantID(1, was.last())))
		v.alone(t, 1)
		v.stats(t)
	}
}

// dieAsItStepsBack makes a joiner take the last generation of slot 1, whose participant is dead, and kills the joiner
// before it frees the slot.
func (ta *testArena) dieAsItStepsBack(t *testing.T, a *Arena, o ...proctest.Option) {
	ta.awaitUnlocked(t, 1)
	last := a.mustWindow(t, 1).last()
	a.u32(a.slot(1) + slotReclaimed).Store(last - 2)
	a.u32(a.slot(1) + slotState).Store(uint32(makeSlotWord(phaseLive, last-1) | heldByte))
	j := ta.start(t, o...)
	j.must(t, order{Do: "arm", Text: "arena.renew.stepping_back"})
	j.die(order{Do: "open", Arena: ta.name})
	j.WaitSignal(t, unix.SIGKILL)
	ta.awaitUnlocked(t, 1)
	require.True(t, a.slotState(1).is(phaseJoining, last))
}

// TestJoinerThatDiedAsItSteppedBackIsReaped: a joiner without a byte lock dies in stepBack, before it has freed its
// slot. A further joiner that has no slot yet does not free that slot, because a reaper may free it at the same time. A
// participant in another slot reaps the dead joiner.
func TestJoinerThatDiedAsItSteppedBackIsReaped(t *testing.T) {
	ta := newTestArena(t, 2)
	v := ta.join(t, "former")
	a := ta.peek(t)
	v.Kill(t)
	last := a.mustWindow(t, 1).last()
	second := a.u32(a.slot(2) + slotState)
	second.Store(uint32(makeSlotWord(phaseFree, last))) // used up, so that the next joiner takes slot 1
	ta.dieAsItStepsBack(t, a, without("ofd"))
	second.Store(0)
	j, open := ta.start(t), order{Do: "open", Arena: ta.name}
	j.must(t, order{Do: "arm to stop", Text: "arena.enter.joining"})
	j.Send(open)
	j.AwaitStop(t)
	require.Equal(t, phaseJoining, a.slotState(2).phase())
	require.NotEmpty(t, ta.start(t).try(t, open).Err, "no slot is free")
	require.True(t, a.slotState(1).is(phaseJoining, last))
	j.Cont(t)
	var got answer
	j.Recv(t, &got)
	require.Empty(t, got.Err)
	pollFor(t, a, func() bool { return a.slotState(1).is(phaseFree, last) })
	require.True(t, a.hasDeathRecord(makeParticipantID(1, last)))
}

// TestActLastsForAWindow: a member is stopped or killed while it takes something from a dead
// participant. Meanwhile the slot of the dead participant goes through a whole window of
// generations. If the member had not published the dead participant's ID yet, another participant
// gets that ID, and must lose nothing when the member continues. If the member had published the
// ID, no participant gets it.
func TestActLastsForAWindow(t *testing.T) {
	for _, c := range []struct {
		point     string
		pass      int
		published bool
	}{
		{"arena.reap.seen", 1, false}, {"arena.act.begun", 1, false}, {"arena.act.published", 1, true},
		{"arena.reap.fenced", 1, true}, {"arena.act.begun", 2, false}, {"arena.act.published", 2, true},
		{"arena.act.verified", 1, true}, {"arena.reap.repaired", 1, false}, {"arena.reap.woken", 1, false},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %d, killed %v", c.point, c.pass, killed), func(t *testing.T) {
				t.Parallel()
				ta := newTestArena(t, 3)
				m, s, v := ta.join(t, "member"), ta.join(t, "survivor"), ta.join(t, "victim")
				v.must(t, order{Do: "fenced"})
				v.must(t, order{Do: "lock", Text: "held"})
				m.must(t, order{Do: "arm to stop", Text: c.point, N: c.pass})
				s.Stop(t)
				v.Signal(t, unix.SIGKILL)
				m.AwaitStop(t)
				s.Cont(t)
				a := ta.peek(t)
				pollFor(t, a, func() bool { return a.slotState(3).phase() == phaseFree })
				if killed {
					m.Kill(t)
					s.alone(t, 1)
				}
				// Clear the death records, because a record would keep the ID out of the new
				// window.
				for k := range uint64(deathRecordCount) {
					a.u32(Offset(a.geo.deathRecordOff+k*deathRecordStride) + deathRecordID).Store(0)
				}
				a.useUp(3)
				a.u64(a.windowWord(3)).Store(uint64(makeWindow(2, maxGeneration, 1)))
				if killed { // use up the slot of the member, so that no joiner takes it and clears its act words
					a.useUp(1)
					a.u64(a.touchedWord(1, 0)).Store(1)
				}
				a.forgetTimes()
				j := ta.peek(t)
				// renewSlots does nothing while the survivor ends a wait of another participant, so retry.
				pollFor(t, a, func() bool { j.renewSlots(); return j.postponed == "" })
				first := v.self.Generation()
				if c.published {
					first++
				}
				a.requireWindow(t, 3, makeWindow(first, maxGeneration-1, 2))
				again := ta.join(t, "again")
				require.Equal(t, makeParticipantID(3, first), again.self)
				again.must(t, order{Do: "fenced"})
				again.must(t, order{Do: "lock", Text: "held"})
				if !killed {
					m.Cont(t)
					m.must(t, order{Do: "use", Text: "x"})
					m.alone(t, 3)
					m.Stop(t)
				}
				again.must(t, order{Do: "use", Text: "y"})
				require.NotEmpty(t, s.try(t, order{Do: "lock", Text: "held"}).Err)
				// The survivor has reaped an earlier participant with this ID, and must reap this
				// one, too.
				again.Signal(t, unix.SIGKILL)
				s.must(t, order{Do: "locked", Text: "held"})
				s.must(t, order{Do: "lock", Text: "held"})
				if !killed {
					m.Cont(t)
				}
				s.stats(t)
			})
		}
	}
}

func leaverDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	s, v := ta.join(t, "survivor"), ta.join(t, "leaver")
	v.must(t, order{Do: "lock", Text: "held"})
	v.must(t, order{Do: "arm", Text: point})
	v.die(order{Do: "close"})
	v.WaitSignal(t, unix.SIGKILL)
	begin := shmsync.Monotonic()
	at := s.must(t, order{Do: "locked", Text: "held"}).N
	requireWithin(t, goOn(), begin, at, "the leaver's lock")
	s.alone(t, 1)
	requireWithin(t, goOn(), begin, shmsync.Monotonic(), "alone")
	ta.awaitUnlocked(t, v.self.Slot())
	n := ta.join(t, "newcomer")
	require.Equal(t, v.self.Slot(), n.self.Slot())
	n.must(t, order{Do: "use", Text: "x"})
	n.close(t)
	s.leftovers(t)
}

func workerDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	s, v := ta.join(t, "survivor"), ta.join(t, "worker")
	s.must(t, order{Do: "prepare"})
	v.must(t, order{Do: "lock", Text: "held"})
	v.must(t, order{Do: "arm", Text: point})
	v.die(order{Do: "everything"})
	v.WaitSignal(t, unix.SIGKILL)
	s.thenGoesOn(t, ta, v)
}

// thenGoesOn checks that r, which joined before the death, and a new participant make progress, and
// that the dead processes leave nothing behind.
func (r *remote) thenGoesOn(t *testing.T, ta *testArena, dead ...*remote) {
	t.Helper()
	begin := shmsync.Monotonic()
	told := r.deaths(t, len(dead))
	requireWithin(t, goOn(), begin, shmsync.Monotonic(), "told")
	var names []ParticipantID
	for _, d := range told {
		names = append(names, d.Name())
	}
	for _, d := range dead {
		require.Contains(t, names, d.self)
	}
	requireWithin(t, goOn(), begin, r.must(t, order{Do: "locked", Text: "held"}).N, "the lock of the dead")
	r.alone(t, 1)
	requireWithin(t, goOn(), begin, shmsync.Monotonic(), "alone")
	r.stats(t)
	n := ta.join(t, "newcomer")
	n.must(t, order{Do: "use", Text: "x"})
	r.must(t, order{Do: "use", Text: "y"})
	// The new participant has taken the slot of a dead participant. The objects that the dead
	// participant had open must not count as open by the new participant.
	r.leftovers(t)
}

// reaperDies kills a reaper at the given crash point, in the middle of a reap. The survivor is
// stopped meanwhile.
func reaperDies(t *testing.T, point string) {
	ta := newTestArena(t, 4)
	s, r, v := ta.join(t, "survivor"), ta.join(t, "reaper"), ta.join(t, "victim")
	v.must(t, order{Do: "fenced"})
	v.must(t, order{Do: "lock", Text: "held"})
	r.must(t, order{Do: "arm", Text: point})
	s.Stop(t)
	v.Signal(t, unix.SIGKILL)
	r.WaitSignal(t, unix.SIGKILL)
	s.Cont(t)
	s.thenGoesOn(t, ta, v, r)
}

// TestReaperDiesOverHalfDoneWork: a process dies in the middle of an operation, and its reaper dies
// while it completes that operation.
func TestReaperDiesOverHalfDoneWork(t *testing.T) {
	for _, c := range []struct{ victim, reaper string }{
		{"arena.delete.decided", "arena.delete.freeing"},
		{"arena.delete.decided", "arena.delete.unlisted"},
		{"arena.delete.decided", "arena.delete.nodes_freed"},
		{"arena.delete.freeing", "arena.node.freeing"},
		{"arena.delete.unlisted", "arena.node.reset"},
		{"arena.free.before_clear", "arena.finish.reclaimed"},
		{"arena.span.headed", "arena.span.dismantling"},
		{"arena.span.dismantling", "arena.span.dismantling"},
		{"arena.poller.before_push", "arena.node.freeing"},
		{"arena.object.placed", "arena.finish.taken"},
	} {
		t.Run(c.victim+"/"+c.reaper, func(t *testing.T) {
			t.Parallel()
			ta := newTestArena(t, 4)
			s, r, v := ta.join(t, "survivor"), ta.join(t, "reaper"), ta.join(t, "victim")
			s.must(t, order{Do: "prepare"})
			v.must(t, order{Do: "lock", Text: "held"})
			r.must(t, order{Do: "arm", Text: c.reaper})
			v.must(t, order{Do: "arm", Text: c.victim})
			s.Stop(t)
			v.die(order{Do: "everything"})
			v.WaitSignal(t, unix.SIGKILL)
			r.WaitSignal(t, unix.SIGKILL)
			s.Cont(t)
			s.thenGoesOn(t, ta, v, r)
		})
	}
}

// TestReapersDieInARow: several reapers die one after the other. Each of them dies while it
// continues the work of the previous one.
func TestReapersDieInARow(t *testing.T) {
	points := []string{
		"arena.finish.recorded", "arena.finish.reclaimed", "arena.finish.taken",
		"arena.reap.repaired", "arena.reap.marked", "arena.reap.fenced",
	}
	ta := newTestArena(t, len(points)+2)
	s := ta.join(t, "survivor")
	var all []*remote
	for _, p := range points {
		r := ta.join(t, p)
		r.must(t, order{Do: "arm", Text: p})
		all = append(all, r)
	}
	v := ta.join(t, "victim")
	v.must(t, order{Do: "lock", Text: "held"})
	for _, r := range append([]*remote{s}, all...) {
		r.Stop(t)
	}
	// Each participant watches the participants that joined after it.
	v.Kill(t)
	for _, r := range slices.Backward(all) {
		r.Cont(t)
		r.WaitSignal(t, unix.SIGKILL)
	}
	s.Cont(t)
	s.thenGoesOn(t, ta, append(all, v)...)
}

// TestReaperIsStopped: a reaper that is stopped at any step delays no other process. The locks of
// the dead participant can be taken, and its ID is not current. Its slot becomes free soon after
// the reaper continues.
func TestReaperIsStopped(t *testing.T) {
	for _, point := range crashpoint.All() {
		if !strings.HasPrefix(point, "arena.reap.") && !strings.HasPrefix(point, "arena.finish.") && !strings.HasPrefix(point, "arena.act.") {
			continue
		}
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			inTime(t, func() time.Duration { return reaperIsStopped(t, point) })
		})
	}
}

// reaperIsStopped stops a reaper at the given crash point. It returns how long it takes until a
// survivor gets what the dead participant held.
func reaperIsStopped(t *testing.T, point string) (took time.Duration) {
	ta := newTestArena(t, 4)
	s, r, v := ta.join(t, "survivor"), ta.join(t, "reaper"), ta.join(t, "victim")
	v.must(t, order{Do: "fenced"}) // so that v is marked dead before it is gone
	v.must(t, order{Do: "lock", Text: "held"})
	r.must(t, order{Do: "arm to stop", Text: point})
	s.Stop(t)
	v.Signal(t, unix.SIGKILL)
	r.AwaitStop(t)
	begin := shmsync.Monotonic()
	s.Cont(t)
	requireWithin(t, bound(), begin, s.must(t, order{Do: "gone", Name: v.self}).N, "not current")
	took = requireWithin(t, bound(), begin, s.must(t, order{Do: "locked", Text: "held"}).N, "the lock of the dead")
	t.Logf("went on after %v", took)
	s.must(t, order{Do: "use", Text: "x"})
	late := ta.join(t, "late")
	late.must(t, order{Do: "use", Text: "y"})
	// While the reaper is stopped, another death is handled.
	late.must(t, order{Do: "lock", Text: "held too"})
	late.Signal(t, unix.SIGKILL)
	s.must(t, order{Do: "locked", Text: "held too"})
	r.Cont(t)
	require.Equal(t, []string{"late", "victim"}, labelsOfDead(s.deaths(t, 2)))
	s.alone(t, 2)
	r.must(t, order{Do: "use", Text: "z"})
	r.close(t)
	s.leftovers(t)
	return took
}

// TestFirstWatcherIsStopped: the watcher that the kernel wakes first is stopped before it does
// anything. The other watchers must still be woken, whatever their distances in the ring of slots.
func TestFirstWatcherIsStopped(t *testing.T) {
	for place := range 3 {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			inTime(t, func() time.Duration { return firstWatcherIsStopped(t, place) })
		})
	}
}

// firstWatcherIsStopped kills a participant that has three watchers, and stops one of them when it
// finds the death. The parameter named place is the index of this watcher. firstWatcherIsStopped
// returns how long it takes until the other two watchers have learned of the death.
func firstWatcherIsStopped(t *testing.T, place int) (took time.Duration) {
	ta := newTestArena(t, 4)
	var watchers []*remote
	for i := range 3 {
		watchers = append(watchers, ta.join(t, fmt.Sprint("w", i)))
	}
	v := ta.join(t, "victim")
	v.must(t, order{Do: "lock", Text: "held"})
	v.must(t, order{Do: "fenced"})
	r := watchers[place]
	r.must(t, order{Do: "arm to stop", Text: "arena.reap.seen"})
	begin := shmsync.Monotonic()
	v.Signal(t, unix.SIGKILL)
	for i, w := range watchers {
		if i != place {
			d := w.deaths(t, 1)[0]
			took = max(took, requireWithin(t, bound(), begin, d.At, "told"))
			w.must(t, order{Do: "locked", Text: "held"})
		}
	}
	t.Logf("told after %v", took)
	// The watcher r was stopped at the crash point, or found the death already handled. Kill it in
	// both cases.
	r.Kill(t)
	for i, w := range watchers {
		if i != place {
			require.Len(t, w.deaths(t, 2), 2)
			w.alone(t, 2)
		}
	}
	return took
}

// TestJoinerWaitsForASlot: a process that joins a full arena waits for a short time while a slot is
// being freed.
func TestJoinerWaitsForASlot(t *testing.T) {
	// The reaper continues after the joiner has begun. On a busy machine, the reaper may need
	// longer than a joiner waits, so the test tries again.
	for begun := time.Now(); !joinerWaits(t); {
		require.Less(t, time.Since(begun), bound(), "no joiner gets the slot")
	}
}

// joinerWaits reports whether a joiner got a slot that a reaper freed while the joiner waited.
func joinerWaits(t *testing.T) bool {
	ta := newTestArena(t, 2)
	r, v := ta.join(t, "reaper"), ta.join(t, "victim")
	r.must(t, order{Do: "arm to stop", Text: "arena.finish.taken"})
	v.Kill(t)
	r.AwaitStop(t)
	n := ta.start(t)
	begin := time.Now()
	a := n.try(t, order{Do: "open", Arena: ta.name})
	require.Equal(t, []string{"no space"}, a.Is, a.Err)
	require.Greater(t, time.Since(begin), takeTimeout*time.Nanosecond/2)
	n.Send(order{Do: "open", Arena: ta.name})
	r.Cont(t)
	n.Recv(t, &a)
	if slices.Contains(a.Is, "no space") {
		return false
	}
	require.Empty(t, a.Err)
	require.Equal(t, makeParticipantID(2, 2), a.Self)
	return true
}

// TestLeaverWithAGuardedBlock: a participant deletes an object and leaves, while a stopped process
// guards the block of the object. The participant cannot free the block, so another participant
// must free it later.
func TestLeaverWithAGuardedBlock(t *testing.T) {
	ta := newTestArena(t, 4)
	s, g, v := ta.join(t, "survivor"), ta.join(t, "periodic checker"), ta.join(t, "leaver")
	s.must(t, order{Do: "prepare"})
	s.close(t)
	s.open(t, ta, "survivor")
	g.must(t, order{Do: "arm to stop", Text: "arena.object.entered"})
	g.Send(order{Do: "everything"})
	g.AwaitStop(t)
	v.must(t, order{Do: "delete", Text: "there"})
	require.EqualValues(t, 1, s.stats(t).Claimed)
	v.close(t)
	g.Cont(t)
	var a answer
	g.Recv(t, &a)
	g.Kill(t)
	s.alone(t, 1)
	// The next participant in the same slot frees the block.
	others := []*remote{ta.join(t, "one"), ta.join(t, "two"), ta.join(t, "three")}
	for _, n := range others {
		n.close(t)
	}
	s.leftovers(t)
}

// TestSuccessorDies: all participants are dead and no slot is free. A new participant dies while it
// takes over a slot, and so does the next one.
func TestSuccessorDies(t *testing.T) {
	for _, point := range crashpoint.All() {
		if !strings.HasPrefix(point, "arena.enter.") && !strings.HasPrefix(point, "arena.reap.") {
			continue
		}
		t.Run(point, func(t *testing.T) {
			if !shmsync.FeatureOFDLock.Have() {
				t.Skip("needs byte locks")
			}
			successorsDie(t, point)
		})
		switch point {
		case "arena.enter.locked": // a joiner without a byte lock does not pass this point
		case "arena.enter.caps_checked": // the slot of a joiner without a byte lock that dies here stays taken: see note 18
		default:
			t.Run(point+"/without byte locks", func(t *testing.T) { successorsDie(t, point, without("ofd")) })
		}
	}
}

// successorsDie kills two joiners at the given crash point, each while it takes over the same slot. Between these two
// deaths, it kills a third joiner at another point of the takeover. Then a further joiner takes over the slot.
func successorsDie(t *testing.T, point string, opts ...proctest.Option) {
	ta := newTestArena(t, 2)
	dead := []*remote{ta.join(t, "stopped", opts...), ta.join(t, "worker", opts...)}
	for i, v := range dead {
		v.must(t, order{Do: "prepare"})
		v.must(t, order{Do: "lock", Text: fmt.Sprint("lock ", i)})
	}
	// One participant dies in the middle of an operation. The other participant is stopped, so that
	// it does not notice the death.
	dead[0].Stop(t)
	dead[1].must(t, order{Do: "arm", Text: "arena.delete.decided"})
	dead[1].die(order{Do: "everything"})
	dead[1].WaitSignal(t, unix.SIGKILL)
	dead[0].Kill(t)
	// A joiner without a byte lock counts as alive until joinTimeout has passed. age makes that
	// time seem over.
	age := func() {
		p := ta.peek(t)
		for i := 1; i <= 2; i++ {
			if p.slotState(i).phase() == phaseJoining {
				p.u64(p.slot(i) + slotJoined).Store(uint64(time.Now().Add(-joinTimeout - time.Second).UnixNano()))
			}
		}
	}
	for _, p := range []string{point, "arena.enter.joining", point} {
		age()
		successor := ta.start(t, opts...)
		successor.must(t, order{Do: "arm", Text: p})
		successor.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		successor.WaitSignal(t, unix.SIGKILL)
	}
	age()
	n := ta.join(t, "newcomer", opts...)
	require.Equal(t, []string{"newcomer"}, labels(n.alone(t, 1)))
	for i := range dead {
		n.must(t, order{Do: "lock", Text: fmt.Sprint("lock ", i)})
	}
	n.stats(t)
	n.must(t, order{Do: "use", Text: "x"})
	n.leftovers(t)
	ta.join(t, "another", opts...).must(t, order{Do: "use", Text: "x"})
}

// TestSuccessorOwesWhatTheDeadOwed: a joiner takes over the slot of a dead participant, and dies
// before it has sent the wakes that its predecessor may have failed to send. The reaper of the
// joiner has to examine all objects, not only those that the joiner has used.
func TestSuccessorOwesWhatTheDeadOwed(t *testing.T) {
	for _, point := range []string{"arena.inherit.taken", "arena.inherit.recorded", "arena.inherit.repaired"} {
		for owes, off := range map[string]Offset{"telling": slotTelling, "walking": slotWalking} {
			t.Run(point+"/"+owes, func(t *testing.T) {
				ta := newTestArena(t, 1)
				v := ta.join(t, "victim")
				v.Kill(t)
				f, err := os.OpenFile(ta.path(), os.O_RDWR, 0)
				require.NoError(t, err)
				defer f.Close()
				c := core{geo: plan(uint64(ta.opts.Size), 1)}
				slot := int64(c.slot(v.self.Slot()))
				_, err = f.WriteAt([]byte{64}, slot+int64(off)) // the byte that the kernel would set for a death at this moment
				require.NoError(t, err)
				successor := ta.start(t)
				successor.must(t, order{Do: "arm", Text: point})
				successor.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
				successor.WaitSignal(t, unix.SIGKILL)
				var words [2]byte
				for i, off := range []Offset{slotTelling, slotWalking} {
					_, err = f.ReadAt(words[i:i+1], slot+int64(off))
					require.NoError(t, err)
				}
				require.NotEqual(t, [2]byte{}, words, "slotTelling and slotWalking are both 0")
				n := ta.join(t, "newcomer")
				n.must(t, order{Do: "use", Text: "x"})
				n.leftovers(t)
			})
		}
	}
}

// awaitUnlocked waits until the byte lock of a slot is free. The kernel may keep the lock for a
// while after the process has ended, as it does with the memory of the process.
func (ta *testArena) awaitUnlocked(t testing.TB, slot int) {
	t.Helper()
	f, err := os.OpenFile(ta.path(), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	end := time.Now().Add(4 * bound())
	pollUntil(func() bool {
		locked, err := shmsync.ByteLocked(f, int64(headerSize+(slot-1)*slotStride))
		require.NoError(t, err)
		require.True(t, !locked || time.Now().Before(end), "not within %v\n%s", 4*bound(), dumpWords(ta.name))
		return !locked
	})
}
