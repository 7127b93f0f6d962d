//go:build linux

package bench

// HandoverKinds are the kinds of hand-over of a lock, by the thread that had the lock before:
//
// - from-self: the same thread;
// - from-cpu: another thread on the same CPU;
// - from-cache: a thread on another CPU with the same last-level cache;
// - from-node: a thread on another CPU of the same NUMA node;
// - from-far: a thread on a CPU of another NUMA node;
// - from-other: another thread, if the threads are not pinned.
var HandoverKinds = []string{"from-self", "from-cpu", "from-cache", "from-node", "from-far", "from-other"}

// These are the indices of HandoverKinds.
const (
	FromSelf = iota
	FromCPU
	FromCache
	FromNode
	FromFar
	FromOther // not pinned
)
