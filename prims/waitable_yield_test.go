//go:build linux

package prims_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// askForRoom does what a slow call does: it asks other calls not to begin a change. Until the function stop is called,
// askForRoom keeps storing a later time in word. stop reports whether the stored time was always in the future.
func askForRoom(word *atomic.Uint64) (stop func() bool) {
	var over, lapsed atomic.Bool
	var asker sync.WaitGroup
	asker.Go(func() {
		var until int64
		for done := false; !done; {
			done = over.Load()
			now := shmsync.Monotonic()
			if until != 0 && now > until {
				lapsed.Store(true)
			}
			until = now + int64(4*time.Millisecond)
			word.Store(uint64(until))
		}
		word.Store(0)
	})
	return func() bool {
		over.Store(true)
		asker.Wait()
		return !lapsed.Load()
	}
}

// TestWaitableGivesUpBesideACallThatAsksForRoom: a call keeps asking other calls not to begin a change. A wait whose
// context ends still returns at once. The test ends the context of a queued wait, of a wait that has begun and is not
// queued, and of a wait that has not begun.
func TestWaitableGivesUpBesideACallThatAsksForRoom(t *testing.T) {
	a := newArena(t, nil)
	rw, err := shared(a, "rw")
	require.NoError(t, err)
	const read, write = false, true
	require.NoError(t, rw.Wait(write))
	behind := make(chan error, 1)
	for _, when := range []string{"queued", "begun", "before"} {
		t.Run(when, func(t *testing.T) {
			inTime(t, func(d *delays) {
				was := rw.Queued()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				wait := make(chan error, 1)
				switch when {
				case "queued": // with another wait behind it
					go func() { wait <- rw.WaitContext(ctx, write) }()
					waiting(t, a, "rw", was+1)
					go func() { behind <- rw.Wait(read) }()
					waiting(t, a, "rw", was+2)
				case "before":
					cancel()
				}
				stop := askForRoom(rw.YieldUntil())
				for rw.YieldUntil().Load() == 0 {
				}
				if when != "queued" {
					go func() { wait <- rw.WaitContext(ctx, write) }()
				}
				start := time.Now()
				cancel()
				err := <-wait
				took := time.Since(start)
				if always := stop(); took >= soon() || !always {
					d.late = append(d.late, took)
				}
				require.ErrorIs(t, err, context.Canceled)
			})
		})
	}
	queued := rw.Queued()
	rw.Release(write)
	for range queued {
		require.NoError(t, <-behind)
	}
}
