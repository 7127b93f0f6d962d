package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: queueKind, Version: queueVersion, Repair: repairQueue, Wake: wakeQueue, Check: checkQueue, Inspect: inspectQueue,
		UserData: hideQueue,
	})
}

func repairQueue(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if x, err := buildQueue(a, o, true); err == nil {
		repairMonitor(x.mon, dead)
	}
}

// checkQueue reports states that a correct queue never has.
func checkQueue(a *arenakernel.Arena, o arenakernel.Object) error {
	x, err := buildQueue(a, o, true)
	if err != nil {
		return err
	}
	if err := checkMutexWords(o, &x.words.mon.queueLock); err != nil {
		return err
	}
	fail := func(what string) error {
		return &shmsync.Error{Op: "queue.check", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: what}
	}
	if v := x.words.stopped.Load(); v > 1 {
		return fail(fmt.Sprintf("stopped is %d", v))
	}
	for i := uint32(1); i <= x.capacity; i++ {
		if st := queueState(x.slot(i).state.Load()); !st.valid() {
			return fail(fmt.Sprintf("slot %d is %v", i, st))
		}
	}
	return nil
}
