package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("once.reap.left")

// reap makes the Once free again and wakes the waiters, if the participant that runs its function is dead and gone. The
// next call then runs its own function. The parameter is a function that reports whether a participant is dead. If a
// hostile peer changes the word all the time, reap gives up. A call that needs the turn then takes it itself.
func (o *Once) reap(dead func(arenakernel.ParticipantID) bool) {
	for range reapTries {
		w := o.load()
		n := w.runner()
		if w.done() || n == 0 || !dead(n) || !o.a.Gone(n) {
			return
		}
		if o.leave(w) {
			return
		}
	}
}

// leave ends the turn of the runner in the word w, and wakes the waiters. It returns false if the word is no longer
// w.
func (o *Once) leave(w onceWord) bool {
	if !o.swap(w, w.left()) {
		return false
	}
	crashpoint.Hit("once.reap.left")
	o.list.DeliverAll()
	return true
}

func repairOnce(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= onceBytes {
		buildOnce(a, o, true).reap(func(n arenakernel.ParticipantID) bool {
			// A participant that leaves the arena calls repairOnce with its own ID, for which Current still returns
			// true.
			return !a.Current(n) || n == dead && dead == a.Self()
		})
	}
}

// wakeOnce makes the wakes that a dead process did not make. The argument owed says which wakes may be missing.
func wakeOnce(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if o.Size < onceBytes {
		return
	}
	if x := buildOnce(a, o, true); owed != arenakernel.OwedAnnounced || x.load().announced() {
		x.list.DeliverAll()
	}
}

func checkOnce(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < onceBytes {
		return wrongKind("once.check", o, onceKind, onceVersion)
	}
	if w := buildOnce(a, o, true).load(); w.done() && w.runner() != 0 {
		return &shmsync.Error{
			Op: "once.check", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: fmt.Sprintf("it is done, and %v runs its function", w.runner()),
		}
	}
	return nil
}
