//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// mixAwaitable returns the Awaitable that a string names: "seq:name@token", "event:name", or
// "reset:name". It returns nil for other strings.
func mixAwaitable(a *arena.Arena, name string) (prims.Awaitable, error) {
	kind, rest, ok := strings.Cut(name, ":")
	if !ok {
		return nil, nil
	}
	if kind == "seq" {
		name, at, _ := strings.Cut(rest, "@")
		s, err := prims.OpenSequencer(a, name, nil)
		if err != nil {
			return nil, err
		}
		var token uint64
		fmt.Sscan(at, &token)
		return s.At(token), nil
	}
	e, err := prims.OpenEvent(a, rest, nil)
	if err != nil {
		return nil, err
	}
	if kind == "reset" {
		return e.ResetAwaitable(), nil
	}
	return e, nil
}

func (s *handStage) performMix(o task, a *answer) error {
	if strings.HasPrefix(o.Op, "seq.") {
		q, err := prims.OpenSequencer(s.a, o.Name, nil)
		if err != nil {
			return err
		}
		switch o.Op {
		case "seq.count":
			a.N = q.Increment()
		case "seq.cancel":
			q.CancelWaiters()
		case "seq.stop":
			q.Stop()
		default:
			panic("no such task: " + o.Op)
		}
		return nil
	}
	e, err := prims.OpenEvent(s.a, o.Name, nil)
	if err != nil {
		return err
	}
	switch o.Op {
	case "event.set":
		e.Set()
	case "event.reset":
		e.Reset()
	case "event.pulse":
		e.Set()
		e.Reset()
	case "event.try":
		a.OK = e.TryWait()
	case "event.wait":
		e.Wait()
	default:
		panic("no such task: " + o.Op)
	}
	return nil
}

// mixEvents makes four Events: "auto" and "auto2" have the mode EventAutoReset, "manual" has EventManualReset, and
// "two" has EventBidirectional and is set.
func mixEvents(t *testing.T, a *arena.Arena) (auto *prims.Event) {
	t.Helper()
	for name, opts := range map[string]prims.EventOptions{
		"manual": {}, "two": {Mode: prims.EventBidirectional, InitiallySet: true}, "auto2": {Mode: prims.EventAutoReset}, "auto": {Mode: prims.EventAutoReset},
	} {
		e, err := prims.OpenEvent(a, name, &opts)
		require.NoError(t, err)
		if name == "auto" {
			auto = e
		}
	}
	return auto
}

var mixNames = []string{"f", "futex@1", "seq:q@2", "event:auto", "event:manual", "reset:two", "event:auto2", "seq:q@1"}

// TestWaitAnyEventAndSequencer checks for each element of a mixed list that WaitAny returns the index of the element
// as soon as the element has come.
func TestWaitAnyEventAndSequencer(t *testing.T) {
	for want, tasks := range map[int][]task{
		0: {{Op: "set", Name: "f"}},
		1: {{Op: "post", Name: "futex"}},
		2: {{Op: "seq.count", Name: "q"}, {Op: "seq.count", Name: "q"}},
		3: {{Op: "event.set", Name: "auto"}},
		4: {{Op: "event.set", Name: "manual"}},
		5: {{Op: "event.reset", Name: "two"}},
		6: {{Op: "event.set", Name: "auto2"}},
		7: {{Op: "seq.count", Name: "q"}},
	} {
		t.Run(mixNames[want], func(t *testing.T) {
			hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
				mixEvents(t, a)
				names := mixNames
				if want == 2 {
					names = names[:7] // without "seq:q@1", which would come before "seq:q@2"
				}
				id := x.blocked(t, task{Op: "any", Name: "auto2", Names: names})
				for _, o := range tasks {
					y.must(t, o)
				}
				r := x.wait(t, id)
				require.Empty(t, r.Err)
				require.Equal(t, fmt.Sprint(want), r.Text)
				for _, n := range []string{"f", "q", "auto", "manual", "two", "auto2"} {
					require.Zero(t, waitersOf(a, n), n)
				}
				// If the element is an auto-reset Event, the WaitAny has taken the token, and the next wait finds no
				// token. Otherwise the next wait ends at once.
				auto := strings.HasPrefix(names[want], "event:auto")
				r = y.do(t, task{Op: "any", Names: []string{"g", "event:auto", names[want]}, Ended: true})
				if auto {
					require.Equal(t, []string{"ctx-canceled"}, r.Is)
					return
				}
				require.Empty(t, r.Err)
				require.Equal(t, "2", r.Text)
			})
		})
	}
}

