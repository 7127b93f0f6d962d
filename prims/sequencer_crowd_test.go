//go:build linux

package prims_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

type sequencerCrowdReport struct {
	Threads, Waiting, Got, Canceled int
	Took                            time.Duration
}

func init() {
	// The process sequencer/crowd has N waits, each for a different token. Half of them are blocked goroutines, and
	// half are pending. The process cancels every fourth wait.
	proctest.Register("sequencer/crowd", func(c *proctest.Child) {
		var p crowdParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "crowd"})
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSequencer(a, "crowd", nil)
		if err != nil {
			c.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(context.Background())
		var got, canceled atomic.Int64
		var wg sync.WaitGroup
		var pending []*prims.Pending
		start := time.Now()
		count := func(token uint64, err error) {
			switch {
			case err == nil && s.Value() >= token:
				got.Add(1)
			case err == context.Canceled, errors.Is(err, shmsync.ErrCanceled):
				canceled.Add(1)
			default:
				c.Fatalf("token %d at %d: %v", token, s.Value(), err)
			}
		}
		for i := range p.N {
			token := uint64(i + 1)
			if i%2 == 0 {
				pending = append(pending, s.WaitAsync(token))
				continue
			}
			wg.Go(func() {
				if i%4 == 1 {
					count(token, s.WaitContext(ctx, token))
				} else {
					count(token, s.Wait(token))
				}
			})
		}
		report := func() sequencerCrowdReport {
			r := sequencerCrowdReport{threads(), prims.Queued(a, s.Offset()), int(got.Load()), int(canceled.Load()), time.Since(start)}
			start = time.Now()
			return r
		}
		step := func(what string, done func() bool) {
			if err := waitUntil(3*timeout(), done); err != nil {
				c.Fatalf("%s: %v: %+v", what, err, report())
			}
			c.Say(report())
		}
		step("wait", func() bool { return prims.Queued(a, s.Offset()) == p.N })
		c.Await()
		giveUp()
		for i, w := range pending {
			if i%2 == 0 && !w.Cancel() {
				c.Fatal("it has ended")
			}
		}
		step("cancel", func() bool { return prims.Queued(a, s.Offset()) == p.N/2 && int(canceled.Load()) == p.N/4 })
		// Meanwhile the test counts.
		step("get", func() bool { return int(got.Load()) == p.N/4 && prims.Queued(a, s.Offset()) == 0 })
		for i, w := range pending {
			count(uint64(2*i+1), w.Wait())
		}
		wg.Wait()
		c.Say(report())
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// TestSequencerCrowd: a process waits for a hundred thousand tokens at once, on few threads. Exactly the waits whose
// tokens are reached end.
func TestSequencerCrowd(t *testing.T) {
	n := crowdSize() / 4 * 4
	a := newArena(t, &arena.Options{Size: 64 << 20, Label: "counter"})
	s, err := prims.OpenSequencer(a, "crowd", nil)
	require.NoError(t, err)
	p := proctest.Start(t, "sequencer/crowd", proctest.Params(crowdParams{Arena: nameOf(a), N: n}), proctest.Limit(4*proctest.DefaultTimeout),
		proctest.Dump(func() string { return prims.Describe(a, s.Object()) }))
	var r sequencerCrowdReport
	next := func(what string) {
		p.Recv(t, &r)
		t.Logf("%s: %+v", what, r)
		require.LessOrEqual(t, r.Threads, mostThreads)
	}
	next("wait")
	require.Equal(t, n, r.Waiting)
	p.Send("cancel")
	next("cancel")
	require.Equal(t, n/2, r.Waiting)
	start := time.Now()
	s.Advance(uint64(n / 2))
	eventually(t, "a quarter has ended", s.String, func() bool { return prims.Queued(a, s.Offset()) == n/4 })
	t.Logf("a quarter ended in %v", time.Since(start).Round(time.Millisecond))
	for s.Value() < uint64(n) {
		s.Increment()
	}
	t.Logf("and another, one by one, in %v", time.Since(start).Round(time.Millisecond))
	next("get")
	next("end")
	require.Equal(t, []int{n / 2, n / 2}, []int{r.Got, r.Canceled})
	p.WaitExit(t)
	alone(t, a, 1)
	// The process had a poller node for each cell. These nodes stay on the lists of the cells after the process ends.
	require.Zero(t, ownNodes(a))
	require.LessOrEqual(t, a.Stats().PollerNodes, uint64(16))
	sound(t, a)
}
