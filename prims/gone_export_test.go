package prims

// AwaitUntil waits as a call does that waits until a dead process is gone.
func (m *Mutex) AwaitUntil(done func() bool) error { return awaitUntil(nil, m.queue, done) }