// TestWaitAnyEventLowest checks that WaitAny returns at once if several elements have come, with the lowest of their
// indices, and that it takes no token of other elements.
func TestWaitAnyEventLowest(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		auto := mixEvents(t, a)
		for range 2 {
			y.must(t, task{Op: "seq.count", Name: "q"})
		}
		y.must(t, task{Op: "event.set", Name: "auto"})
		y.must(t, task{Op: "event.set", Name: "auto2"})
		names := []string{"f", "seq:q@2", "event:auto", "event:auto2"}
		for range 3 {
			require.Equal(t, "1", x.must(t, task{Op: "any", Names: names, Ended: true}).Text)
		}
		require.Equal(t, "2", x.must(t, task{Op: "any", Names: []string{"f", "seq:q@3", "event:auto", "event:auto2"}}).Text)
		require.False(t, auto.IsSet())
		require.True(t, y.must(t, task{Op: "event.try", Name: "auto2"}).OK)
		// A wait that ends with its context takes no token and leaves no waiter behind.
		r := x.do(t, task{Op: "any", Names: mixNames[3:7], Limit: 10 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		y.must(t, task{Op: "event.set", Name: "auto"})
		require.True(t, auto.IsSet())
		require.Zero(t, auto.Counted())
	})
}

// TestWaitAnyEventInLine checks that a WaitAny gets the token of an auto-reset Event among other waiters, and that
// each Set ends one wait. It also checks lists that have the Event twice.
func TestWaitAnyEventInLine(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		auto := mixEvents(t, a)
		any := task{Op: "any", Name: "auto", Names: []string{"f", "event:auto"}}
		wait := task{Op: "event.wait", Name: "auto"}
		var ids []int
		for i := range 6 {
			ids = append(ids, x.blocked(t, []task{any, wait}[i%2]))
		}
		for i := range ids {
			y.must(t, task{Op: "event.set", Name: "auto"})
			require.False(t, y.must(t, task{Op: "event.try", Name: "auto"}).OK, "TryWait has taken a token that is for a waiter")
			eventually(t, "one goes on", auto.String, func() bool { return prims.Queued(a, auto.Offset()) == 5-i })
		}
		for _, id := range ids {
			require.Empty(t, x.wait(t, id).Err)
		}
		require.False(t, auto.IsSet())
		// The list of this WaitAny has the same Event twice. One Set still makes only one token.
		id := x.blocked(t, task{Op: "any", Name: "f", Names: []string{"event:auto", "f", "event:auto"}})
		y.must(t, task{Op: "event.set", Name: "auto"})
		require.Empty(t, x.wait(t, id).Err)
		// This WaitAll needs a Set of the Future and two tokens of the Event, one for each element.
		id = x.blocked(t, task{Op: "all", Name: "f", Names: []string{"event:auto", "f", "event:auto"}})
		y.must(t, task{Op: "set", Name: "f"})
		y.must(t, task{Op: "event.set", Name: "auto"})
		eventually(t, "one has its token", auto.String, func() bool { return prims.Queued(a, auto.Offset()) == 1 })
		stays(t, x, id)
		y.must(t, task{Op: "event.set", Name: "auto"})
		require.Empty(t, x.wait(t, id).Err)
		require.False(t, auto.IsSet())
		require.Zero(t, auto.Counted())
	})
}

