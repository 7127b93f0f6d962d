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

// The words that the floor uses. Each has a cache line of its own.
const (
	floorOwner = iota // 0: free; otherwise the process number of the owner, plus 1
	floorAlive        // robust word of the owner's thread
)

// floor shows the least time in which a Go process can learn of a death. The survivor waits with futex_waitv for the
// lock's word and for a robust word of the owner. It claims the lock immediately after the wake by the kernel.
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

// Lock is called only by the victim. The victim owns the lock as long as its thread lives.
func (f *floor) Lock() {
	f.alive.Store(uint32(unix.Gettid()) | shmsync.RobustWaiters)
	f.owner.Store(f.id)
}

// Inherit waits for the owner's death and takes the lock from it.
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

// naiveMost limits the number of threads of the naive crowd, because the runtime ends a program with too many
// threads.
const naiveMost = 5000

// naiveCrowd is a crowd of goroutines that sleep in the kernel directly, each on its own thread.
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
