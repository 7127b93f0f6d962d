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

// askForRoom asks other processes again and again not to begin a change, as a slow call does: it stores a later and later
// time in word, until the function stop is called. stop reports whether the stored time was in the future all along.
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

// TestWaitableGivesUpBesideACallThatAsksForRoom: another process asks the others not to begin a change for longer
// than a wait lasts. A wait whose context ends still returns at once: if it is queued, if it has begun and is not
// queued, and if its context had ended before the call.
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
