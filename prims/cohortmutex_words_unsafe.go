package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// cohortWords is what the body of a CohortMutex begins with, 320 bytes. A body lies
// 64 bytes after a multiple of 128, so from 192 on each part has two lines to itself.
type cohortWords struct {
	_ structs.HostLayout
	// global is the lock: the only word that lets anybody in is its owner word.
	global mutexWords
	// turn says which node has had the lock lately; see cohortTurn. Where it is 0, a
	// comer takes a free lock at once.
	//   writers: the holder of global; a waiter that goes to sleep, from 0 by CAS
	//   readers: comers, and waiters before global
	//   order:   relaxed is enough: a hint
	//   futex:   none
	//   crash:   any value is right
	turn  atomic.Uint32
	nodes uint32 // how many local locks follow. Immutable after init.
	_     [120]byte
}

// cohortLocalLockWords is a local lock, 256 bytes: a mutex of the policy PolicyRelease. If its
// holder dies, it becomes free, as any such mutex, and no waiter is told.
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

func cohortBytes(nodes int) uint64 { return cohortHeadBytes + uint64(nodes)*cohortLocalLockBytes }

// cohortLocalLockOff is where local lock k is in a body.
func cohortLocalLockOff(k int) arenakernel.Offset { return arenakernel.Offset(cohortBytes(k)) }

// cohortBody views the private body of a CohortMutex that is being made.
func cohortBody(b []byte, nodes int) (head *cohortWords, localLocks []cohortLocalLockWords) {
	_ = b[cohortBytes(nodes)-1]
	head = (*cohortWords)(unsafe.Pointer(unsafe.SliceData(b)))
	return head, unsafe.Slice((*cohortLocalLockWords)(unsafe.Pointer(&b[cohortHeadBytes])), nodes)
}
