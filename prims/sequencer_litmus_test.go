//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// litmusBoard is memory in which two processes record their progress.
type litmusBoard struct {
	At   atomic.Uint64 // the round that the other process is beginning
	Done atomic.Uint64 // the last round that the other process has ended
	_    [112]byte
	Go   atomic.Uint64 // the round that the test has ended
}

type litmusParams struct {
	Arena, Mode string
	Rounds      uint64
	Seed        uint64
}

// litmusRounds returns the number of rounds of a litmus test: the value of SHMSYNC_LITMUS_ROUNDS if it is set.
// Otherwise it is the parameter full, or less if the tests do not run long.
func litmusRounds(t testing.TB, full uint64) uint64 {
	if s := os.Getenv("SHMSYNC_LITMUS_ROUNDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	return proctest.Rounds(full/50, full)
}

func jitter(r *rand.Rand, most int) {
	for range r.IntN(most) {
	}
}

func await(w *atomic.Uint64, n uint64) {
	for i := 0; w.Load() < n; i++ {
		if i%64 == 63 {
			runtime.Gosched()
		}
		if i%4096 == 4095 {
			shmsync.Yield()
		}
	}
}

// yield is called in iteration i of a loop that waits for the other process. It lets that process run if both
// need the same CPU.
func yield(i int) {
	runtime.Gosched()
	if i%64 == 0 {
		shmsync.Yield()
	}
}

// litmusSide has the objects of one of the two processes.
type litmusSide struct {
	s    *prims.Sequencer
	auto *prims.Event
	gate *prims.Event // bidirectional
	b    *litmusBoard
}

func openLitmus(a *arena.Arena) (x *litmusSide, err error) {
	x = &litmusSide{}
	if x.s, err = prims.OpenSequencer(a, "s", nil); err != nil {
		return nil, err
	}
	if x.auto, err = prims.OpenEvent(a, "auto", &prims.EventOptions{Mode: prims.EventAutoReset}); err != nil {
		return nil, err
	}
	if x.gate, err = prims.OpenEvent(a, "gate", &prims.EventOptions{Mode: prims.EventBidirectional}); err != nil {
		return nil, err
	}
	x.b, err = arena.Value[litmusBoard](a, "board")
	return x, err
}

// forgotten reports whether waits of the Sequencer are overdue and no process is about to end them. It checks
// the words many times, and reports true only if each check finds that.
func (x *litmusSide) forgotten() bool {
	for range 100 {
		if !x.s.Overdue() {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// litmusModes has the functions that the other process runs in round n. The token of that round is n.
var litmusModes = map[string]func(x *litmusSide, n uint64, r *rand.Rand) error{
	// waits for the last possible token
	"final": func(x *litmusSide, n uint64, r *rand.Rand) error {
		x.b.At.Store(n)
		jitter(r, 300)
		return x.s.Wait(n)
	},
	// gives up at about the time of the Increment, and then waits again
	"timeout": func(x *litmusSide, n uint64, r *rand.Rand) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(100))*time.Microsecond)
		defer cancel()
		x.b.At.Store(n)
		switch err := x.s.WaitContext(ctx, n); {
		case err == nil && x.s.Value() < n:
			return fmt.Errorf("round %d: the wait has returned, and the counter is only %d", n, x.s.Value())
		case err == nil:
			return nil
		case err != ctx.Err():
			return err
		}
		return x.s.Wait(n)
	},
	// begins two waits before the test calls CancelWaiters
	"flush": func(x *litmusSide, n uint64, r *rand.Rand) error {
		p, q := x.s.WaitAsync(1<<62), x.s.WaitAsync(1<<61+n)
		x.b.At.Store(n)
		for _, p := range []*prims.Pending{p, q} {
			if err := p.Wait(); !errors.Is(err, shmsync.ErrCanceled) {
				return fmt.Errorf("round %d: %w", n, err)
			}
		}
		return nil
	},
	// begins a wait while the test calls CancelWaiters; after that the test calls Increment
	"registration": func(x *litmusSide, n uint64, r *rand.Rand) error {
		x.b.At.Store(n)
		jitter(r, 2000)
		p := x.s.WaitAsync(n)
		if err := p.Wait(); err != nil && !errors.Is(err, shmsync.ErrCanceled) {
			return fmt.Errorf("round %d: %w", n, err)
		}
		return nil
	},
	// waits for a token that the test sets once
	"token": func(x *litmusSide, n uint64, r *rand.Rand) error {
		x.b.At.Store(n)
		jitter(r, 300)
		x.auto.Wait()
		return nil
	},
	// gives up at about the time of the Set, and then takes the token anyway
	"token timeout": func(x *litmusSide, n uint64, r *rand.Rand) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(100))*time.Microsecond)
		defer cancel()
		x.b.At.Store(n)
		if err := x.auto.WaitContext(ctx); err == nil || err != ctx.Err() {
			return err
		}
		x.auto.Wait()
		return nil
	},
	// waits for the gate to be set in odd rounds, and to be reset in even rounds
	"gate": func(x *litmusSide, n uint64, r *rand.Rand) error {
		x.b.At.Store(n)
		jitter(r, 300)
		if n%2 == 1 {
			x.gate.Wait()
		} else {
			x.gate.WaitReset()
		}
		return nil
	},
}

