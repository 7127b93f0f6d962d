package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// eventWords is the memory of an Event that is not auto-reset, 128 bytes.
type eventWords struct {
	_     structs.HostLayout
	count eventcountWords // its state is an eventState
}

// autoEventWords is the memory of an auto-reset Event, 128 bytes. It has the layout of an eventcountWords, but the
// field mode is in bytes that eventcountWords reserves.
type autoEventWords struct {
	_       structs.HostLayout
	state   atomic.Uint64 // a tokenState
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	mode    atomic.Uint32 // eventAuto; immutable after init. The other Events have 0 here
	poller  atomic.Uint64
	_       [32]byte
	counts  countWords
}

// eventRecord is the slot record of an auto-reset Event, 128 bytes. It has the share of one participant, that is, the
// number of its waits, in a cache line of its own. If the field name does not have the ID of a current participant,
// the waits do not count.
//
//	name
//	writers: the participant, before its first wait
//	readers: the readers of the field waits
//	order:   release by the participant, acquire by a reader
//	futex:   none
//	crash:   the ID of the dead participant is not current, so its waits do not count
type eventRecord struct {
	_     structs.HostLayout
	_     [64]byte      // begins with the header of a slot record
	name  atomic.Uint64 // ID of the participant
	waits atomic.Uint64 // a waitShare
	_     [48]byte
}

// The layout is part of the ABI. If an offset or a size changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.count)-0]
	_ = [1]struct{}{}[unsafe.Sizeof(eventWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.state)-unsafe.Offsetof(eventcountWords{}.state)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.lastCPU)-unsafe.Offsetof(eventcountWords{}.lastCPU)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.spin)-unsafe.Offsetof(eventcountWords{}.spin)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.pays)-unsafe.Offsetof(eventcountWords{}.pays)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.mode)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.poller)-unsafe.Offsetof(eventcountWords{}.poller)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.counts)-unsafe.Offsetof(eventcountWords{}.counts)]
	_ = [1]struct{}{}[unsafe.Sizeof(autoEventWords{})-unsafe.Sizeof(eventcountWords{})]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.name)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.waits)-72]
	_ = [1]struct{}{}[unsafe.Sizeof(eventRecord{})-eventRecordBytes]
)

const (
	eventBytes       = uint64(unsafe.Sizeof(eventWords{})) // the size of the memory of an Event, in each mode
	eventRecordBytes = 128
)

func (w *autoEventWords) places() eventcountPlaces {
	return eventcountPlaces{&w.state, &w.poller, &w.lastCPU, &w.spin, &w.pays, &w.counts, eventcountStateOff}
}

// initEvent fills in the private body of an Event that is being made.
func initEvent(body []byte, mode eventMode, set bool, spin uint32) {
	_ = body[eventBytes-1]
	if mode == eventAuto {
		w := (*autoEventWords)(unsafe.Pointer(unsafe.SliceData(body)))
		w.mode.Store(uint32(mode))
		w.spin.Store(spin)
		if set {
			w.state.Store(uint64(tokenState(0).with(1)))
		}
		return
	}
	w := (*eventWords)(unsafe.Pointer(unsafe.SliceData(body)))
	w.count.state.Store(uint64(mode) << eventModeShift)
	w.count.spin.Store(spin)
	if set {
		w.count.state.Add(1)
	}
}
