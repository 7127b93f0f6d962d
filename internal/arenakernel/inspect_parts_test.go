//go:build linux

package arenakernel

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

var secretKind = KindOf("SECR")

// TestInspectPartsOfAShorterFile: the file becomes shorter while it is inspected. The report is not whole, and EachPart
// says so.
func TestInspectPartsOfAShorterFile(t *testing.T) {
	ta := newTestArena(t, 2)
	ta.join(t, "maker").close(t)
	i, err := Inspect(ta.path())
	require.NoError(t, err)
	defer i.Close()
	require.NoError(t, os.Truncate(ta.path(), 4096))
	i.Refresh()
	err = i.EachPart(false, func(uint64, []byte) error { return nil })
	require.ErrorContains(t, err, "shorter")
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
}

func init() {
	RegisterKind(KindOps{Kind: secretKind, Version: 3, RecordWords: 64})
}

// TestInspectPartsOfAReplacedObject: an object is deleted while an Inspector copies the arena, and another object gets
// its block and the block of its slot record. One of the two objects has user data in the record. The report shows none
// of these data, whether the Inspector copies the record last or first.
func TestInspectPartsOfAReplacedObject(t *testing.T) {
	const words, secret = 0x4e1d4e1d4e1d4e1d, 0x5ec7e75ec7e75ec7
	for name, c := range map[string]struct{ before, after Kind }{
		"the record is copied last":  {testKind, secretKind},
		"the record is copied first": {secretKind, testKind},
	} {
		t.Run(name, func(t *testing.T) {
			a, path := inspected(t, Options{Size: 2 << 20})
			open := func(k Kind) (o Object, record Offset) {
				o, _, err := a.OpenObject(ObjectSpec{Kind: k, Version: 3, Name: "x", Size: 200})
				require.NoError(t, err)
				record, err = a.SlotRecord(o, 2*chunkSize) // the Inspector copies it apart from the object
				require.NoError(t, err)
				a.u64(record + 40).Store(words)
				if k == secretKind {
					a.u64(record + chunkSize).Store(secret)
				}
				return o, record
			}
			o, record := open(c.before)
			i, err := Inspect(path)
			require.NoError(t, err)
			defer i.Close()
			if c.before == testKind {
				require.Len(t, i.Objects(), 1)
			} else {
				i.img.Fetch(uint64(record), 2*chunkSize)
			}
			a.CloseObject(o)
			require.NoError(t, a.DeleteObject(o))
			another, anothers := open(c.after)
			require.Equal(t, []Offset{o.Offset, record}, []Offset{another.Offset, anothers}, "the other object must get the same blocks")

			count := func() map[uint64]int {
				found := map[uint64]int{}
				require.NoError(t, i.EachPart(false, func(off uint64, b []byte) error {
					for k := 0; k+8 <= len(b); k += 8 {
						found[binary.LittleEndian.Uint64(b[k:])]++
					}
					return nil
				}))
				return found
			}
			require.Zero(t, count()[secret])
			require.NoError(t, i.Refresh())
			found := count()
			require.Equal(t, 1, found[words], "a new copy shows the words of the record")
			require.Zero(t, found[secret])
		})
	}
}

// TestInspectPartsOfABlockWithAnotherUse: an Inspector has copied the words of the blocks, and then an object and its slot
// record are deleted, and Alloc returns their blocks. The report shows nothing that a user writes there.
func TestInspectPartsOfABlockWithAnotherUse(t *testing.T) {
	const secret = 0x5ec7e75ec7e75ec7
	a, path := inspected(t, Options{Size: 2 << 20})
	o, _, err := a.OpenObject(ObjectSpec{Kind: testKind, Name: "x", Size: 8})
	require.NoError(t, err)
	record, err := a.SlotRecord(o, 1000)
	require.NoError(t, err)
	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	require.EqualValues(t, 1, i.Stats().Objects)
	require.EqualValues(t, 1, i.Stats().SlotRecords)
	a.CloseObject(o)
	require.NoError(t, a.DeleteObject(o))
	used := map[Offset]bool{}
	for _, size := range []uint64{1000, 100} {
		off := mustAlloc(t, a, size, 0)
		used[off] = true
		for k := uint64(0); k+8 <= size; k += 8 {
			a.u64(off + Offset(k)).Store(secret)
		}
	}
	require.Equal(t, map[Offset]bool{o.Offset: true, record: true}, used, "the same blocks")
	require.NoError(t, i.EachPart(false, func(off uint64, b []byte) error {
		for k := 0; k+8 <= len(b); k += 8 {
			require.NotEqualValues(t, uint64(secret), binary.LittleEndian.Uint64(b[k:]), "at %#x", off+uint64(k))
		}
		return nil
	}))
}
