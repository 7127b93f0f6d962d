//go:build linux

package arenakernel

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// inspected makes an arena in a file and joins it.
func inspected(t *testing.T, opts Options) (a *Arena, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "arena")
	if opts.Size == 0 {
		opts.Size = 1 << 20
	}
	opts.MaxParticipants = 4
	seg, err := shm.CreateAt(path, opts.Size, func(s *shm.Segment) error { return Format(s, &opts) }, nil)
	require.NoError(t, err)
	a, err = FromSegment(seg, &opts)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return a, path
}

// unfenced returns the bytes of an arena, without those that this process writes to its slot some
// time after it has joined: the mark that it is registered for fences, and what it reads from
// /proc.
func unfenced(t *testing.T, a *Arena, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	caps := b[a.slot(a.mySlot)+slotCaps:]
	binary.LittleEndian.PutUint32(caps, binary.LittleEndian.Uint32(caps)&^capFence)
	s := a.slot(a.mySlot)
	clear(b[s+slotStart : s+slotJoined])
	clear(b[s+slotBootID : s+slotLabel])
	clear(b[s+slotIdentitySum:][:8])
	return b
}

// TestInspect: an Inspector shows the contents of an arena, does not become a participant, and does
// not change the arena.
func TestInspect(t *testing.T) {
	a, path := inspected(t, Options{Label: "me", Counted: true})
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	anonymous, _, err := a.OpenObject(spec(""))
	require.NoError(t, err)
	_, err = a.Alloc(100, 0)
	require.NoError(t, err)
	before := unfenced(t, a, path)

	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	require.Equal(t, a.Size(), i.Size())
	require.Equal(t, 4, i.MaxParticipants())
	require.True(t, i.Counted())
	require.Equal(t, path, i.Path())
	require.False(t, i.Created().IsZero())
	require.NoError(t, i.Damage())
	require.NoError(t, i.Check())
	who := i.Participants()
	require.Len(t, who, 1)
	require.Equal(t, a.Self(), who[0].Name())
	require.Equal(t, "me", who[0].Label)
	require.Equal(t, LifeAlive, who[0].Life)
	require.False(t, who[0].Self)
	require.True(t, i.Current(a.Self()))
	require.Equal(t, "me", i.Who(a.Self()).Label)
	objects := i.Objects()
	require.Len(t, objects, 2)
	for _, got := range objects {
		want := o
		if got.Name == "" {
			want = anonymous
		}
		require.Equal(t, want, got.Object)
		require.Equal(t, []ParticipantID{a.Self()}, got.OpenBy)
	}
	require.Equal(t, a.Stats(), i.Stats())
	require.Empty(t, i.DeathRecords())

	require.Equal(t, before, unfenced(t, a, path))

	a.CloseObject(o)
	require.NoError(t, a.Delete("x"))
	require.Len(t, i.Objects(), 2, "the copy must not change")
	require.NoError(t, i.Refresh())
	require.Len(t, i.Objects(), 1)
	self := a.Self()
	require.NoError(t, a.Close())
	require.NoError(t, i.Refresh())
	require.Empty(t, i.Participants())
	require.Equal(t, self, i.DeathRecords()[0].Name())
	require.True(t, i.DeathRecords()[0].Left)
}

// TestInspectDamagedHeader: an arena with a damaged header can still be inspected, and Check
// reports the damage.
func TestInspectDamagedHeader(t *testing.T) {
	a, path := inspected(t, Options{})
	_, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	look := func(change func(b []byte)) (*Inspector, error) {
		damaged := append([]byte(nil), b...)
		change(damaged)
		file := filepath.Join(t.TempDir(), "damaged")
		require.NoError(t, os.WriteFile(file, damaged, 0o600))
		i, err := Inspect(file)
		if i != nil {
			t.Cleanup(func() { i.Close() })
		}
		return i, err
	}
	i, err := look(func(b []byte) { b[hdrChecksum] ^= 1 })
	require.NoError(t, err)
	require.ErrorIs(t, i.Damage(), shmsync.ErrCorrupt)
	require.ErrorContains(t, i.Check(), "checksum")
	require.Len(t, i.Objects(), 1, "the objects can still be read")
	require.Len(t, i.Participants(), 1)
	require.Equal(t, LifeDead, i.Participants()[0].Life, "no process holds a byte lock of the copied file")

	i, err = look(func(b []byte) { binary.LittleEndian.PutUint32(b[hdrSlots:], 1<<31) })
	require.NoError(t, err, "the layout is guessed, and may be wrong")
	i.Objects()
	i.Participants()
	require.ErrorIs(t, i.Check(), shmsync.ErrCorrupt)
	_, err = look(func(b []byte) { b[0] = 'x' })
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = look(func(b []byte) { b[hdrVersion] = 99 })
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
}

