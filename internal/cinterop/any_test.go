//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

func init() {
	verbs["any"] = (*goAgent).any
	verbs["all"] = (*goAgent).all
}

// any waits until the Future NAME-f is set, the Sequencer NAME-s has the count 1, or the Event NAME-e is set.
func (x *goAgent) any(o order) (uint64, error) {
	f, err := prims.OpenFuture(x.a, o.name+"-f", nil)
	if err != nil {
		return 0, err
	}
	s, err := prims.OpenSequencer(x.a, o.name+"-s", nil)
	if err != nil {
		return 0, err
	}
	e, err := prims.OpenEvent(x.a, o.name+"-e", nil)
	if err != nil {
		return 0, err
	}
	i, err := prims.WaitAnyContext(o.ctx(0), f, s.At(1), e)
	return uint64(i), err
}

// all waits for the three objects of any, and for a reset of the Event NAME-r. It waits until all four are ready,
// or, as the verb all.any, until one of them is.
func (x *goAgent) all(o order) (uint64, error) {
	f, err := prims.OpenFuture(x.a, o.name+"-f", nil)
	if err != nil {
		return 0, err
	}
	s, err := prims.OpenSequencer(x.a, o.name+"-s", nil)
	if err != nil {
		return 0, err
	}
	e, err := prims.OpenEvent(x.a, o.name+"-e", nil)
	if err != nil {
		return 0, err
	}
	r, err := prims.OpenEvent(x.a, o.name+"-r", &prims.EventOptions{Mode: prims.EventBidirectional})
	if err != nil {
		return 0, err
	}
	if o.verb == "all.wait" {
		return 0, prims.WaitAllContext(o.ctx(0), f, s.At(1), e, r.ResetAwaitable())
	}
	i, err := prims.WaitAnyContext(o.ctx(0), f, s.At(1), e, r.ResetAwaitable())
	return uint64(i), err
}

// Each object has to be ready at some time during the wait, but not all at the same time: an object that was
// ready and is reset later still counts.
func TestWaitAll(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		f, q, e, r := s.a.do(t, "future.open", "x-f"), s.a.do(t, "seq.open", "x-s"), s.a.do(t, "event.open", "x-e", 1), s.a.do(t, "event.open", "x-r", 2)
		s.a.do(t, "event.set", "x-r")
		s.b.start(t, "all.wait", "x", 20).fails(t, syscall.ETIMEDOUT)
		for _, off := range []uint64{f, q, e, r} {
			s.none(t, off)
		}
		w := s.b.blocked(t, r, 1, "all.any", "x")
		s.a.do(t, "event.reset", "x-r")
		if i := w.must(t); i != 3 {
			t.Fatalf("number %d", i)
		}
		s.a.do(t, "event.set", "x-r")

		w = s.b.blocked(t, r, 1, "all.wait", "x")
		s.a.do(t, "event.set", "x-e")
		s.waits(t, e, 0)
		s.a.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is taken
		s.a.do(t, "event.reset", "x-r")
		s.waits(t, r, 0)
		s.a.do(t, "event.set", "x-r")
		s.a.do(t, "seq.inc", "x-s")
		s.waits(t, q, 0)
		s.waits(t, f, 1)
		s.a.do(t, "future.set", "x-f", 0)
		w.must(t)

		// All objects but one are ready; the producer of that one dies.
		s.b.do(t, "future.reset", "x-f")
		s.a.do(t, "future.claim", "x-f")
		w = s.b.blocked(t, f, 1, "all.wait", "x")
		s.b.do(t, "event.set", "x-e")
		s.b.do(t, "event.reset", "x-r")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
	})
}

// A process waits for all objects. It is stopped before it takes the token of an Event that was set for its wait,
// and then killed. Another process can take the token.
func TestWaitAllKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		e, r := s.b.do(t, "event.open", "x-e", 1), s.b.do(t, "event.open", "x-r", 2)
		s.b.do(t, "event.set", "x-r")
		s.a.blocked(t, r, 1, "all.wait", "x")
		s.a.stop(t)
		s.b.do(t, "event.set", "x-e")
		s.c.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is for the wait
		s.a.kill(t)
		s.c.do(t, "event.wait", "x-e")
		s.c.start(t, "event.try", "x-e").fails(t, syscall.EBUSY)
		s.none(t, e)
		s.none(t, r)
	})
}

func TestWaitAny(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		f, q, e := s.a.do(t, "future.open", "x-f"), s.a.do(t, "seq.open", "x-s"), s.a.do(t, "event.open", "x-e", 1)
		s.b.start(t, "any.wait", "x", 20).fails(t, syscall.ETIMEDOUT)
		s.none(t, f)
		s.none(t, q)
		s.none(t, e)

		w := s.b.blocked(t, e, 1, "any.wait", "x")
		s.a.do(t, "event.set", "x-e")
		if i := w.must(t); i != 2 {
			t.Fatalf("number %d", i)
		}
		s.a.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is taken

		w = s.b.blocked(t, q, 1, "any.wait", "x")
		s.a.do(t, "seq.inc", "x-s")
		if i := w.must(t); i != 1 {
			t.Fatalf("number %d", i)
		}
		s.a.do(t, "seq.reset", "x-s", 0)

		// A stopped process has not seen the token for its wait. When it is killed, others can take the token.
		a := newAgent(t, s.a.lang, s.arena, "victim")
		a.blocked(t, e, 1, "any.wait", "x")
		a.stop(t)
		s.b.do(t, "event.set", "x-e")
		s.b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is for the wait
		a.kill(t)
		if i := s.b.do(t, "any.wait", "x"); i != 2 {
			t.Fatalf("number %d", i)
		}

		s.a.do(t, "future.claim", "x-f")
		w = s.b.blocked(t, f, 1, "any.wait", "x")
		s.a.kill(t)
		if r := w.wait(t); r.err != syscall.EOWNERDEAD || r.n != 0 {
			t.Fatalf("%v of number %d", r.err, r.n)
		}
	})
}

// A process whose wait can end because of two objects takes the first, and leaves the token of the second to a
// waiter in another process. If it dies while it passes the token on, that waiter still gets the token.
func TestWaitAnyPasses(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, env := range []string{"", "SHMSYNC_CRASHPOINT=event.wait.before_pass"} {
			t.Run(lang+"-"+env, func(t *testing.T) {
				name := newArena(t)
				a, b, c := newAgent(t, "c", name, "a", env), newAgent(t, lang, name, "b"), newAgent(t, lang, name, "c")
				b.do(t, "future.open", "x-f")
				e := b.do(t, "event.open", "x-e", 1)
				w := a.blocked(t, e, 1, "any.wait", "x")
				next := c.start(t, "event.wait", "x-e")
				eventually(t, "both wait", name, func() bool { return b.do(t, "waiters", "-", e) == 2 })
				a.stop(t)
				c.stop(t) // otherwise c would take the token at once
				b.do(t, "event.set", "x-e")
				b.do(t, "future.set", "x-f", 0)
				require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
				if env == "" {
					require.Zero(t, w.must(t), "the future is the first")
				} else {
					a.ends(t)
				}
				b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is for the wait of c
				require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
				next.must(t)
				b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY)
			})
		}
	}
}
