// Package shim has the names of package sync, implemented by the primitives of this library, so that the tests of
// the Go distribution run with these primitives. The first use of a zero value opens an anonymous object, in an
// arena that belongs to the process.
package shim

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// Arena returns the arena that all objects of this process share.
var Arena = sync.OnceValue(func() *arena.Arena {
	seg, err := shm.CreateMemfd("gosuite", 256<<20, func(s *shm.Segment) error { return arena.Format(s, nil) }, nil)
	if err != nil {
		panic(err)
	}
	a, err := arena.FromSegment(seg, nil)
	if err != nil {
		panic(err)
	}
	return a
})

// lazy is an object of this library that is opened on first use, so that the zero value of a type is usable.
type lazy[T any] struct {
	once sync.Once
	p    atomic.Pointer[T]
}

func (l *lazy[T]) get(open func() (*T, error)) *T {
	if p := l.p.Load(); p != nil {
		return p
	}
	l.once.Do(func() {
		p, err := open()
		if err != nil {
			panic(err)
		}
		l.p.Store(p)
	})
	return l.p.Load()
}

// Locker is sync.Locker.
type Locker = sync.Locker

// Mutex stands for sync.Mutex.
type Mutex struct{ l lazy[prims.Mutex] }

func (m *Mutex) mutex() *prims.Mutex {
	return m.l.get(func() (*prims.Mutex, error) { return prims.OpenMutex(Arena(), "", nil) })
}

// Lock does what sync.Mutex.Lock does.
func (m *Mutex) Lock() { m.mutex().Lock() }

// TryLock does what sync.Mutex.TryLock does.
func (m *Mutex) TryLock() bool { return m.mutex().TryLock() }

// Unlock does what sync.Mutex.Unlock does.
func (m *Mutex) Unlock() { m.mutex().Unlock() }

// RWMutex stands for sync.RWMutex.
type RWMutex struct{ l lazy[prims.RWMutex] }

func (m *RWMutex) mutex() *prims.RWMutex {
	return m.l.get(func() (*prims.RWMutex, error) { return prims.OpenRWMutex(Arena(), "", nil) })
}

// Lock does what sync.RWMutex.Lock does.
func (m *RWMutex) Lock() { m.mutex().Lock() }

// TryLock does what sync.RWMutex.TryLock does.
func (m *RWMutex) TryLock() bool { return m.mutex().TryLock() }

// Unlock does what sync.RWMutex.Unlock does.
func (m *RWMutex) Unlock() { m.mutex().Unlock() }

// RLock does what sync.RWMutex.RLock does.
func (m *RWMutex) RLock() { m.mutex().RLock() }

// TryRLock does what sync.RWMutex.TryRLock does.
func (m *RWMutex) TryRLock() bool { return m.mutex().TryRLock() }

// RUnlock does what sync.RWMutex.RUnlock does.
func (m *RWMutex) RUnlock() { m.mutex().RUnlock() }

// RLocker does what sync.RWMutex.RLocker does.
func (m *RWMutex) RLocker() Locker { return m.mutex().RLocker() }

// Cond stands for sync.Cond.
type Cond struct {
	L Locker
	l lazy[prims.Cond]
}

// NewCond is sync.NewCond.
func NewCond(l Locker) *Cond { return &Cond{L: l} }

func (c *Cond) cond() *prims.Cond {
	return c.l.get(func() (*prims.Cond, error) { return prims.OpenCond(Arena(), "", c.L, nil) })
}

// Wait does what sync.Cond.Wait does.
func (c *Cond) Wait() { c.cond().Wait() }

// Signal does what sync.Cond.Signal does.
func (c *Cond) Signal() { c.cond().Signal() }

// Broadcast does what sync.Cond.Broadcast does.
func (c *Cond) Broadcast() { c.cond().Broadcast() }

// WaitGroup stands for sync.WaitGroup.
type WaitGroup struct{ l lazy[prims.WaitGroup] }

func (g *WaitGroup) group() *prims.WaitGroup {
	return g.l.get(func() (*prims.WaitGroup, error) { return prims.OpenWaitGroup(Arena(), "", nil) })
}

// Add does what sync.WaitGroup.Add does.
func (g *WaitGroup) Add(delta int) { g.group().Add(delta) }

// Done does what sync.WaitGroup.Done does.
func (g *WaitGroup) Done() { g.group().Done() }

// Wait does what sync.WaitGroup.Wait does.
func (g *WaitGroup) Wait() { g.group().Wait() }

// Go does what sync.WaitGroup.Go does.
func (g *WaitGroup) Go(f func()) { g.group().Go(f) }

// Once stands for sync.Once.
type Once struct{ l lazy[prims.Once] }

// Do does what sync.Once.Do does.
func (o *Once) Do(f func()) {
	o.l.get(func() (*prims.Once, error) { return prims.OpenOnce(Arena(), "", nil) }).Do(f)
}
