//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// stock is the state of a Waitable whose rules fail for certain waits.
type stock struct{ Free, Taken int64 }

// The values of the argument of a wait. Each says which rule fails for the wait, and how. A rule that exits
// calls runtime.Goexit, as t.FailNow does.
const (
	fine int32 = iota
	panicsInClaim
	exitsInClaim
	panicsInClaimWhenFree
	exitsInClaimWhenFree
	panicsInRelease
	exitsInRelease
	panicsInOnDeath
	exitsInOnDeath
)

var failingRules = prims.Rules[stock, int32]{
	Claim: func(s *stock, e int32) bool {
		s.Taken++ // has an effect only if the rule returns true
		switch {
		case e == panicsInClaim, e == panicsInClaimWhenFree && s.Free > 0:
			panic("this claim fails")
		case e == exitsInClaim, e == exitsInClaimWhenFree && s.Free > 0:
			runtime.Goexit()
		}
		s.Free--
		return s.Free >= 0
	},
	Release: func(s *stock, e int32) {
		s.Free++
		s.Taken--
		switch e {
		case panicsInRelease:
			panic("this release fails")
		case exitsInRelease:
			runtime.Goexit()
		}
	},
	OnDeath: func(s *stock, e int32) {
		s.Free++
		s.Taken--
		switch e {
		case panicsInOnDeath:
			panic("this reap fails")
		case exitsInOnDeath:
			runtime.Goexit()
		}
	},
}

// stocked has the objects that a process of these tests has open.
type stocked struct {
	x *prims.Waitable[stock, int32]
	m *prims.Mutex
	s *prims.Semaphore
}

func openStocked(a *arena.Arena) (k stocked, err error) {
	var errs [3]error
	k.x, errs[0] = prims.OpenWaitable(a, "stock", stock{}, failingRules, &prims.WaitableOptions{Spin: -1})
	k.m, errs[1] = prims.OpenMutex(a, "mutex", nil)
	k.s, errs[2] = prims.OpenSemaphore(a, "semaphore", 1, nil)
	return k, errors.Join(errs[:]...)
}

type stockOrder struct {
	ID int
	Op string
	E  int32
}

type stockAnswer struct {
	ID    int
	OK    bool
	Err   string
	Lost  bool   // whether errors.Is(err, ErrNotRecoverable)
	Panic string // the value of the panic
	Exit  bool   // whether its goroutine ended
}

// do carries out an order.
func (k stocked) do(o stockOrder) (a stockAnswer) {
	a.ID = o.ID
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended := false
		fill := func(err error) {
			if err != nil {
				a.Err, a.Lost = err.Error(), errors.Is(err, shmsync.ErrNotRecoverable)
			}
		}
		defer func() {
			switch v := recover().(type) {
			case nil:
				a.Exit = !ended
			case error:
				a.Panic = "an error"
				fill(v)
			default:
				a.Panic = fmt.Sprint(v)
			}
		}()
		if point, arms := strings.CutPrefix(o.Op, "arm "); arms {
			crashpoint.Arm(point, int(o.E))
		}
		if point, arms := strings.CutPrefix(o.Op, "stop at "); arms {
			crashpoint.ArmStop(point, int(o.E))
		}
		switch o.Op {
		case "wait":
			fill(k.x.Wait(o.E))
		case "wait a while":
			ctx, cancel := context.WithTimeout(context.Background(), timeout())
			fill(k.x.WaitContext(ctx, o.E))
			cancel()
		case "try":
			a.OK = k.x.TryWait(o.E)
		case "release":
			k.x.Release(o.E)
		case "free":
			k.x.Update(func(s *stock) { s.Free++ })
		case "recover":
			fill(k.x.Recover(func(*stock) error { return nil }))
		case "lock":
			k.m.Lock()
		case "acquire":
			fill(k.s.AcquireContext(context.Background(), 1))
		}
		ended = true
	}()
	<-done
	return a
}

