package prims

import (
	"runtime"
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

// endCalls ends the waits of the handle, and returns when the calls that began before have left.
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
