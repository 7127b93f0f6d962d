package prims

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
)

// Contention changes how waiters of one process compete for a [Mutex] or a
// [CohortMutex]. Each process chooses for itself, and any mixture is correct.
//
// Both fields are for hosts of several NUMA nodes. So far no measured host has gained from them. Measure before you
// set them, with `shmbench lock --prim 'shmsync:mutex*'`.
type Contention struct {
	// NearWakes makes an Unlock of this process first wake waiters that sleep on the NUMA node of the caller's CPU.
	// So the lock, and the data that it guards, stay on that NUMA node for a while. Every 64th wake goes to the first
	// waiter in the queue; without NearWakes, all wakes do. A waiter that has waited for a millisecond is handed the
	// lock, with or without NearWakes.
	//
	// NearWakes concerns only waiters without a context, in processes that opened the Mutex with NearWakes too. The
	// kernel does not wake such a waiter when the holder dies. The waiter learns of the death only when a process
	// recovers what the holder left. NearWakes has no effect where a program needs a system call to find out its NUMA
	// node, as on arm64.
	NearWakes bool
	// MaxSpinners is how many goroutines of this process may spin for the Mutex at a time;
	// other goroutines sleep at once. 0 means no limit. The more goroutines spin, the more often the
	// cache line of the lock moves between CPUs.
	MaxSpinners int
}

// mustBeValid panics if MaxSpinners is invalid. The parameter names the caller in the message.
func (c Contention) mustBeValid(what string) {
	if c.MaxSpinners < 0 || c.MaxSpinners > math.MaxInt32 {
		panic(fmt.Sprintf("shmsync: %s: MaxSpinners is %d, which is not within 0..2^31-1", what, c.MaxSpinners))
	}
}

// variant returns how a Mutex with these options differs from a plain Mutex, or nil if it does not differ.
// NearWakes makes no difference here, because it concerns only the wake word.
func (c Contention) variant() *mutexVariant {
	if c.MaxSpinners == 0 {
		return nil
	}
	return &mutexVariant{maxSpinners: int32(c.MaxSpinners)}
}

// mutexVariant is how a Mutex differs from a plain Mutex. Either the number of spinning waiters is limited, or the
// Mutex is the global lock of a CohortMutex. A plain Mutex has a nil mutexVariant, whose methods do nothing. See
// also waitVariant.
type mutexVariant struct {
	cohort      bool         // the Mutex is the global lock of a CohortMutex
	maxSpinners int32        // 0: no limit
	spinners    atomic.Int32 // goroutines of this process that spin; counted if there is a limit
}

// op returns the name that errors use for an operation of this Mutex.
func (v *mutexVariant) op(op string) string {
	if v != nil && v.cohort {
		return "cohort" + op
	}
	return op
}

// text adapts the text of a panic: for a CohortMutex it replaces "mutex" by "cohort mutex".
func (v *mutexVariant) text(text string) string {
	if v != nil && v.cohort {
		return strings.Replace(text, "mutex", "cohort mutex", 1)
	}
	return text
}

// beginSpin reports whether the caller may spin. If so, the caller calls endSpin afterwards.
func (v *mutexVariant) beginSpin() bool {
	if v == nil || v.maxSpinners == 0 {
		return true
	}
	for n := v.spinners.Load(); n < v.maxSpinners; n = v.spinners.Load() {
		// Each iteration means that another goroutine has begun or stopped spinning. A goroutine does so only a
		// bounded number of times in one wait, so the loop ends.
		if v.spinners.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// endSpin ends the spin that beginSpin allowed.
func (v *mutexVariant) endSpin() {
	if v != nil && v.maxSpinners > 0 {
		v.spinners.Add(-1)
	}
}
