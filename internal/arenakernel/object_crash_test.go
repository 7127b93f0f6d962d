//go:build linux && crashpoint

package arenakernel

import (
	"bytes"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/stretchr/testify/require"
)

// TestNamesOfTheStopped: a participant is stopped while it creates or deletes an object with a name.
// Other participants can use the name without delay.
func TestNamesOfTheStopped(t *testing.T) {
	for name, d := range deeds {
		if !slices.Contains([]string{"create", "create, committed", "open", "delete", "delete, decided"}, name) {
			continue
		}
		for _, at := range d.points {
			t.Run(name+"/"+at, func(t *testing.T) {
				p := newNeighbours(3<<20, 8)
				a, v, c := p.join(1), p.join(2), p.join(3)
				d.run(t, a, v, at)
				o, _, err := a.OpenObject(spec("new"))
				require.NoError(t, err)
				same, created, err := c.OpenObject(spec("new"))
				require.NoError(t, err)
				require.False(t, created)
				require.Equal(t, o, same)
				require.ErrorIs(t, c.Delete("new"), syscall.EBUSY)
				requireSound(t, a)
				p.reap(c, v.self)
				same, created, err = c.OpenObject(spec("new"))
				require.NoError(t, err)
				require.False(t, created)
				require.Equal(t, o, same)
				a.CloseObject(o)
				c.CloseObject(o)
				c.CloseObject(o)
				runEverything(t, a)
				require.Zero(t, a.Stats().Objects+a.Stats().Claimed)
			})
		}
	}
}

// TestDeathWhileWithdrawing checks that one object and no claimed block remain if two participants create an object
// of the same name. The second participant dies before it has deleted its own object.
func TestDeathWhileWithdrawing(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	s := spec("new")
	s.Init = func([]byte) { // another participant creates the object first
		_, _, err := a.OpenObject(spec("new"))
		require.NoError(t, err)
	}
	require.True(t, abandon("arena.object.withdrawing", 1, func() { v.OpenObject(s) }))
	requireSound(t, a)
	p.reap(a, v.self)
	requireSound(t, a)
	require.EqualValues(t, 1, a.Stats().Objects)
	require.Zero(t, a.Stats().Claimed)
}

// TestGuardedBlocksAreNotReused: while a participant guards a block, because it is about to read the
// block, the block is not allocated again.
func TestGuardedBlocksAreNotReused(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	v.guard(o.Offset) // v guards the object and is stopped
	require.NoError(t, a.Delete("x"))
	for range 100 {
		require.NotEqual(t, o.Offset, mustAlloc(t, a, 300, 0))
	}
	again, created, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, o.Offset, again.Offset)
	require.EqualValues(t, 1, a.Stats().Claimed)
	v.unguard()
	a.CloseObject(again)
	require.NoError(t, a.Delete("x"))
	require.Zero(t, a.Stats().Claimed)

	// The guard of a dead participant has no effect, and its reaper takes over its deferred blocks.
	o, _, err = a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	a.guard(o.Offset)
	require.NoError(t, v.Delete("x"))
	require.EqualValues(t, 1, a.Stats().Claimed)
	u := p.join(3)
	p.reap(u, v.self)
	require.EqualValues(t, 1, a.Stats().Claimed)
	p.kill(a.self)
	require.ErrorIs(t, u.Delete("x"), fs.ErrNotExist)
	require.Zero(t, u.Stats().Claimed)
}

// TestOpenerComesTooLate: an opener reads an entry of the directory. Before it reads the object, the
// object is deleted and other bytes are in its place. The opener creates a new object.
func TestOpenerComesTooLate(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	crashpoint.ArmFunc("arena.object.found", 1, func() {
		require.NoError(t, a.Delete("x"))
		require.Equal(t, o.Offset, mustAlloc(t, a, 300, 0))
	})
	defer crashpoint.Disarm()
	again, created, err := v.OpenObject(spec("x"))
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, o.Offset, again.Offset)
	requireSound(t, a)
}

// TestDeleterIsStopped: a deleter is stopped in the middle of a deletion. Another deleter completes the
// deletion.
func TestDeleterIsStopped(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	crashpoint.ArmFunc("arena.delete.before_mark", 1, func() {
		require.True(t, abandon("arena.delete.marked", 1, func() { v.Delete("x") }))
	})
	defer crashpoint.Disarm()
	require.NoError(t, a.Delete("x"))
	require.Zero(t, a.Stats().Objects)
	p.reap(a, v.self)
	requireSound(t, a)
	require.ErrorIs(t, a.Delete("x"), fs.ErrNotExist)
	require.Zero(t, a.Stats().Claimed) // the block had to wait because the stopped participant guarded it
}

// TestBitsOfTheDeadAreCleared: the open bit of a dead participant is cleared, so that the next participant in the
// slot does not appear to have the object open.
func TestBitsOfTheDeadAreCleared(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	for _, name := range []string{"", "x"} {
		o, _, err := v.OpenObject(spec(name))
		require.NoError(t, err)
		p.reap(a, v.self)
		v = p.join(2)
		require.NoError(t, a.DeleteObject(o))
	}
}

