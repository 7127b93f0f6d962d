package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("once.reap.left")

// reap takes the turn from a runner for which dead is true, once the runner is gone, and wakes the
// waiters. The next call runs its own function.
func (o *Once) reap(dead func(arenakernel.ParticipantID) bool) {
	for {
		// The loop ends: each failure is a change by another process, which took the turn or
		// announced itself.
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

// leave takes the turn from the runner of w, and wakes the waiters, unless the word has changed.
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
			// If this participant itself leaves (dead is its own ID), its ID still counts as
			// current.
			return !a.Current(n) || n == dead && dead == a.Self()
		})
	}
}

// wakeOnce makes a wake that a dead process did not make.
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
