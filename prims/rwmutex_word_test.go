//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// TestGateWordTable checks the table of gateWord, for every kind and for extreme IDs.
func TestGateWordTable(t *testing.T) {
	for kind := range ownerKind(8) {
		for _, name := range wordNames {
			g := makeGate(kind, name)
			require.Equal(t, kind, g.kind())
			require.Equal(t, name, g.participant())
			n := name != 0
			valid := map[ownerKind]bool{
				gateHeld: true, gateClosed: n, gateOwnerDead: n, gateRecovering: n, kindNotRecoverable: !n,
			}[kind]
			require.Equal(t, valid, g.valid(), "%d %v", kind, name)
			taken := n && (kind == gateHeld || kind == gateClosed || kind == gateRecovering)
			require.Equal(t, taken, g.taken(), "%v", g)
			require.Equal(t, !valid, g.String() != gateOpen.String() && len(g.String()) > 7 && g.String()[:7] == "corrupt", "%v", g)
			for _, p := range []Policy{PolicyReport, PolicyRelease} {
				want := g
				switch {
				case !taken:
				case kind == gateClosed, kind == gateHeld && p == PolicyRelease:
					want = gateOpen
				default:
					want = makeGate(gateOwnerDead, name)
				}
				got := g.ownerDied(p)
				require.Equal(t, want, got, "%v by %v", g, p)
				require.Equal(t, got, got.ownerDied(p), "a second call changes nothing")
				require.False(t, got.taken())
				if valid {
					require.True(t, got.valid())
				}
			}
		}
	}
	require.Equal(t, "open", gateOpen.String())
	require.Equal(t, "closed by 1.1", makeGate(gateClosed, 1|1<<11).String())
	require.Equal(t, "held by 1.1", makeGate(gateHeld, 1|1<<11).String())
}

// TestReaderWordTable: each transition of a reader word changes only the fields that it should change.
func TestReaderWordTable(t *testing.T) {
	for _, generation := range []uint32{0, 1, readerGeneration} {
		for _, waiting := range []uint32{0, 1, 100_000, readerMost - 1} {
			for _, reading := range []uint32{0, 1, 100_000, readerMost - 1} {
				w := readerWord(generation) | readerWord(waiting)<<readerWaitShift | readerWord(reading)<<readerShift
				is := func(w readerWord, reading, waiting uint32) {
					t.Helper()
					require.Equal(t, generation, w.generation())
					require.Equal(t, waiting, w.waiting())
					require.Equal(t, reading, w.reading())
				}
				is(w, reading, waiting)
				is(w+readerOne, reading+1, waiting)
				is(w+readerOne+readerWord(readerBack), reading, waiting)
				is((w + readerOne).registered(), reading, waiting+1)
				is((w + readerWait).tried(), reading+1, waiting)
				is(w.cleared(), 0, 0)
				is(w.granted(), (reading+waiting)&readerMost, 0)
				require.Less(t, uint64(w), readerBelow)
				// If one hold too many is removed, only the field reading changes: it wraps. Adding the hold again
				// restores it.
				below := readerWord(generation) | readerWord(waiting)<<readerWaitShift
				below += readerWord(readerBack)
				is(below, readerMost, waiting)
				require.GreaterOrEqual(t, uint64(below), readerBelow)
				is(below+readerOne, 0, waiting)
				require.Contains(t, below.String(), "too often")
				for _, slot := range []int{1, arenakernel.MaxSlots} {
					n := w.name(slot)
					require.Equal(t, slot, n.Slot())
					require.Equal(t, generation, n.Generation())
				}
			}
		}
	}
	require.Equal(t, "2 reading, 3 waiting", (2*readerOne + 3*readerWait).String())
}
