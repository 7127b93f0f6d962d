//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// hand is an actor that uses Conds and Futures, and waits for several objects at once.
type hand struct {
	conversation[task]
	a *arena.Arena
}

// task is an order for a hand.
type task struct {
	ID     int
	Op     string
	Name   string // name of the object
	Lock   string // of a Cond: the name of its Mutex; "local" for a sync.Mutex
	Policy prims.Policy
	N      int
	Errno  syscall.Errno
	Names  []string // the elements of a wait for several objects: "future", "futex@token", or a name for mixAwaitable
	Limit  time.Duration
	Ended  bool // the context has ended before the task begins
}

func (o task) number() int { return o.ID }
func (o task) op() string  { return o.Op }

func (o task) numbered(n int) task {
	o.ID = n
	return o
}

type handStage struct {
	a *arena.Arena
	contexts
	mu      sync.Mutex
	conds   map[string]*prims.Cond
	futures map[string]*prims.Future
	futexes map[string]*prims.Futex
	pending map[int]*prims.Pending
	plain   sync.Mutex // the lock "local"
}

func newHandStage(a *arena.Arena) *handStage {
	return &handStage{
		a: a, conds: map[string]*prims.Cond{}, futures: map[string]*prims.Future{}, futexes: map[string]*prims.Futex{},
		pending: map[int]*prims.Pending{},
	}
}

func init() {
	registerActor("hand", func(a *arena.Arena) stageOf[task] { return newHandStage(a) })
}

func localHand(a *arena.Arena) *hand { return &hand{withLocal[task](a, newHandStage(a)), a} }

func remoteHand(t testing.TB, a *arena.Arena, label string, opts ...proctest.Option) *hand {
	t.Helper()
	return &hand{withRemote[task](t, a, "hand", label, opts...), a}
}

// hands runs a test with two hands: first with both in this process, and then with each in a
// process of its own.
func hands(t *testing.T, test func(t *testing.T, x, y *hand, a *arena.Arena)) {
	t.Run("one process", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, localHand(a), localHand(a), a)
	})
	t.Run("two processes", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, remoteHand(t, a, "x"), remoteHand(t, a, "y"), a)
	})
}

// blocked starts a task and returns when this process sees one more waiter at the object of the
// task.
func (x *hand) blocked(t testing.TB, o task) int {
	t.Helper()
	n := mostWaits(func() int { return waitersOf(x.a, o.Name) })
	id := x.start(o)
	describe := func() string {
		return fmt.Sprintf("%d waits before, %d now\n%s", n, waitersOf(x.a, o.Name), words(x.a))
	}
	eventually(t, fmt.Sprintf("%s of %s waits", o.Op, o.Name), describe, func() bool { return waitersOf(x.a, o.Name) > n })
	return id
}

// mostWaits calls count several times and returns the largest result. One call may return too few: after a change of
// the object, the next periodic check wakes all waiters for a moment, and count does not see a waiter that is awake.
// The largest result is still too small if the waiters are awake during all calls.
func mostWaits(count func() int) (n int) {
	for range 10 {
		n = max(n, count())
	}
	return n
}

// waitersOf returns how many waits are in the queue of the named object, or sleep on its word.
func waitersOf(a *arena.Arena, name string) (n int) {
	for o := range a.Objects() {
		if o.Name == name {
			if prims.Queueless(arenakernel.Object(o)) {
				n += queued(a, o.Offset)
				continue
			}
			n += prims.QueuedAt(a, arenakernel.Object(o))
		}
	}
	return n
}

// lockOf returns the lock that a task names.
func (s *handStage) lockOf(o task) (sync.Locker, error) {
	if o.Lock == "local" {
		return &s.plain, nil
	}
	name := o.Lock
	if name == "" {
		name = "lock of " + o.Name
	}
	return prims.OpenMutex(s.a, name, &prims.MutexOptions{Policy: o.Policy})
}

func (s *handStage) cond(o task) (*prims.Cond, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conds[o.Name]; c != nil {
		return c, nil
	}
	l, err := s.lockOf(o)
	if err != nil {
		return nil, err
	}
	c, err := prims.OpenCond(s.a, o.Name, l, nil)
	if err == nil {
		s.conds[o.Name] = c
	}
	return c, err
}

func (s *handStage) future(name string) (*prims.Future, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.futures[name]; f != nil {
		return f, nil
	}
	f, err := prims.OpenFuture(s.a, name, nil)
	if err == nil {
		s.futures[name] = f
	}
	return f, err
}

func (s *handStage) futex(name string) (*prims.Futex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.futexes[name]; f != nil {
		return f, nil
	}
	f, err := prims.OpenFutex(s.a, name, nil)
	if err == nil {
		s.futexes[name] = f
	}
	return f, err
}

