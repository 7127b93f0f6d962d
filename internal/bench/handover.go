//go:build linux

package bench

// HandoverKinds are the kinds of hand-over of a lock. The kind depends on the thread that had the lock before. It was
// the same thread, another thread of the same CPU, a thread of another CPU with the same last-level cache, of another
// CPU of the same node, of a CPU of another node, or any other thread. If threads are not pinned, only the first kind
// and the last can be told apart.
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
