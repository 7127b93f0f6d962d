package arenakernel

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// Offsets of the header's fields; docs/abi.md has the table. The fields before hdrChecksum are
// immutable and covered by the checksum.
const (
	hdrMagic             = 0
	hdrOrder             = 8
	hdrVersion           = 12
	hdrWord              = 16
	hdrHeaderSize        = 20
	hdrCompat            = 24
	hdrROCompat          = 32
	hdrIncompat          = 40
	hdrSize              = 48
	hdrID                = 56
	hdrCreated           = 72
	hdrSlots             = 80
	hdrSlotStride        = 84
	hdrSlotsOff          = 88
	hdrDeathRecordOff    = 96
	hdrDeathRecordCount  = 104
	hdrDeathRecordStride = 108
	hdrDirOff            = 112
	hdrDirCount          = 120
	hdrChunksOff         = 128
	hdrBlocksOff         = 136
	hdrHeapOff           = 144
	hdrChunkSize         = 152
	hdrBlockWords        = 156
	hdrChunkCount        = 160
	hdrChecksum          = 168
	hdrDeathRecordsTotal = 256 // number of death records of participants that died
	hdrDeaths            = 264 // counts the reaped participants that may have left something in an object or a wait node
	hdrDirReach          = 268 // see core.reach
	hdrLeftTotal         = 272 // number of death records of participants that left
	hdrDirLowering       = 288 // see lowering
	hdrDirLowerer        = 296 // the participant that lowers the reach, or 0
	hdrEpoch             = 304 // see epochWord
	hdrEpochDeaths       = 312 // hdrDeathRecordsTotal when an epoch with an even number began; see core.epochDeaths
	hdrChunkHint         = 320
	hdrEpochBoot         = 328 // the boot in which the epoch began, for a file that survives a reboot
	hdrEpochBegan        = 344 // Unix ns
	hdrSynced            = 352 // the epoch after which the last participant wrote the file back to the disk
	hdrSuccessors        = 356 // not 0 if any object, deleted or not, may be a successor; see core.noteSuccessor
	hdrEpochDeathsOdd    = 360 // as hdrEpochDeaths, for an epoch with an odd number
)

// format writes the header of a new arena into a segment that no other process uses, and reserves
// memory for the regions that every arena has.
func format(seg *shm.Segment, slots int, counted bool) error {
	b := seg.Bytes()
	g := plan(uint64(len(b)), slots)
	if g.chunkCount == 0 {
		return &shmsync.Error{Op: "arena.create", Object: seg.Name(), Err: shmsync.ErrNoSpace,
			Detail: fmt.Sprintf("%d bytes are too few for %d participants; %d are needed", len(b), slots, minSize(slots))}
	}
	if err := seg.Reserve(0, int64(g.fixedEnd())); err != nil {
		return err
	}
	le := binary.LittleEndian
	copy(b[hdrMagic:], magic)
	le.PutUint32(b[hdrOrder:], orderMark)
	le.PutUint32(b[hdrVersion:], LayoutVersion)
	le.PutUint32(b[hdrWord:], wordBytes)
	le.PutUint32(b[hdrHeaderSize:], headerSize)
	if counted {
		le.PutUint64(b[hdrCompat:], compatCounted)
	}
	le.PutUint64(b[hdrROCompat:], knownROCompat)
	le.PutUint64(b[hdrIncompat:], knownIncompat)
	le.PutUint64(b[hdrSize:], g.size)
	rand.Read(b[hdrID : hdrID+16])
	le.PutUint64(b[hdrCreated:], uint64(time.Now().UnixNano()))
	le.PutUint32(b[hdrSlots:], uint32(g.slots))
	le.PutUint32(b[hdrSlotStride:], slotStride)
	le.PutUint64(b[hdrSlotsOff:], g.slotsOff)
	le.PutUint64(b[hdrDeathRecordOff:], g.deathRecordOff)
	le.PutUint32(b[hdrDeathRecordCount:], deathRecordCount)
	le.PutUint32(b[hdrDeathRecordStride:], deathRecordStride)
	le.PutUint64(b[hdrDirOff:], g.dirOff)
	le.PutUint64(b[hdrDirCount:], g.dirCount)
	le.PutUint64(b[hdrChunksOff:], g.chunksOff)
	le.PutUint64(b[hdrBlocksOff:], g.blocksOff)
	le.PutUint64(b[hdrHeapOff:], g.heapOff)
	le.PutUint32(b[hdrChunkSize:], chunkSize)
	le.PutUint32(b[hdrBlockWords:], blockWords)
	le.PutUint64(b[hdrChunkCount:], g.chunkCount)
	le.PutUint64(b[hdrChecksum:], checksum(b[:hdrChecksum]))
	return nil
}

