package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// waitableWords is the head of the body of a Waitable, 128 bytes. If the arena counts operations, a [countWords]
// follows. Then follows an image of the state, unless the field small is this image. See docs/design/0060.
type waitableWords struct {
	_      structs.HostLayout
	commit atomic.Uint64 // see recordCommit
	// current is a recordedWord that names the valid image, that is, the memory that contains the state. 0 is the
	// image in the body. 2n and 2n+1 are the two images in the slot record of slot n.
	current atomic.Uint64
	first   atomic.Uint64 // the first and the last wait of the queue; see recordQueue
	last    atomic.Uint64
	stopped atomic.Uint64 // a recordedWord: 1 after Stop
	// lostBy is a recordedWord: the participant in which a rule panicked or ended its goroutine, or 0 if none did.
	// While it is not 0, no rule is called. The text of the panic is in a block of the slot of that participant; see
	// waitableBlock.
	lostBy atomic.Uint64
	// small is the image of a state of at most eight bytes. Immutable after init.
	small [waitableSmall]byte
	// lastCPU, spin and pays control the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	// wake and poller belong to a [park.Queue]. No goroutine sleeps on the word wake, because each wait sleeps on
	// its own wait node.
	wake   atomic.Uint32
	poller atomic.Uint64
	// yieldUntil is a CLOCK_MONOTONIC time in ns, or 0. A call stores a time here if other processes have changed the
	// state during many of its attempts. Until that time no other call begins a change, so that this call can finish.
	//
	//	writers: a call after many attempts
	//	readers: each call, before it begins a change
	//	order:   relaxed; it is a hint
	//	futex:   none
	//	crash:   the others wait until that time, at most 5 ms
	yieldUntil atomic.Uint64
	_          [40]byte
}

// waitableHold counts the claims of one participant for one value of E. All words except accepted are
// recordedWords.
type waitableHold struct {
	name      atomic.Uint64 // the participant
	extraLow  atomic.Uint64 // the low and the high half of the value of E
	extraHigh atomic.Uint64
	count     atomic.Uint64 // number of claims that are held
	// granted counts the claims that waits of the participant were granted, modulo 2^32. The hold is free when
	// count is 0 and accepted equals granted.
	granted atomic.Uint64
	// accepted counts the granted claims that the waits have accepted, modulo 2^32.
	//
	//	writers: a wait of the participant that was granted a claim, by CAS
	//	readers: processes that look for a free hold; reapers; tools
	//	order:   seq-cst
	//	futex:   none
	//	crash:   a reaper undoes the claims that were granted and not accepted
	accepted atomic.Uint64
}

// waitableRecord is the slot record of a Waitable. Two images of the state follow. They follow at once if a state has at
// most eight bytes, and otherwise at a multiple of 64.
type waitableRecord struct {
	_      structs.HostLayout
	record plainRecord
	hold   waitableHold // of a participant of the slot, and of no other
}

// waitableBlock is an additional block of a Waitable, with more holds. A Waitable gets the block when a call needs a hold
// and finds none, and keeps it. If textOf is not 0, the block is a waitableTextBlock.
type waitableBlock struct {
	_      structs.HostLayout
	_      [arenakernel.SlotRecordHeader]byte
	holds  [waitableBlockHolds]waitableHold
	textOf uint32 // the slot to which the text belongs, or 0 if the block has no text. Immutable after init.
	_      [12]byte
}

// waitableTextBlock is a waitableBlock with the text of a panic. A Waitable gets one for each slot in which a rule has
// failed.
type waitableTextBlock struct {
	_     structs.HostLayout
	block waitableBlock
	// text is the text of the last panic of a rule in the slot textOf, truncated, and ended by a 0 if it is shorter.
	//
	//	writers: the participant of the slot, before it makes the record that stores its ID in lostBy
	//	readers: processes that have read that ID in lostBy. They copy the text, and discard the copy if lostBy has
	//	         changed meanwhile
	//	order:   relaxed; that record orders it. A load fence comes before the second load of lostBy
	//	futex:   none
	//	crash:   without the record, the text means nothing
	text [waitableTextBytes]byte
}

// The offsets are part of the binary interface. If one of them changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.current)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.first)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.last)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.stopped)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.lostBy)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.small)-waitableSmallOff]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.lastCPU)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.spin)-60]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.pays)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.wake)-68]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.poller)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.yieldUntil)-80]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableHold{}.accepted)-40]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableHold{})-waitableHoldSize]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableRecord{}.hold)-plainRecordBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableRecord{})-waitableRecordBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableBlock{}.holds)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableBlock{}.textOf)-224]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableBlock{})-waitableRecordBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableTextBlock{}.text)-waitableRecordBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableTextBlock{})-waitableTextBlockBytes]
)

