package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: waitableKind, Version: waitableVersion, Repair: repairWaitable, Wake: wakeQueue, Check: checkWaitable, Inspect: inspectWaitable,
		UserData: hideWaitable,
	})
}

// repairWaitable undoes the claims of the participant named dead, if this process has opened the object and so has
// its rules. Otherwise a process that has the rules undoes the claims when its poller is notified of the death, or
// in its next call.
func repairWaitable(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if w, err := arenakernel.TryAt[waitableWords](a, o.Body); err == nil {
		repairMutexWords(a, o, &w.mon.queueLock, dead, true)
	}
	if m := openMonitor(a, o); m != nil && m.opening.stayIfOpen() {
		defer m.opening.leave()
		aside(func() {
			if m.tryEnter() {
				m.leaveAfter(m.sweep)
			}
		})
	}
}

// monitored is implemented by handles that contain a monitor, that is, a state with a lock and a queue of waits.
type monitored interface{ monitorOf() *monitor }

func (x *Waitable[S, E]) monitorOf() *monitor { return x.mon }

// openMonitor returns the monitor of this process's handle on o, or nil if there is no handle.
func openMonitor(a *arenakernel.Arena, o arenakernel.Object) *monitor {
	handles.Lock()
	defer handles.Unlock()
	if on := handles.of[a.Segment()][o.Offset]; on != nil {
		for _, h := range on.open {
			if h, ok := h.(monitored); ok {
				return h.monitorOf()
			}
		}
	}
	return nil
}

func checkWaitable(a *arenakernel.Arena, o arenakernel.Object) error {
	w, err := arenakernel.TryAt[waitableWords](a, o.Body)
	if err != nil {
		return err
	}
	if w.stopped.Load() > 1 {
		return &shmsync.Error{Op: "waitable.check", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: fmt.Sprintf("stopped is %d", w.stopped.Load())}
	}
	return checkMutexWords(o, &w.mon.queueLock)
}
