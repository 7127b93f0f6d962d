//go:build linux

package subjects

import (
	"context"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/prims"
)

// mutexCrowd lets many goroutines wait for mutexes that their own process holds. They wait either for the same mutex,
// or each for a mutex of its own.
type mutexCrowd struct {
	mutexes []*prims.Mutex
	got     []int // how often goroutines have locked each mutex; the mutex guards its counter
}

func openMutexCrowd(w *bench.Worker, _ int) (any, error) {
	a, err := JoinArena(w)
	if err != nil {
		return nil, err
	}
	n := 1
	if w.Subject.Prim == "mutex-each" {
		n = int(w.N)
	}
	c := &mutexCrowd{mutexes: make([]*prims.Mutex, n), got: make([]int, n)}
	for i := range c.mutexes {
		if c.mutexes[i], err = prims.OpenMutex(a, "", nil); err != nil {
			return nil, err
		}
		c.mutexes[i].Lock()
	}
	return c, nil
}

func (c *mutexCrowd) Block(i int) {
	i %= len(c.mutexes)
	c.mutexes[i].Lock()
	c.got[i]++
	c.mutexes[i].Unlock()
}

func (c *mutexCrowd) BlockContext(ctx context.Context, i int) error {
	i %= len(c.mutexes)
	if err := c.mutexes[i].LockContext(ctx); err != nil {
		return err
	}
	c.got[i]++
	c.mutexes[i].Unlock()
	return nil
}

func (c *mutexCrowd) Release() {
	for _, m := range c.mutexes {
		m.Unlock()
	}
}

// Audit returns how many goroutines have locked a mutex after their wait. It is called after all goroutines have
// returned.
func (c *mutexCrowd) Audit() (got int) {
	for i, m := range c.mutexes {
		m.Lock()
		got += c.got[i]
		m.Unlock()
	}
	return got
}
