package prims

import (
	"time"

	"github.com/shmsync/shmsync/internal/park"
)

// begin counts a call that may have to undo what it has done. Until finish, Close waits for the
// call, so the words stay in place.
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

// callsLeft reports whether the calls that began before the handle refused them have left. They do leave,
// because no call sleeps in a queue that refuses.
func (m *RWMutex) callsLeft() bool { return park.Left(m.queues()...) && m.calls.Load() == 0 }

// awaitUnlock waits until the Unlock of this process that has opened the gate has also released the writers' mutex, or
// until callsMost has passed. Unlock is not counted. A reader that it has let in may close the last handle of this process
// and open another, which takes a writers' mutex that is held for an upgradable hold: see knowUpgradable.
func (m *RWMutex) awaitUnlock() {
	for until := time.Now().Add(callsMost); m.upgrader() == m.name && m.registry.upgradable.Load() == upgradableNot && time.Now().Before(until); {
		time.Sleep(20 * time.Microsecond)
	}
}
