package prims

import "github.com/shmsync/shmsync/internal/park"

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

// callsLeft reports whether the calls that began before the handle refused them have left. They do: no
// call sleeps in a queue that refuses.
func (m *RWMutex) callsLeft() bool { return park.Left(m.queues()...) && m.calls.Load() == 0 }
