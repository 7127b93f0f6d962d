//go:build linux

package control

// Shape is what only some scenarios have, as the plan tells it to the workers.
// peer.h declares the same bytes.
type Shape struct {
	Read     uint64 // of a hundred holds of a rw cell, those that are shared
	Permits  uint64 // of a sem cell
	Keys     uint64 // of a multi cell
	Locks    uint64 // keys that one hold of a multi cell takes
	Wake     uint64 // waiters that each step of a seq cell wakes
	Batch    uint64 // items that a queue cell moves at a time
	Capacity uint64 // of a queue cell
	Rate     uint64 // operations a second that an open cell starts
	Spin     uint64 // 0: as the subject likes; else ns that waiters spin, and 1
	Lines    uint64 // that the critical section of a lock cell writes; 0 for one
	Role     uint64 // of the victims of a crash cell
	Slow     uint64 // ns that the consumers of a seq cell work after each wake
}
