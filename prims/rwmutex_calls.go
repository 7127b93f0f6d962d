package prims

import (
	"time"

	"github.com/shmsync/shmsync/internal/park"
)

// begin counts a call that may have to undo what it has done. Close waits until the call has called finish, so the
// words of the lock stay valid for the call.
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

// callsLeft reports whether all calls have returned that began before the handle refused new calls. These calls do
// return, because the queues of a handle that is being closed let no call sleep.
func (m *RWMutex) callsLeft() bool { return park.Left(m.queues()...) && m.calls.Load() == 0 }

// awaitUnlock waits for calls of Unlock that have opened the gate, until they have also released the writers' mutex. It
// waits at most for the time callsMost. The wait is necessary because an Unlock does not call begin, so Close does not
// wait for the Unlock otherwise. A reader that the Unlock has let in may close the last handle of this process and open
// a new handle. If the Unlock had not released the mutex by then, the new handle would believe that this process has an
// upgradable hold; see knowUpgradable.
func (m *RWMutex) awaitUnlock() {
	for until := time.Now().Add(callsMost); m.upgrader() == m.name && m.registry.upgradable.Load() == upgradableNot && time.Now().Before(until); {
		time.Sleep(20 * time.Microsecond)
	}
}

// wakeOwed makes the wakes that calls have left to the Close of their handle; see enterLate.
func (m *RWMutex) wakeOwed() {
	if m.wakeWordWriter.Announced() && m.firstReader(1) == 0 { // if a reader is in, it wakes the writer later
		m.wakeWriter()
	}
	m.writers.wakeOwed()
}
