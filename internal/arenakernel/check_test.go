//go:build linux

package arenakernel

import (
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

func TestCheckFindsWhatIsWrong(t *testing.T) {
	type world struct {
		a       *Arena
		wordPtr block
		span    block
		o       header
		other   header
		node    block
		poller  *Node
	}
	setBlock := func(b block, kind int, n ParticipantID) { b.word.Store(uint32(makeBlock(kind, n))) }
	setChunk := func(w world, i uint64, to chunkWord) { w.a.chunk(i).Store(uint64(to)) }
	for want, spoil := range map[string]func(w world){
		"impossible word 0x7":                func(w world) { setChunk(w, 9, 7) },
		"is nobody's":                        func(w world) { setBlock(w.span, blockFree, 0) },
		"of the span at chunk":               func(w world) { setChunk(w, w.span.chunk+1, chunkReserved) },
		"belongs to a span at chunk":         func(w world) { setChunk(w, w.span.chunk, makeChunk(chunkHead, 1, 0)) },
		"impossible word 0x9":                func(w world) { w.wordPtr.word.Store(9) },
		"but no block is there":              func(w world) { w.a.blockWordOf(w.wordPtr.chunk, blockWords-1).Store(blockRaw) },
		"node, in the wrong kind":            func(w world) { setBlock(w.wordPtr, blockNode, 0) },
		"raw, in the wrong kind":             func(w world) { setBlock(w.node, blockRaw, 0) },
		"impossible state 0x0":               func(w world) { w.o.state.Store(0) },
		"impossible size":                    func(w world) { w.a.u64(w.o.Offset + objSize).Store(1 << 50) },
		"where there is no object":           func(w world) { setBlock(w.o.block, blockRaw, 0) },
		"is 0 times in the directory":        func(w world) { w.a.unlist(w.o.Offset, w.o.hash) },
		"is 2 times in the directory":        func(w world) { w.a.place(w.o.Offset, w.o.hash) },
		"which nobody is called":             func(w world) { w.a.node(w.node.off).owner.Store(5) },
		"in use, but nobody's":               func(w world) { w.a.node(w.node.off).owner.Store(0) },
		"names a list at":                    func(w world) { w.poller.list.Store(w.a.size) },
		"nobody's, and not on the list":      func(w world) { w.poller.owner.Store(0); w.a.u64(w.o.Body).Store(0) },
		"a list of wait nodes does not end":  func(w world) { w.poller.owner.Store(0); w.poller.next.Store(w.a.u64(w.o.Body).Load()) },
		"there is no wait node at 0xfffffff": func(w world) { w.poller.owner.Store(0); w.poller.next.Store(0xfffffff) },
		"are both called": func(w world) {
			// Rename the other object from "p" to "o", the name of the first object.
			w.a.u64(w.other.Offset + objHash).Store(w.o.hash)
			_, name, _ := w.a.layOut(w.other.Size, "", "")
			w.a.slice(w.other.Offset+Offset(name), 1)[0] = 'o'
		},
		"by its kind": func(w world) { w.a.u64(w.other.Body + 8).Store(13) },
	} {
		t.Run(want, func(t *testing.T) {
			a := newNeighbours(2<<20, 4).join(1)
			w := world{a: a}
			w.wordPtr, _ = a.locate(mustAlloc(t, a, 100, 0))
			w.span, _ = a.locate(mustAlloc(t, a, 3*chunkSize, 0))
			o, head := withPoller(t, a, "o")
			w.o = a.handles.refs[o.Offset].header
			other, _ := withPoller(t, a, "p")
			w.other = a.handles.refs[other.Offset].header
			off, err := a.PollerNode(o, head, anyNode)
			require.NoError(t, err)
			w.poller = a.node(off)
			off, err = a.ClaimNode()
			require.NoError(t, err)
			w.node, _ = a.locate(off)
			requireSound(t, a)
			spoil(w)
			err = a.Check()
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			require.ErrorContains(t, err, want)
		})
	}
}

func init() {
	RegisterKind(KindOps{Kind: testKind, Check: func(a *Arena, o Object) error {
		if a.u64(o.Body+8).Load() == 13 {
			return a.fail("test.check", shmsync.ErrCorrupt, "found by its kind")
		}
		return nil
	}})
}

func TestCheckOfGarbageEnds(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a := p.join(1)
	for i := p.geo.dirOff; i < p.geo.heapOff; i++ {
		p.bytes[i] = 0x5a + byte(i*i)
	}
	errs := a.checkHeap()
	require.NotEmpty(t, errs)
	require.LessOrEqual(t, len(errs), maxFindings+1)
}
