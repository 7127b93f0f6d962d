//go:build !amd64

package prims

import "sync/atomic"

// releaseBiased gives a biased hold back and reports whether somebody waits. On
// arm64 the atomic store is STLR, which costs no barrier, and the load is LDAR,
// which does not pass it.
func releaseBiased(owner, wake *uint32) bool {
	atomic.StoreUint32(owner, 0)
	return atomic.LoadUint32(wake)&1 != 0
}