// TestWaitAnyEventPulse checks that a Set of an Event ends a WaitAny, even if a Reset follows before the waiter runs.
// It also checks that a Reset ends a wait for the reset, even if a Set follows.
func TestWaitAnyEventPulse(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		mixEvents(t, a)
		id := x.blocked(t, task{Op: "any", Name: "manual", Names: []string{"f", "event:manual"}})
		y.must(t, task{Op: "event.pulse", Name: "manual"})
		require.Equal(t, "1", x.wait(t, id).Text)
		id = x.blocked(t, task{Op: "any", Name: "two", Names: []string{"reset:two", "f"}})
		y.must(t, task{Op: "event.reset", Name: "two"})
		y.must(t, task{Op: "event.set", Name: "two"})
		require.Equal(t, "0", x.wait(t, id).Text)
		require.Contains(t, x.do(t, task{Op: "any", Names: []string{"reset:manual"}}).Panic, "which is not bidirectional")
	})
}

// TestWaitAnyEventLeavesTheToken checks that no token is lost if a Set wakes a WaitAny that does not take the token.
// Either the WaitAny returns another element, or its process is killed first. The token goes to another waiter or, if
// there is none, to the next caller.
func TestWaitAnyEventLeavesTheToken(t *testing.T) {
	for _, then := range []string{"returns another", "dies", "event.wait.ended"} {
		if strings.Contains(then, ".") && !crashpoint.Enabled {
			continue
		}
		for _, next := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, next %v", then, next), func(t *testing.T) {
				a := newArena(t, nil)
				auto := mixEvents(t, a)
				here := localHand(a)
				var opts []proctest.Option
				if strings.Contains(then, ".") {
					opts = append(opts, proctest.Env("SHMSYNC_CRASHPOINT="+then))
				}
				x := remoteHand(t, a, "x", opts...)
				id := x.blocked(t, task{Op: "any", Name: "auto", Names: []string{"f", "event:auto"}})
				second := 0
				if next {
					second = here.blocked(t, task{Op: "event.wait", Name: "auto"})
				}
				x.proc.Stop(t)
				here.must(t, task{Op: "event.set", Name: "auto"})
				here.must(t, task{Op: "set", Name: "f"})
				if next {
					require.Empty(t, here.wait(t, second).Err, "it does not wait for the process that is stopped")
				} else {
					require.EqualValues(t, 1, auto.Tokens())
				}
				require.False(t, auto.IsSet(), "IsSet reports a token that is for a wait")
				switch then {
				case "dies":
					x.proc.Kill(t)
				case "returns another":
					x.proc.Cont(t)
					require.Equal(t, "0", x.wait(t, id).Text)
				default:
					x.proc.Cont(t)
					x.proc.WaitSignal(t, syscall.SIGKILL)
				}
				if !next {
					eventually(t, "the token is there", auto.String, auto.IsSet)
					require.True(t, auto.TryWait())
				}
				require.False(t, auto.TryWait(), "there was only one token")
				eventually(t, "all is counted off", auto.String, func() bool { return auto.Counted() == 0 })
				sound(t, a)
			})
		}
	}
}

// TestWaitAnyEventSetterDies checks a WaitAny after the death of a process that has set Events. The death does not
// end a WaitAny for another Event, and a WaitAny gets a token that was made before the death.
func TestWaitAnyEventSetterDies(t *testing.T) {
	a := newArena(t, nil)
	auto := mixEvents(t, a)
	x, y, here := remoteHand(t, a, "x"), remoteHand(t, a, "setter"), localHand(a)
	names := []string{"seq:q@1", "event:manual", "event:auto"}
	id := x.blocked(t, task{Op: "any", Name: "auto", Names: names})
	y.must(t, task{Op: "event.set", Name: "auto2"})
	y.proc.Kill(t)
	alone(t, a, 2)
	// The death wakes the waiter for a moment. Until it waits again, it is not in the queue.
	eventually(t, "it goes on waiting", auto.String, func() bool { return prims.Queued(a, auto.Offset()) == 1 })
	here.must(t, task{Op: "event.set", Name: "auto"})
	require.Equal(t, "2", x.wait(t, id).Text)
	require.False(t, auto.IsSet())
	// A second process dies while it sets the Event again and again.
	y = remoteHand(t, a, "setter")
	for range 100 {
		y.start(task{Op: "event.set", Name: "auto"})
	}
	require.Equal(t, "2", x.must(t, task{Op: "any", Names: names}).Text)
	y.proc.Kill(t)
	alone(t, a, 2)
	here.must(t, task{Op: "event.set", Name: "auto"})
	require.Equal(t, "2", x.must(t, task{Op: "any", Names: names}).Text)
	require.False(t, auto.TryWait())
	require.Zero(t, auto.Counted())
	sound(t, a)
}