const (
	waitableHoldSize = 48
	// waitableRecordBytes is the size of a slot record without the images, and the size of a block without the text.
	// Reports can leave out the bytes after these: images and texts.
	waitableRecordBytes = 240
	waitableBlockHolds  = 4
	waitableTextBytes   = 144
	// waitableTextBlockBytes is the size of a block with a text.
	waitableTextBlockBytes = 384
	waitableSmall          = 8 // the size of a small image
	waitableSmallOff       = 48
	waitableSpinOff        = arenakernel.Offset(unsafe.Offsetof(waitableWords{}.spin))
	waitableWakeOff        = arenakernel.Offset(unsafe.Offsetof(waitableWords{}.wake))
)

// waitableShape says where the images of a Waitable are.
type waitableShape struct {
	image  arenakernel.Offset // where the image in the body begins
	images arenakernel.Offset // where the first image in a slot record begins
	each   arenakernel.Offset // the size of an image
	size   uint64             // of the body
}

// waitableShapeOf returns the shape of a Waitable with a state of the given size.
func waitableShapeOf(a *arenakernel.Arena, state uintptr) (s waitableShape) {
	words := arenakernel.Offset(unsafe.Sizeof(waitableWords{}))
	if a.Counted() {
		words += arenakernel.Offset(unsafe.Sizeof(countWords{}))
	}
	if state <= waitableSmall {
		return waitableShape{image: waitableSmallOff, images: waitableRecordBytes, each: waitableSmall, size: uint64(words)}
	}
	each := (arenakernel.Offset(state) + 63) &^ 63
	return waitableShape{image: words, images: (waitableRecordBytes + 63) &^ 63, each: each, size: uint64(words + each)}
}

// record returns the size of a slot record.
func (s waitableShape) record() uint64 { return uint64(s.images + 2*s.each) }

// waitableAt returns the words of o. counts is nil if the arena does not count operations.
func waitableAt(a *arenakernel.Arena, o arenakernel.Object) (w *waitableWords, counts *countWords) {
	w = arenakernel.At[waitableWords](a, o.Body)
	if a.Counted() {
		counts = arenakernel.At[countWords](a, o.Body+arenakernel.Offset(unsafe.Sizeof(waitableWords{})))
	}
	return w, counts
}

// imageIn returns a pointer to one of the images in a slot record of the given shape.
func (r *waitableRecord) imageIn(s waitableShape, i uint32) unsafe.Pointer {
	// SAFETY: a slot record has two images after its words; see waitableShape.record.
	return unsafe.Add(unsafe.Pointer(r), uintptr(s.images)+uintptr(i&1)*uintptr(s.each))
}

// packExtra packs a value of E, which has at most eight bytes and no pointers, into a word. The bits of mask are those of
// the fields of E. The other bits are padding, in which Go may leave any value. packExtra clears these bits, so that
// equal values are equal words.
func packExtra[E any](e E, mask uint64) (v uint64) {
	*(*E)(unsafe.Pointer(&v)) = e
	return v & mask
}

func unpackExtra[E any](v uint64) E { return *(*E)(unsafe.Pointer(&v)) }

func sizeOf[T any]() uintptr {
	var v T
	return unsafe.Sizeof(v)
}

func waitableBody(b []byte) *waitableWords {
	_ = b[unsafe.Sizeof(waitableWords{})-1]
	return (*waitableWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// initialState writes the first value of the state into the body of an object that is being created.
func initialState[S any](body []byte, shape waitableShape, s *S) {
	if unsafe.Sizeof(*s) > 0 {
		*(*S)(unsafe.Pointer(&body[shape.image : shape.image+shape.each][0])) = *s
	}
}

// image returns the memory of the image with the given name, or nil if there is no such image.
func (x *waitableCore) image(name uint32) unsafe.Pointer {
	if name == 0 {
		return x.bodyImage()
	}
	if r := x.slotRecord(int(name / 2)); r != nil {
		return r.imageIn(x.shape, name)
	}
	return nil
}

// bodyImage returns a pointer to the image in the body.
func (x *waitableCore) bodyImage() unsafe.Pointer {
	// SAFETY: the body has an image at that offset; see waitableShapeOf.
	return unsafe.Add(unsafe.Pointer(x.words), x.shape.image)
}

// copyOf returns a copy of the state in the image at p.
func copyOf[S any](p unsafe.Pointer) S { return *(*S)(p) }

// storeAt stores *s in the image at p.
func storeAt[S any](p unsafe.Pointer, s *S) { *(*S)(p) = *s }
