//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFutexStateTable tests every state of the two bits, with counters at the limits, and every
// transition.
func TestFutexStateTable(t *testing.T) {
	for _, counter := range []uint64{0, 1, 2, 1<<30 - 1, 1 << 30, 1<<32 - 1, maxToken - 1, maxToken} {
		for bits := range futexState(4) {
			s := futexState(counter)<<futexShift | bits
			require.Equal(t, counter, s.counter())
			require.Equal(t, bits&futexAnnounced != 0, s.announced())
			require.Equal(t, bits&futexStopped != 0, s.stopped())

			stopped := s.stop()
			require.Equal(t, counter, stopped.counter())
			require.True(t, stopped.stopped())
			require.False(t, stopped.announced())
			require.Equal(t, stopped, stopped.stop())

			if counter < maxToken {
				posted := s.posted()
				require.Equal(t, counter+1, posted.counter())
				require.Equal(t, s.stopped(), posted.stopped())
				require.False(t, posted.announced())
				// Every post changes the low half, on which waiters sleep.
				require.NotEqual(t, uint32(s), uint32(posted))
			}
			require.NotEqual(t, uint32(s|futexAnnounced), uint32(stopped), "a stop changes the word on which a waiter is about to sleep")

			for _, token := range []uint64{0, counter - 1, counter, counter + 1, maxToken} {
				require.Equal(t, counter >= token, s.reached(token))
			}
		}
	}
}

func TestFutexStateString(t *testing.T) {
	for want, s := range map[string]futexState{
		"counter 0":                     0,
		"counter 0, announced":          futexAnnounced,
		"counter 0, stopped":            futexStopped,
		"counter 7, stopped, announced": 7*futexPost | 3,
		"counter 4611686018427387903":   maxToken << futexShift,
		"counter 1":                     futexPost,
		"counter 2, stopped":            2*futexPost | futexStopped,
		"counter 1073741824, announced": 1<<30*futexPost | futexAnnounced,
		"counter 1073741824":            1 << 30 * futexPost,
		"counter 4611686018427387902":   (maxToken - 1) << futexShift,
		"counter 9, announced":          9*futexPost | futexAnnounced,
	} {
		require.Equal(t, want, s.String())
	}
}
