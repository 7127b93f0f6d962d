package prims

import "context"

// AwaitUntil waits until done returns true. It waits in the same way as a call that needs a dead process to be gone.
func (m *Mutex) AwaitUntil(done func() bool) error { return awaitUntil(nil, m.queue, done) }

// AwaitUntilByTimer does what AwaitUntil does, but with a context, and with timers instead of naps. A call uses timers
// if many goroutines of its process are in a nap.
func (m *Mutex) AwaitUntilByTimer(ctx context.Context, done func() bool) error {
	nappers.Add(nappersMax)
	defer nappers.Add(-nappersMax)
	return awaitUntil(ctx, m.queue, done)
}