func init() {
	proctest.Register("waitable/rules", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "stockist"})
		if err != nil {
			c.Fatal(err)
		}
		k, err := openStocked(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			var o stockOrder
			c.Recv(&o)
			go func() { c.Say(k.do(o)) }()
		}
	})
}

// stockist is a helper process that carries out orders.
type stockist struct {
	*proctest.Proc
	next int
	said map[int]stockAnswer
}

func newStockist(t *testing.T, a *arena.Arena, opts ...proctest.Option) *stockist {
	opts = append(opts, proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p := proctest.Start(t, "waitable/rules", opts...)
	p.Await(t)
	return &stockist{Proc: p, said: map[int]stockAnswer{}}
}

// begin sends an order to the process, and returns the number of the order. answer waits for the answer to an
// order.
func (s *stockist) begin(op string, e int32) (id int) {
	s.next++
	s.Send(stockOrder{s.next, op, e})
	return s.next
}

func (s *stockist) answer(t *testing.T, id int) stockAnswer {
	t.Helper()
	for {
		if a, ok := s.said[id]; ok {
			return a
		}
		var a stockAnswer
		s.Recv(t, &a)
		s.said[a.ID] = a
	}
}

func (s *stockist) do(t *testing.T, op string, e int32) stockAnswer {
	t.Helper()
	return s.answer(t, s.begin(op, e))
}

// isLost requires that x is not recoverable in this process and in the processes others. The parameter why is the
// reason that the errors have to give, and state is the state that x must have.
func isLost(t *testing.T, x *prims.Waitable[stock, int32], why string, state stock, others ...*stockist) {
	t.Helper()
	for _, p := range others {
		got := p.do(t, "wait a while", fine)
		require.True(t, got.Lost, "%+v", got)
		require.Contains(t, got.Err, why)
		got = p.do(t, "free", fine)
		require.True(t, got.Lost && got.Panic == "an error", "%+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout())
	defer cancel()
	err := x.WaitContext(ctx, fine)
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.ErrorContains(t, err, why)
	require.ErrorIs(t, x.Err(), shmsync.ErrNotRecoverable)
	require.False(t, x.TryWait(fine))
	require.Panics(t, func() { x.Update(func(*stock) {}) })
	require.Equal(t, state, x.State(), "a rule that fails changes nothing")
}

// TestWaitableRuleThatFailsEndsItsCallerOnly: a rule does not return in a call that needs it. Only the
// goroutine of this call ends. The rule changes nothing. All processes get an error, and so do the waiters.
func TestWaitableRuleThatFailsEndsItsCallerOnly(t *testing.T) {
	for name, c := range map[string]struct {
		e     int32
		op    string
		says  stockAnswer
		why   string
		state stock
	}{
		"panic in Wait":    {panicsInClaim, "wait", stockAnswer{Panic: "this claim fails"}, "this claim fails", stock{1, 1}},
		"exit in Wait":     {exitsInClaim, "wait", stockAnswer{Exit: true}, "runtime.Goexit", stock{1, 1}},
		"panic in TryWait": {panicsInClaim, "try", stockAnswer{Panic: "this claim fails"}, "this claim fails", stock{1, 1}},
		"panic in Release": {panicsInRelease, "release", stockAnswer{Panic: "this release fails"}, "this release fails", stock{0, 2}},
		"exit in Release":  {exitsInRelease, "release", stockAnswer{Exit: true}, "runtime.Goexit", stock{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			k, err := openStocked(a)
			require.NoError(t, err)
			k.x.Update(func(s *stock) { s.Free = 2 })
			p, other := newStockist(t, a), newStockist(t, a)
			require.NoError(t, k.x.WaitContext(t.Context(), fine))
			waits := -1
			if c.op == "release" {
				require.Equal(t, stockAnswer{ID: 1}, p.do(t, "wait", c.e))
				waits = other.begin("wait", fine)
				eventually(t, "queued", func() string { return words(a) }, func() bool { return prims.QueuedAt(a, k.x.Object()) == 1 })
			}
			c.says.ID = p.begin(c.op, c.e)
			require.Equal(t, c.says, p.answer(t, c.says.ID))
			if waits > 0 {
				got := other.answer(t, waits)
				require.True(t, got.Lost, "the waiter is told: %+v", got)
				require.Contains(t, got.Err, c.why)
			}
			isLost(t, k.x, c.why, c.state, p, other)
			require.Contains(t, k.x.Err().Error(), fmt.Sprintf("stockist (pid %d", p.Pid()), "whose rule failed")
		})
	}
}

// TestWaitableRuleThatFailsForAWaiterSparesTheServer: a call serves the wait of another goroutine, and the rule
// for that wait does not return. The call still returns normally, because its own work is done. The waiter gets
// an error.
func TestWaitableRuleThatFailsForAWaiterSparesTheServer(t *testing.T) {
	for name, e := range map[string]int32{"panic": panicsInClaimWhenFree, "exit": exitsInClaimWhenFree} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			k, err := openStocked(a)
			require.NoError(t, err)
			p, server := newStockist(t, a), newStockist(t, a)
			waits := p.begin("wait", e)
			eventually(t, "queued", func() string { return words(a) }, func() bool { return prims.QueuedAt(a, k.x.Object()) == 1 })
			got := server.do(t, "free", fine)
			require.Equal(t, stockAnswer{ID: 1, Exit: e == exitsInClaimWhenFree}, got)
			got = p.answer(t, waits)
			require.True(t, got.Lost, "%+v", got)
			isLost(t, k.x, map[bool]string{true: "runtime.Goexit", false: "this claim fails"}[e == exitsInClaimWhenFree], stock{1, 0}, p, server)
		})
	}
}

