package prims

import "context"

// end takes the words away from the fast paths.
func (s *Semaphore) end() {
	s.mon.queueLock.end()
	s.fast.Store(fastOff)
	close(s.closed)
}

// Close closes this handle on the Semaphore, and no other. Calls that wait through it end with an
// error that Is ErrClosed. This process keeps its permits; release them through another handle. A
// second Close is an error that Is ErrClosed.
func (s *Semaphore) Close() error { return s.mon.opening.close("semaphore.close") }

// awaitEnd waits until ctx ends or the handle is closed.
func (s *Semaphore) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return s.mon.closed()
	}
}
