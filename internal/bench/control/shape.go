//go:build linux

package control

// Shape has the parameters that only some scenarios use, in the form in which the plan passes them to the workers. The
// C header peer.h declares the same bytes.
type Shape struct {
	Read     uint64 // percentage of the holds of an rw cell that are shared
	Permits  uint64 // number of permits of a sem cell
	Keys     uint64 // number of keys of a multi cell
	Locks    uint64 // keys that a thread of a multi cell locks in one call
	Wake     uint64 // number of waiters that each step of a seq cell wakes
	Batch    uint64 // items that a queue cell moves at a time
	Capacity uint64 // capacity of a queue cell
	Rate     uint64 // operations per second that an open cell starts
	Spin     uint64 // 0: the subject chooses; otherwise 1 plus the ns for which waiters spin
	Lines    uint64 // cache lines that the critical section of a lock cell writes; 0 for one
	Role     uint64 // role of the victims of a crash cell
	Slow     uint64 // ns that the consumers of a seq cell work after each wake
	Pad      uint64 // bytes between the counters of a padding cell
	Duty     uint64 // percentage of the time in which each streaming thread of a stream cell accesses memory
	Part     uint64 // bytes of memory for each streaming thread of a stream cell
}
