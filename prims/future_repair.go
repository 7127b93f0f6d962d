package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: futureKind, Version: futureVersion, Repair: alone(repairFuture), Wake: wakeFuture, Check: checkFuture, Inspect: inspectFuture,
	})
}

// repairFuture ends the present round if its producer is dead, so that waits get ErrOwnerDead.
func repairFuture(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size < futureBytes {
		return
	}
	f := buildFuture(a, o, true)
	_, wake := f.end(func(n arenakernel.ParticipantID) bool {
		// A participant that leaves the arena calls repairFuture for itself. Its ID is still current then.
		return !a.Current(n) || n == dead && dead == a.Self()
	})
	if wake {
		f.wakeAll()
	}
}

// wakeFuture wakes the waiters that a dead process should have woken.
func wakeFuture(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if o.Size >= futureBytes {
		buildFuture(a, o, true).wakeDead(owed)
	}
}

func checkFuture(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < futureBytes {
		return wrongKind("future.check", o, futureKind, futureVersion)
	}
	f := buildFuture(a, o, true)
	if s, _, ok := f.read(); !ok {
		return &shmsync.Error{Op: "future.check", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("the result of round %d is not there", s.round())}
	}
	return nil
}
