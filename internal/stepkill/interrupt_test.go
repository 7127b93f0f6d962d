//go:build linux && amd64

package stepkill_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/stepkill"
)

// shortest is how long after the end of an operation a kill may be sent. A signal takes a while to arrive, and some
// signals are to arrive after the end of the operation.
const shortest = 10 * time.Microsecond

// interrupt starts a victim that is not single-stepped, and kills it. The parameter after is the longest time from the
// beginning of the operation to the kill. If let is set, a victim that still waits after half of this time gets what it
// waits for. interrupt returns how long the operation has run.
func (x *stage) interrupt(after time.Duration, let bool) time.Duration {
	t := x.t
	t.Helper()
	r := x.beginFree()
	var wg sync.WaitGroup
	errs := make(chan error, x.s.waiters)
	for range x.s.waiters {
		wg.Go(func() {
			if err := x.own.wait(); err != nil {
				errs <- err
			}
		})
	}
	took := r.runFor(after, let)
	r.victim.Signal(t, syscall.SIGKILL)
	r.victim.WaitSignal(t, syscall.SIGKILL)
	what := fmt.Sprintf("killed %v after it began", took)
	if !r.rest(proctest.Scale(limit)) {
		t.Fatalf("%s, %s: the goroutine that helped the victim hangs\n%s", x.s.name, what, words(x.a))
	}
	dead.Store(true)
	r.free(true)
	x.goOn(&wg, errs, time.Now(), what)
	if x.s.fresh {
		require.NoError(t, x.own.close(), "%s, %s", x.s.name, what)
	}
	x.limit.kills++
	return took
}

// beginFree starts a victim that is not single-stepped. The victim does not begin its operation before a call of
// runFor.
func (x *stage) beginFree() *run {
	t := x.t
	t.Helper()
	if x.s.fresh {
		x.open()
	}
	dead.Store(false)
	if x.own.hold != nil {
		x.own.hold()
	}
	if x.s.sacrificed {
		p := x.start("sacrifice")
		p.Await(t)
		p.Kill(t)
	}
	ctl, f, err := stepkill.NewControl()
	require.NoError(t, err)
	defer f.Close()
	t.Cleanup(func() { ctl.Close() })
	r := &run{stage: x, ctl: ctl, victim: x.victim(f)}
	r.victim.Await(t)
	return r
}

// runFor lets a victim run its operation until the operation is over. It returns earlier if the operation takes longer
// than atMost. If let is set, runFor gives the victim what it waits for after half of atMost. runFor returns how long
// the operation has run.
func (r *run) runFor(atMost time.Duration, let bool) time.Duration {
	r.ctl.Gate.Store(1)
	for end := time.Now().Add(proctest.Scale(limit)); r.ctl.Began.Load() == 0; {
		if time.Now().After(end) {
			r.t.Fatalf("%s: the operation does not begin: %v\n%s", r.s.name, r.victim.Kill(r.t), words(r.a))
		}
	}
	begun := time.Now()
	for r.ctl.Ended.Load() == 0 && time.Since(begun) < atMost {
		if let && time.Since(begun) > atMost/2 {
			r.free(false)
		}
	}
	return time.Since(begun)
}

// TestInterruptKills checks that the other processes go on if a running process is killed at a random moment of an
// operation. The other processes run at the same time.
func TestInterruptKills(t *testing.T) {
	n, _ := kills()
	eachScene(t, func(x *stage) stats {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 7))
		x.t.Logf("seed %#x", seed)
		// The first victim is killed when its operation is over, or when it sleeps.
		whole := x.interrupt(3*time.Millisecond, false)
		for range n {
			after := time.Duration(random.Int64N(int64(whole + shortest)))
			took := x.interrupt(after, random.IntN(2) == 0)
			if took < after { // the operation was over before the kill
				whole = min(whole, took+shortest)
			}
		}
		return x.limit
	})
}
