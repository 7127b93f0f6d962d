// Package semaphore has the names of x/sync/semaphore, implemented by [prims.Semaphore].
package semaphore

import (
	"context"

	"github.com/shmsync/shmsync/internal/gosuite/shim"
	"github.com/shmsync/shmsync/prims"
)

// Weighted stands for semaphore.Weighted.
type Weighted struct{ *prims.Semaphore }

// NewWeighted is semaphore.NewWeighted. OpenSemaphore refuses a size of 0, so for this size NewWeighted makes a
// semaphore of size 1 and takes its only permit.
func NewWeighted(n int64) *Weighted {
	size := n
	if n == 0 {
		size = 1
	}
	s, err := prims.OpenSemaphore(shim.Arena(), "", size, nil)
	if err != nil {
		panic(err)
	}
	if n == 0 && !s.TryAcquire(1) {
		panic("the permit of a new semaphore is taken")
	}
	return &Weighted{s}
}

// Acquire is Weighted.Acquire, which takes a context. In this library, the method with a context is AcquireContext.
func (w *Weighted) Acquire(ctx context.Context, n int64) error { return w.AcquireContext(ctx, n) }
