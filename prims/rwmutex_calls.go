package prims

import (
	"runtime"
	"time"

	"github.com/shmsync/shmsync/internal/park"
)

// begin counts a call that may have to take back what it has done: until finish, Close
// waits for it, so that the words stay.
func (m *RWMutex) begin(op string) error {
	m.calls.Add(1)
	if m.opening.closing.Load() {
		m.calls.Add(-1)
		return m.closed(op)
	}
	return nil
}

func (m *RWMutex) finish() { m.calls.Add(-1) }

// endCalls ends the waits of the handle, and returns when the calls have left that began
// before.
func (m *RWMutex) endCalls() {
	park.Shut(m.queues()...)
	for tries := 0; m.calls.Load() != 0; tries++ {
		// The loop ends: no call sleeps in a queue that is shut.
		if tries < 10 {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
}