func init() {
	proctest.Register("sequencer/litmus", func(c *proctest.Child) {
		var p litmusParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		x, err := openLitmus(a)
		if err != nil {
			c.Fatal(err)
		}
		r := rand.New(rand.NewPCG(p.Seed, 1))
		c.Ready()
		for n := uint64(1); n <= p.Rounds; n++ {
			if err := litmusModes[p.Mode](x, n, r); err != nil {
				c.Fatal(err)
			}
			x.b.Done.Store(n)
			await(&x.b.Go, n)
		}
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// litmus runs rounds. In each round the other process begins, this process does its part, and then the wait of
// the other process must end. If a wake is lost, only a periodic check, ten times a second, can end the wait.
// So litmus counts a wake as lost if a wait is overdue long before the next check.
func litmus(t *testing.T, mode string, rounds uint64, part func(x *litmusSide, n uint64, r *rand.Rand), opts ...proctest.Option) {
	a := newArena(t, nil)
	x, err := openLitmus(a)
	require.NoError(t, err)
	b := x.b
	seed := rand.Uint64()
	opts = append(opts, proctest.Params(litmusParams{nameOf(a), mode, rounds, seed}),
		proctest.Limit(proctest.Scale(5*time.Minute)), proctest.Dump(func() string { return words(a) }))
	p := proctest.Start(t, "sequencer/litmus", opts...)
	p.Await(t)
	r := rand.New(rand.NewPCG(seed, 2))
	lost, late, longest, start := 0, 0, time.Duration(0), time.Now()
	for n := uint64(1); n <= rounds; n++ {
		for i := 1; b.At.Load() < n && !ended(p); i++ {
			yield(i)
		}
		jitter(r, 4000)
		part(x, n, r)
		since := time.Now()
		for i, counted := 1, false; b.Done.Load() < n; i++ {
			yield(i)
			switch took := time.Since(since); {
			case ended(p), took > timeout():
				p.WaitExit(t)
				t.Fatalf("round %d never ends, seed %#x: %s", n, seed, words(a))
			case took > 30*time.Millisecond && !counted:
				counted = true
				late++
				if x.forgotten() {
					lost++
					t.Errorf("round %d of %d: lost, seed %#x: %s", n, rounds, seed, words(a))
				}
			}
		}
		longest = max(longest, time.Since(since))
		if lost > 10 {
			t.FailNow()
		}
		b.Go.Store(n)
	}
	p.WaitExit(t)
	t.Logf("%d rounds in %v: %d lost; %d took longer than 30 ms, the longest %v", rounds, time.Since(start).Round(time.Millisecond), lost, late, longest)
	require.Zero(t, lost)
	// Nothing is left over.
	alone(t, a, 1)
	require.Zero(t, prims.Queued(a, x.s.Offset())+prims.Queued(a, x.auto.Offset())+prims.Queued(a, x.gate.Offset()))
	require.False(t, x.s.State().Waiting || x.s.Overdue(), "%s", words(a))
	require.False(t, x.auto.TryWait(), "a token more than there were sets")
	require.Zero(t, x.auto.Counted())
	require.Zero(t, ownNodes(a))
	require.LessOrEqual(t, a.Stats().PollerNodes, uint64(2*(16+2)), "each process may have waited in each cell, and for each Event")
	sound(t, a)
}

func ended(p *proctest.Proc) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func TestSequencerLostWakeupUnderContention(t *testing.T) {
	litmus(t, "final", litmusRounds(t, 200_000), func(x *litmusSide, n uint64, r *rand.Rand) { x.s.Increment() })
}

func TestSequencerTimeoutAgainstIncrement(t *testing.T) {
	litmus(t, "timeout", litmusRounds(t, 50_000), func(x *litmusSide, n uint64, r *rand.Rand) {
		if r.IntN(2) == 0 {
			jitter(r, 100_000)
		}
		x.s.Increment()
	})
}

func TestSequencerCancelWaitersFlushes(t *testing.T) {
	litmus(t, "flush", litmusRounds(t, 20_000), func(x *litmusSide, n uint64, r *rand.Rand) { x.s.CancelWaiters() })
}

func TestSequencerCancelWaitersRacesRegistration(t *testing.T) {
	litmus(t, "registration", litmusRounds(t, 20_000), func(x *litmusSide, n uint64, r *rand.Rand) {
		x.s.CancelWaiters()
		jitter(r, 2000)
		x.s.Increment()
	})
}

func TestEventLostWakeupUnderContention(t *testing.T) {
	litmus(t, "token", litmusRounds(t, 200_000), func(x *litmusSide, n uint64, r *rand.Rand) { x.auto.Set() })
}

func TestEventTimeoutAgainstSet(t *testing.T) {
	litmus(t, "token timeout", litmusRounds(t, 50_000), func(x *litmusSide, n uint64, r *rand.Rand) {
		if r.IntN(2) == 0 {
			jitter(r, 100_000)
		}
		x.auto.Set()
	})
}

func TestEventTurnsUnderContention(t *testing.T) {
	litmus(t, "gate", litmusRounds(t, 50_000), turnGate)
}

func turnGate(x *litmusSide, n uint64, r *rand.Rand) {
	if n%2 == 1 {
		x.gate.Set()
	} else {
		x.gate.Reset()
	}
}

// TestNoWakeIsLostWithoutChecks: the processes run without periodic checks. So if a wake were lost, a round
// would never end.
func TestNoWakeIsLostWithoutChecks(t *testing.T) {
	needsCrashPoints(t)
	for mode, part := range map[string]func(x *litmusSide, n uint64, r *rand.Rand){
		"gate":  turnGate,
		"token": func(x *litmusSide, n uint64, r *rand.Rand) { x.auto.Set() },
		"final": func(x *litmusSide, n uint64, r *rand.Rand) { x.s.Increment() },
	} {
		t.Run(mode, func(t *testing.T) {
			litmus(t, mode, litmusRounds(t, 50_000), part, proctest.Env("SHMSYNC_CHECK_EVERY=1h"))
		})
	}
}

// TestSequencerCounterDies: a process counts, and dies before it checks for waiters. Its count stays, and the
// reaper wakes the waiters.
func TestSequencerCounterDies(t *testing.T) {
	needsCrashPoints(t)
	a := newArena(t, nil)
	s, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	here := sequencerActor(t, a, "waiter")
	for _, op := range []string{"increment", "advance"} {
		victim := sequencerActor(t, a, "victim", proctest.Env("SHMSYNC_CRASHPOINT=sequencer.count.counted"))
		var ids []int
		for i := range 20 {
			ids = append(ids, here.queues(t, a, s.Offset(), order{Op: []string{"wait", "async"}[i%2], Object: "s", Token: s.Value() + 1}))
		}
		stays := here.queues(t, a, s.Offset(), order{Op: "wait", Object: "s", Token: s.Value() + 2})
		victim.start(order{Op: op, Object: "s", Token: s.Value() + 1})
		victim.proc.WaitSignal(t, 9)
		for i, id := range ids {
			if i%2 == 1 {
				id = here.ended(id)
			}
			here.ok(t, id)
		}
		alone(t, a, 2)
		require.Equal(t, 1, prims.Queued(a, s.Offset()))
		s.Increment()
		here.ok(t, stays)
	}
	sound(t, a)
}

// TestSequencerCounterStopped: a process is stopped after it has counted. It is not dead, so nobody reaps it.
// The periodic checks of the waiters find the count, both for blocked and for pending waits.
func TestSequencerCounterStopped(t *testing.T) {
	needsCrashPoints(t)
	for _, op := range []string{"wait", "async"} {
		t.Run(op, func(t *testing.T) {
			a := newArena(t, nil)
			s, err := prims.OpenSequencer(a, "s", nil)
			require.NoError(t, err)
			here := sequencerActor(t, a, "waiter")
			stopped := sequencerActor(t, a, "stopped", proctest.Env("SHMSYNC_CRASHPOINT_STOP=sequencer.count.counted"))
			id := here.queues(t, a, s.Offset(), order{Op: op, Object: "s", Token: 1})
			if op == "async" {
				id = here.ended(id)
			}
			count := stopped.start(order{Op: "increment", Object: "s"})
			stopped.proc.AwaitStop(t)
			here.ok(t, id)
			stopped.proc.Cont(t)
			stopped.ok(t, count)
			sound(t, a)
		})
	}
}

// TestSequencerCheckBeforeTheSleep: a wait is over, but nobody wakes its waiter. A periodic check finds that the
// wait is over. But the waiter has already checked the counter and is about to sleep, so it misses the wake of the
// periodic check. A later check wakes the waiter.
func TestSequencerCheckBeforeTheSleep(t *testing.T) {
	needsCrashPoints(t)
	const much = 1 << 31
	for _, c := range []struct {
		what  string
		first uint64
		leave func(s *prims.Sequencer)
		want  error
	}{
		{"the waits are ended", 0, (*prims.Sequencer).MarkCanceled, shmsync.ErrCanceled},
		{"the counter has made the greatest jump", much, func(s *prims.Sequencer) { s.Counter().Store(much) }, nil},
		{"a peer has set next further on", 0, func(s *prims.Sequencer) {
			s.Cell(5).Add(1 << 28 << 33)
			s.Counter().Store(5)
		}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSequencer(t, &prims.SequencerOptions{Initial: c.first, Spin: -1})
			require.True(t, s.WaitAsync(much+5).Cancel())
			s.Look()
			s.MarkCanceled() // a ResetTo
			s.Look()
			s.Counter().Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), timeout())
			defer cancel()
			crashpoint.ArmFunc("sequencer.wait.looked", 1, func() {
				c.leave(s)
				s.Look()
			})
			defer crashpoint.Disarm()
			require.ErrorIs(t, s.WaitContext(ctx, 5), c.want)
			require.NoError(t, ctx.Err(), "only the end of the context woke the waiter")
		})
	}
}