func (s *handStage) perform(o task, a *answer) error {
	ctx := s.contexts.begin(o.ID, o.Limit, o.Ended)
	switch {
	case o.Op == "cancel":
		s.contexts.end(o.N)
		return nil
	case o.Op == "close-arena":
		return s.a.Close()
	case strings.Contains(o.Op, "."):
		return s.performMix(o, a)
	case o.Op[0] == 'c':
		c, err := s.cond(o)
		if err != nil {
			return err
		}
		return s.performCond(ctx, c, o, a)
	}
	return s.performFuture(ctx, o, a)
}

// turnsOf returns the counter of the waits for a Cond that have returned. The lock of the Cond guards the counter.
func (s *handStage) turnsOf(name string) (*int64, error) {
	return arena.Value[int64](s.a, "turns of "+name)
}

func (s *handStage) performCond(ctx context.Context, c *prims.Cond, o task, a *answer) error {
	turns, err := s.turnsOf(o.Name)
	if err != nil {
		return err
	}
	switch o.Op {
	case "cwait", "cwaitctx":
		c.L.Lock()
		if o.Op == "cwait" {
			c.Wait()
		} else {
			err = c.WaitContext(ctx)
			if errors.Is(err, shmsync.ErrOwnerDead) {
				return err // the lock is not held
			}
		}
		if err == nil {
			*turns++
			a.N = uint64(*turns)
		}
		c.L.Unlock()
		return err
	case "cwaitlater": // waits with a lock of its own
		var l sync.Mutex
		c, err := prims.CondAt(s.a, c.Offset(), &l)
		if err != nil {
			return err
		}
		l.Lock()
		c.Wait()
		l.Unlock()
	case "cwaitkeep": // keeps the lock after it has waited
		c.L.Lock()
		return c.WaitContext(ctx)
	case "csignal":
		for range max(o.N, 1) {
			c.Signal()
		}
	case "cbroadcast":
		c.Broadcast()
	case "clock":
		c.L.Lock()
	case "cunlock":
		c.L.Unlock()
	case "copen":
	default:
		panic("no such task: " + o.Op)
	}
	return nil
}

func (s *handStage) awaiters(names []string) (list []prims.Awaitable, err error) {
	for _, name := range names {
		if x, err := mixAwaitable(s.a, name); x != nil || err != nil {
			if err != nil {
				return nil, err
			}
			list = append(list, x)
			continue
		}
		futex, at, isFutex := strings.Cut(name, "@")
		if !isFutex {
			f, err := s.future(name)
			if err != nil {
				return nil, err
			}
			list = append(list, f)
			continue
		}
		f, err := s.futex(futex)
		if err != nil {
			return nil, err
		}
		var token uint64
		fmt.Sscan(at, &token)
		list = append(list, f.At(token))
	}
	return list, nil
}

func (s *handStage) performFuture(ctx context.Context, o task, a *answer) error {
	switch o.Op {
	case "any", "all":
		list, err := s.awaiters(o.Names)
		if err != nil {
			return err
		}
		if o.Op == "all" {
			return prims.WaitAllContext(ctx, list...)
		}
		i, err := prims.WaitAnyContext(ctx, list...)
		a.Text = fmt.Sprint(i)
		return err
	case "post":
		f, err := s.futex(o.Name)
		if err == nil {
			f.Post()
		}
		return err
	case "setall":
		var list []*prims.Future
		for _, name := range o.Names {
			f, err := s.future(name)
			if err != nil {
				return err
			}
			list = append(list, f)
		}
		a.N = uint64(prims.SetAll(o.Errno, list...))
		return nil
	}
	f, err := s.future(o.Name)
	if err != nil {
		return err
	}
	switch o.Op {
	case "open":
	case "abandon": // does what a reaper does after the death of the producer
		f.ReapProducer()
	case "look": // makes this process do its periodic check now
		f.CheckNow()
	case "own": // claims the Future
		a.OK = f.Claim()
	case "set":
		a.OK = f.Set(o.Errno)
	case "isset":
		var e syscall.Errno
		e, a.OK = f.IsSet()
		a.N = uint64(e)
	case "wait":
		e, err := f.Wait()
		a.N = uint64(e)
		return err
	case "waitctx":
		e, err := f.WaitContext(ctx)
		a.N = uint64(e)
		return err
	case "reset":
		a.OK = f.Reset()
	case "state":
		st := f.State()
		a.OK, a.N, a.Who = st.Set, uint64(st.Errno), st.Producer
		return st.Err
	case "subscribe": // the answer comes when the Future calls the subscribed function
		type result struct {
			errno syscall.Errno
			err   error
		}
		got := make(chan result, 2)
		p := f.Subscribe(func(e syscall.Errno, err error) { got <- result{e, err} })
		s.mu.Lock()
		s.pending[o.ID] = p
		s.mu.Unlock()
		r := <-got
		if err := p.Wait(); !errors.Is(r.err, err) && r.err != err {
			return fmt.Errorf("the function got %v, the Pending %v", r.err, err)
		}
		a.N = uint64(r.errno)
		return r.err
	case "unsubscribe":
		s.mu.Lock()
		p := s.pending[o.N]
		s.mu.Unlock()
		a.OK = p.Cancel()
	default:
		panic("no such task: " + o.Op)
	}
	return nil
}
