//go:build linux && crashpoint

package arenakernel

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/stretchr/testify/require"
)

// abandon runs f in a goroutine that stops for ever at the n'th hit of a crash point, as if its
// process had died there. It returns false if f returned.
func abandon(point string, n int, f func()) bool {
	died, done := make(chan struct{}), make(chan struct{})
	crashpoint.ArmFunc(point, n, func() {
		close(died)
		select {}
	})
	defer crashpoint.Disarm()
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-died:
		return true
	case <-done:
		return false
	}
}

// goroutine returns the number of the calling goroutine.
func goroutine() int {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	n, _ := strconv.Atoi(string(bytes.Fields(b)[1]))
	return n
}

// pointOf splits a string "name:n" into the name of a crash point and a number.
func pointOf(s string) (string, int) {
	name, count, ok := strings.Cut(s, ":")
	if !ok {
		return name, 1
	}
	n, _ := strconv.Atoi(count)
	return name, n
}

// runEverything allocates and frees blocks, objects, records and nodes, in an arena in which other participants
// have died.
func runEverything(t *testing.T, a *Arena) {
	for _, size := range []uint64{64, 100, 20000, 4 * chunkSize} {
		a.Free(mustAlloc(t, a, size, 0))
	}
	o, _, err := a.OpenObject(spec("new"))
	require.NoError(t, err)
	off, err := a.PollerNode(o, a.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.True(t, a.ReleasePollerNode(off))
	record, err := a.SlotRecord(o, 100)
	require.NoError(t, err)
	again, err := a.SlotRecord(o, 100)
	require.NoError(t, err)
	require.Equal(t, record, again)
	a.CloseObject(o)
	require.NoError(t, a.Delete("new"))
	require.ErrorIs(t, a.Delete("new"), fs.ErrNotExist)
	node, err := a.ClaimNode()
	require.NoError(t, err)
	require.NoError(t, a.freeNode(node))
	requireSound(t, a)
}

func TestDeathAtEachPoint(t *testing.T) {
	for name, d := range deeds {
		for _, at := range d.points {
			t.Run(name+"/"+at, func(t *testing.T) {
				p := newNeighbours(3<<20, 8)
				a, v := p.join(1), p.join(2)
				node, err := a.ClaimNode() // this allocates the chunk of nodes
				require.NoError(t, err)
				require.NoError(t, a.freeNode(node))
				before := d.run(t, a, v, at)
				p.reap(a, v.self)
				requireForgotten(t, a, v.self)
				requireSound(t, a)
				requireSame(t, d, before, a)
				runEverything(t, a)
				require.Zero(t, a.Stats().Claimed+a.Stats().Objects+a.Stats().Nodes+a.Stats().SlotRecords)
			})
		}
	}
}

// requireForgotten checks that no word of the heap or of an object names the dead participant.
func requireForgotten(t *testing.T, a *Arena, dead ParticipantID) {
	t.Helper()
	for i := range a.geo.chunkCount {
		w := a.loadChunk(i)
		require.NotEqual(t, dead, w.participant())
		for k := range uint64(blockWords) {
			if w.reserved() {
				require.NotEqual(t, dead, blockWord(a.blockWordOf(i, k).Load()).participant())
			}
		}
	}
	a.eachNode(func(_ Offset, n *Node) { require.NotEqual(t, dead, n.Owner()) })
	a.visit(func(o Object) {
		h, err := a.headerAt(o.Offset)
		require.NoError(t, err)
		require.EqualValues(t, objectCommitted, h.load())
		word, mask := a.openBit(&h, dead.Slot())
		require.Zero(t, word.Load()&mask)
	})
}

// requireSame checks that a participant that died in a deed has left either no effect of the deed
// or its whole effect.
func requireSame(t *testing.T, d deed, before AllocStats, a *Arena) {
	t.Helper()
	after := a.Stats()
	require.Zero(t, after.Claimed)
	require.EqualValues(t, d.wordPtr, int(after.Raw-before.Raw))
	require.EqualValues(t, d.objects, int(after.Objects-before.Objects))
	require.EqualValues(t, d.nodes, int(after.Nodes-before.Nodes))
	require.EqualValues(t, d.records, int(after.SlotRecords-before.SlotRecords))
	if d.wordPtr == 0 && d.objects == 0 && d.nodes == 0 && d.records == 0 {
		require.Equal(t, before.BytesUsed, after.BytesUsed)
	}
	sweepAll(a)
	used := uint64(0) // used by spans
	a.eachBlock(func(_ Offset, size uint64, _ blockWord) bool {
		used += size / chunkSize
		return true
	})
	// At most three chunks are slabs: one of nodes, one of small blocks, one of objects.
	require.LessOrEqual(t, a.geo.chunkCount-a.Stats().FreeChunks, used+3)
}

func TestEveryPointOfTheHeapIsHit(t *testing.T) {
	var tested []string
	for _, d := range deeds {
		for _, at := range d.points {
			point, _ := pointOf(at)
			tested = append(tested, point)
		}
	}
	tested = append(tested, "arena.object.withdrawing")
	tested = append(tested, "arena.node.inherited", "arena.node.reclaimed") // tested in prims by TestWorkerGroupCrash
	mine := []string{"arena.alloc.", "arena.block.", "arena.chunk.", "arena.span.", "arena.sweep.", "arena.free.", "arena.object.", "arena.delete.", "arena.node.", "arena.poller.", "arena.slotrecord."}
	for _, point := range crashpoint.All() {
		if slices.ContainsFunc(mine, func(prefix string) bool { return strings.HasPrefix(point, prefix) }) {
			require.Contains(t, tested, point)
		}
	}
}

// TestSpansThatCollide: if two participants want the same chunks for a span, one of them gives up
// and releases all of its claims.
func TestSpansThatCollide(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a, v := p.join(1), p.join(2)
	var taken uint64
	crashpoint.ArmFunc("arena.span.claiming", 1, func() {
		for i := range a.geo.chunkCount {
			if w := a.loadChunk(i); w.participant() == v.self {
				taken = i + 1
				require.True(t, a.swapChunk(taken, 0, chunkWord(0).claimedBy(a.self)))
			}
		}
	})
	defer crashpoint.Disarm()
	off, err := v.Alloc(3*chunkSize, 0)
	require.NoError(t, err)
	require.EqualValues(t, v.chunkOff(taken-4), off)
	require.NotZero(t, taken)
	a.freeRun(taken, 1)
	v.Free(off)
	requireSound(t, a)
	require.Equal(t, p.geo.chunkCount, a.Stats().FreeChunks)
}

// TestSpanMeetsStaleClaim checks that no participant makes a span that begins at a chunk whose first block word
// another participant has claimed. The chunk was a slab when the other participant read the chunk word, and is no
// slab any more.
func TestSpanMeetsStaleClaim(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a, v := p.join(1), p.join(2)
	off := mustAlloc(t, a, 100, 0)
	require.EqualValues(t, a.geo.heapOff, off)
	a.Free(off)
	crashpoint.ArmFunc("arena.block.before_claim", 1, func() {
		require.EqualValues(t, 1, a.sweep(1, roomOfAll))
	})
	crashpoint.ArmFunc("arena.block.claimed", 1, func() {
		_, err := a.Alloc(a.geo.common()*chunkSize, 0)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
		mustAlloc(t, a, (a.geo.common()-1)*chunkSize, 0)
	})
	defer crashpoint.Disarm()
	class, _ := classFor(100, 1)
	v.heap.next[class].Store(0)
	got, err := v.Alloc(100, 0)
	require.NoError(t, err)
	require.Equal(t, off, got)
	requireSound(t, a)
}

// TestClaimInASlabThatIsGone checks that no block stays claimed if an allocator claims a block of a slab while
// another participant takes the slab back. The allocator then dies, or gives the block up.
func TestClaimInASlabThatIsGone(t *testing.T) {
	for what, reuse := range map[string]func(t *testing.T, a *Arena){
		"free":               func(*testing.T, *Arena) {},
		"slab of other size": func(t *testing.T, a *Arena) { mustAlloc(t, a, 30000, 0) },
		"slab of nodes":      func(t *testing.T, a *Arena) { a.ClaimNode() },
		"slab of its size":   func(t *testing.T, a *Arena) { mustAlloc(t, a, 100, 0) },
		"the head of a span": func(t *testing.T, a *Arena) { mustAlloc(t, a, a.geo.common()*chunkSize, 0) },
		"a sweeper's":        nil,
	} {
		for _, index := range []uint64{0, 5} {
			for _, dies := range []bool{false, true} {
				t.Run(fmt.Sprint(what, "/", index, "/", dies), func(t *testing.T) {
					p := newNeighbours(1<<20, 4)
					a, v := p.join(1), p.join(2)
					off := mustAlloc(t, a, 100, 0)
					chunk := (uint64(off) - a.geo.heapOff) / chunkSize
					a.Free(off)
					class, _ := classFor(100, 1)
					v.heap.next[class].Store(chunk*blockWords + index)
					crashpoint.ArmFunc("arena.block.before_claim", 1, func() {
						if reuse == nil {
							w := a.loadChunk(chunk)
							a.swapChunk(chunk, w, makeChunk(chunkSweeping, w.number(), a.self))
							return
						}
						require.EqualValues(t, 1, a.sweep(1, roomOfAll))
						reuse(t, a)
					})
					before := a.Stats().Raw
					if dies {
						require.True(t, abandon("arena.block.claimed", 1, func() { v.Alloc(100, 0) }))
						p.reap(a, v.self)
					} else if got, err := v.Alloc(100, 0); err == nil {
						v.Free(got)
					}
					crashpoint.Disarm()
					requireSound(t, a)
					s := a.Stats()
					require.Zero(t, s.Claimed)
					require.LessOrEqual(t, s.Raw, before+1)
					for k := range uint64(blockWords) {
						require.Zero(t, blockWord(a.blockWordOf(chunk, k).Load()).participant())
					}
				})
			}
		}
	}
}
