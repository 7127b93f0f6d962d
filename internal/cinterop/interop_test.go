//go:build linux

package cinterop

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// scene has three agents: a test may kill a and b, and c stays to reap.
type scene struct {
	arena   string
	a, b, c *agent
}

// A pair has two languages: the language of the agent that acts or is killed, and the language of the agent that
// is affected or survives.
var pairs = [][2]string{{"go", "c"}, {"c", "go"}, {"c", "c"}}

// forPairs runs f for all pairs of languages. The third agent is in the language of the second, so
// only programs of that language are left to reap the first agent.
func forPairs(t *testing.T, f func(t *testing.T, s scene)) {
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			s := scene{arena: newArena(t)}
			s.a = newAgent(t, p[0], s.arena, "a")
			s.b = newAgent(t, p[1], s.arena, "b")
			s.c = newAgent(t, p[1], s.arena, "c")
			f(t, s)
		})
	}
}

// none waits until no waits are left in the object at off.
func (s scene) none(t *testing.T, off uint64) {
	t.Helper()
	s.waits(t, off, 0)
}

// waits waits until n waits sleep in the object at off.
func (s scene) waits(t *testing.T, off, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", n), s.arena, func() bool { return s.c.do(t, "waiters", "-", off) == n })
}

func TestSequencerPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "seq.open", "s")
		five := s.b.blocked(t, off, 1, "seq.wait", "s", 5)
		three := s.b.blocked(t, off, 2, "seq.wait", "s", 3)
		four := s.c.blocked(t, off, 3, "seq.wait", "s", 4)
		s.a.do(t, "seq.inc", "s")
		if n := s.a.do(t, "seq.advance", "s", 4); n != 1 {
			t.Fatalf("advance: %d", n)
		}
		three.must(t)
		four.must(t)
		if n := s.b.do(t, "seq.value", "s"); n != 4 {
			t.Fatalf("value %d", n)
		}
		s.b.start(t, "seq.wait", "s", 9, 20).fails(t, syscall.ETIMEDOUT)
		s.b.do(t, "seq.wait", "s", 4, 0)
		s.a.do(t, "seq.inc", "s")
		five.must(t)
		w := s.b.blocked(t, off, 1, "seq.wait", "s", 9)
		s.a.do(t, "seq.cancel", "s")
		w.fails(t, syscall.ECANCELED)
		s.a.do(t, "seq.reset", "s", 1)
		w = s.b.blocked(t, off, 1, "seq.wait", "s", 9)
		s.a.do(t, "seq.stop", "s")
		w.fails(t, syscall.ECANCELED)
		s.b.start(t, "seq.wait", "s", 2).fails(t, syscall.ECANCELED)
		s.b.do(t, "seq.wait", "s", 1)
	})
}

func TestSequencerKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "seq.open", "s")
		s.a.blocked(t, off, 1, "seq.wait", "s", 1)
		w := s.b.blocked(t, off, 2, "seq.wait", "s", 1)
		x := s.c.blocked(t, off, 3, "seq.wait", "s", 2)
		s.a.kill(t)
		s.c.do(t, "seq.inc", "s")
		w.must(t)
		s.b.do(t, "seq.inc", "s")
		x.must(t)
		s.none(t, off)
		s.b.do(t, "seq.reset", "s", 0)
	})
}

func TestEventPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "event.open", "e", 2)
		w := s.b.blocked(t, off, 1, "event.wait", "e")
		x := s.c.blocked(t, off, 2, "event.wait", "e")
		s.a.do(t, "event.set", "e")
		w.must(t)
		x.must(t)
		if s.b.do(t, "event.isset", "e") != 1 {
			t.Fatal("not set")
		}
		w = s.b.blocked(t, off, 1, "event.waitreset", "e")
		s.a.do(t, "event.reset", "e")
		w.must(t)
		s.b.start(t, "event.try", "e").fails(t, syscall.EBUSY)
		s.b.start(t, "event.wait", "e", 20).fails(t, syscall.ETIMEDOUT)

		off = s.a.do(t, "event.open", "auto", 1)
		w = s.b.blocked(t, off, 1, "event.wait", "auto")
		x = s.c.blocked(t, off, 2, "event.wait", "auto")
		s.a.do(t, "event.set", "auto")
		w.must(t)
		s.a.do(t, "event.set", "auto")
		x.must(t)
		s.a.do(t, "event.set", "auto")
		s.a.do(t, "event.set", "auto")
		s.b.do(t, "event.try", "auto")
		s.b.start(t, "event.try", "auto").fails(t, syscall.EBUSY)
		s.b.start(t, "event.wait", "auto", 20).fails(t, syscall.ETIMEDOUT)
		s.a.do(t, "event.set", "auto")
		s.b.do(t, "event.reset", "auto")
		s.a.start(t, "event.try", "auto").fails(t, syscall.EBUSY)
	})
}

