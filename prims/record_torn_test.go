//go:build linux

package prims_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/prims"
)

// tornObject is an object with a recorded queue in which goroutines wait.
type tornObject struct {
	wait        func(ctx context.Context) error
	try         func() // a call that does not wait
	first, last *atomic.Uint64
}

// tornKinds has a function for each kind of object with a recorded queue. The function opens an object, in a state in
// which each wait blocks.
var tornKinds = map[string]func(t *testing.T, a *arena.Arena) tornObject{
	"fair mutex": func(t *testing.T, a *arena.Arena) tornObject {
		f, err := prims.OpenFairMutex(a, "x", nil)
		require.NoError(t, err)
		f.Lock()
		first, last := f.Ends()
		return tornObject{f.LockContext, func() { f.TryLock() }, first, last}
	},
	"fair mutex, asynchronously": func(t *testing.T, a *arena.Arena) tornObject {
		f, err := prims.OpenFairMutex(a, "x", nil)
		require.NoError(t, err)
		f.Lock()
		first, last := f.Ends()
		return tornObject{func(ctx context.Context) error {
			p := f.LockAsync()
			if err := p.WaitContext(ctx); err != ctx.Err() || !p.Cancel() {
				return p.Wait()
			}
			return ctx.Err()
		}, func() { f.TryLock() }, first, last}
	},
	"multilock": func(t *testing.T, a *arena.Arena) tornObject {
		x, err := prims.OpenMultiLock(a, "x", nil)
		require.NoError(t, err)
		x.Lock(7)
		w := x.Words(7)
		return tornObject{func(ctx context.Context) error {
			_, err := x.LockContext(ctx, 7)
			return err
		}, func() { x.TryLock(7) }, w.First, w.Last}
	},
	"cond": func(t *testing.T, a *arena.Arena) tornObject {
		var l sync.Mutex
		c, err := prims.OpenCond(a, "x", &l, nil)
		require.NoError(t, err)
		first, last := c.Ends()
		return tornObject{func(ctx context.Context) error {
			l.Lock()
			defer l.Unlock()
			return c.WaitContext(ctx)
		}, func() {}, first, last}
	},
	"semaphore": func(t *testing.T, a *arena.Arena) tornObject {
		s := newSemaphore(t, a, "x", 1, nil)
		s.Acquire(1)
		first, last := s.Ends()
		return tornObject{func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }, func() { s.TryAcquire(1) }, first, last}
	},
	"waitable": func(t *testing.T, a *arena.Arena) tornObject {
		e, err := autoReset(a, "x")
		require.NoError(t, err)
		first, last := e.Ends()
		return tornObject{func(ctx context.Context) error { return e.WaitContext(ctx, struct{}{}) }, func() { e.TryWait(struct{}{}) }, first, last}
	},
}

// TestWaitInATornQueueEnds checks that the periodic checks end the waits beside a damaged link with an error. Two
// goroutines wait, and the test overwrites a link of their queue. If the damage is behind the first wait, that wait
// goes on until its context ends.
func TestWaitInATornQueueEnds(t *testing.T) {
	const value = 1 << 32 // the lowest bit of the value of a recorded word
	for what, tear := range map[string]struct {
		tear   func(o tornObject, nodes [2]*arenakernel.Node)
		goesOn bool // whether the first wait goes on
	}{
		"no node follows the first":  {func(_ tornObject, n [2]*arenakernel.Node) { n[0].Next().Store(1 << 63) }, false},
		"the first is not queued":    {func(_ tornObject, n [2]*arenakernel.Node) { n[0].Next().Store(arenakernel.RecordedLeft * value) }, false},
		"the first seems granted":    {func(_ tornObject, n [2]*arenakernel.Node) { n[0].Next().Store(arenakernel.RecordedGranted * value) }, false},
		"no node is before the last": {func(_ tornObject, n [2]*arenakernel.Node) { n[1].Extra().Store(1 << 63) }, false},
		"nothing is before the last": {func(_ tornObject, n [2]*arenakernel.Node) { n[1].Extra().Store(0) }, false},
		"no first":                   {func(o tornObject, _ [2]*arenakernel.Node) { o.first.Store(0) }, false},
		"a first out of the arena":   {func(o tornObject, _ [2]*arenakernel.Node) { o.first.Store(^uint64(0)) }, false},
		"no last":                    {func(o tornObject, _ [2]*arenakernel.Node) { o.last.Store(0) }, true},
		"a last out of the arena":    {func(o tornObject, _ [2]*arenakernel.Node) { o.last.Store(^uint64(0)) }, true},
		"the last is cut off": {func(o tornObject, n [2]*arenakernel.Node) {
			n[0].Next().Store(arenakernel.RecordedLast * value)
			o.last.Store(o.first.Load())
		}, true},
		"a circle": {func(o tornObject, n [2]*arenakernel.Node) { n[1].Next().Store(o.first.Load()) }, true},
	} {
		for kind, open := range tornKinds {
			t.Run(what+"/"+kind, func(t *testing.T) {
				t.Parallel()
				a := newArena(t, nil)
				o := open(t, a)
				object, err := objectNamed(a, "x")
				require.NoError(t, err)
				dump := func() string { return words(a) + park.DescribeWaitNodes((*arenakernel.Arena)(a)) }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var ended [2]chan error
				for i := range ended {
					ended[i] = make(chan error, 1)
					go func() { ended[i] <- o.wait(ctx) }()
					eventually(t, "queued", dump, func() bool { return prims.QueuedAt(a, object) == i+1 })
				}
				var nodes [2]*arenakernel.Node
				(*arenakernel.Arena)(a).EachNode(object.Offset, func(_ arena.Offset, n *arenakernel.Node) {
					if n.Next().Load()>>32 == arenakernel.RecordedLast {
						nodes[1] = n
					} else {
						nodes[0] = n
					}
				})
				tear.tear(o, nodes)
				result := func(i int) error {
					select {
					case err := <-ended[i]:
						return err
					case <-after(timeout()):
						t.Fatalf("wait %d goes on\n%s", i, dump())
						return nil
					}
				}
				require.ErrorIs(t, result(1), shmsync.ErrCorrupt)
				if !tear.goesOn {
					require.ErrorIs(t, result(0), shmsync.ErrCorrupt)
				}
				require.NoError(t, guarded("a call", dump, o.try))
				cancel()
				if tear.goesOn {
					require.ErrorIs(t, result(0), context.Canceled)
				}
				require.NoError(t, guarded("a call", dump, o.try))
			})
		}
	}
}
