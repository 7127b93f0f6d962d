package asm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shmsync/shmsync/internal/race"
	"github.com/stretchr/testify/require"
)

// variant is one implementation of the functions of the package: the one that this build exports, which depends
// on the build tags, or the portable twin.
type variant struct {
	name           string
	pause          func(uint32)
	loadFence      func()
	storeRelease32 func(*uint32, uint32)
}

var variants = []variant{
	{"exported", Pause, LoadFence, StoreRelease32},
	{"twin", pauseTwin, loadFenceTwin, storeRelease32Twin},
}

func forEachVariant(t *testing.T, f func(*testing.T, variant)) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { f(t, v) })
	}
}

// fastest calls f several times, and returns the shortest time that a call took.
func fastest(f func()) time.Duration {
	best := time.Duration(1<<63 - 1)
	for range 30 {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return best
}

// The compiler neither removes nor shortens the loop of Pause.
func TestPauseTakesTime(t *testing.T) {
	forEachVariant(t, func(t *testing.T, v variant) {
		v.pause(0) // returns, although the count is 0
		v.pause(1)
		short := fastest(func() { v.pause(1_000) })
		long := fastest(func() { v.pause(100_000) })
		require.Greater(t, long, 20*short, "100 times the hints")
		require.Greater(t, long, 10*time.Microsecond, "a tenth of a nanosecond a hint")
	})
}

func TestStoreRelease32(t *testing.T) {
	forEachVariant(t, func(t *testing.T, v variant) {
		const guard = 0xa5a5a5a5
		for _, value := range []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x01020304} {
			words := [3]uint32{guard, ^value, guard}
			v.storeRelease32(&words[1], value)
			require.Equal(t, [3]uint32{guard, value, guard}, words)
		}
	})
}

// The pointer argument of StoreRelease32 does not escape, so no call allocates.
func TestNoAllocation(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var w uint32
		StoreRelease32(&w, 1)
		Pause(1)
		LoadFence()
		CPU()
	}))
}

// A seqlock has a writer that uses StoreRelease32, and a reader that uses LoadFence. The reader never accepts a
// torn pair.
func TestSeqlock(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, which reports the data of every seqlock")
	}
	forEachVariant(t, func(t *testing.T, v variant) {
		var s struct {
			seq  uint32
			a, b uint64
			stop atomic.Bool
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := uint64(1); !s.stop.Load(); i++ {
				atomic.StoreUint32(&s.seq, atomic.LoadUint32(&s.seq)+1)
				s.a, s.b = i, ^i
				v.storeRelease32(&s.seq, s.seq+1)
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
		torn, whole := 0, 0
		for start := time.Now(); whole < 1000 || time.Since(start) < 100*time.Millisecond; {
			before := atomic.LoadUint32(&s.seq)
			a, b := s.a, s.b
			v.loadFence()
			if after := atomic.LoadUint32(&s.seq); before != after || before%2 != 0 {
				v.pause(10)
				continue
			}
			if whole++; a != ^b && a|b != 0 {
				torn++
			}
		}
		s.stop.Store(true)
		wg.Wait()
		require.Zero(t, torn, "of %d", whole)
	})
}

// This is message passing: a reader that sees the flag also sees the data.
func TestMessagePassing(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, which does not see StoreRelease32")
	}
	forEachVariant(t, func(t *testing.T, v variant) {
		const rounds = 20_000
		var (
			flag uint32
			data uint64
			ack  atomic.Uint32
			bad  int
		)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := uint32(1); i <= rounds; i++ {
				data = uint64(i) * 0x100000001
				v.storeRelease32(&flag, i)
				for spins := 0; ack.Load() != i; spins++ {
					waitBriefly(v, spins)
				}
			}
		})
		for i := uint32(1); i <= rounds; i++ {
			for spins := 0; atomic.LoadUint32(&flag) != i; spins++ {
				waitBriefly(v, spins)
			}
			if data != uint64(i)*0x100000001 {
				bad++
			}
			ack.Store(i)
		}
		wg.Wait()
		require.Zero(t, bad)
	})
}

func waitBriefly(v variant, spins int) {
	if spins < 20 {
		v.pause(10)
		return
	}
	runtime.Gosched()
}

func BenchmarkPause(b *testing.B) {
	for _, v := range variants {
		for _, n := range []uint32{1, 10, 100} {
			b.Run(fmt.Sprintf("impl=%s/n=%d", v.name, n), func(b *testing.B) {
				for b.Loop() {
					v.pause(n)
				}
			})
		}
	}
}

func BenchmarkLoadFence(b *testing.B) {
	b.Run("impl=exported", func(b *testing.B) {
		for b.Loop() {
			LoadFence()
		}
	})
	b.Run("impl=twin", func(b *testing.B) {
		for b.Loop() {
			loadFenceTwin()
		}
	})
}

func BenchmarkStoreRelease32(b *testing.B) {
	var w uint32
	b.Run("impl=exported", func(b *testing.B) {
		for b.Loop() {
			StoreRelease32(&w, 1)
		}
	})
	b.Run("impl=twin", func(b *testing.B) {
		for b.Loop() {
			storeRelease32Twin(&w, 1)
		}
	})
}

func BenchmarkCPU(b *testing.B) {
	for b.Loop() {
		CPU()
	}
}

// TestGoroutine checks that a goroutine keeps its number, and that goroutines that live at the same time have different
// numbers. A goroutine keeps its number after its stack has moved, and after it has run on another thread.
func TestGoroutine(t *testing.T) {
	require.Zero(t, goroutineTwin())
	if Goroutine() == 0 {
		t.Skip("needs a build for amd64 or arm64 without the tag noasm")
	}
	const goroutines = 100
	var mu sync.Mutex
	seen := map[uintptr]bool{}
	var wg, all sync.WaitGroup
	all.Add(goroutines)
	for range goroutines {
		wg.Go(func() {
			is := Goroutine()
			mu.Lock()
			seen[is] = true
			mu.Unlock()
			all.Done()
			all.Wait() // all of them live here
			for range 10 {
				runtime.Gosched()
				if is%2 != 0 || deep(100) != is || Goroutine() != is {
					t.Error("the number of a goroutine has changed, or is odd")
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, goroutines)
}

// deep calls Goroutine with n more frames on the stack, so that the runtime moves the stack.
//
//go:noinline
func deep(n int) uintptr {
	var frame [64]uintptr
	if n == 0 {
		return Goroutine()
	}
	frame[n%64] = deep(n - 1)
	return frame[n%64]
}

func BenchmarkGoroutine(b *testing.B) {
	for b.Loop() {
		Goroutine()
	}
}