// TestPollerNodeIsTakenOnce: two participants try to take the same poller node. Only one of them gets
// it.
func TestPollerNodeIsTakenOnce(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v, u := p.join(1), p.join(2), p.join(3)
	o, head := withPoller(t, a, "x")
	off, err := a.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	require.True(t, a.ReleasePollerNode(off))
	crashpoint.ArmFunc("arena.poller.before_take", 1, func() {
		theirs, err := u.PollerNode(o, head, anyNode)
		require.NoError(t, err)
		require.Equal(t, off, theirs)
	})
	defer crashpoint.Disarm()
	mine, err := v.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	require.NotEqual(t, off, mine)
	require.Equal(t, u.self, a.node(off).Owner())

	// Between the check and the CAS of u, the node becomes ready. A ready node must not be taken.
	require.True(t, u.ReleasePollerNode(off))
	crashpoint.ArmFunc("arena.poller.before_take", 1, func() { a.node(off).swapState(NodeFree, NodeReady) })
	other, err := u.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	require.NotEqual(t, off, other)
	require.Zero(t, a.node(off).Owner())
}

// TestNodeOfTheDeadIsANewOne: a participant dies while it claims a node. After the reap, the node is
// unused and can be claimed like a new node.
func TestNodeOfTheDeadIsANewOne(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	require.True(t, abandon("arena.node.owned", 1, func() { v.ClaimNode() }))
	n := a.node(a.chunkOff(0))
	require.Equal(t, v.self, n.Owner())
	before := n.Load()
	p.reap(a, v.self)
	require.Equal(t, before.Freed(), n.Load())
	require.Zero(t, n.Owner())
}

// TestOpenerMeetsDeletion: an opener has found an object and is about to set its open bit. At this
// moment the object is deleted and its memory is reused. The opener must not set the bit in the reused
// memory.
func TestOpenerMeetsDeletion(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(o)
	var wordPtr []Offset
	crashpoint.ArmFunc("arena.object.entered", 1, func() {
		require.NoError(t, a.Delete("x"))
		for range 400 {
			off := mustAlloc(t, a, 300, 0)
			copy(a.slice(off, 300), bytes.Repeat([]byte{0xff}, 300))
			wordPtr = append(wordPtr, off)
		}
	})
	defer crashpoint.Disarm()
	again, created, err := v.OpenObject(spec("x"))
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, o.Offset, again.Offset)
	for _, off := range wordPtr {
		require.Equal(t, bytes.Repeat([]byte{0xff}, 300), a.slice(off, 300))
	}
	requireSound(t, a)
}

// TestDeathOfAMakerAndAnOpener: two participants die before the block of an object is published. The
// first is the maker of the object. The second is an opener that was about to publish the block in
// place of the maker. The object can still be deleted after these deaths.
func TestDeathOfAMakerAndAnOpener(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, maker, opener := p.join(1), p.join(2), p.join(3)
	require.True(t, abandon("arena.object.committed", 1, func() { maker.OpenObject(spec("x")) }))
	require.True(t, abandon("arena.object.bit_set", 1, func() { opener.OpenObject(spec("x")) }))
	p.reap(a, opener.self)
	p.reap(a, maker.self)
	p.join(2)
	p.join(3)
	require.EqualValues(t, 1, a.Stats().Objects)
	require.NoError(t, a.Delete("x"))
	require.Zero(t, a.Stats().Objects+a.Stats().Claimed)
}

// TestDeathOfTheReaper: a reaper dies while it takes back what a dead participant left. The next reaper
// completes the work.
func TestDeathOfTheReaper(t *testing.T) {
	for _, c := range []struct{ deed, first, second string }{
		{"delete, decided", "arena.delete.decided", "arena.delete.freeing"},
		{"delete, decided", "arena.delete.decided", "arena.delete.unlisted"},
		{"delete, decided", "arena.delete.decided", "arena.node.freeing"},
		{"delete, decided", "arena.delete.decided", "arena.node.reset"},
		{"delete, decided", "arena.delete.freeing", "arena.node.freeing"},
		{"free span", "arena.free.before_clear", "arena.span.dismantling:2"},
		{"span", "arena.span.headed:4", "arena.span.dismantling:3"},
		{"span", "arena.span.headed:2", "arena.span.dismantling:1"},
		{"poller node", "arena.poller.before_push", "arena.node.freeing"},
		{"poller node", "arena.poller.before_push", "arena.node.reset"},
	} {
		t.Run(c.deed+"/"+c.first+"/"+c.second, func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a, v, u := p.join(1), p.join(2), p.join(3)
			d := deeds[c.deed]
			before := d.run(t, a, v, c.first)
			point, n := pointOf(c.second)
			require.True(t, abandon(point, n, func() { p.reap(u, v.self) }))
			p.reap(a, u.self)
			p.reap(a, v.self)
			requireSound(t, a)
			requireSame(t, d, before, a)
			runEverything(t, a)
			require.Zero(t, a.Stats().Objects)
		})
	}
}

// TestOpenerLosesToManyDeleters: an opener tries to cancel a deletion, and other deleters are faster
// many times in a row. The opener must not return an error that calls the object corrupt.
func TestOpenerLosesToManyDeleters(t *testing.T) {
	p := newNeighbours(3<<20, 8)
	a, v := p.join(1), p.join(2)
	stopDeleting(a, "x")
	o, err := a.ObjectAt(firstObject(t, a))
	require.NoError(t, err)
	a.CloseObject(o)
	stopDeleting(a, "x")
	const rounds = 5 * claimTries
	for i := 1; i <= rounds; i++ {
		crashpoint.ArmFunc("arena.object.cancelling", i, func() {
			a.u32(o.Offset + objState).Store(uint32(makeObject(objectDeleting, makeParticipantID(3+i%2, 1))))
		})
	}
	defer crashpoint.Disarm()
	same, created, err := v.OpenObject(spec("x"))
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, o, same)
}