// TestSequencerPassedBeforeTheAnnouncement: a waiter for a far token has read the counter, and is about to announce a
// nearer token. Before the announcement, the counter passes the nearer token and reaches the far one. The waiter must
// see that by itself, because the last count has found no announcement to wake for.
func TestSequencerPassedBeforeTheAnnouncement(t *testing.T) {
	needsCrashPoints(t)
	const far = 1 << 29
	s := newSequencer(t, &prims.SequencerOptions{Spin: -1})
	crashpoint.ArmFunc("sequencer.wait.read", 1, func() {
		s.Advance(3 * far)
		crashpoint.Disarm()
		crashpoint.ArmFunc("sequencer.wait.looked", 1, func() {
			s.Advance(4 * far)
			require.False(t, s.Announced(), "the last count does not find the announcement: %v", s)
		})
	})
	defer crashpoint.Disarm()
	require.NoError(t, s.Wait(4*far))
}

// TestSequencerTokenReachedBeforeTheEndOfWaits checks that a wait ends without an error if the counter reaches its
// token before a CancelWaiters or a Stop. Both happen while the waiter finds out whether its wait is over.
func TestSequencerTokenReachedBeforeTheEndOfWaits(t *testing.T) {
	needsCrashPoints(t)
	for what, end := range map[string]func(s *prims.Sequencer){
		"CancelWaiters": (*prims.Sequencer).CancelWaiters, "Stop": (*prims.Sequencer).Stop,
	} {
		for how, wait := range map[string]func(s *prims.Sequencer) error{
			"Wait":      func(s *prims.Sequencer) error { return s.Wait(1) },
			"WaitAsync": func(s *prims.Sequencer) error { return s.WaitAsync(1).Wait() },
		} {
			t.Run(what+" "+how, func(t *testing.T) {
				s := newSequencer(t, nil)
				t.Cleanup(crashpoint.Disarm)
				came := false
				crashpoint.ArmFunc("sequencer.wait.judged", 1, func() {
					came = true
					s.Increment()
					end(s)
				})
				require.NoError(t, wait(s))
				require.True(t, came)
			})
		}
	}
}

