//go:build linux

package peers

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// The subject floor uses the words with these indices. Each has a cache line of its own.
const (
	floorOwner = iota // 0: free; otherwise the process number of the owner, plus 1
	floorAlive        // robust word of the owner's thread
)

// floor shows the least time in which a Go process can learn of a death. The survivor waits with futex_waitv for
// two words. One is the word of the lock, and the other is on the robust list of the owner, so the kernel marks it
// when the owner dies. The survivor takes the lock as soon as the kernel wakes it.
type floor struct {
	owner, alive *atomic.Uint32
	id           uint32
	list         *shmsync.RobustList
}

func checkFloor() error {
	return errors.Join(shmsync.FeatureRobustList.Check(), shmsync.FeatureWaitV.Check())
}

func openFloor(w *bench.Worker, _ int) (any, error) {
	f := &floor{owner: w.Word(floorOwner), alive: w.Word(floorAlive), id: uint32(w.Proc) + 1}
	if w.Proc == 0 {
		return f, nil
	}
	list, err := shmsync.NewRobustList()
	if err != nil {
		return nil, err
	}
	list.Link(control.FutexWord(f.alive), 1)
	f.list = list
	return f, list.Register()
}

// Lock is called only by the process that will be killed. That process owns the lock as long as its thread lives.
func (f *floor) Lock() {
	f.alive.Store(uint32(unix.Gettid()) | shmsync.RobustWaiters)
	f.owner.Store(f.id)
}

// Inherit waits until the owner of the lock has died, and takes the lock.
func (f *floor) Inherit() (s bench.Succession, err error) {
	for {
		owner := f.owner.Load()
		alive := f.alive.Load()
		if owner == 0 || alive&shmsync.RobustOwnerDied != 0 {
			if f.owner.CompareAndSwap(owner, f.id) {
				return bench.Succession{Owned: shmsync.Monotonic()}, nil
			}
			continue
		}
		_, _, err := shmsync.WaitV([]shmsync.WaitVEntry{
			shmsync.NewWaitVEntry(control.FutexWord(f.owner), owner),
			shmsync.NewWaitVEntry(control.FutexWord(f.alive), alive),
		}, 0)
		if err != nil {
			return s, err
		}
	}
}

// Unlock releases the lock after Inherit.
func (f *floor) Unlock() {
	f.alive.Store(0)
	f.owner.Store(0)
}

// naiveMost limits the number of threads that naiveCrowd needs, because the Go runtime ends a program with too many
// threads.
const naiveMost = 5000

// naiveCrowd has goroutines that sleep in the kernel directly, so that each of them needs a thread of its own.
type naiveCrowd struct{ gate *atomic.Uint32 }

func openNaiveCrowd(w *bench.Worker, _ int) (any, error) { return naiveCrowd{w.Word(0)}, nil }

func (c naiveCrowd) Block(int) {
	for c.gate.Load() == 0 {
		shmsync.Wait(control.FutexWord(c.gate), 0, 0)
	}
}

func (c naiveCrowd) Release() {
	c.gate.Store(1)
	shmsync.Wake(control.FutexWord(c.gate), 1<<30)
}
