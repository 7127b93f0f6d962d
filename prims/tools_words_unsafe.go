package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// spinCell is the word in an object that says how long waiters spin.
type spinCell struct {
	_     structs.HostLayout
	field atomic.Uint32
}

// The offsets, in the bodies of the objects, of the words that say how long waiters spin.
const (
	mutexSpinOff  = arenakernel.Offset(unsafe.Offsetof(mutexWords{}.spin))
	spinSpinOff   = arenakernel.Offset(unsafe.Offsetof(spinWords{}.spin))
	futexSpinOff  = arenakernel.Offset(unsafe.Offsetof(futexWords{}.spin))
	signalSpinOff = arenakernel.Offset(unsafe.Offsetof(signalHead{}.spin))

	// The offsets, in the bodies, of the heads of the lists of poller nodes.
	mutexPollerOff       = arenakernel.Offset(unsafe.Offsetof(mutexWords{}.poller))
	rwmutexReadersPoller = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.pollerReaders))
	rwmutexWriterPoller  = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.pollerWriter))
	spinPollerOff        = arenakernel.Offset(unsafe.Offsetof(spinWords{}.poller))
	spinGatePollerOff    = arenakernel.Offset(unsafe.Offsetof(spinWords{}.gatePoller))
	spinDrainPollerOff   = arenakernel.Offset(unsafe.Offsetof(spinWords{}.drainPoller))
)
