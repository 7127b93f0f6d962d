//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// someNames are IDs with extreme values.
var someNames = []ParticipantID{makeParticipantID(1, 1), makeParticipantID(MaxSlots, 1), makeParticipantID(1, maxGeneration), makeParticipantID(MaxSlots, maxGeneration)}

func TestChunkWordKeepsItsParts(t *testing.T) {
	for kind := range chunkKinds {
		for _, number := range []uint64{0, 1, 17, 1<<31 - 1} {
			for _, n := range append(someNames, 0) {
				w := makeChunk(kind, number, n)
				require.Equal(t, kind, w.kind())
				require.Equal(t, number, w.number())
				require.Equal(t, n, w.participant())
				require.True(t, w.reserved())
				require.Equal(t, chunkReserved, w.freed())
			}
		}
	}
}

func TestChunkWordLegal(t *testing.T) {
	const i, count = 3, 10
	me := makeParticipantID(5, 7)
	legal := map[chunkWord]bool{
		0:                                      true,
		chunkReserved:                          true,
		chunkWord(0).claimedBy(me):             true,
		chunkReserved.claimedBy(me):            true,
		chunkReserved.claimedBy(0):             false,
		makeChunk(chunkClaimed, 1, me):         false,
		makeChunk(chunkFree, 1, 0):             false,
		makeChunk(chunkFree, 0, me):            false,
		makeChunk(chunkSlab, 0, 0):             true,
		makeChunk(chunkSlab, classNode, 0):     true,
		makeChunk(chunkSlab, classes, 0):       false,
		makeChunk(chunkSlab, 0, me):            false,
		makeChunk(chunkSlab, 0, 0) &^ 8:        false,
		makeChunk(chunkSweeping, 2, me):        true,
		makeChunk(chunkSweeping, 2, 0):         false,
		makeChunk(chunkSweeping, classNode, 1): false,
		makeChunk(chunkHead, 1, 0):             true,
		makeChunk(chunkHead, count-i, 0):       true,
		makeChunk(chunkHead, count-i+1, 0):     false,
		makeChunk(chunkHead, 0, 0):             false,
		makeChunk(chunkTail, i-1, 0):           true,
		makeChunk(chunkTail, i, 0):             false,
		makeChunk(6, 0, 0):                     false,
		makeChunk(7, 0, 0):                     false,
		^chunkWord(0):                          false,
	}
	for w, want := range legal {
		require.Equal(t, want, w.legal(i, count), "%#x", uint64(w))
	}
}

func TestBlockWordLegal(t *testing.T) {
	named := map[int]bool{blockClaimed: true, blockFreeing: true, blockBlocked: true, blockLogged: true}
	for kind := range 8 {
		for _, n := range append(someNames, 0) {
			w := makeBlock(kind, n)
			require.Equal(t, kind, w.kind())
			require.Equal(t, n, w.participant())
			require.Equal(t, kind < blockKinds && named[kind] == (n != 0), w.legal(), "%v", w)
			require.NotEmpty(t, w.String())
		}
	}
	require.False(t, makeBlock(blockClaimed, makeParticipantID(0, 1)).legal())
	require.False(t, makeBlock(blockClaimed, makeParticipantID(1, 0)).legal())
}

func TestObjectWordLegal(t *testing.T) {
	for phase := range 8 {
		for _, n := range append(someNames, 0) {
			w := makeObject(phase, n)
			require.Equal(t, phase, w.phase())
			require.Equal(t, n, w.participant())
			require.Equal(t, phase < objectPhases && (phase == objectCommitted) == (n == 0), w.legal())
			require.Equal(t, phase == objectCommitted || phase == objectDeleting, w.there())
		}
	}
}

func TestNodeWordTransitions(t *testing.T) {
	for _, generation := range []uint32{0, 1, 1<<28 - 1} {
		for s := range NodeState(16) {
			w := NodeWord(generation * generationUnit).With(s)
			require.Equal(t, s, w.State())
			require.Equal(t, generation, w.Generation())
			for to := range NodeState(16) {
				require.Equal(t, to, w.With(to).State())
				require.Equal(t, generation, w.With(to).Generation())
			}
			require.Equal(t, NodeFree, w.Freed().State())
			require.Equal(t, NodeIdle, w.Kept().State())
			for _, next := range []NodeWord{w.Freed(), w.Kept()} {
				require.Equal(t, (generation+1)%(1<<28), next.Generation())
			}
			require.NotEmpty(t, w.String())
		}
	}
}

func TestClassForFitsAndAligns(t *testing.T) {
	for align := uint64(1); align <= MaxAlign; align *= 2 {
		for size := uint64(0); size <= chunkSize; size += 61 {
			class, ok := classFor(size, align)
			if !ok {
				require.Greater(t, size, uint64(16384), "align %d", align)
				continue
			}
			s := uint64(classSizes[class])
			require.GreaterOrEqual(t, s, size)
			for index := range blocksOf(class) {
				require.Zero(t, index*s%max(align, blockMin))
			}
			require.LessOrEqual(t, blocksOf(class)*s, uint64(chunkSize))
			require.LessOrEqual(t, blocksOf(class), uint64(blockWords))
		}
	}
}