// TestWaitableRuleThatFailsForTheDeadKillsNoBystander: a rule fails while a process reaps a death. The process
// does not end. Everything else that the dead process had is recovered.
func TestWaitableRuleThatFailsForTheDeadKillsNoBystander(t *testing.T) {
	for name, e := range map[string]int32{"panic": panicsInOnDeath, "exit": exitsInOnDeath} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			victim, first, second := newStockist(t, a), newStockist(t, a), newStockist(t, a)
			require.Equal(t, stockAnswer{ID: 1}, victim.do(t, "free", fine))
			for i, op := range []string{"wait", "lock", "acquire"} {
				require.Equal(t, stockAnswer{ID: i + 2}, victim.do(t, op, e))
			}
			waits, acquires := first.begin("wait", fine), second.begin("acquire", fine)
			victim.Kill(t)
			require.Equal(t, stockAnswer{ID: acquires}, second.answer(t, acquires), "a permit of the dead")
			got := second.do(t, "lock", fine)
			require.Contains(t, got.Err, "owner died")
			got = first.answer(t, waits)
			require.True(t, got.Lost, "%+v", got)
			k, err := openStocked(a)
			require.NoError(t, err)
			isLost(t, k.x, map[bool]string{true: "runtime.Goexit", false: "this reap fails"}[e == exitsInOnDeath], stock{0, 1}, first, second)

			another := newStockist(t, a)
			require.Equal(t, stockAnswer{ID: 1}, another.do(t, "free", fine).orLost())
			second.Kill(t)
			require.Equal(t, stockAnswer{ID: 2}, another.do(t, "acquire", fine), "a later death is cleaned up as well")
		})
	}
}

// orLost returns the answer a, unless a says that the Waitable was lost. Then it returns the answer of a call that
// succeeded.
func (a stockAnswer) orLost() stockAnswer {
	if a.Lost {
		return stockAnswer{ID: a.ID}
	}
	return a
}

