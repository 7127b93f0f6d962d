package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/park"
)

// What primitives share whose waiters are let go together: WaitGroup, Latch,
// Barrier and Once.

// How such a wait ended, in its fate.
const (
	lineOpen = iota // what was waited for has come
	lineDead        // it cannot come: aux is the name of whose death that is
	lineTurn        // it is the waiter's turn to do it
)

// lineUp queues a wait unless over says, with the latch held, that there is nothing
// to wait for. It begins with the latch held and ends without it. A nil seat without
// an error means that over was true; otherwise the caller awaits the seat.
//
// It sees the deaths that are known, before it queues.
func (m *monitor) lineUp(ctx context.Context, class uint16, wanted uint64, over func() bool) (*park.Seat, error) {
	var seat *park.Seat
	for {
		// The loop ends: it goes round once for the seat, and once for each burial.
		if over() {
			m.leave(nil)
			if seat != nil {
				seat.Return()
			}
			return nil, nil
		}
		if m.deaths.Load() != m.a.Deaths() {
			if err := m.sweepAndEnter(ctx); err != nil {
				if seat != nil {
					seat.Return()
				}
				return nil, err
			}
			continue
		}
		var again bool
		var err error
		if seat, again, err = m.seat(ctx, seat); err != nil {
			return nil, err
		}
		if !again {
			break
		}
	}
	m.join(seat, class, wanted)
	m.leave(nil)
	return seat, nil
}

// sweepAndEnter sweeps, with the latch held, wakes whom that lets go, and takes the
// latch again.
func (m *monitor) sweepAndEnter(ctx context.Context) error {
	b := takeWakes()
	m.sweep(b)
	m.leave(b)
	return m.enter(ctx)
}

// settleAndLeave is the end of a call that may have let waiters go.
func (m *monitor) settleAndLeave() {
	b := takeWakes()
	m.rules.settle(b)
	m.leave(b)
}

// endAll ends every wait of a queue with one result.
func (m *monitor) endAll(b *wakes, q *fifo, result, aux uint32) {
	for w, ok := q.head(); ok; w, ok = q.head() {
		// The loop ends: each turn takes a wait off.
		if !m.waiting(w) {
			q.detach(w)
			m.drop(w)
			continue
		}
		if m.end(b, w, result, aux) {
			m.account(w, nil)
		}
	}
}
