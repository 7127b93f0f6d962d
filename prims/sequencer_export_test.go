//go:build linux

package prims

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// Announced reports whether a waiter has announced itself.
func (s *Sequencer) Announced() bool {
	_, announced := s.words.next(s.words.value.Load())
	return announced
}

// Overdue reports whether waiters of s have to check the counter.
func (s *Sequencer) Overdue() bool {
	ahead, announced := s.words.next(s.words.value.Load())
	return announced && ahead == 0
}

// Object returns the object of s.
func (s *Sequencer) Object() arenakernel.Object { return s.object }

// Object returns the object of e.
func (e *Event) Object() arenakernel.Object { return e.object }

// Tokens returns how many tokens e has: those that were granted to waits, and those for later callers.
func (e *Event) Tokens() uint64 { return e.auto.load().tokens() }

// Counted returns how many waits the shares of e count. It first subtracts the waits that have ended.
func (e *Event) Counted() (n uint64) {
	for {
		s := e.auto.load()
		e.auto.countOff(s)
		if n = e.auto.waits(s|tokenAnnounced, 1<<62); e.auto.load() == s {
			return n
		}
	}
}

// AddToken stores one more token, as Set does, but wakes nobody.
func (e *Event) AddToken() {
	s := e.auto.load()
	e.auto.countOff(s)
	e.auto.swap(s, s.with(s.tokens()+1))
}

// Version returns how often the word of e has changed.
func (e *Event) Version() uint32 { return e.auto.load().version() }

// Announced reports whether e says that there may be waits.
func (e *Event) Announced() bool { return e.auto.load().announced() }

// SetCounted changes the number of waits in the share of a slot, as a peer can.
func (e *Event) SetCounted(slot int, n uint64) { e.auto.shareOf(slot).waits.Store(n) }

// SetState overwrites the state of e, as a peer can.
func (e *Event) SetState(s uint64) { e.auto.words.state.Store(s) }

// Rename changes the participant ID in the share of a slot, as a peer can, and returns the old one.
func (e *Event) Rename(slot int, name uint64) (was uint64) {
	return e.auto.shareOf(slot).name.Swap(name)
}

// LookAgain runs the periodic check of e.
func (e *Event) LookAgain() { e.auto.check() }

// Resting returns how many queues of this process rest, so that the periodic checker reads only two words of
// each.
func Resting(a *arena.Arena) int { return park.Resting((*arenakernel.Arena)(a)) }

// Queued returns how many waits of all processes are queued in the object at off.
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

// waitsOf returns how many goroutines and threads of all processes wait on the word of the object.
func waitsOf(a *arena.Arena, o arenakernel.Object) (n int) {
	for _, w := range (*arenakernel.Arena)(a).WaitsOf(o) {
		n += int(w.Count)
	}
	return n
}

// Scribble overwrites a part of the body of the object with the bytes of b. The parameter at is the offset of this part
// in the body.
func Scribble(a *arena.Arena, o arenakernel.Object, at uint64, b []byte) {
	for i := range b {
		if at+uint64(i) < o.Size {
			*arena.At[byte](a, o.Body+arena.Offset(at)+arena.Offset(i)) = b[i]
		}
	}
}

// Cell returns the word of the cell of a token.
func (s *Sequencer) Cell(token uint64) *atomic.Uint64 {
	return &s.words.cells[token%sequencerCells].state
}

// Counter returns the counter of s.
func (s *Sequencer) Counter() *atomic.Uint64 { return &s.words.value }

// Empty reports whether the cell of a token has no call for which Close would have to wait.
func (s *Sequencer) Empty(token uint64) bool { return s.cell(token).queue.Waiting() == 0 }

// MarkCanceled makes the first step of CancelWaiters: it ends the waits, but wakes nobody.
func (s *Sequencer) MarkCanceled() { s.words.turns.Add(uint64(turnsOne)) }

// WatchFor begins a wait for a token in the way that WaitAny does. reached reports whether the wait is over, and leave
// ends the wait.
func (s *Sequencer) WatchFor(token uint64) (reached func() (bool, error), leave func(), err error) {
	w, err := s.At(token).watch(func() {})
	if err != nil {
		return nil, nil, err
	}
	return w.reached, w.leave, nil
}

// Look runs the periodic check of s.
func (s *Sequencer) Look() {
	for i := range s.cells {
		if c := s.cells[i].Load(); c != nil {
			c.check()
		}
	}
}

// LookAt runs the periodic checks of all handles of this process on the Sequencer at off.
func LookAt(a *arena.Arena, off arena.Offset) {
	handles.Lock()
	var all []*Sequencer
	for _, h := range handles.of[(*arenakernel.Arena)(a).Segment()][off].open {
		all = append(all, h.(*Sequencer))
	}
	handles.Unlock()
	for _, s := range all {
		s.Look()
	}
}

// Heap returns how many waits are in the token heaps of this process, and an error if a heap is not in order.
func (s *Sequencer) Heap() (n int, err error) {
	for i := range s.cells {
		c := s.cells[i].Load()
		if c == nil {
			continue
		}
		c.mu.Lock()
		for k, w := range c.waits {
			if up := (k - 1) / 2; w.place != k || w.token%sequencerCells != uint64(i) || k > 0 && c.waits.Less(k, up) {
				err = fmt.Errorf("cell %d: %+v at place %d", i, w, k)
			}
		}
		n += len(c.waits)
		c.mu.Unlock()
	}
	return n, err
}

// QueuedWaits is Queued for s.
func (s *Sequencer) QueuedWaits() int { return Queued((*arena.Arena)(s.a), s.object.Offset) }

// ScribbleNodes overwrites the links, tokens and stamps of some waits of an object.
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

// LookAll runs the periodic checks, which otherwise run ten times a second.
func LookAll(s *Sequencer, auto, gate *Event) {
	s.Look()
	auto.auto.check()
	gate.manual.check()
}
