//go:build linux

package prims_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitAllOfFutexesEndsWithTheArena checks that a Close of the arena ends a WaitAll for two Futexes. Close ends
// the waits for the Futexes one after the other. After the first of these waits, Close must not wait until the WaitAll
// returns, because the WaitAll still waits for the second Futex.
func TestWaitAllOfFutexesEndsWithTheArena(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	g, err := prims.OpenFutex(a, "g", nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- prims.WaitAll(f.At(1), g.At(1)) }()
	eventually(t, "the wait has announced itself at both", func() string { return words(a) }, func() bool {
		return strings.Contains(f.String(), "announced") && strings.Contains(g.String(), "announced")
	})
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	for range 2 {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, shmsync.ErrClosed)
		case err := <-closed:
			require.NoError(t, err)
		case <-after(timeout()):
			t.Fatal("WaitAll or Close has not returned")
		}
	}
}

// TestWaitsForTwoArenas checks a call that waits for an Event in each of two arenas. A Close of one arena ends the
// wait for the Event in this arena, and does not wait for the Event in the other arena.
func TestWaitsForTwoArenas(t *testing.T) {
	for closed := range 2 {
		for _, mode := range []prims.EventMode{prims.EventManualReset, prims.EventAutoReset} {
			for _, all := range []bool{false, true} {
				t.Run(fmt.Sprintf("closed=%d/mode=%v/all=%v", closed, mode, all), func(t *testing.T) {
					var arenas [2]*arena.Arena
					var events [2]*prims.Event
					for i := range arenas {
						var err error
						arenas[i] = newArena(t, nil)
						events[i], err = prims.OpenEvent(arenas[i], "e", &prims.EventOptions{Mode: mode})
						require.NoError(t, err)
					}
					index, ended := make(chan int, 1), make(chan error, 1)
					go func() {
						if all {
							ended <- prims.WaitAll(events[0], events[1])
							return
						}
						i, err := prims.WaitAny(events[0], events[1])
						index <- i
						ended <- err
					}()
					for i, a := range arenas {
						eventually(t, "the wait is announced in both arenas", func() string { return words(a) }, func() bool { return events[i].State().Waiting })
					}
					soon := func(c chan error) error {
						select {
						case err := <-c:
							return err
						case <-after(timeout()):
							t.Fatal("a call does not return")
						}
						return nil
					}
					closing := make(chan error, 1)
					go func() { closing <- arenas[closed].Close() }()
					require.NoError(t, soon(closing))
					if all {
						events[1-closed].Set()
					}
					require.ErrorIs(t, soon(ended), shmsync.ErrClosed)
					if !all {
						require.Equal(t, closed, <-index)
					}
				})
			}
		}
	}
}
