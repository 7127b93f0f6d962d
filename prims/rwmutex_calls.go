package prims

import (
	"time"

	"github.com/shmsync/shmsync/internal/park"
)

// begin counts a call that may have to undo what it has done. Close waits until the call has called finish, so
// the words of the lock stay in place.
func (m *RWMutex) begin(op string) error {
	m.calls.Add(1)
	if m.opening.closing.Load() {
		m.calls.Add(-1)
		return m.closed(op)
	}
	return nil
}

func (m *RWMutex) finish() { m.calls.Add(-1) }

func (m *RWMutex) refuse() { park.Refuse(m.queues()...) }

// callsLeft reports whether the calls that began before refuse have returned. They all return, because no call
// sleeps in a queue that refuses.
func (m *RWMutex) callsLeft() bool { return park.Left(m.queues()...) && m.calls.Load() == 0 }

// awaitUnlock waits until an Unlock of this process that has opened the gate has also released the writers'
// mutex, or until callsMost has passed. An Unlock does not call begin, so it is not counted. A reader that the
// Unlock has let in may close the last handle of this process and open a new handle. If the Unlock still had
// the mutex then, the new handle would take that for an upgradable hold: see knowUpgradable.
func (m *RWMutex) awaitUnlock() {
	for until := time.Now().Add(callsMost); m.upgrader() == m.name && m.registry.upgradable.Load() == upgradableNot && time.Now().Before(until); {
		time.Sleep(20 * time.Microsecond)
	}
}
