package prims

import (
	"cmp"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: fairMutexKind, Version: fairMutexVersion, Repair: repairFairMutex, Complete: completeFairMutex, Wake: wakeFirstOfFairMutex,
		Check: checkFairMutex, Inspect: inspectFairMutex,
	})
}

// bareFairMutex makes the handle of a reaper or a tool. ok is false if the object is so damaged
// that no process can open it.
func bareFairMutex(a *arenakernel.Arena, o arenakernel.Object) (f *FairMutex, ok bool) {
	if o.Size < fairMutexBytes(a) {
		return nil, false
	}
	f, err := buildFairMutex(a, o, &FairMutexOptions{}, true)
	return f, err == nil
}

// repairFairMutex takes back the lock and removes the waits of the dead participant.
func repairFairMutex(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) bool {
	f, ok := bareFairMutex(a, o)
	return ok && f.repairBare(dead, bareRepair{
		reap: func(x *recordedChange, b *wakes) {
			f.reap(x, b)
			f.serve(x, b)
		},
		owes:       func(x *recordedChange, b *wakes) bool { return f.takeOpenBack() || f.unserved(x, b) },
		makeRecord: f.slots.makeRecord,
	})
}

// wakeFirstOfFairMutex runs in a reaper. If the reaper could not make a record, it wakes the owners of the first
// waits, and one of these owners reaps.
func wakeFirstOfFairMutex(a *arenakernel.Arena, o arenakernel.Object, _ arenakernel.Owed) {
	if f, ok := bareFairMutex(a, o); ok {
		f.wakeBare()
	}
}

// completeFairMutex completes the last change of the FairMutex, if the process that made the change has not
// completed it.
func completeFairMutex(a *arenakernel.Arena, o arenakernel.Object) bool {
	f, ok := bareFairMutex(a, o)
	return ok && f.completeBare()
}

// reap first takes the waits of dead participants off the queue. Then it takes the lock back from a dead holder, as
// the policy says. reap makes the change in x, and adds the wakes that the change requires to b. The caller holds
// f.private.
func (f *FairMutex) reap(x *recordedChange, b *wakes) error {
	err := f.beginReap(x, b) // after an error the queue is damaged, but takeBack needs only the other words
	return cmp.Or(err, f.takeBack(x, b))
}

// check is called ten times a second while a goroutine of this process waits. It completes the changes that a
// dead or a stopped process has left undone. It also stores the time in the first wait of the queue; see
// dateFirst.
func (f *FairMutex) check() {
	n := ownerState(fairWord(f.words.owner.Load())).holder()
	// The count of deaths is not enough: a process that has marked the holder dead may be stopped before it counts the
	// death.
	dead := n != 0 && f.a.Dead(n)
	b := takeWakes()
	defer f.wake(b)
	f.private.Lock()
	defer f.private.Unlock()
	x := &f.scratch
	if dead || f.reapDue() {
		f.reap(x, b)
	}
	f.serve(x, b)
	f.dateFirst()
}

// torn reports whether a peer has damaged the queue, so that a wait of this process may never end; see isTorn.
func (f *FairMutex) torn(s *park.WaitNode) bool { return f.isTorn(s, oneQueue, f.serve) }

func checkFairMutex(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < fairMutexBytes(a) {
		return wrongKind("fairmutex.check", o, fairMutexKind, fairMutexVersion)
	}
	f, err := buildFairMutex(a, o, &FairMutexOptions{}, true)
	if err != nil {
		return err
	}
	if w := ownerState(fairWord(f.words.owner.Load())); !w.valid() || f.words.policy&policyMask > 1 {
		return f.fail("fairmutex.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("owner word %v, policy %d", w, f.words.policy))
	}
	return nil
}
