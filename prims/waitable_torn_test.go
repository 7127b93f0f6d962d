//go:build linux

package prims_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/prims"
)

// waitEnds requires that a wait ends, and returns its result.
func waitEnds(t *testing.T, a *arena.Arena, wait <-chan error) error {
	t.Helper()
	select {
	case err := <-wait:
		return err
	case <-after(timeout()):
		t.Fatalf("the wait goes on\n%s%s", words(a), park.DescribeWaitNodes((*arenakernel.Arena)(a)))
		return nil
	}
}

// TestWaitableWaitWithoutAStateEnds: a peer names an image of the state that does not exist while a goroutine waits. No
// process can grant the claim any more, so the wait ends.
func TestWaitableWaitWithoutAStateEnds(t *testing.T) {
	a := newArena(t, nil)
	x, err := autoReset(a, "x")
	require.NoError(t, err)
	wait := make(chan error, 1)
	go func() { wait <- x.Wait(struct{}{}) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
	x.CurrentImage().Add(99 << 32)
	require.ErrorIs(t, waitEnds(t, a, wait), shmsync.ErrCorrupt)
}

// TestWaitableWaitWithoutAHoldEnds: a peer overwrites the list of the blocks with holds. A wait ends if its handle does
// not know the blocks yet, because this process cannot find the hold that has to count the claim. A wait through a
// handle that knows the hold goes on, and is granted the claim.
func TestWaitableWaitWithoutAHoldEnds(t *testing.T) {
	a := newArena(t, nil)
	rules := manyRules
	rules.Claim = func(n *int64, _ int64) bool {
		if *n >= 9 {
			return false
		}
		*n++
		return true
	}
	open := func() *prims.Waitable[int64, int64] {
		x, err := prims.OpenWaitable(a, "x", 0, rules, nil)
		require.NoError(t, err)
		return x
	}
	x := open()
	for e := range int64(9) {
		require.True(t, x.TryWait(e))
	}
	x.Update(func(*int64) {}) // the last record names no hold now, so a new handle does not look for blocks
	early := open()           // has not looked for blocks yet
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- x.Wait(8) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
	arena.At[atomic.Uint64](a, x.Blocks()[0]).Store(1 << 50) // the next block is out of the arena
	go func() { second <- early.Wait(7) }()
	require.ErrorIs(t, waitEnds(t, a, second), shmsync.ErrCorrupt)
	x.Release(3)
	require.NoError(t, waitEnds(t, a, first))
}

// TestWaitableTornWaitOfTheDead: three waits are queued, and a peer overwrites the link from the third wait to the
// second. Then the process of the second wait dies, and so does a process that has a claim. The claim is undone, and
// the permit goes to the first wait.
func TestWaitableTornWaitOfTheDead(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	k.x.Update(func(s *stock) { s.Free = 1 })
	holder, dies := newStockist(t, a), newStockist(t, a)
	require.True(t, holder.do(t, "try", fine).OK)
	var waits [2]chan error
	for i := range waits {
		waits[i] = make(chan error, 1)
		go func() { waits[i] <- k.x.Wait(fine) }()
		eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 2*i+1 })
		if i == 0 {
			dies.begin("wait", fine)
			eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 2 })
		}
	}
	dies.Stop(t)
	_, last := k.x.Ends()
	n, err := (*arenakernel.Arena)(a).NodeAt(arena.Offset(last.Load() >> 32 * 64))
	require.NoError(t, err)
	n.Extra().Store(1 << 63)
	require.ErrorIs(t, waitEnds(t, a, waits[1]), shmsync.ErrCorrupt)
	dies.Kill(t)
	holder.Kill(t)
	require.NoError(t, waitEnds(t, a, waits[0]))
	require.Equal(t, stock{0, 1}, k.x.State())
}
