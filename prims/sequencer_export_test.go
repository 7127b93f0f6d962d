//go:build linux

package prims

import (
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// Overdue reports whether waits of s are to be ended.
func (s *Sequencer) Overdue() bool { return s.overdue() }

// LatchFree reports whether nobody holds the queue lock of s.
func (s *Sequencer) LatchFree() bool { return s.words.mon.queueLock.owner.Load() == 0 }

// LatchFree reports whether nobody holds the queue lock of e.
func (e *Event) LatchFree() bool {
	return e.auto == nil || e.auto.mon.words.queueLock.owner.Load() == 0
}

// Object is the object under s.
func (s *Sequencer) Object() arenakernel.Object { return s.object }

// Object is the object under e.
func (e *Event) Object() arenakernel.Object { return e.object }

// Spare is how many tokens of e came back from the dead and are not handed out.
func (e *Event) Spare() uint64 { return e.auto.words.spare.Load() }

// Unseen is how many tokens of e were handed to participants that have not acknowledged them.
func (e *Event) Unseen() (n uint64) {
	for _, h := range e.auto.shares().all {
		n += h.unknown()
	}
	return n
}

// Ahead is how many tokens of e participants have acknowledged beyond those that they were handed.
func (e *Event) Ahead() (n int64) {
	for _, h := range e.auto.shares().all {
		n += max(int64(h.acked.Load()-h.handed.Load()), 0)
	}
	return n
}

// SetSpare and Rename are what a peer can do: they change the number of tokens that came back from the dead, and the
// name in the share of a slot.
func (e *Event) SetSpare(n uint64) { e.auto.words.spare.Store(n) }

func (e *Event) Rename(slot int, name uint64) (was uint64) {
	return e.auto.shareOf(slot).name.Swap(name)
}

// Sleeping is how many waits of all processes sleep, or are parked, in the object at off:
// the end of one of these has to wake its owner.
func Sleeping(a *arena.Arena, off arena.Offset) (n int) {
	(*arenakernel.Arena)(a).EachNode(off, func(_ arena.Offset, node *arenakernel.Node) {
		if s := node.Load().State(); s == arenakernel.NodeAsleep || s == arenakernel.NodeParked {
			n++
		}
	})
	return n
}

// Resting is how many queues of this process rest.
func Resting(a *arena.Arena) int { return park.Resting((*arenakernel.Arena)(a)) }

// Queued is how many waits of all processes are queued in the object at off.
func Queued(a *arena.Arena, off arena.Offset) (n int) {
	for o := range (*arenakernel.Arena)(a).Objects() {
		if o.Offset == off && Queueless(o) {
			return waitsOf(a, o)
		}
	}
	(*arenakernel.Arena)(a).EachNode(off, func(_ arena.Offset, node *arenakernel.Node) {
		if queued(node.Load()) {
			n++
		}
	})
	return n
}

// waitsOf is how many goroutines and threads of all processes wait on the word of the object.
func waitsOf(a *arena.Arena, o arenakernel.Object) (n int) {
	for _, w := range (*arenakernel.Arena)(a).WaitsOf(o) {
		n += int(w.Count)
	}
	return n
}

// Scribble overwrites the body of the object with bytes.
func Scribble(a *arena.Arena, o arenakernel.Object, at uint64, b []byte) {
	for i := range b {
		if at+uint64(i) < o.Size {
			*arena.At[byte](a, o.Body+arena.Offset(at)+arena.Offset(i)) = b[i]
		}
	}
}

// Drain takes all waits of s off, and gives their tokens in the order in which they
// would have ended.
func (s *Sequencer) Drain() (tokens []uint64) {
	if err := s.mon.enter(nil); err != nil {
		panic(err)
	}
	defer s.mon.leave(nil)
	last := uint64(0)
	for w, ok := s.waits.first(); ok; w, ok = s.waits.first() {
		t := w.Wanted().Load()
		if n := len(tokens); n > 0 && tokens[n-1] == t && w.Stamp().Load() < last {
			panic("not in order of arrival")
		}
		last = w.Stamp().Load()
		tokens = append(tokens, t)
		s.detach(w)
		s.mon.releaseNode(w)
	}
	return tokens
}

// HeapWalk puts waits in and takes the first or any off, up to most at a time, and
// compares with what a slice says. Ranks and links are checked after each step.
func (s *Sequencer) HeapWalk(rounds, most int) error {
	r := rand.New(rand.NewPCG(uint64(rounds), 1))
	waits := map[*Pending]uint64{}
	for round := range rounds {
		switch n := r.IntN(10); {
		case n < 5 && len(waits) < most:
			t := s.Value() + 1 + r.Uint64N(50)
			waits[s.WaitAsync(t)] = t
		case n < 9:
			for p := range waits { // any
				if !p.Cancel() {
					return fmt.Errorf("round %d: a wait for %d had ended at %d", round, waits[p], s.Value())
				}
				delete(waits, p)
				break
			}
		default:
			v := s.Value() + r.Uint64N(3)
			s.Advance(v)
			for p, t := range waits {
				if t <= v {
					if err := p.Wait(); err != nil {
						return err
					}
					delete(waits, p)
				}
			}
		}
		if err := s.checkHeap(len(waits)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	for p := range waits {
		p.Cancel()
	}
	return s.checkHeap(0)
}

func (s *Sequencer) checkHeap(want int) (err error) {
	if err := s.mon.enter(nil); err != nil {
		return err
	}
	defer s.mon.leave(nil)
	n := 0
	s.waits.each(func(w wait) bool {
		n++
		l := heapLinksOf(w)
		r := heapRanksOf(w)
		if r.left() < r.right() {
			err = fmt.Errorf("ranks %d and %d", r.left(), r.right())
		}
		for off, rank := range map[arena.Offset]uint8{l.left(): r.left(), l.right(): r.right()} {
			below, ok := s.mon.node(off)
			if ok && (heapUp(below) != w.off || !before(w, below)) {
				err = fmt.Errorf("%v below %v", below.off, w.off)
			}
			if l.left() != l.right() && rankOf(below) != rank {
				err = fmt.Errorf("rank %d, and it is said to be %d", rankOf(below), rank)
			}
		}
		return err == nil
	})
	if err == nil && (n != want || s.mon.broken.Load()) {
		err = fmt.Errorf("%d waits, want %d; broken %v", n, want, s.mon.broken.Load())
	}
	return err
}

// QueuedWaits is Queued for s.
func (s *Sequencer) QueuedWaits() int { return Queued((*arena.Arena)(s.a), s.object.Offset) }

// Overdue reports whether waits of e are to be ended.
func (e *Event) Overdue() bool {
	return e.auto != nil && e.auto.load().place() != tokenUnset && e.auto.next.Load() != nobody
}

// MonitorBytes is where the words of an object begin that follow those of its monitor.
const MonitorBytes = uint64(monitorBytes)

// ScribbleNodes overwrites links, tokens and stamps of some of the waits of an object.
func ScribbleNodes(a *arena.Arena, o arenakernel.Object, r *rand.Rand) {
	var all []arena.Offset
	(*arenakernel.Arena)(a).EachNode(o.Offset, func(off arena.Offset, _ *arenakernel.Node) { all = append(all, off) })
	if len(all) == 0 {
		return
	}
	(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
		some := func() uint64 { return uint64(all[r.IntN(len(all))]) / linkUnit }
		switch r.IntN(6) {
		case 0:
			n.Next().Store(some()<<32 | some())
		case 1:
			n.Extra().Store(some()<<32 | r.Uint64N(1<<32))
		case 2:
			n.Next().Store(r.Uint64())
		case 3:
			n.Wanted().Store(r.Uint64N(100))
		}
	})
}

// LookAll makes the periodic checks, which are otherwise made ten times a second.
func LookAll(s *Sequencer, auto, gate *Event) {
	s.check()
	auto.auto.check()
	gate.manual.check()
}

// Arrivals is how many waits were ever queued in s.
func (s *Sequencer) Arrivals() uint64 { return s.mon.words.arrivals.Load() }

// Arrivals is how many waits were ever queued in e.
func (e *Event) Arrivals() uint64 { return e.auto.mon.words.arrivals.Load() }