// A stopped process waits for an auto-reset Event. A Set gives its token to this wait, so a try of another process
// fails. A later wait gets the token, whether the stopped process still lives or has been killed.
func TestEventOfAStoppedWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "event.open", "auto", 1)
		s.a.blocked(t, off, 1, "event.wait", "auto")
		s.a.stop(t)
		s.b.do(t, "event.set", "auto")
		s.c.start(t, "event.try", "auto").fails(t, syscall.EBUSY)
		s.b.do(t, "event.wait", "auto")
		s.b.do(t, "event.set", "auto")
		s.c.start(t, "event.try", "auto").fails(t, syscall.EBUSY)
		s.a.kill(t)
		s.b.do(t, "event.wait", "auto")
		s.c.start(t, "event.try", "auto").fails(t, syscall.EBUSY)
	})
}

func TestEventKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		for _, mode := range []int{0, 1} {
			name := [...]string{"manual", "auto"}[mode]
			a := newAgent(t, s.a.lang, s.arena, name)
			off := a.do(t, "event.open", name, mode)
			a.blocked(t, off, 1, "event.wait", name)
			w := s.b.blocked(t, off, 2, "event.wait", name)
			a.kill(t)
			s.c.do(t, "event.set", name)
			w.must(t)
			s.none(t, off)
		}
	})
}

// A batch may be put in parts: as many items as fit now, and the rest later.
func TestQueueBatch(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "queue.open", "q", 4)
		if n := s.a.do(t, "queue.putbatch", "q", 1, 3); n != 3 {
			t.Fatalf("put %d", n)
		}
		if v := s.b.do(t, "queue.getbatch", "q", 2); v != 1<<8|2 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		if v := s.b.do(t, "queue.getbatch", "q", 9); v != 3<<8|1 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		w := s.b.blocked(t, off, 1, "queue.getbatch", "q", 9)
		s.a.do(t, "queue.put", "q", 4)
		if v := w.must(t); v != 4<<8|1 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		s.b.start(t, "queue.getbatch", "q", 2, 20).fails(t, syscall.ETIMEDOUT)
		w = s.a.blocked(t, off, 1, "queue.putbatch", "q", 10, 6) // four items are put, and two wait for room
		if v := s.b.do(t, "queue.getbatch", "q", 2); v != 10<<8|2 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		if n := w.must(t); n != 6 {
			t.Fatalf("put %d", n)
		}
		if p := s.a.start(t, "queue.putbatch", "q", 20, 3, 20).wait(t); p.err != syscall.ETIMEDOUT || p.n != 0 {
			t.Fatalf("%v with %d", p.err, p.n)
		}
		if v := s.c.do(t, "queue.getbatch", "q", 3); v != 12<<8|3 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		if p := s.a.start(t, "queue.putbatch", "q", 16, 5, 20).wait(t); p.err != syscall.ETIMEDOUT || p.n != 3 {
			t.Fatalf("%v with %d", p.err, p.n)
		}
		w = s.b.blocked(t, off, 1, "queue.putbatch", "q", 19, 2)
		s.a.do(t, "queue.shutdown", "q")
		w.fails(t, syscall.ECANCELED)
		if v := s.c.do(t, "queue.getbatch", "q", 9); v != 15<<8|4 {
			t.Fatalf("%d of %d", v&0xff, v>>8)
		}
		s.c.start(t, "queue.getbatch", "q", 9).fails(t, syscall.ECANCELED)
	})
}

func TestQueuePlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "queue.open", "q", 2)
		w := s.b.blocked(t, off, 1, "queue.get", "q")
		x := s.c.blocked(t, off, 2, "queue.get", "q")
		s.a.do(t, "queue.put", "q", 1)
		s.a.do(t, "queue.put", "q", 2)
		if v, u := w.must(t), x.must(t); v+u != 3 {
			t.Fatalf("first %d, second %d", v, u)
		}
		s.a.do(t, "queue.put", "q", 3)
		s.a.do(t, "queue.put", "q", 4)
		s.a.start(t, "queue.tryput", "q", 5).fails(t, syscall.EBUSY)
		s.b.start(t, "queue.put", "q", 5, 20).fails(t, syscall.ETIMEDOUT)
		w = s.b.blocked(t, off, 1, "queue.put", "q", 5)
		if v := s.a.do(t, "queue.get", "q"); v != 3 {
			t.Fatalf("third %d", v)
		}
		w.must(t)
		if v := s.b.do(t, "queue.lease", "q"); v != 4 {
			t.Fatalf("leased %d", v)
		}
		s.b.do(t, "queue.nack", "q")
		if v := s.a.do(t, "queue.lease", "q"); v != 4 {
			t.Fatalf("leased again %d", v)
		}
		s.a.do(t, "queue.ack", "q")
		s.a.start(t, "queue.ack", "q").fails(t, syscall.EPERM)
		if v := s.c.do(t, "queue.tryget", "q"); v != 5 {
			t.Fatalf("last %d", v)
		}
		s.c.start(t, "queue.tryget", "q").fails(t, syscall.EBUSY)
		s.c.start(t, "queue.get", "q", 20).fails(t, syscall.ETIMEDOUT)
		s.a.do(t, "queue.put", "q", 6)
		w = s.b.blocked(t, off, 0, "queue.get", "q")
		w.must(t)
		w = s.b.blocked(t, off, 1, "queue.get", "q")
		s.a.do(t, "queue.shutdown", "q")
		w.fails(t, syscall.ECANCELED)
		s.b.start(t, "queue.put", "q", 7).fails(t, syscall.ECANCELED)
	})
}

func TestQueueKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "queue.open", "q", 4)
		for i := range 3 {
			s.b.do(t, "queue.put", "q", i+1)
		}
		s.a.do(t, "queue.lease", "q")
		s.a.do(t, "queue.lease", "q")
		if v := s.b.do(t, "queue.get", "q"); v != 3 {
			t.Fatalf("got %d", v)
		}
		w := s.b.blocked(t, off, 1, "queue.lease", "q")
		s.a.kill(t)
		if v := w.must(t); v != 1 {
			t.Fatalf("leased %d", v)
		}
		if v := s.c.do(t, "queue.get", "q"); v != 2 {
			t.Fatalf("got %d", v)
		}
		s.b.do(t, "queue.ack", "q")
		s.c.start(t, "queue.tryget", "q").fails(t, syscall.EBUSY)
	})
}

func TestQueueKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "queue.open", "q", 1)
		s.a.blocked(t, off, 1, "queue.get", "q")
		w := s.b.blocked(t, off, 2, "queue.get", "q")
		s.a.kill(t)
		s.c.do(t, "queue.put", "q", 7)
		if v := w.must(t); v != 7 {
			t.Fatalf("got %d", v)
		}
		s.none(t, off)
		// When a process dies while its put waits, the item of that put is gone.
		a := newAgent(t, s.a.lang, s.arena, "putter")
		s.b.do(t, "queue.put", "q", 1)
		a.blocked(t, off, 1, "queue.put", "q", 2)
		x := s.b.blocked(t, off, 2, "queue.put", "q", 3)
		a.kill(t)
		for _, want := range []uint64{1, 3} {
			if v := s.c.do(t, "queue.get", "q"); v != want {
				t.Fatalf("got %d, not %d", v, want)
			}
		}
		x.must(t)
		s.c.start(t, "queue.tryget", "q").fails(t, syscall.EBUSY)
	})
}

func TestWaitGroupPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "wg.open", "g")
		s.a.do(t, "wg.add", "g", 2)
		w := s.b.blocked(t, off, 1, "wg.wait", "g")
		s.b.start(t, "wg.wait", "g", 20).fails(t, syscall.ETIMEDOUT)
		s.a.do(t, "wg.done", "g")
		s.c.do(t, "wg.done", "g")
		w.must(t)
		s.b.start(t, "wg.done", "g").fails(t, syscall.EINVAL)
	})
}

func TestWaitGroupKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "wg.open", "g")
		s.a.do(t, "wg.add", "g", 2)
		s.c.do(t, "wg.add", "g", 1)
		w := s.b.blocked(t, off, 1, "wg.wait", "g")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "wg.wait", "g").fails(t, syscall.EOWNERDEAD)
		s.b.do(t, "wg.reset", "g")
		if n := s.b.do(t, "wg.count", "g"); n != 1 {
			t.Fatalf("count %d", n)
		}
		s.c.do(t, "wg.done", "g")
		s.b.do(t, "wg.wait", "g")
	})
}

func TestWaitGroupKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "wg.open", "g")
		s.b.do(t, "wg.add", "g", 1)
		s.a.blocked(t, off, 1, "wg.wait", "g")
		w := s.c.blocked(t, off, 2, "wg.wait", "g")
		s.a.kill(t)
		s.b.do(t, "wg.done", "g")
		w.must(t)
		s.none(t, off)
	})
}

func TestLatchPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "latch.open", "l", 3)
		s.b.start(t, "latch.open", "l", 4).fails(t, syscall.EINVAL)
		w := s.b.blocked(t, off, 1, "latch.wait", "l")
		s.a.do(t, "latch.down", "l", 1)
		s.c.do(t, "latch.claim", "l", 2)
		s.a.start(t, "latch.claim", "l", 1).fails(t, syscall.EINVAL)
		s.c.do(t, "latch.down", "l", 2)
		w.must(t)
		s.a.start(t, "latch.down", "l", 1).fails(t, syscall.EINVAL)
	})
}

func TestLatchKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "latch.open", "l", 3)
		s.a.do(t, "latch.claim", "l", 2)
		w := s.b.blocked(t, off, 1, "latch.wait", "l")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		// A process that replaces the dead one takes over its work.
		s.c.do(t, "latch.claim", "l", 3)
		w = s.b.blocked(t, off, 1, "latch.wait", "l")
		s.c.do(t, "latch.down", "l", 3)
		w.must(t)
	})
}

func TestLatchKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "latch.open", "l", 1)
		s.a.blocked(t, off, 1, "latch.wait", "l")
		w := s.c.blocked(t, off, 2, "latch.wait", "l")
		s.a.kill(t)
		s.b.do(t, "latch.down", "l", 1)
		w.must(t)
		s.none(t, off)
	})
}

func TestBarrierPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "barrier.open", "b", 3)
		for range 3 {
			w := s.b.blocked(t, off, 1, "barrier.aw", "b")
			x := s.c.blocked(t, off, 2, "barrier.aw", "b")
			s.a.do(t, "barrier.aw", "b")
			w.must(t)
			x.must(t)
		}
		if p := s.a.do(t, "barrier.arrive", "b", 2); p != 3 {
			t.Fatalf("phase %d", p)
		}
		w := s.b.blocked(t, off, 1, "barrier.wait", "b", 3)
		s.a.start(t, "barrier.wait", "b", 3, 20).fails(t, syscall.ETIMEDOUT)
		s.b.start(t, "barrier.wait", "b", 4).fails(t, syscall.EINVAL)
		s.c.do(t, "barrier.drop", "b")
		w.must(t)
		s.a.do(t, "barrier.arrive", "b", 2) // one party less
		s.b.do(t, "barrier.wait", "b", 4)
	})
}

func TestBarrierKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "barrier.open", "b", 3)
		s.a.do(t, "barrier.join", "b", 1)
		w := s.b.blocked(t, off, 1, "barrier.aw", "b")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "barrier.aw", "b").fails(t, syscall.EOWNERDEAD)
		if s.c.do(t, "barrier.reset", "b", 2) != 1 {
			t.Fatal("it was not reset")
		}
		w = s.b.blocked(t, off, 1, "barrier.aw", "b")
		s.c.do(t, "barrier.aw", "b")
		w.must(t)
	})
}