// minSize returns the smallest size of an arena for the given number of participants.
func minSize(slots int) uint64 {
	size := uint64(chunkSize)
	for plan(size, slots).chunkCount == 0 {
		size += chunkSize
	}
	return size
}

func checksum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// validate checks the header of a segment and returns the geometry, which locates everything else in the arena.
// The parameter b is a copy of the header that the caller has read from the file. So a peer cannot change what
// validate has already checked. The copy does not come from the mapping, because a page of the mapping may be a
// hole. If memory is full, a read of a hole kills the process. The error contains the name of the arena.
func validate(b []byte, length uint64, name string) (geometry, error) {
	bad := func(err error, format string, args ...any) (geometry, error) {
		return geometry{}, &shmsync.Error{Op: "arena.open", Object: name, Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	other := func(err error, format string, args ...any) (geometry, error) {
		g, err := bad(err, format, args...)
		return g, otherArena(err)
	}
	if len(b) < headerSize {
		return bad(shmsync.ErrIncompatible, "not an arena: %d bytes are too few for a header", len(b))
	}
	h := make([]byte, hdrChecksum+8)
	copy(h, b)
	le := binary.LittleEndian
	if string(h[:len(magic)]) != magic {
		return bad(shmsync.ErrIncompatible, "not an arena: no magic number")
	}
	if order := le.Uint32(h[hdrOrder:]); order != orderMark {
		return other(shmsync.ErrIncompatible, "written in another byte order (mark %#x)", order)
	}
	if v := le.Uint32(h[hdrVersion:]); v != LayoutVersion {
		return other(shmsync.ErrIncompatible, "its layout is version %d, this program knows version %d", v, LayoutVersion)
	}
	if w := le.Uint32(h[hdrWord:]); w != wordBytes {
		return other(shmsync.ErrIncompatible, "made for machine words of %d bytes, this program has %d", w, wordBytes)
	}
	if f := le.Uint64(h[hdrIncompat:]) &^ knownIncompat; f != 0 {
		return other(shmsync.ErrIncompatible, "it needs features that this program does not know (%#x)", f)
	}
	if f := le.Uint64(h[hdrROCompat:]) &^ knownROCompat; f != 0 {
		return other(shmsync.ErrIncompatible, "it needs features that this program does not know to write it (%#x)", f)
	}
	if sum := le.Uint64(h[hdrChecksum:]); sum != checksum(h[:hdrChecksum]) {
		return bad(shmsync.ErrCorrupt, "the checksum of its header is wrong")
	}
	size, slots := le.Uint64(h[hdrSize:]), le.Uint32(h[hdrSlots:])
	if size != length {
		return bad(shmsync.ErrCorrupt, "it was made %d bytes long and is %d", size, length)
	}
	if slots == 0 || slots > MaxSlots {
		return bad(shmsync.ErrCorrupt, "it claims %d participants", slots)
	}
	// The size and the number of slots determine the layout. A header with any other layout is
	// forged.
	g := plan(size, int(slots))
	got := geometry{
		size: size, slots: int(slots),
		slotsOff: le.Uint64(h[hdrSlotsOff:]), deathRecordOff: le.Uint64(h[hdrDeathRecordOff:]),
		dirOff: le.Uint64(h[hdrDirOff:]), dirCount: le.Uint64(h[hdrDirCount:]),
		chunksOff: le.Uint64(h[hdrChunksOff:]), blocksOff: le.Uint64(h[hdrBlocksOff:]),
		heapOff: le.Uint64(h[hdrHeapOff:]), chunkCount: le.Uint64(h[hdrChunkCount:]),
		linked: g.linked, headroom: g.headroom, // computed from the size, because the header does not contain them
	}
	if got != g || g.chunkCount == 0 || le.Uint32(h[hdrHeaderSize:]) != headerSize ||
		le.Uint32(h[hdrSlotStride:]) != slotStride || le.Uint32(h[hdrDeathRecordCount:]) != deathRecordCount ||
		le.Uint32(h[hdrDeathRecordStride:]) != deathRecordStride || le.Uint32(h[hdrChunkSize:]) != chunkSize ||
		le.Uint32(h[hdrBlockWords:]) != blockWords {
		return bad(shmsync.ErrCorrupt, "its regions do not lie where a layout of version %d puts them", LayoutVersion)
	}
	g.counted = le.Uint64(h[hdrCompat:])&compatCounted != 0
	return g, nil
}
