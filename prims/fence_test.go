//go:build linux

package prims_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestCallThatChangesNothing checks a Set that changes nothing, because the Event is still set by an earlier Set. A
// TryWait in another goroutine then takes the token. After that it must see what the goroutine of the second Set wrote
// before this Set. The same holds for the other pairs of calls below. Without a fence this test fails within a few
// hundred rounds.
func TestCallThatChangesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector: the test has a data race, which a fence orders")
	}
	auto, manual := newEvent(t, &prims.EventOptions{Mode: prims.EventAutoReset}), newEvent(t, nil)
	w, err := prims.OpenSignalWaker(newArena(t, nil), "", &prims.SignalWakerOptions{Signals: 1})
	require.NoError(t, err)
	producer, executor := w.Gate(0), w.Gate(0)
	for name, x := range map[string]struct {
		call    func()
		answers func() bool
		owed    func() bool // reports whether the effect of the last call is still there
	}{
		"auto-reset Event": {auto.Set, auto.TryWait, auto.IsSet},
		"Event":            {manual.Set, manual.Reset, manual.IsSet},
		"Gate": {func() { producer.Schedule() }, func() bool {
			if !executor.Begin() {
				return false
			}
			executor.Finish()
			return true
		}, func() bool { return producer.State().Scheduled }},
	} {
		t.Run(name, func(t *testing.T) {
			var data, seen struct {
				value uint32
				_     [124]byte
			}
			var begin, end atomic.Uint32
			rounds := uint32(200_000)
			if testing.Short() {
				rounds /= 10
			}
			go func() {
				for n := uint32(1); n <= rounds; n++ {
					for begin.Load() != n {
						runtime.Gosched()
					}
					if x.answers() {
						seen.value = data.value
					}
					end.Store(n)
				}
			}()
			for n := uint32(1); n <= rounds; n++ {
				x.call()
				begin.Store(n)
				for range n % 64 {
					_ = end.Load()
				}
				data.value = n
				x.call()
				for end.Load() != n {
					runtime.Gosched()
				}
				require.True(t, seen.value == n || x.owed(), "round %d", n)
			}
		})
	}
}