// If a party dies after it has completed a phase, that phase stays complete, and the next phase is broken.
func TestBarrierKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "barrier.open", "b", 3)
		s.a.blocked(t, off, 1, "barrier.aw", "b")
		w := s.b.blocked(t, off, 2, "barrier.aw", "b")
		s.a.kill(t)
		s.waits(t, off, 1)
		s.c.do(t, "barrier.aw", "b")
		w.must(t)
		s.c.start(t, "barrier.aw", "b").fails(t, syscall.EOWNERDEAD)
	})
}

// A wait for a broken phase fails even if later phases have broken, too. Reset(0) continues with the parties that are
// left.
func TestBarrierEveryBrokenPhase(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		s.b.do(t, "barrier.open", "b", 5)
		victims := []*agent{s.a, newAgent(t, s.a.lang, s.arena, "second"), newAgent(t, s.b.lang, s.arena, "third")}
		for i, v := range victims {
			v.do(t, "barrier.join", "b", 1)
			v.kill(t)
			s.b.start(t, "barrier.wait", "b", 2*i).fails(t, syscall.EOWNERDEAD)
			require.EqualValues(t, 1, s.c.do(t, "barrier.lost", "b"))
			resetter := []*agent{s.b, s.c}[i%2]
			require.EqualValues(t, 1, resetter.do(t, "barrier.reset", "b", 0))
			require.EqualValues(t, 2*i+1, s.b.do(t, "barrier.arrive", "b", 4-i))
			s.b.do(t, "barrier.leave", "b")
		}
		for phase := range 6 {
			w := s.b.start(t, "barrier.wait", "b", phase)
			if phase%2 == 0 {
				w.fails(t, syscall.EOWNERDEAD)
			} else {
				w.must(t)
			}
		}
		require.Zero(t, s.c.do(t, "barrier.lost", "b"))
	})
}

// A process that arrives in place of another process becomes a party, and the other process is a party no longer. This
// holds while the completion runs, and after the death of the process that ran the completion.
func TestBarrierReplacedParties(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		lost := func(name string, n uint64) {
			t.Helper()
			eventually(t, fmt.Sprint(n, " parties are lost"), s.arena, func() bool { return s.c.do(t, "barrier.lost", name) == n })
		}
		for i, first := range []string{"party", "completer"} {
			name := fmt.Sprint("b", i)
			victim := newAgent(t, s.a.lang, s.arena, "victim "+name)
			completer := newAgent(t, s.b.lang, s.arena, "completer "+name)
			s.c.do(t, "barrier.open", name, 4)
			s.c.do(t, "barrier.arrive", name, 1)
			victim.do(t, "barrier.join", name, 2)
			victim.do(t, "barrier.arrive", name, 1)
			s.c.do(t, "event.open", "hangs", 0)
			s.c.do(t, "event.reset", "hangs")
			completer.start(t, "barrier.hang", name, 2)
			s.c.do(t, "event.wait", "hangs")
			if first == "party" {
				victim.kill(t)
				lost(name, 1)
			}
			completer.kill(t)
			s.c.start(t, "barrier.wait", name, 0).fails(t, syscall.EOWNERDEAD)
			if first == "completer" {
				lost(name, 2)
				require.EqualValues(t, 1, s.c.do(t, "barrier.reset", name, 0))
				victim.kill(t)
				s.c.start(t, "barrier.wait", name, 1).fails(t, syscall.EOWNERDEAD)
				lost(name, 1)
			} else {
				lost(name, 3)
			}
			require.EqualValues(t, 1, s.c.do(t, "barrier.reset", name, 0))
			s.c.do(t, "barrier.aw", name) // the only party
		}
	})
}

// A Reset in C begins no phase as long as it knows of a dead party that is not gone.
func TestBarrierBeginsWhenTheDeadAreGoneInC(t *testing.T) {
	name := newArena(t)
	runC(t, "barrier_gone.c", name)
	sound(t, name)
}