// TestWaitAnySequencerSetterDiesOnTheWay checks that a WaitAny ends even if the process that changes the Event or the
// Sequencer dies or is stopped between the change and the wake.
func TestWaitAnySequencerSetterDiesOnTheWay(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for point, o := range map[string]task{
		"event.set.before_wake":   {Op: "event.set", Name: "auto"},
		"sequencer.count.counted": {Op: "seq.count", Name: "q"},
	} {
		for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
			t.Run(how+" "+point, func(t *testing.T) {
				a := newArena(t, nil)
				auto := mixEvents(t, a)
				x, y := remoteHand(t, a, "x"), remoteHand(t, a, "setter", proctest.Env(how+"="+point))
				id := x.blocked(t, task{Op: "any", Name: "auto", Names: []string{"seq:q@1", "event:auto"}})
				set := y.start(o)
				y.proc.AwaitPoint(t, how)
				r := x.wait(t, id)
				require.Empty(t, r.Err)
				require.Equal(t, map[string]string{"auto": "1", "q": "0"}[o.Name], r.Text)
				if how != "SHMSYNC_CRASHPOINT" {
					y.proc.Cont(t)
					y.wait(t, set)
				}
				require.False(t, auto.TryWait())
				require.Zero(t, auto.Counted())
				sound(t, a)
			})
		}
	}
}

// TestWaitAnySequencerStop checks that CancelWaiters and Stop of a Sequencer end a WaitAny, with the index of the
// Sequencer. It also checks that the WaitAny succeeds after a Stop if the counter has reached the token.
func TestWaitAnySequencerStop(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		mixEvents(t, a)
		names := []string{"f", "event:auto", "seq:q@3"}
		for _, op := range []string{"seq.cancel", "seq.stop"} {
			id := x.blocked(t, task{Op: "any", Name: "q", Names: names})
			all := x.blocked(t, task{Op: "all", Name: "q", Names: []string{"seq:q@4", "event:manual"}})
			y.must(t, task{Op: "seq.count", Name: "q"})
			y.must(t, task{Op: op, Name: "q"})
			r := x.wait(t, id)
			require.Equal(t, []string{"canceled"}, r.Is)
			require.Equal(t, "2", r.Text)
			require.Zero(t, waitersOf(a, "auto"))
			stays(t, x, all)
			y.must(t, task{Op: "event.set", Name: "manual"})
			require.Equal(t, []string{"canceled"}, x.wait(t, all).Is)
			y.must(t, task{Op: "event.reset", Name: "manual"})
		}
		r := x.do(t, task{Op: "any", Names: names})
		require.Equal(t, []string{"canceled"}, r.Is)
		require.Equal(t, "2", r.Text)
		require.Equal(t, "1", x.must(t, task{Op: "any", Names: []string{"f", "seq:q@2", "seq:q@3"}}).Text)
	})
}

