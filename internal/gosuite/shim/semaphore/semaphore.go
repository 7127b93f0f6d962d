// Package semaphore has the names of x/sync/semaphore over [prims.Semaphore].
package semaphore

import (
	"github.com/shmsync/shmsync/internal/gosuite/shim"
	"github.com/shmsync/shmsync/prims"
)

// Weighted stands for semaphore.Weighted.
type Weighted struct{ *prims.Semaphore }

// NewWeighted is semaphore.NewWeighted.
func NewWeighted(n int64) *Weighted {
	s, err := prims.OpenSemaphore(shim.Arena(), "", n, nil)
	if err != nil {
		panic(err)
	}
	return &Weighted{s}
}