// TestWaitableRecoverBringsBackAfterARuleFailed: after a rule has failed, Recover gives the Waitable a new
// state, and all processes can use it again. The claims of processes that died meanwhile are undone. Living
// processes may release their claims.
func TestWaitableRecoverBringsBackAfterARuleFailed(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	k.x.Update(func(s *stock) { s.Free = 3 })
	require.NoError(t, k.x.RecoverContext(t.Context(), func(*stock) error { t.Error("it is healthy"); return nil }))
	require.PanicsWithValue(t, "shmsync: Recover of waitable stock without a repair", func() { k.x.RecoverContext(t.Context(), nil) })
	p, victim := newStockist(t, a), newStockist(t, a)
	require.NoError(t, k.x.WaitContext(t.Context(), fine))
	require.Equal(t, stockAnswer{ID: 1}, victim.do(t, "wait", fine))
	require.Equal(t, stockAnswer{ID: 1, Panic: "this claim fails"}, p.do(t, "wait", panicsInClaim))
	victim.Kill(t)
	isLost(t, k.x, "this claim fails", stock{1, 2}, p)
	require.PanicsWithValue(t, shmsync.ErrNotRecoverable.Error(), func() {
		defer func() {
			err, _ := recover().(error)
			require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
			panic(shmsync.ErrNotRecoverable.Error())
		}()
		k.x.Release(fine)
	})

	err = k.x.RecoverContext(t.Context(), func(s *stock) error { s.Free = 100; return errors.New("no idea") })
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.ErrorContains(t, err, "no idea")
	require.PanicsWithValue(t, "worse", func() { k.x.RecoverContext(t.Context(), func(s *stock) error { panic("worse") }) })
	isLost(t, k.x, "this claim fails", stock{1, 2}, p)

	require.NoError(t, k.x.RecoverContext(t.Context(), func(s *stock) error { s.Free += 10; return nil }))
	require.NoError(t, k.x.Err())
	eventually(t, "the claim of the dead comes back", func() string { return words(a) }, func() bool { return k.x.State() == stock{12, 1} })
	k.x.Release(fine)
	require.Equal(t, stock{13, 0}, k.x.State())
	require.Equal(t, stockAnswer{ID: p.next + 1}, p.do(t, "wait", fine))
}

// TestWaitableClosedWhileReapingKeepsItsWords: to reap, a process uses one of its own handles on a Waitable. The
// words stay mapped until it has reaped, even if the handle is closed meanwhile.
func TestWaitableClosedWhileReapingKeepsItsWords(t *testing.T) {
	a := newArena(t, nil)
	keeper := newStockist(t, a)
	victim := newStockist(t, a)
	require.Equal(t, stockAnswer{ID: 1}, victim.do(t, "free", fine))
	require.Equal(t, stockAnswer{ID: 2}, victim.do(t, "wait", fine))
	keeper.Stop(t) // so that this process is the one that reaps

	type seen struct {
		err   error
		ended bool
	}
	rules, closed := failingRules, make(chan seen, 1)
	opened := make(chan *prims.Waitable[stock, int32], 1)
	rules.OnDeath = func(s *stock, e int32) {
		s.Free++
		s.Taken--
		x := <-opened
		err := x.Close()
		closed <- seen{err, x.Ended()}
	}
	x, err := prims.OpenWaitable(a, "stock", stock{}, rules, &prims.WaitableOptions{Spin: -1})
	require.NoError(t, err)
	opened <- x
	victim.Kill(t)
	select {
	case got := <-closed:
		require.NoError(t, got.err)
		require.False(t, got.ended, "the words went away under the reaper")
	case <-after(timeout()):
		t.Fatalf("nobody has reaped\n%s", words(a))
	}
	eventually(t, "the handle ends when the reaper has left", func() string { return words(a) }, x.Ended)
	alone(t, a, 2)
	keeper.Cont(t)
	require.Equal(t, stockAnswer{ID: 1}, keeper.do(t, "wait a while", fine), "it can be used")
}
