//go:build linux

package prims_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// paddedWait is a wait with padding: one byte after the first field, and one at the end. The compiler may leave anything there.
type paddedWait struct {
	kind       uint8
	amount     uint16
	shelf, row uint8
	_          uint8
	urgent     bool
}

// paddedWaitOf returns a small wait whose padding has the given value in all its bytes.
func paddedWaitOf(padding byte) (w paddedWait) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&w)), unsafe.Sizeof(w))
	for i := range b {
		b[i] = padding
	}
	w.kind, w.amount, w.shelf, w.row, w.urgent = 1, 2, 3, 4, true
	return w
}

// TestWaitableWaitsWithPadding: the padding of a value of E has no meaning. So a wait for a value and a Release of an
// equal value belong together, whatever their padding is.
func TestWaitableWaitsWithPadding(t *testing.T) {
	a := newArena(t, nil)
	x, err := prims.OpenWaitable(a, "padded", int32(0), prims.Rules[int32, paddedWait]{
		Claim:   func(taken *int32, w paddedWait) bool { *taken += int32(w.amount); return true },
		Release: func(taken *int32, w paddedWait) { *taken -= int32(w.amount) },
	}, nil)
	require.NoError(t, err)
	for fill := range 256 {
		mine := paddedWaitOf(byte(fill))
		require.NoError(t, x.Wait(mine))
		require.True(t, x.TryWait(paddedWaitOf(byte(fill*7))))
		require.EqualValues(t, 2*mine.amount, x.State())
		x.Release(paddedWaitOf(byte(^fill)))
		x.Release(paddedWaitOf(byte(fill + 1)))
		require.Zero(t, x.State())
	}
}
