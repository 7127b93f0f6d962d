package prims

import "context"

// AwaitUntil waits as a call does that waits until a dead process is gone.
func (m *Mutex) AwaitUntil(done func() bool) error { return awaitUntil(nil, m.queue, done) }

// AwaitUntilByTimer does what AwaitUntil does, with a context, and pauses as a call does beside many other such calls.
func (m *Mutex) AwaitUntilByTimer(ctx context.Context, done func() bool) error {
	nappers.Add(nappersMax)
	defer nappers.Add(-nappersMax)
	return awaitUntil(ctx, m.queue, done)
}
