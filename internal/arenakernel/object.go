package arenakernel

import (
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"unicode/utf8"
)

// Object is an object of the arena. It consists of an immutable header, and of a body whose layout the
// kind of the object defines.
type Object struct {
	Offset  Offset // offset of the header; the methods Offset of the primitives return it
	Body    Offset // offset of the body, a multiple of 64
	Size    uint64 // size of the body
	Kind    Kind
	Version uint16 // layout version of the kind
	Layout  uint64 // fingerprint of the type in the body; 0 if the kind uses none
	Name    string // empty when anonymous
}

// String returns the name of the object, or its offset if it has no name, for messages.
func (o Object) String() string {
	if o.Name == "" {
		return o.Offset.String()
	}
	return o.Name
}

// Offsets within an object header; the table is in docs/abi.md. All fields but the state are written
// before other participants can find the object, and never change after that.
const (
	objKind    = 0
	objVersion = 4 // the version in the lower half, the length of the name in the upper half
	objState   = 8
	objNameOff = 12
	objSize    = 16
	objHash    = 24
	objCreated = 32
	objOpenOff = 40
	objTypeLen = 44
	objLayout  = 48

	// MaxObject is the size of the largest body of an object. Use Alloc for more bytes.
	MaxObject = 1<<32 - 1<<20

	maxObjectName = 255
)

// objectWord is the state word of an object.
//
//	bits 0..2   phase  below
//	bits 3..31  name   the maker of a pending object; the deleter of a deleting one;
//	                   the maker or the deleter of an aborted one
//
//	phase      name  meaning                                      left by
//	pending    n     in the directory, private to n               create
//	committed  0     all participants can open it                 its maker; an opener that cancels a deletion
//	aborted    n     was never made, or is deleted                a racing maker, withdraw, erase
//	deleting   n     visible, but n checks whether it is open     erase
//	                 anywhere; an opener makes it committed
//	                 and so cancels the deletion
//
//	pending -> committed | aborted        by one CAS, which decides which maker gets the name
//	committed <-> deleting -> aborted     by one CAS, which decides whether the object stays
//
// crash: if the participant in the word is dead, [core.reclaimBlocks] finishes its work. A pending
// object is freed together with its block, which is still claimed. A deleting object becomes
// committed again. The deletion of an object that is aborted, and was committed before, is
// completed.
type objectWord uint32

const (
	objectPending = iota
	objectCommitted
	objectAborted
	objectDeleting
	objectPhases
)

func makeObject(phase int, n ParticipantID) objectWord { return objectWord(phase) | objectWord(n)<<3 }

func (w objectWord) phase() int                 { return int(w & 7) }
func (w objectWord) participant() ParticipantID { return ParticipantID(w >> 3) }

// there reports whether all participants can open the object, that is, whether the object was
// committed and not deleted.
func (w objectWord) there() bool {
	return w.phase() == objectCommitted || w.phase() == objectDeleting
}

// legal reports whether a correct participant may have written w.
func (w objectWord) legal() bool {
	if w.phase() == objectCommitted {
		return w.participant() == 0
	}
	return w.phase() < objectPhases && w.participant().valid()
}

// header contains the fields of an object's header, which one call has read and validated.
type header struct {
	Object
	block block
	hash  uint64
	open  Offset         // offset of the open bits
	state *atomic.Uint32 // an objectWord

	typeOff Offset // offset of the description of the type in the body
	typeLen uint64 // bytes of the description; 0 for none
}

func (h *header) load() objectWord { return objectWord(h.state.Load()) }

func (h *header) swap(old, to objectWord) bool {
	return h.state.CompareAndSwap(uint32(old), uint32(to))
}

// openBytes is the size of an object's open bits, which say which participants have the object
// open. There is one bit for each slot, and an unused bit for slot 0, which no participant has.
func (c *core) openBytes() uint64 { return (uint64(c.geo.slots)/32 + 1) * 4 }

// layOut computes the layout of an object whose body has size bytes. It returns the offsets of the open
// bits and of the name, and the total size. The description of the type comes after the name.
func (c *core) layOut(size uint64, name, text string) (open, nameOff, total uint64) {
	open = alignUp(objectHeader+size, 8)
	nameOff = open + c.openBytes()
	return open, nameOff, nameOff + uint64(len(name)+len(text))
}

// readHeader reads the header of the object in the block b. The caller guards the block or has the
// object open. So the block is not reused, and its bytes are a header. If the bytes are no valid
// header, a faulty peer has overwritten them.
func (c *core) readHeader(b block) (header, error) {
	h := header{block: b, state: c.u32(b.off + objState)}
	wild := func(what string) (header, error) {
		return h, c.corrupt(b.off, what)
	}
	version := c.peek32(b.off + objVersion)
	nameLen := uint64(version >> 16)
	nameOff := uint64(c.peek32(b.off + objNameOff))
	open := uint64(c.peek32(b.off + objOpenOff))
	h.Object = Object{
		Offset:  b.off,
		Body:    b.off + objectHeader,
		Size:    c.peek64(b.off + objSize),
		Kind:    Kind(c.peek32(b.off + objKind)),
		Version: uint16(version),
		Layout:  c.peek64(b.off + objLayout),
	}
	h.hash = c.peek64(b.off + objHash)
	h.open = b.off + Offset(open)
	bits := c.openBytes()
	h.typeLen = uint64(c.peek32(b.off + objTypeLen))
	h.typeOff = b.off + Offset(nameOff+nameLen)
	switch {
	case h.Size > b.size-objectHeader:
		return wild("size of " + strconv.FormatUint(h.Size, 10))
	case open < objectHeader+h.Size || open%4 != 0 || open > b.size || bits > b.size-open:
		return wild("place of its open bits")
	case nameLen > maxObjectName || nameOff < open+bits || nameOff > b.size || nameLen > b.size-nameOff:
		return wild("place of its name")
	case h.typeLen > b.size-nameOff-nameLen:
		return wild("length of the description of its type")
	}
	h.Name = stringOf(c.slice(b.off+Offset(nameOff), nameLen))
	if !utf8.ValidString(h.Name) || h.hash != hashName(h.Name) {
		return wild("name")
	}
	return h, nil
}

// hashName returns the FNV-1a hash of a name.
func hashName(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}
