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

	// And the heads of the lists of hub nodes.
	mutexHubOff       = arena.Offset(unsafe.Offsetof(mutexWords{}.hub))
	rwmutexReadersHub = arena.Offset(unsafe.Offsetof(rwmutexWords{}.hubReaders))
	rwmutexWriterHub  = arena.Offset(unsafe.Offsetof(rwmutexWords{}.hubWriter))
	spinHubOff        = arena.Offset(unsafe.Offsetof(spinWords{}.hub))
	spinGateHubOff    = arena.Offset(unsafe.Offsetof(spinWords{}.gateHub))
	spinDrainHubOff   = arena.Offset(unsafe.Offsetof(spinWords{}.drainHub))
)