// TestInspectParts: the parts for a report contain the objects of the arena without user data.
func TestInspectParts(t *testing.T) {
	a, path := inspected(t, Options{})
	const secret = 0x5ec7e75ec7e75ec7
	v, err := Value[[100]uint64](a, "value")
	require.NoError(t, err)
	v[50] = secret
	off, err := a.Alloc(100, 0)
	require.NoError(t, err)
	a.u64(off).Store(secret)
	big, err := a.Block("block", 3*chunkSize)
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(big[2*chunkSize:], secret)
	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	for _, data := range []bool{false, true} {
		copied, found := make([]byte, i.Size()), 0
		require.NoError(t, i.EachPart(data, func(off uint64, b []byte) error {
			copy(copied[off:], b)
			return nil
		}))
		for k := 0; k+8 <= len(copied); k += 8 {
			if binary.LittleEndian.Uint64(copied[k:]) == secret {
				found++
			}
		}
		require.Equal(t, map[bool]int{false: 0, true: 3}[data], found)
		file := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.WriteFile(file, copied, 0o600))
		c, err := Inspect(file)
		require.NoError(t, err)
		require.NoError(t, c.Check())
		require.Len(t, c.Objects(), 2)
		require.NoError(t, c.Close())
	}
}

// TestInspectRecordOfStoppedMaker checks that a report contains a slot record even if its maker is stopped before it
// has published the block of the record. The method Usage counts this block as memory of the object. The report
// contains no other block that a participant has only claimed.
func TestInspectRecordOfStoppedMaker(t *testing.T) {
	a, path := inspected(t, Options{})
	const held, secret = 0x4e1d4e1d4e1d4e1d, 0x5ec7e75ec7e75ec7
	o, records := withSlotRecords(t, "x", a)
	a.u64(records[0] + 64).Store(held)
	b, ok := a.locate(records[0])
	require.True(t, ok)
	require.True(t, b.swap(makeRecordWord(1), makeBlock(blockClaimed, a.self)))
	claimed, err := a.claim(128, 1)
	require.NoError(t, err)
	copy(a.slice(claimed, SlotRecordHeader), a.slice(records[0], SlotRecordHeader))
	a.u64(claimed + 64).Store(secret)

	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	usage := i.Usage()
	require.EqualValues(t, 384+128, usage.Objects[o.Offset], "%v", usage)
	require.EqualValues(t, 128, usage.Other)
	found := map[uint64]int{}
	require.NoError(t, i.EachPart(false, func(off uint64, b []byte) error {
		for k := 0; k+8 <= len(b); k += 8 {
			found[binary.LittleEndian.Uint64(b[k:])]++
		}
		return nil
	}))
	require.Equal(t, 1, found[held])
	require.Zero(t, found[secret])
}

// TestInspectReadsClaimedRecordsBeforeWaits checks that an Inspector reads a slot record before it reads the waits,
// even if the maker of the record has not published it yet. So each hold in the copy has begun before any wait in the
// copy ends.
func TestInspectReadsClaimedRecordsBeforeWaits(t *testing.T) {
	a, path := inspected(t, Options{})
	_, records := withSlotRecords(t, "x", a)
	b, ok := a.locate(records[0])
	require.True(t, ok)
	require.True(t, b.swap(makeRecordWord(1), makeBlock(blockClaimed, a.self)))
	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	i.a.findWaitsOfCopy()
	a.u64(records[0] + 64).Store(1)
	require.Zero(t, i.a.u64(records[0]+64).Load())
}

// TestInspectLifeOfALeaver: a participant leaves after an Inspector has copied its slot. The Inspector finds
// its byte lock free, but that does not show a death.
func TestInspectLifeOfALeaver(t *testing.T) {
	a, path := inspected(t, Options{})
	i, err := Inspect(path)
	require.NoError(t, err)
	defer i.Close()
	require.Equal(t, LifeAlive, i.Participants()[0].Life)
	require.NoError(t, a.Close())
	require.Equal(t, LifeUnknown, i.Participants()[0].Life)
	require.NoError(t, i.Refresh())
	require.Empty(t, i.Participants())
}
