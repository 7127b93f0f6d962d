package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
)

// spinCell is a spin budget where it lies in an object.
type spinCell struct {
	_     structs.HostLayout
	field atomic.Uint32
}

// Where the spin budgets are in the bodies.
const (
	mutexSpinOff   = arena.Offset(unsafe.Offsetof(mutexWords{}.spin))
	spinSpinOff    = arena.Offset(unsafe.Offsetof(spinWords{}.spin))
	futexSpinOff   = arena.Offset(unsafe.Offsetof(futexWords{}.spin))
	signalSpinOff  = arena.Offset(unsafe.Offsetof(signalHead{}.spin))
	monitorSpinOff = arena.Offset(unsafe.Offsetof(monitorWords{}.spin))

	// And the heads of the lists of poller nodes.
	mutexPollerOff       = arena.Offset(unsafe.Offsetof(mutexWords{}.poller))
	rwmutexReadersPoller = arena.Offset(unsafe.Offsetof(rwmutexWords{}.pollerReaders))
	rwmutexWriterPoller  = arena.Offset(unsafe.Offsetof(rwmutexWords{}.pollerWriter))
	spinPollerOff        = arena.Offset(unsafe.Offsetof(spinWords{}.poller))
	spinGatePollerOff    = arena.Offset(unsafe.Offsetof(spinWords{}.gatePoller))
	spinDrainPollerOff   = arena.Offset(unsafe.Offsetof(spinWords{}.drainPoller))
)
