package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: synchronizedKind, Version: synchronizedVersion, Repair: alone(repairMutex), Wake: wakeMutex, Check: checkSynchronized, Inspect: inspectSynchronized,
		UserData: hideSynchronized,
	})
}

// checkSynchronized returns an error for a state that a correct Synchronized never has.
func checkSynchronized(a *arenakernel.Arena, o arenakernel.Object) error {
	w, err := arenakernel.TryAt[synchronizedWords](a, o.Body)
	if err != nil {
		return err
	}
	if err := checkMutexWords(o, &w.lock); err != nil {
		return err
	}
	word := ownerWord(w.lock.owner.Load())
	if p := policyOf(w.lock.policy); p != PolicyRelease || word == ownerNotRecoverable {
		return &shmsync.Error{Op: "synchronized.check", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("owner word %v, policy %v", word, p)}
	}
	return nil
}

func inspectSynchronized(a *arenakernel.Arena, o arenakernel.Object) arenakernel.Inspection {
	w, err := arenakernel.TryAt[synchronizedWords](a, o.Body)
	if err != nil {
		return unreadable(a, o, err)
	}
	i := inspect(a, o)
	i.Spin = spinText(w.lock.spin.Load())
	word, commits := ownerWord(w.lock.owner.Load()), w.current.Load()
	i.State = fmt.Sprintf("%d commits, %v", commits, word)
	i.Counts = countsOf(a, &w.lock.counts).tell()
	on := i.owner(word, 0)
	i.dateMutex(on, a, &w.lock)
	i.word("current", commits, "%d commits, copy %d is valid", commits, commits&1)
	i.mutexRest(&w.lock)
	i.waits(waitsOn(mutexWakeOff, mutexPollerOff), "lock", on)
	return i.Inspection
}

// hideSynchronized hides both copies of the value from the output of tools.
func hideSynchronized(_ *arenakernel.Arena, o arenakernel.Object, hide func(from arenakernel.Offset, n uint64)) {
	copies, size := synchronizedShape(0)
	hide(copies[0], max(o.Size, size)-size)
}