// The death of a party wakes a waiter in C even if the processes that watch the party have never opened the Barrier.
// The test repeats the scene if a periodic check of the waiter found the death first.
func TestBarrierDeathBesideStrangersInC(t *testing.T) {
	for range 5 {
		var exit *exec.ExitError
		out, err := exec.Command(program(t, "barrier_strangers.c"), newArena(t)).CombinedOutput()
		if errors.As(err, &exit) && exit.ExitCode() == 10 {
			continue
		}
		require.NoError(t, err, "%s", out)
		return
	}
	t.Fatal("only periodic checks find the death")
}

// A program in either language may create an object with a number, such as the number of permits. An open with the
// number 0 creates nothing, and accepts the number of an object that exists. An attach finds only an object that
// exists.
func TestAttachElsewhere(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		for _, kind := range []struct{ kind, look string }{{"latch", "count"}, {"barrier", "lost"}, {"sem", "free"}, {"queue", "len"}} {
			s.a.start(t, kind.kind+".open", "x-"+kind.kind, 0).fails(t, syscall.EINVAL)
			s.a.start(t, kind.kind+"."+kind.look, "x-"+kind.kind).fails(t, syscall.ENOENT)
			s.b.do(t, kind.kind+".open", "x-"+kind.kind, 3)
			s.a.do(t, kind.kind+"."+kind.look, "x-"+kind.kind)
			s.a.start(t, kind.kind+".open", "x-"+kind.kind, 4).fails(t, syscall.EINVAL)
			s.a.do(t, kind.kind+".open", "x-"+kind.kind, 3)
		}
	})
}

// A child claims work that its parent added, and is killed. The report of the death names the child and not the
// parent.
func TestWaitGroupClaimedByTheDead(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "wg.open", "g")
		s.b.do(t, "wg.add", "g", 2)
		s.a.do(t, "wg.claim", "g", 1)
		w := s.c.blocked(t, off, 1, "wg.wait", "g")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		require.EqualValues(t, 2, s.c.do(t, "wg.count", "g"))
		s.c.do(t, "wg.claim", "g", 2)
		s.c.start(t, "wg.claim", "g", 1).fails(t, syscall.EINVAL)
		s.b.do(t, "wg.add", "g", -2)
		s.c.do(t, "wg.wait", "g")
	})
}

func TestOncePlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "once.open", "o")
		s.a.do(t, "seq.open", "o-ran")
		goOff := s.a.do(t, "event.open", "o-go")
		runs := s.a.blocked(t, goOff, 1, "once.do", "o")
		w := s.b.blocked(t, off, 1, "once.do", "o")
		s.b.start(t, "once.do", "o", 20).fails(t, syscall.ETIMEDOUT)
		s.c.do(t, "event.set", "o-go")
		runs.must(t)
		w.must(t)
		s.c.do(t, "once.do", "o")
		if n := s.b.do(t, "seq.value", "o-ran"); n != 1 {
			t.Fatalf("it ran %d times", n)
		}
	})
}

func TestOnceKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "once.open", "o")
		s.a.do(t, "seq.open", "o-ran")
		goOff := s.a.do(t, "event.open", "o-go")
		s.a.blocked(t, goOff, 1, "once.do", "o")
		w := s.b.blocked(t, off, 1, "once.do", "o")
		s.a.kill(t)
		s.c.do(t, "seq.wait", "o-ran", 2)
		s.c.do(t, "event.set", "o-go")
		w.must(t)
		if s.c.do(t, "once.isdone", "o") != 1 {
			t.Fatal("not done")
		}
	})
}

func TestOnceKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "once.open", "o")
		goOff := s.b.do(t, "event.open", "o-go")
		runs := s.b.blocked(t, goOff, 1, "once.do", "o")
		s.a.blocked(t, off, 1, "once.do", "o")
		w := s.c.blocked(t, off, 2, "once.do", "o")
		s.a.kill(t)
		s.waits(t, off, 1)
		s.b.do(t, "event.set", "o-go")
		runs.must(t)
		w.must(t)
		s.none(t, off)
	})
}
