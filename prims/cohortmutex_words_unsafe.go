package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// cohortWords is the first 320 bytes of a CohortMutex. The local locks follow. A CohortMutex begins 64 bytes after a
// multiple of 128 in the arena. So turn, at offset 192, and each local lock begin at a multiple of 128: global, turn
// and the local locks share no pair of cache lines.
type cohortWords struct {
	_ structs.HostLayout
	// global is the lock itself. Its owner word names the holder of the CohortMutex.
	global mutexWords
	// turn says which node's waiters go first; see cohortTurn. While turn is 0, a new caller takes a free lock
	// at once.
	//   writers: the holder of global; a waiter that goes to sleep, from 0 by CAS
	//   readers: newcomers, and waiters for global
	//   order:   relaxed is enough: a hint
	//   futex:   none
	//   crash:   any value is right
	turn  atomic.Uint32
	nodes uint32 // the number of nodes; see cohortLocalLocks. Immutable after init.
	_     [120]byte
}

// cohortLocalLockWords is a local lock, 256 bytes. It is a mutex with the policy PolicyRelease: if the holder dies,
// the local lock becomes free, and the waiters get no error.
type cohortLocalLockWords struct {
	_     structs.HostLayout
	mutex mutexWords
	_     [64]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(cohortWords{}.global)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(cohortWords{}.turn)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(cohortWords{}.nodes)-196]
	_ = [1]struct{}{}[unsafe.Sizeof(cohortWords{})-320]
	_ = [1]struct{}{}[unsafe.Offsetof(cohortLocalLockWords{}.mutex)-0]
	_ = [1]struct{}{}[unsafe.Sizeof(cohortLocalLockWords{})-256]
)

const (
	cohortHeadBytes      = uint64(unsafe.Sizeof(cohortWords{}))
	cohortLocalLockBytes = uint64(unsafe.Sizeof(cohortLocalLockWords{}))
)

// cohortLocalLocks returns how many local locks a CohortMutex for that many nodes has: one for each node. With fewer
// than two nodes, callers use no local lock, and there is none.
func cohortLocalLocks(nodes int) int {
	if nodes < 2 {
		return 0
	}
	return nodes
}

func cohortBytes(nodes int) uint64 {
	return cohortHeadBytes + uint64(cohortLocalLocks(nodes))*cohortLocalLockBytes
}

// cohortLocalLockOff returns the offset of local lock k from the beginning of a body.
func cohortLocalLockOff(k int) arenakernel.Offset {
	return arenakernel.Offset(cohortHeadBytes + uint64(k)*cohortLocalLockBytes)
}

// cohortBody returns the words of a CohortMutex that is being made, whose body no other process can
// reach yet.
func cohortBody(b []byte, nodes int) (head *cohortWords, localLocks []cohortLocalLockWords) {
	_ = b[cohortBytes(nodes)-1]
	head = (*cohortWords)(unsafe.Pointer(unsafe.SliceData(b)))
	if n := cohortLocalLocks(nodes); n > 0 {
		localLocks = unsafe.Slice((*cohortLocalLockWords)(unsafe.Pointer(&b[cohortHeadBytes])), n)
	}
	return head, localLocks
}
