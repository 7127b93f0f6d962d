package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventcountWords is the first 128 bytes of the memory of an object whose waiters sleep on an eventcount.
type eventcountWords struct {
	_     structs.HostLayout
	state atomic.Uint64 // see eventcountState
	// lastCPU, spin and pays are as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [4]byte
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	_       [32]byte
	counts  countWords
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.state)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.lastCPU)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.spin)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.pays)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.poller)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.counts)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(eventcountWords{})-128]
)

const (
	eventcountStateOff = arenakernel.Offset(unsafe.Offsetof(eventcountWords{}.state))
	eventcountSpinOff  = arenakernel.Offset(unsafe.Offsetof(eventcountWords{}.spin))
)

// eventcountPlaces says where the words of an eventcount are.
type eventcountPlaces struct {
	state, poller       *atomic.Uint64
	lastCPU, spin, pays *atomic.Uint32
	counts              *countWords
	stateOff            arenakernel.Offset // the offset of state in the memory of the object
}

func (w *eventcountWords) places() eventcountPlaces {
	return eventcountPlaces{&w.state, &w.poller, &w.lastCPU, &w.spin, &w.pays, &w.counts, eventcountStateOff}
}
