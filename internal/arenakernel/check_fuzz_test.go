//go:build linux

package arenakernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

// scribble writes value to a place in the arena that the fuzzer chose. In most cases the arena uses
// this place.
func scribble(a *Arena, places []Offset, where uint16, value uint64) {
	off := places[int(where>>3)%len(places)]
	if off+8 > Offset(a.size) {
		return
	}
	switch where & 7 {
	case 0:
		a.u32(off &^ 3).Store(uint32(value))
	case 1:
		a.u64(off &^ 7).Store(value)
	case 2:
		a.u32(off &^ 3).Add(uint32(value) & 15)
	case 3:
		a.u64(off&^7 + 8*Offset(value>>56&7)&^63).Store(value)
	case 4: // another place of interest
		a.u64(off &^ 7).Store(uint64(places[value%uint64(len(places))]))
	default:
		w := a.u64(off &^ 7)
		w.Store(w.Load() ^ 1<<(value&63))
	}
}

// tolerate calls f, which may panic with a message about a mistake of its caller: bytes that a peer
// wrote can make a correct call look like a mistake. A panic for any other reason fails the test.
func tolerate(t *testing.T, f func()) {
	defer func() {
		if r := recover(); r != nil {
			message := fmt.Sprint(r)
			if !strings.HasPrefix(message, `shmsync: arena "neighbours": `) {
				panic(r)
			}
		}
	}()
	f()
}

// FuzzHostile lets a peer write any values anywhere in the arena, and then calls all functions. A
// call may return an error, but must not crash, hang, or access memory outside the arena.
func FuzzHostile(f *testing.F) {
	for kind := range byte(8) {
		f.Add([]byte{kind, 0, 1, 2, 3, 4, 5, 6, 7, 8, kind + 8, 1, 255, 255, 255, 255, 255, 255, 255, 255})
		f.Add([]byte{kind + 32, 0, 0, 0, 0, 0, 0, 0, 0, 1, kind + 64, 0, 9, 0, 0, 0, 1, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		p := newNeighbours(1<<20, 3)
		a, b, dead := p.join(1), p.join(2), p.join(3)
		small, err := a.Alloc(100, 0)
		require.NoError(t, err)
		span, err := a.Alloc(2*chunkSize, 0)
		require.NoError(t, err)
		o, head := withPoller(t, a, "x")
		closed, _, err := a.OpenObject(spec("closed"))
		require.NoError(t, err)
		a.CloseObject(closed)
		mine, err := a.PollerNode(o, head, anyNode)
		require.NoError(t, err)
		theirs, err := dead.PollerNode(o, dead.u64(o.Body), anyNode)
		require.NoError(t, err)
		node, err := dead.ClaimNode()
		require.NoError(t, err)
		claimed, err := dead.claim(300, 1)
		require.NoError(t, err)

		places := []Offset{small, span, claimed, o.Body, hdrChunkHint, hdrDirReach, a.slot(3) + slotReady, a.slot(2) + slotOpening, a.slot(2) + slotWalking}
		for _, off := range []Offset{small, span, o.Offset, closed.Offset, mine, theirs, node, claimed} {
			block, _ := a.locate(off)
			places = append(places, Offset(a.geo.chunksOff+block.chunk*8),
				Offset(a.geo.blocksOff+(block.chunk*blockWords+block.index)*blockWordSize))
		}
		for k := Offset(0); k < 64; k += 8 {
			places = append(places, o.Offset+k, closed.Offset+k, mine+k, theirs+k, node+k, closed.Offset+objectHeader+200+k&^7)
		}
		for i := range a.geo.chunkCount {
			places = append(places, Offset(a.geo.chunksOff+i*8))
		}
		for _, name := range []string{"x", "closed", "new"} {
			for k := range uint64(3) {
				places = append(places, a.entryOff((hashName(name)+k)&(a.geo.dirCount-1)))
			}
		}
		for ; len(script) >= 10; script = script[10:] {
			scribble(a, places, binary.LittleEndian.Uint16(script), binary.LittleEndian.Uint64(script[2:]))
		}

		all := func(Offset, *Node) bool { return true }
		for _, m := range []*Arena{b, a} {
			m.Check()
			m.Stats()
			for o := range m.Objects() {
				m.ObjectAt(o.Offset)
			}
			for _, name := range []string{"x", "closed", "new"} {
				o, _, err := m.OpenObject(spec(name))
				if err != nil {
					continue
				}
				require.LessOrEqual(t, uint64(o.Body)+o.Size, m.size)
				tolerate(t, func() { m.PollerNode(o, m.u64(o.Body), anyNode) })
				m.EachPollerNode(m.u64(o.Body), all)
				m.CloseObject(o)
				m.Delete(name)
			}
			for _, off := range []Offset{small, span, node, o.Offset, closed.Offset} {
				TryAt[[64]byte](m, off)
				m.ObjectAt(off)
				m.NodeAt(off)
				tolerate(t, func() { m.Free(off) })
			}
			for _, size := range []uint64{64, 500, 32768, chunkSize, 3 * chunkSize} {
				off, err := m.Alloc(size, 0)
				if err == nil {
					require.LessOrEqual(t, uint64(off)+size, m.size)
					tolerate(t, func() { m.Free(off) })
				}
			}
			if off, err := m.ClaimNode(); err == nil {
				m.freeNode(off)
			}
			Value[counters](m, "stats")
			m.Block("frames", 100)
			p.reap(m, dead.self)
		}
		tolerate(t, func() { a.ReleasePollerNode(mine) })
		tolerate(t, func() { a.CloseObject(o) })
		a.Delete("x")
		a.DeleteObject(closed)
		sweepAll(a)
		for _, err := range a.checkHeap() {
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
		}
	})
}
