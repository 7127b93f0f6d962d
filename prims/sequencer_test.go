//go:build linux

package prims_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func newSequencer(t testing.TB, opts *prims.SequencerOptions) *prims.Sequencer {
	t.Helper()
	s, err := prims.OpenSequencer(newArena(t, &arena.Options{Size: 64 << 20}), "", opts)
	require.NoError(t, err)
	return s
}

// registerSequencer begins n pending waits, in random order, for n consecutive tokens. The parameter first is the
// lowest token.
func registerSequencer(t testing.TB, s *prims.Sequencer, n int, first uint64) []*prims.Pending {
	waits := make([]*prims.Pending, n)
	for _, i := range rand.Perm(n) {
		waits[i] = s.WaitAsync(first + uint64(i))
	}
	return waits
}

func BenchmarkSequencerIncrement(b *testing.B) {
	for _, n := range []int{0, 100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			s := newSequencer(b, nil)
			waits := registerSequencer(b, s, n, 1<<62)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s.Increment()
			}
			b.StopTimer()
			s.Stop()
			for _, w := range waits {
				<-w.Done()
			}
		})
	}
}

// TestSequencerIncrementCost: the cost of an increment does not depend on the number of waits for later tokens.
// The test compares the fastest of many runs: with 10,000 waits an increment takes as long as without waits. If
// an increment examined each wait, it would take 1,000 times as long.
func TestSequencerIncrementCost(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, whose cost hides that of the calls")
	}
	best := func(waiters int) time.Duration {
		s := newSequencer(t, nil)
		registerSequencer(t, s, waiters, 1<<62)
		least := time.Duration(math.MaxInt64)
		for range 200 {
			start := time.Now()
			for range 2000 {
				s.Increment()
			}
			least = min(least, time.Since(start))
		}
		s.Stop()
		return least
	}
	none, many := best(0), best(10_000)
	t.Logf("2000 counts: %v with nobody, %v with 10000 waits", none, many)
	require.LessOrEqual(t, many, 20*none)
}

func BenchmarkSequencerReached(b *testing.B) {
	s := newSequencer(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		s.Wait(0)
	}
}

func BenchmarkSequencerRegister(b *testing.B) {
	for _, n := range []int{0, 100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			s := newSequencer(b, nil)
			registerSequencer(b, s, n, 1<<62)
			r := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s.WaitAsync(1<<62 + r.Uint64N(uint64(n)+1)).Cancel()
			}
			b.StopTimer()
			s.Stop()
		})
	}
}

// BenchmarkSequencerWake measures the cost of ending the first k of n waits.
func BenchmarkSequencerWake(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		for _, k := range []int{1, 10, 100, 1000} {
			if k > n {
				continue
			}
			b.Run(fmt.Sprintf("waiters=%d/wake=%d", n, k), func(b *testing.B) {
				s := newSequencer(b, nil)
				waits := registerSequencer(b, s, n, 1)
				b.ResetTimer()
				for range b.N {
					v := s.Value()
					s.Advance(v + uint64(k))
					b.StopTimer()
					for i := range k {
						at := (v + uint64(i)) % uint64(n)
						if err := waits[at].Wait(); err != nil {
							b.Fatal(err)
						}
						waits[at] = s.WaitAsync(v + uint64(n) + uint64(i) + 1)
					}
					b.StartTimer()
				}
				b.StopTimer()
				s.Stop()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(k), "ns/wake")
			})
		}
	}
}
