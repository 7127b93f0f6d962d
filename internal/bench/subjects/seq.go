//go:build linux

package subjects

import (
	"context"
	"errors"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/prims"
)

// seqSubjects are the library's sequencers and events. With an event, the uncontended scenario measures pairs of Set
// and Wait of an auto-reset event.
var seqSubjects = []*bench.Subject{
	{By: bench.Library, Prim: "sequencer", Segment: newArena, Open: openSequencer,
		Brief:     []string{"event", "seq"},
		Scenarios: []string{"handoff", "wake", "idle", "event", "seq"}},
	{By: bench.Library, Prim: "event", Segment: newArena, Open: openEvent,
		Brief:     []string{"uncontended", "handoff", "event"},
		Scenarios: []string{"uncontended", "handoff", "wake", "idle", "event"}},
	{By: bench.Library, Prim: "sequencer-tokens", Segment: newArena, Open: openTokenCrowd, Scenarios: []string{"waiters"}},
	{By: bench.Library, Prim: "event-each", Segment: newArena, Open: openEventCrowd, Brief: []string{}, Scenarios: []string{"waiters"}},
}

// sequencer gives a prims.Sequencer the methods that the scenarios call.
type sequencer struct{ *prims.Sequencer }

func openSequencer(w *bench.Worker, thread int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	switch bench.ScenarioByID(w.Scenario).Name {
	case "handoff", "wake", "idle":
		e := bench.End(w, thread)
		out, err := prims.OpenSequencer(a, tokenNames[e], nil)
		if err != nil {
			return nil, err
		}
		in, err := prims.OpenSequencer(a, tokenNames[1-e], nil)
		if err != nil {
			return nil, err
		}
		got := uint64(0)
		return newWordToken(w, e, func() { out.Increment() }, func() {
			got++
			peers.Must(in.Wait(got))
		}), nil
	}
	s, err := prims.OpenSequencer(a, "sequencer", nil)
	return sequencer{s}, err
}

func (s sequencer) Increment()         { s.Sequencer.Increment() }
func (s sequencer) Open(uint64)        { s.Increment() }
func (s sequencer) Await(round uint64) { peers.Must(s.Sequencer.Wait(round)) }

func (s sequencer) Wait(token uint64) bool {
	err := s.Sequencer.Wait(token)
	if !errors.Is(err, shmsync.ErrCanceled) {
		peers.Must(err)
	}
	return err == nil
}

// event gives an auto-reset prims.Event the methods that the scenarios call.
type event struct{ *prims.Event }

func openEvent(w *bench.Worker, thread int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	auto := &prims.EventOptions{Mode: prims.EventAutoReset}
	switch bench.ScenarioByID(w.Scenario).Name {
	case "handoff", "wake", "idle":
		e := bench.End(w, thread)
		out, err := prims.OpenEvent(a, tokenNames[e], auto)
		if err != nil {
			return nil, err
		}
		in, err := prims.OpenEvent(a, tokenNames[1-e], auto)
		if err != nil {
			return nil, err
		}
		return newWordToken(w, e, out.Set, in.Wait), nil
	case "event":
		var g eventGate
		for i := range g {
			if g[i], err = prims.OpenEvent(a, tokenNames[i], nil); err != nil {
				return nil, err
			}
		}
		return g, nil
	}
	v, err := prims.OpenEvent(a, "event", auto)
	return event{v}, err
}

func (e event) Pairs(n int, counter *uint64) {
	for range n {
		e.Set()
		e.Wait()
		*counter++
	}
}

// eventGate lets waiters through in rounds. It has two events, one for the even rounds and one for the odd rounds. The
// event of a round stays set until the next round begins.
type eventGate [2]*prims.Event

func (g eventGate) Open(round uint64) {
	g[(round+1)%2].Reset()
	g[round%2].Set()
}

func (g eventGate) Await(round uint64) { g[round%2].Wait() }

// waitCrowd lets many goroutines wait. Each goroutine passes its own number to the function wait.
type waitCrowd struct {
	wait    func(ctx context.Context, i int) error
	release func()
}

func (c waitCrowd) Block(i int)                                   { peers.Must(c.wait(nil, i)) }
func (c waitCrowd) BlockContext(ctx context.Context, i int) error { return c.wait(ctx, i) }
func (c waitCrowd) Release()                                      { c.release() }

func openTokenCrowd(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	s, err := prims.OpenSequencer(a, "sequencer", nil)
	if err != nil {
		return nil, err
	}
	return waitCrowd{
		wait:    func(ctx context.Context, i int) error { return s.WaitContext(ctx, uint64(i)+1) },
		release: func() { s.Advance(w.N) },
	}, nil
}

func openEventCrowd(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	events := make([]*prims.Event, w.N)
	for i := range events {
		if events[i], err = prims.OpenEvent(a, "", nil); err != nil {
			return nil, err
		}
	}
	return waitCrowd{
		wait: func(ctx context.Context, i int) error { return events[i].WaitContext(ctx) },
		release: func() {
			for _, e := range events {
				e.Set()
			}
		},
	}, nil
}
