//go:build linux

package cinterop

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// overwrite does what a faulty peer can do. It passes the state of the Future at off to f. It stores the first word
// that f returns as the new state, and the other words as the result. The remaining words of the result become 0.
func overwrite(t *testing.T, name string, off uint64, f func(state uint64) []uint64) {
	t.Helper()
	asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
		state := arena.At[atomic.Uint64](a, o.Body)
		words := f(state.Load())
		for i := range arenakernel.Offset(32) {
			v := uint64(0)
			if int(i)+1 < len(words) {
				v = words[i+1]
			}
			arena.At[atomic.Uint64](a, o.Body+128+8*i).Store(v)
		}
		state.Store(words[0])
	})
}

// A peer sets all words of a Future to 0 while a process waits. The wait does not take that for a result.
func TestFutureZeroedUnderWaiters(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, verb := range []string{"future.wait", "any.wait"} {
			t.Run(verb+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x, y := newAgent(t, lang, name, "waits"), newAgent(t, "go", name, "sets")
				off := x.do(t, "future.open", "f-f")
				y.do(t, "future.open", "f-f")
				y.do(t, "future.set", "f-f", 9)
				y.do(t, "future.reset", "f-f")
				of := map[string]string{"future.wait": "f-f", "any.wait": "f"}[verb]
				w := x.start(t, verb, of)
				eventually(t, "it sleeps", name, func() bool { return y.do(t, "waiters", "-", off) == 1 })
				overwrite(t, name, off, func(uint64) []uint64 { return []uint64{0} }) // the periodic check of the waiter finds the zeros
				w.fails(t, syscall.EPROTO)
			})
		}
	}
}

// The word of a Future says that its producer died, but the producer is alive. So the Future is corrupt: Reset fails,
// and does not wait for the death of the producer.
func TestFutureAbandonedByTheLiving(t *testing.T) {
	const over, abandoned, died, decided = 1, 1 << 33, 1 << 32, 1 << 33
	name := newArena(t)
	x, y := newAgent(t, "c", name, "resets"), newAgent(t, "go", name, "lives")
	off := x.do(t, "future.open", "f")
	y.do(t, "future.open", "f")
	y.do(t, "future.claim", "f")
	overwrite(t, name, off, func(state uint64) []uint64 {
		return []uint64{state | abandoned | over, decided | died | state>>35}
	})
	x.start(t, "future.reset", "f").fails(t, syscall.EPROTO)
	y.kill(t)
	eventually(t, "its death is known", name, func() bool { return x.start(t, "future.reset", "f").wait(t).err == 0 })
}
