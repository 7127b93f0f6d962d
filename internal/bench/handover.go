//go:build linux

package bench

// Where a lock came from when it was taken: the same thread again, another thread of the same
// CPU, another CPU with the same last cache, another CPU of the same node, or of another node. If
// threads are not pinned, only the first kind is known.
var HandoverKinds = []string{"from-self", "from-cpu", "from-cache", "from-node", "from-far", "from-other"}

// The indices of the kinds in HandoverKinds.
const (
	FromSelf = iota
	FromCPU
	FromCache
	FromNode
	FromFar
	FromOther // not pinned
)