// TestSequencerCountChangesTheWordOnce: an Increment or Advance changes the word of a cell only once, even if the same
// process has another wait in the cell, and announces the token of this wait again.
func TestSequencerCountChangesTheWordOnce(t *testing.T) {
	changes := func(s *prims.Sequencer, token uint64) uint32 { return uint32(s.Cell(token).Load()) }
	t.Run("jump", func(t *testing.T) {
		for range 100 {
			s := newSequencer(t, nil)
			p := s.WaitAsync(1 << 40)
			s.Advance(1 << 30)
			require.EqualValues(t, 1, changes(s, 0))
			require.True(t, p.Cancel())
		}
	})
	t.Run("others count meanwhile", func(t *testing.T) {
		needsCrashPoints(t)
		s := newSequencer(t, nil)
		far, near := s.WaitAsync(1<<40+1), s.WaitAsync(1)
		crashpoint.ArmFunc("sequencer.count.counted", 1, func() { s.Counter().Add(100) })
		defer crashpoint.Disarm()
		s.Increment()
		require.NoError(t, near.Wait())
		require.EqualValues(t, 1, changes(s, 1))
		require.True(t, far.Cancel())
	})
}

// TestSequencerServesBeforeClose: the goroutine that serves the token heap keeps the handle open, even after
// all waits have left the heap.
func TestSequencerServesBeforeClose(t *testing.T) {
	needsCrashPoints(t)
	s := newSequencer(t, nil)
	other := s.WaitAsync(16 + 5)
	in, out, ended := make(chan bool), make(chan bool), make(chan error)
	crashpoint.ArmFunc("sequencer.wait.read", 1, func() {
		s.Counter().Store(5) // as if a process had counted and then stopped
		crashpoint.Disarm()
		crashpoint.ArmFunc("sequencer.wait.read", 1, func() { // the wait for 5 is over, and the token 21 is announced
			close(in)
			<-out
		})
	})
	defer crashpoint.Disarm()
	go func() { ended <- s.WaitAsync(5).Wait() }()
	<-in
	require.True(t, other.Cancel())
	require.False(t, s.Empty(5), "Close would not wait for a goroutine that is about to change the word")
	close(out)
	require.NoError(t, <-ended)
	require.True(t, s.Empty(5))
	require.NoError(t, s.Close())
}

