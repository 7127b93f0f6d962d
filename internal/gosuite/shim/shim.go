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

// Arena is the arena of this process.
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

// lazy is an object that is opened on first use.
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

// Lock is sync.Mutex's.
func (m *Mutex) Lock() { m.mutex().Lock() }

// TryLock is sync.Mutex's.
func (m *Mutex) TryLock() bool { return m.mutex().TryLock() }

// Unlock is sync.Mutex's.
func (m *Mutex) Unlock() { m.mutex().Unlock() }

// RWMutex stands for sync.RWMutex.
type RWMutex struct{ l lazy[prims.RWMutex] }

func (m *RWMutex) mutex() *prims.RWMutex {
	return m.l.get(func() (*prims.RWMutex, error) { return prims.OpenRWMutex(Arena(), "", nil) })
}

// Lock is sync.RWMutex's.
func (m *RWMutex) Lock() { m.mutex().Lock() }

// TryLock is sync.RWMutex's.
func (m *RWMutex) TryLock() bool { return m.mutex().TryLock() }

// Unlock is sync.RWMutex's.
func (m *RWMutex) Unlock() { m.mutex().Unlock() }

// RLock is sync.RWMutex's.
func (m *RWMutex) RLock() { m.mutex().RLock() }

// TryRLock is sync.RWMutex's.
func (m *RWMutex) TryRLock() bool { return m.mutex().TryRLock() }

// RUnlock is sync.RWMutex's.
func (m *RWMutex) RUnlock() { m.mutex().RUnlock() }

// RLocker is sync.RWMutex's.
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

// Wait is sync.Cond's.
func (c *Cond) Wait() { c.cond().Wait() }

// Signal is sync.Cond's.
func (c *Cond) Signal() { c.cond().Signal() }

// Broadcast is sync.Cond's.
func (c *Cond) Broadcast() { c.cond().Broadcast() }

// WaitGroup stands for sync.WaitGroup.
type WaitGroup struct{ l lazy[prims.WaitGroup] }

func (g *WaitGroup) group() *prims.WaitGroup {
	return g.l.get(func() (*prims.WaitGroup, error) { return prims.OpenWaitGroup(Arena(), "", nil) })
}

// Add is sync.WaitGroup's.
func (g *WaitGroup) Add(delta int) { g.group().Add(delta) }

// Done is sync.WaitGroup's.
func (g *WaitGroup) Done() { g.group().Done() }

// Wait is sync.WaitGroup's.
func (g *WaitGroup) Wait() { g.group().Wait() }

// Go is sync.WaitGroup's.
func (g *WaitGroup) Go(f func()) { g.group().Go(f) }

// Once stands for sync.Once.
type Once struct{ l lazy[prims.Once] }

// Do is sync.Once's.
func (o *Once) Do(f func()) {
	o.l.get(func() (*prims.Once, error) { return prims.OpenOnce(Arena(), "", nil) }).Do(f)
}
