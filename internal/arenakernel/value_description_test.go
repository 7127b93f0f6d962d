//go:build linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/typetext"
)

// TestStoredSaysWhatDiffers: the methods of a stored value report how the value differs from another
// type. If only names of fields differ, the value can be read as the other type.
func TestStoredSaysWhatDiffers(t *testing.T) {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) {
		makeStats(t, a, 7)
		o, _, err := a.OpenObject(ObjectSpec{Kind: KindValue, Version: 1, Name: "bare", Size: 8, Layout: 9})
		require.NoError(t, err)
		a.CloseObject(o)
	})
	failed := errors.New("failed")
	asFirst(t, ta, func(a *Arena) {
		require.ErrorIs(t, UpgradeValue(a, "stats", func(old Stored, v *statsV3) error {
			_, err := StoredAs[statsV2](old)
			require.ErrorIs(t, err, shmsync.ErrIncompatible)
			require.ErrorContains(t, err, "field Misses, uint64 at 8, is in this program only")
			_, err = StoredAs[struct{ Renamed uint64 }](old)
			require.NoError(t, err)
			changes, err := StoredChanges[statsV3](old)
			require.NoError(t, err)
			require.Equal(t, []typetext.Change{{Path: "Misses", New: "uint64 at 8"}, {Path: "Errors", New: "uint64 at 16"}}, changes)
			changes, err = StoredChanges[struct{ Hits int32 }](old)
			require.NoError(t, err)
			require.Equal(t, []typetext.Change{{Path: "Hits", Old: "uint64 at 0", New: "int32 at 0"}}, changes)
			return failed
		}), failed)
		require.ErrorIs(t, UpgradeValue(a, "bare", func(old Stored, v *statsV3) error {
			_, err := StoredChanges[statsV3](old)
			require.ErrorIs(t, err, shmsync.ErrNotSupported)
			_, err = StoredAs[statsV1](old)
			require.ErrorContains(t, err, "fingerprint 0x9")
			return failed
		}), failed)
	})
}

// TestSuccessorKeepsTheDescription: after an interrupted upgrade, an object is made from the successor.
// It has the description of the type, like any other object.
func TestSuccessorKeepsTheDescription(t *testing.T) {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) {
		old, _, err := a.OpenObject(valueSpec[statsV1]("stats"))
		require.NoError(t, err)
		spec := valueSpec[statsV2]("stats")
		require.NoError(t, a.buildSuccessor(spec, "stats"+successorSuffix, old, a.u64(old.Offset+objCreated).Load(), func(body []byte) {}))
		a.CloseObject(old)
		require.NoError(t, a.deleteAlone("stats"))
		require.NoError(t, a.finishUpgrade("stats", "stats"+successorSuffix))
		h, _, err := a.openExisting("stats")
		require.NoError(t, err)
		require.Equal(t, spec.Type, a.typeText(&h))
		a.CloseObject(h.Object)
	})
}

// TestExchangedFieldsAreNoticed: two fields of the same kind have changed places. Opening the value
// returns an error, although the fingerprint of the layout is the same.
func TestExchangedFieldsAreNoticed(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	_, err := Value[statsV2](a, "stats")
	require.NoError(t, err)
	_, err = Value[struct{ Misses, Hits uint64 }](a, "stats")
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "field Misses is uint64 at 8 in the arena, and uint64 at 0 in this program, and 1 more field has moved")
	_, err = Value[struct{ Found, Missing uint64 }](a, "stats")
	require.NoError(t, err)
}

// TestDamagedDescription: a description that a peer has overwritten is ignored. A description that does
// not fit into its object counts as damage.
func TestDamagedDescription(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	o, _, err := a.OpenObject(valueSpec[statsV2]("stats"))
	require.NoError(t, err)
	h, err := a.headerAt(o.Offset)
	require.NoError(t, err)
	require.Equal(t, "{16 Hits@0 u8 Misses@8 u8 } ", a.typeText(&h))
	text := a.slice(h.typeOff, h.typeLen)
	for i := range text {
		was := text[i]
		text[i] ^= 0x80
		require.Empty(t, a.typeText(&h))
		_, err = Value[statsV2](a, "stats")
		require.NoError(t, err)
		_, err = Value[statsV3](a, "stats")
		require.ErrorContains(t, err, "fingerprint")
		text[i] = was
	}
	for _, n := range []uint32{1, uint32(h.typeLen) - 1, uint32(h.typeLen) + 1} {
		a.u32(o.Offset + objTypeLen).Store(n)
		_, err = Value[statsV2](a, "stats")
		require.NoError(t, err)
	}
	for _, n := range []uint32{4096, 1 << 31, 1<<32 - 1} {
		a.u32(o.Offset + objTypeLen).Store(n)
		require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
		_, err = Value[statsV2](a, "stats")
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
	}
}