// TestSequencerEndOfWaitsIsLeft: a process ends the waits of a Sequencer, or counts past tokens, and wakes
// nobody. Then it dies, or is stopped for ever. The waits still end.
func TestSequencerEndOfWaitsIsLeft(t *testing.T) {
	needsCrashPoints(t)
	for op, points := range map[string][]string{
		"advance":        {"sequencer.count.counted", "sequencer.count.before_wake"},
		"cancel.waiters": {"sequencer.cancel.marked", "sequencer.count.before_wake"},
		"stop":           {"sequencer.stop.marked", "sequencer.count.before_wake"},
		"reset":          {"sequencer.cancel.marked", "sequencer.reset.stored", "sequencer.count.before_wake"},
	} {
		for _, point := range points {
			for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
				t.Run(op+"/"+point+"/"+how, func(t *testing.T) {
					a := newArena(t, nil)
					s, err := prims.OpenSequencer(a, "s", nil)
					require.NoError(t, err)
					here := sequencerActor(t, a, "waiter")
					ids := []int{
						here.queues(t, a, s.Offset(), order{Op: "wait", Object: "s", Token: 5}),
						here.queues(t, a, s.Offset(), order{Op: "wait.ctx", Object: "s", Token: 7}),
						here.ended(here.queues(t, a, s.Offset(), order{Op: "async", Object: "s", Token: 7})),
					}
					var waits []*prims.Pending
					for i := range 300 {
						waits = append(waits, s.WaitAsync(uint64(i%7+1)))
					}
					// The first periodic check of a handle always wakes the waiters of the handle. It runs now, so that
					// it cannot hide that the wakes of the victim are missing.
					here.must(t, order{Op: "look", Object: "s"})
					s.Look()
					victim := sequencerActor(t, a, "victim", proctest.Env(how+"="+point))
					want := op == "advance"
					to := uint64(0)
					if want {
						to = 7
					}
					victim.start(order{Op: op, Object: "s", Token: to})
					victim.proc.AwaitPoint(t, how)
					for _, p := range waits {
						if err := p.Wait(); want {
							require.NoError(t, err)
						} else {
							require.ErrorIs(t, err, shmsync.ErrCanceled)
						}
					}
					for _, id := range ids {
						if want {
							here.ok(t, id)
						} else {
							here.isCanceled(t, id)
						}
					}
					// If the stopped process goes on, the rest of its call does no harm.
					s.Advance(100)
					next := 0
					if op != "stop" {
						next = here.queues(t, a, s.Offset(), order{Op: "wait", Object: "s", Token: 101})
					}
					if how != "SHMSYNC_CRASHPOINT" {
						victim.proc.Kill(t)
					}
					alone(t, a, 2)
					if s.Increment(); next != 0 {
						here.ok(t, next)
					}
					require.Zero(t, prims.Queued(a, s.Offset()))
					require.False(t, s.Overdue(), "%v", s)
					sound(t, a)
				})
			}
		}
	}
}
