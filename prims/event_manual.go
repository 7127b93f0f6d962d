package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var _ = crashpoint.Register("event.turn.before_wake")

// manualEvent is an Event that stays set until a Reset. Its word is an eventcount, whose sequence is odd while the
// Event is set. Set and Reset increment the sequence. A waiter waits until the sequence differs from the value that
// it has read. So the waiter needs no lock, and does not miss a Set that a Reset follows at once.
type manualEvent struct{ eventcount }

func buildManualEvent(a *arenakernel.Arena, o arenakernel.Object, bare bool) *manualEvent {
	m := &manualEvent{}
	// A nil look means that a dead or stopped process can leave nothing undone but a wake. Each change of a manual-reset
	// Event is one CAS of one word.
	m.eventcount.init(a, o, &arenakernel.At[eventWords](a, o.Body).count, "event.wait", nil, bare)
	return m
}

func (m *manualEvent) load() eventState {
	// sync(event.turn): acquire
	return eventState(m.eventcount.load())
}

// swap sets the Event if it is not set, or resets the Event if it is set. It does nothing if the word is no
// longer s. It reports whether it changed the word.
func (m *manualEvent) swap(s eventState) bool {
	race.ReleaseMerge(m.key)
	// sync(event.turn): release
	// lin: Set and Reset take effect here.
	if !m.eventcount.swap(eventcountState(s), eventcountState(s).next()) {
		return false
	}
	// Another call may have loaded the word before this CAS, and so may have changed nothing. The loads after this CAS
	// must see the stores before that call; see fence.
	orderLoads(m.words.state)
	return true
}

// turn sets the Event, or resets the Event if the parameter named set is false. It reports whether it changed the
// Event.
func (m *manualEvent) turn(set bool) bool {
	for {
		// If the CAS fails, another process has set or reset the Event, or has announced a waiter. So
		// the loop is lock-free.
		switch s := m.load(); {
		case s.set() == set:
			if fence(); m.load() == s {
				return false
			}
		case s.announced():
			return m.turnAndWake(set)
		case m.swap(s):
			return true
		}
	}
}

// turnAndWake does what the method turn does, and wakes the waiters. It still uses the words of the Event after it
// has changed the Event. So it enters the handle, and Close waits until turnAndWake has returned.
func (m *manualEvent) turnAndWake(set bool) bool {
	defer m.serve().end()
	for {
		// If the CAS fails, another process has set or reset the Event, or has announced a waiter. So
		// the loop is lock-free.
		s := m.load()
		if s.set() == set {
			if fence(); m.load() == s {
				return false
			}
			continue
		}
		m.noteCPU(eventcountState(s))
		if m.swap(s) {
			if s.announced() {
				crashpoint.Hit("event.turn.before_wake")
				m.wakeAll()
			}
			return true
		}
	}
}

// reached reports whether the Event is in the wanted state: set if the parameter named set is true, not set
// otherwise. If the Event is not in that state, seq is the sequence on which to wait.
func (m *manualEvent) reached(set bool) (seq uint32, ok bool) {
	s := m.load()
	if s.set() != set {
		return s.sequence(), false
	}
	race.Acquire(m.key)
	return 0, true
}

// judge returns the result of a wait that has ended because the sequence has changed. The result is always nil.
func (m *manualEvent) judge() error {
	race.Acquire(m.key)
	return nil
}

// waitUntil waits until the Event is in the wanted state: set if the parameter named set is true, not set
// otherwise.
func (m *manualEvent) waitUntil(ctx context.Context, set bool) error {
	seq, ok := m.reached(set)
	if ok {
		return nil
	}
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if err := m.wait(ctx, seq); err != nil {
		return err
	}
	return m.judge()
}

func (m *manualEvent) async(set bool) *Pending {
	seq, ok := m.reached(set)
	if ok {
		return resolved(nil)
	}
	return m.pend(seq, m.judge, nil)
}

// watchUntil begins a wait for WaitAny and similar calls.
func (m *manualEvent) watchUntil(set bool, notify func()) (watcher, error) {
	seq, ok := m.reached(set)
	if ok {
		return ended(nil, notify), nil
	}
	return m.watchChange(seq, m.judge, notify)
}
