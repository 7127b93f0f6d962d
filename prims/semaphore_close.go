package prims

import (
	"context"

	"github.com/shmsync/shmsync"
)

// ends closes the queue of this handle, and makes the fast paths fail, so that they no longer use the words of the
// object.
func (s *Semaphore) ends() {
	s.fast.Store(fastOff)
	s.queue.Close()
	close(s.closed)
}

func (s *Semaphore) closedError() error {
	return failed(s.a, s.object, "semaphore.acquire", shmsync.ErrClosed, nil, closedHandle)
}

// Close closes this handle on the Semaphore, and no other. Calls that wait through it end with an
// error that Is ErrClosed. This process keeps its permits; release them through another handle. A
// second Close is an error that Is ErrClosed.
func (s *Semaphore) Close() error { return s.opening.close("semaphore.close") }

// awaitEnd waits until ctx ends or the handle is closed.
func (s *Semaphore) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return s.closedError()
	}
}
