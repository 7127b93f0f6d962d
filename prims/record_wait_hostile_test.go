//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/prims"
)

// TestWaitThatAPeerEndsIsGivenUp checks that a wait ends with an error if a peer resolves its node with an outcome that
// no wait for this object can have. The process does not use the node again.
func TestWaitThatAPeerEndsIsGivenUp(t *testing.T) {
	for kind, open := range map[string]func(a *arena.Arena) (wait func(ctx context.Context) error, err error){
		"fair mutex": func(a *arena.Arena) (func(ctx context.Context) error, error) {
			f, err := prims.OpenFairMutex(a, "x", &prims.FairMutexOptions{Spin: -1})
			if err == nil {
				f.Lock()
			}
			return f.LockContext, err
		},
		"waitable": func(a *arena.Arena) (func(ctx context.Context) error, error) {
			e, err := autoReset(a, "x")
			return func(ctx context.Context) error { return e.WaitContext(ctx, struct{}{}) }, err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			wait, err := open(a)
			require.NoError(t, err)
			o, err := objectNamed(a, "x")
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- wait(t.Context()) }()
			dump := func() string { return words(a) + park.DescribeWaitNodes((*arenakernel.Arena)(a)) }
			eventually(t, "queued", dump, func() bool { return prims.QueuedAt(a, o) == 1 })
			(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
				n.Next().Store(arenakernel.RecordedOwes << 32)
				for w := n.Load(); !n.Swap(w, w.With(arenakernel.NodeResolved)); w = n.Load() {
				}
			})
			select {
			case err := <-ended:
				require.ErrorIs(t, err, shmsync.ErrCorrupt)
			case <-after(timeout()):
				t.Fatalf("the wait goes on\n%s", dump())
			}
			require.Empty(t, park.DescribeWaitNodes((*arenakernel.Arena)(a)))
		})
	}
}
