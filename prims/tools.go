package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// SetSpinOf does what the method SetSpin does, for an object of any kind: it bounds how long waiters of all
// processes spin for the object before they sleep. It is for tools. If the object has no such bound, the error Is
// ErrNotSupported.
func SetSpinOf(a *arena.Arena, o arena.Object, d time.Duration) error {
	k := (*arenakernel.Arena)(a)
	for _, off := range spinWordsOf(k, arenakernel.Object(o)) {
		w, err := arenakernel.TryAt[spinCell](k, o.Body+off)
		if err != nil {
			return err
		}
		w.field.Store(spinField(d))
	}
	if len(spinWordsOf(k, arenakernel.Object(o))) == 0 {
		return &shmsync.Error{Op: "prims.set_spin", Object: objectName(arenakernel.Object(o)), Err: shmsync.ErrNotSupported,
			Detail: fmt.Sprintf("%s has no spin budget", arenakernel.KindPhrase(o.Kind))}
	}
	return nil
}

// spinWordsOf returns the offsets of the words in which the object o stores how long waiters spin.
func spinWordsOf(a *arenakernel.Arena, o arenakernel.Object) []arenakernel.Offset {
	switch o.Kind {
	case mutexKind, rwmutexKind, synchronizedKind:
		return []arenakernel.Offset{mutexSpinOff}
	case cohortKind:
		var all []arenakernel.Offset
		cohortParts(a, o, func(localLock int, _ *mutexWords) {
			at := mutexSpinOff
			if localLock >= 0 {
				at += cohortLocalLockOff(localLock)
			}
			all = append(all, at)
		})
		return all
	case spinKindID, rwSpinKindID:
		return []arenakernel.Offset{spinSpinOff}
	case futexKind:
		return []arenakernel.Offset{futexSpinOff}
	case waitGroupKind, latchKind:
		return []arenakernel.Offset{counterSpinOff}
	case onceKind:
		return []arenakernel.Offset{onceSpinOff}
	case queueKind:
		return []arenakernel.Offset{queueSpinOff}
	case futureKind, eventKind:
		return []arenakernel.Offset{eventcountSpinOff}
	case barrierKind:
		return []arenakernel.Offset{barrierEventsOff + eventcountSpinOff}
	case signalKind:
		return []arenakernel.Offset{signalSpinOff}
	case semaphoreKind:
		return []arenakernel.Offset{semaphoreSpinOff}
	case multiLockKind:
		return []arenakernel.Offset{multiLockSpinOff}
	case sequencerKind:
		return []arenakernel.Offset{sequencerSpinOff}
	case fairMutexKind:
		return []arenakernel.Offset{fairMutexSpinOff}
	case condKind:
		return []arenakernel.Offset{condSpinOff}
	case waitableKind:
		return []arenakernel.Offset{waitableSpinOff}
	}
	return nil
}

// RecoverAt does what the method Recover does, for a lock of any type: it makes a lock whose holder died usable
// again. The lock is a Mutex, CohortMutex, RWMutex, FairMutex, SpinLock, RWSpinLock, or the lock for the parameter
// key in a MultiLock. A WaitGroup, Latch, Barrier or Future that a death has made unusable is reset after repair.
// RecoverAt is for tools. For an object of another kind the error Is ErrNotSupported.
func RecoverAt(a *arena.Arena, o arena.Object, key uint64, repair func() error) error {
	return RecoverAtContext(context.Background(), a, o, key, repair)
}

// RecoverAtContext does what RecoverAt does, but returns ctx.Err() when ctx ends while it waits. If it need not wait, it
// calls repair even though ctx has ended.
func RecoverAtContext(ctx context.Context, a *arena.Arena, o arena.Object, key uint64, repair func() error) error {
	var (
		x interface {
			RecoverContext(ctx context.Context, repair func() error) error
			Close() error
		}
		err error
	)
	switch o.Kind {
	case mutexKind:
		x, err = MutexAt(a, o.Offset)
	case rwmutexKind:
		x, err = RWMutexAt(a, o.Offset)
	case cohortKind:
		x, err = CohortMutexAt(a, o.Offset)
	case fairMutexKind:
		x, err = FairMutexAt(a, o.Offset)
	case spinKindID:
		x, err = SpinLockAt(a, o.Offset)
	case rwSpinKindID:
		x, err = rwSpinLockToRecover(a, o.Offset)
	case multiLockKind:
		m, err := MultiLockAt(a, o.Offset)
		if err != nil {
			return err
		}
		defer m.Close()
		return m.RecoverContext(ctx, key, repair)
	case waitGroupKind, latchKind, barrierKind, futureKind:
		lost, err := lostOf(a, o)
		if err == nil && len(lost) > 0 {
			_, err = lost[0].recover(ctx, a, nil, func(Lost) error { return repair() })
		}
		return err
	default:
		return &shmsync.Error{Op: "prims.recover", Object: objectName(arenakernel.Object(o)), Err: shmsync.ErrNotSupported, Detail: fmt.Sprintf("only the program knows how to make %s usable", arenakernel.KindPhrase(o.Kind))}
	}
	if err != nil {
		return err
	}
	defer x.Close()
	return x.RecoverContext(ctx, repair)
}
