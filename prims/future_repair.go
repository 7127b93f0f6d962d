package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: futureKind, Version: futureVersion, Repair: repairFuture, Wake: wakeQueue, Check: checkFuture, Inspect: inspectFuture,
	})
}

func repairFuture(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= uint64(futureBytes) {
		repairMonitor(buildFuture(a, o, true).mon, dead)
	}
}

func checkFuture(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < uint64(futureBytes) {
		return wrongKind("future.check", o, futureKind, futureVersion)
	}
	w := arenakernel.At[futureWords](a, o.Body)
	if s := futureState(w.state.Load()); s&futureSet != 0 && s&futureAbandoned != 0 {
		return &shmsync.Error{Op: "future.check", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("it is set and abandoned: %#x", uint64(s))}
	}
	return checkMutexWords(o, &w.mon.queueLock)
}
