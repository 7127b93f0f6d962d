//go:build linux

package prims_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// gateActor starts an actor: a process that carries out the orders of a test. A gate actor uses
// WaitGroups, Latches, Barriers and Onces.
func gateActor(t testing.TB, a *arena.Arena, label string, opts ...proctest.Option) *actor {
	t.Helper()
	return actorOf(t, a, "gate", label, opts...)
}

func init() {
	registerActor("gate", func(a *arena.Arena) stageOf[order] { return &gateStage{stage: newStage(a)} })
}

type gateStage struct {
	*stage
	block sync.Mutex // locked from the order "block" to the order "unblock"; functions of other orders wait for it
}

// gateTraces has counts of what the functions of the orders have done.
type gateTraces struct {
	Count [4]uint64
}

func (s *gateStage) perform(o order, a *answer) error {
	ctx := s.contextOf(o)
	tr, err := arena.Value[gateTraces](s.a, "traces")
	if err != nil {
		return err
	}
	kind, verb, _ := strings.Cut(o.Op, ".")
	switch kind {
	case "cancel":
		return s.stage.perform(o, a)
	case "unblock":
		s.block.Unlock()
		return nil
	case "block": // functions that run from now on wait for the order "unblock"
		s.block.Lock()
		return nil
	case "wg":
		g, err := prims.OpenWaitGroup(s.a, o.Object, nil)
		if err != nil {
			return err
		}
		switch verb {
		case "add":
			g.Add(o.N)
		case "claim":
			g.Claim(o.N)
		case "done":
			g.Done()
		case "go": // a function that adds N to Count[0], and panics if Token is not 0
			g.Go(func() {
				s.block.Lock()
				s.block.Unlock()
				tr.Count[0] += uint64(o.N)
				if o.Token != 0 {
					panic("as told")
				}
			})
		case "wait":
			g.Wait()
			a.N = tr.Count[0]
		case "waitctx":
			err := g.WaitContext(ctx)
			a.N = tr.Count[0]
			return err
		case "spin": // adds N and subtracts it, Token times
			for range o.Token {
				g.Add(o.N)
				g.Add(-o.N)
			}
		case "reset":
			g.Reset()
		case "reap": // does what a reaper does after the participant in slot N has died
			g.Reap(func(slot int) bool { return slot == o.N })
		case "pingpong": // N times: waits for the group o.Object, adds 1 to it, and calls Done of the group "pong"
			p, err := prims.OpenWaitGroup(s.a, "pong", nil)
			if err != nil {
				return err
			}
			for i := range uint64(o.N) {
				g.Wait()
				if tr.Count[0] != i+1 {
					return fmt.Errorf("round %d: the other process has counted %d", i, tr.Count[0])
				}
				tr.Count[1]++
				g.Add(1)
				p.Done()
			}
		}
	case "latch":
		if verb == "race" { // uses N latches of size 2, one after the other
			for i := range o.N {
				l, err := prims.OpenLatch(s.a, fmt.Sprintf("%s-%d", o.Object, i), 2, nil)
				if err != nil {
					return err
				}
				if i%2 == 0 {
					l.ArriveAndWait(1)
				} else {
					l.CountDown(1)
					l.Wait()
				}
			}
			return nil
		}
		if verb == "open" { // creates a latch of size N
			_, err := prims.OpenLatch(s.a, o.Object, int64(o.N), nil)
			return err
		}
		l, err := prims.AttachLatch(s.a, o.Object, nil)
		if err != nil {
			return err
		}
		switch verb {
		case "claim":
			l.Claim(int64(o.N))
		case "down":
			l.CountDown(int64(o.N))
		case "try":
			a.OK = l.TryWait()
		case "wait":
			l.Wait()
		case "waitctx":
			return l.WaitContext(ctx)
		case "arrive":
			l.ArriveAndWait(int64(o.N))
		case "arrivectx":
			return l.ArriveAndWaitContext(ctx, int64(o.N))
		}
	case "barrier":
		b, err := prims.AttachBarrier(s.a, o.Object, &prims.BarrierOptions{Completion: s.completion(o, tr)})
		if err != nil {
			return err
		}
		switch verb {
		case "open":
		case "arrive":
			a.N = uint64(b.Arrive(int64(o.N)))
		case "wait":
			b.Wait(prims.BarrierPhase(o.Token))
		case "waitctx":
			return b.WaitContext(ctx, prims.BarrierPhase(o.Token))
		case "meet":
			b.ArriveAndWait()
		case "meetctx":
			return b.ArriveAndWaitContext(ctx)
		case "drop":
			b.ArriveAndDrop()
		case "join":
			b.Register(int64(o.N))
		case "leave":
			b.Deregister()
		case "reset":
			if a.OK = o.N == 0 && b.Reset(); o.N != 0 {
				a.OK = b.ResetTo(int64(o.N))
			}
		case "reap": // does what a reaper does after the participant in slot N has died
			b.Reap(func(slot int) bool { return slot == o.N })
		case "spin": // takes part in N phases
			for range o.N {
				b.ArriveAndWait()
			}
		case "walk": // takes part in N phases; Token is the index of this actor's count
			return walk(b, tr, int(o.Token), o.N)
		}
	case "once":
		x, err := prims.OpenOnce(s.a, o.Object, nil)
		if err != nil {
			return err
		}
		f := func() {
			a.OK = true
			tr.Count[o.Token]++
			s.block.Lock()
			s.block.Unlock()
			if o.N != 0 {
				panic("as told")
			}
		}
		switch verb {
		case "do":
			x.Do(f)
		case "doctx":
			return x.DoContext(ctx, f)
		case "done":
			a.OK = x.Done()
		case "reap": // does what a reaper does after the runner has died
			x.ReapRunner()
		case "race": // uses N Onces, one after the other
			for i := range o.N {
				x, err := prims.OpenOnce(s.a, fmt.Sprintf("%s-%d", o.Object, i), nil)
				if err != nil {
					return err
				}
				x.Do(func() { tr.Count[0]++ })
				if tr.Count[0] <= uint64(i) {
					return fmt.Errorf("the function of %v has not returned", x)
				}
			}
		}
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

// completion returns the completion function of the Barriers of this process. It adds 1 to
// Count[3].
func (s *gateStage) completion(o order, tr *gateTraces) func() {
	switch {
	case strings.HasPrefix(o.Object, "plain"):
		return nil
	case strings.HasPrefix(o.Object, "panics"):
		return func() { panic("as told") }
	}
	return func() {
		s.block.Lock()
		s.block.Unlock()
		tr.Count[3]++
	}
}

// walk goes through phases with one other party. It returns an error if one party is a phase ahead
// of the other.
func walk(b *prims.Barrier, tr *gateTraces, who, phases int) error {
	for i := range uint64(phases) {
		tr.Count[who] = i + 1
		b.ArriveAndWait()
		if other := tr.Count[1-who]; other != i+1 {
			return fmt.Errorf("phase %d: the other party is in phase %d", i, other)
		}
		b.ArriveAndWait()
	}
	return nil
}

// queued returns how many waits are in the queues of the object at off. For an object without
// queues it returns how many waits sleep on its word.
func queued(a *arena.Arena, off arena.Offset) int {
	o, err := (*arenakernel.Arena)(a).ObjectAt(off)
	if err != nil {
		panic(err)
	}
	return prims.QueuedAt(a, o)
}

// gateBlocked starts an order and returns when its call waits at the object at off.
func gateBlocked(t testing.TB, a *arena.Arena, x *actor, off arena.Offset, o order) int {
	t.Helper()
	n := mostWaits(func() int { return queued(a, off) })
	id := x.start(o)
	eventually(t, o.Op+" waits", x.dump, func() bool { return queued(a, off) > n })
	return id
}

// stillQueued requires that n waits are left at the object at off. It tries again, because a waiter
// may be awake for a moment for its periodic check.
func stillQueued(t testing.TB, a *arena.Arena, off arena.Offset, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", n), func() string { return words(a) }, func() bool { return queued(a, off) == n })
}

// gateRefused requires that an answer reports the death of the owner with that label.
func gateRefused(t testing.TB, ans answer, label string) {
	t.Helper()
	require.Contains(t, ans.Is, "owner-dead", "%v", ans)
	require.NotNil(t, ans.Who, "%v", ans)
	require.Equal(t, label, ans.Who.Label)
}

func gateSmooth(t testing.TB, ans answer) {
	t.Helper()
	require.Empty(t, ans.Err+ans.Panic)
}
