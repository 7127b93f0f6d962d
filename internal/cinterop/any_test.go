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

// any waits until one of three objects is ready. They are ready when the Future NAME-f is set, when the Sequencer
// NAME-s has the count 1, and when the Event NAME-e is set. NAME is the name in the order.
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

// all waits for four objects: those of the method any, and the Event NAME-r, which is ready when it is reset. The verb
// all.wait waits until all four have been ready, and the verb all.any waits until one is ready.
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

// TestWaitAll checks that a wait for all objects ends when each object has been ready at some time during the wait. An
// object counts even if it is no longer ready when the last one becomes ready.
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

		// Process b waits for all objects, and all but the Future are ready. Process a, which has claimed the Future,
		// dies.
		s.b.do(t, "future.reset", "x-f")
		s.a.do(t, "future.claim", "x-f")
		w = s.b.blocked(t, f, 1, "all.wait", "x")
		s.b.do(t, "event.set", "x-e")
		s.b.do(t, "event.reset", "x-r")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
	})
}

// TestWaitAllKilledWaiter checks that no token is lost if a waiter is killed. Process a waits for all objects and is
// stopped. A Set gives the token of an Event to the wait of process a, which is then killed. After that, process c must
// get the token.
func TestWaitAllKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		e, r := s.b.do(t, "event.open", "x-e", 1), s.b.do(t, "event.open", "x-r", 2)
		s.b.do(t, "event.set", "x-r")
		s.a.blocked(t, r, 1, "all.wait", "x")
		s.a.stop(t)
		s.b.do(t, "event.set", "x-e")
		s.c.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the stopped waiter has the token
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

		// A Set gives the token to the wait of process a, which is stopped and then killed. After that, process b must
		// get the token.
		a := newAgent(t, s.a.lang, s.arena, "victim")
		a.blocked(t, e, 1, "any.wait", "x")
		a.stop(t)
		s.b.do(t, "event.set", "x-e")
		s.b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the stopped waiter has the token
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

// TestWaitAnyPasses checks that a wait for any object takes only one of two ready objects. While process a is stopped,
// its Event and its Future become ready. It takes the Future, which is earlier in its list, and passes the token of the
// Event on to process c. Process c must get the token even if process a dies while it passes the token on.
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
				c.stop(t) // otherwise c could take the token before a continues
				b.do(t, "event.set", "x-e")
				b.do(t, "future.set", "x-f", 0)
				require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
				if env == "" {
					require.Zero(t, w.must(t), "the future is the first")
				} else {
					a.ends(t)
				}
				b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY) // the token is with c
				require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
				next.must(t)
				b.start(t, "event.try", "x-e").fails(t, syscall.EBUSY)
			})
		}
	}
}