// TestWaitAnySequencerCloses checks that a WaitAny for a Sequencer and Events ends if its process closes the arena.
// The WaitAny leaves no waiter behind, and takes no token that is made later.
func TestWaitAnySequencerCloses(t *testing.T) {
	a := newArena(t, nil)
	auto := mixEvents(t, a)
	x := remoteHand(t, a, "x")
	id := x.blocked(t, task{Op: "any", Name: "auto", Names: []string{"seq:q@1", "event:manual", "event:auto"}})
	x.must(t, task{Op: "close-arena"})
	require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	alone(t, a, 1)
	require.Zero(t, prims.Queued(a, auto.Offset())+waitersOf(a, "q"))
	auto.Set()
	require.True(t, auto.TryWait())
}

// mixRace tests that no token of an auto-reset Event is lost or duplicated. The setter makes a token only after some
// process has taken the token before it. If a token is lost, the test hangs. If a token is duplicated, the count of
// taken tokens is too high.
type mixRace struct {
	gate, token, over *prims.Event
	taken             *prims.Sequencer
}

func openMixRace(a *arena.Arena) (r mixRace, err error) {
	var errs [4]error
	r.gate, errs[0] = prims.OpenEvent(a, "gate", &prims.EventOptions{Mode: prims.EventBidirectional})
	r.token, errs[1] = prims.OpenEvent(a, "token", &prims.EventOptions{Mode: prims.EventAutoReset})
	r.over, errs[2] = prims.OpenEvent(a, "over", &prims.EventOptions{})
	r.taken, errs[3] = prims.OpenSequencer(a, "taken", nil)
	return r, errors.Join(errs[:]...)
}

// take takes tokens until the Event x.over is set. It waits for several objects at once, and some of its waits end
// without a token.
func (x mixRace) take(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for {
		err := ends(r, func(ctx context.Context) error {
			far := x.taken.At(1 << 40)
			i, err := prims.WaitAnyContext(ctx, x.over, x.gate, far, x.token)
			switch {
			case err == nil && i == 0:
				return shmsync.ErrCanceled
			case err == nil && i == 3:
				x.taken.Increment()
			}
			return err
		})
		switch {
		case errors.Is(err, shmsync.ErrCanceled):
			return nil
		case err != nil && !gaveUp(err):
			return err
		}
	}
}

func init() {
	proctest.Register("await/race", func(c *proctest.Child) {
		var p struct {
			Arena string
			Sets  uint64 // how many tokens the process makes; if 0, it takes tokens
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		x, err := openMixRace(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if p.Sets == 0 {
			if err := x.take(7); err != nil {
				c.Fatal(err)
			}
			os.Exit(0)
		}
		r := rand.New(rand.NewPCG(3, 4))
		for n := range p.Sets {
			first := r.IntN(3)
			if first == 0 {
				x.gate.Set()
			}
			x.token.Set()
			if first == 1 {
				x.gate.Set()
			}
			x.gate.Reset()
			if err := x.taken.Wait(n + 1); err != nil {
				c.Fatal(err)
			}
			if v := x.taken.Value(); v != n+1 {
				c.Fatalf("%d tokens taken of %d", v, n+1)
			}
		}
		x.over.Set()
	})
}

func TestWaitAnyEventConserves(t *testing.T) {
	sets := proctest.Rounds(2000, uint64(20_000))
	a := newArena(t, nil)
	x, err := openMixRace(a)
	require.NoError(t, err)
	start := func(sets uint64) *proctest.Proc {
		p := proctest.Start(t, "await/race", proctest.Params(map[string]any{"Arena": nameOf(a), "Sets": sets}),
			proctest.Dump(func() string { return words(a) }))
		p.Await(t)
		return p
	}
	taker := start(0)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if err := x.take(uint64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	start(sets).WaitExit(t)
	taker.WaitExit(t)
	wg.Wait()
	require.Equal(t, sets, x.taken.Value())
	require.False(t, x.token.TryWait())
	alone(t, a, 1)
	require.Zero(t, x.token.Counted())
	require.Zero(t, prims.Queued(a, x.token.Offset())+prims.Queued(a, x.gate.Offset())+prims.Queued(a, x.taken.Offset()))
	sound(t, a)
}
