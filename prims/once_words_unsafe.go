package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// onceWords is the body of a Once, 128 bytes.
type onceWords struct {
	_     structs.HostLayout
	state atomic.Uint64 // see onceWord
	// The words lastCPU, spin and pays control how long waiters spin, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [4]byte
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	_       [32]byte
	counts  countWords
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.state)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.lastCPU)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.spin)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.pays)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.poller)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.counts)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(onceWords{})-128]
)

const (
	onceBytes    = uint64(unsafe.Sizeof(onceWords{}))
	onceStateOff = arenakernel.Offset(unsafe.Offsetof(onceWords{}.state))
	onceSpinOff  = arenakernel.Offset(unsafe.Offsetof(onceWords{}.spin))
)

// onceBody views the body of a Once that is being created and that no other process sees yet.
func onceBody(b []byte) *onceWords {
	_ = b[unsafe.Sizeof(onceWords{})-1]
	return (*onceWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
