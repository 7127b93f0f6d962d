//go:build linux

package bench

// Where a lock came from when it was taken: the same thread again, another thread of the
// same CPU, another CPU with the same last cache, another one of the same node, or of
// another node. Threads that are not pinned are in one place only as far as they are the
// same thread.
var HandoverKinds = []string{"from-self", "from-cpu", "from-cache", "from-node", "from-far", "from-other"}

// The places of the kinds in HandoverKinds.
const (
	FromSelf = iota
	FromCPU
	FromCache
	FromNode
	FromFar
	FromOther // not pinned
)
