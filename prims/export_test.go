//go:build linux

package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
)

// What tests of package prims_test look at.

// Waiters is how many goroutines of this process sleep, or park, on m.
func (m *Mutex) Waiters() int { return m.queue.Waiting() }

// OwnerWord is the owner word as it is.
func (m *Mutex) OwnerWord() uint32 { return m.owner.Load() }

// HeldByUs reports whether the owner word says that this process holds m, or
// recovers it.
func (m *Mutex) HeldByUs() bool {
	o := ownerWord(m.owner.Load())
	return o.held() && o.name() == m.name
}

// Biased reports whether holds of this process are biased just now.
func (m *Mutex) Biased() bool { return atomic.LoadUint32(&m.self)&ownerBiased != 0 }

// Waiters is how many goroutines of this process sleep, or park, on f.
func (f *Futex) Waiters() int { return f.queue.Waiting() }

// Describe renders the words of an object of ours.
func Describe(a *arena.Arena, o arena.Object) string {
	switch o.Kind {
	case mutexKind:
		return describeMutex(a, o)
	case futexKind:
		return describeFutex(a, o)
	}
	return ""
}

// Object is the object under m.
func (m *Mutex) Object() arena.Object { return m.object }
