//go:build linux

package arenakernel

import (
	"io/fs"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestSliceIsAnArray: in every process, a Slice of 64 elements is the same object as the Value whose type
// is an array of 64 such elements.
func TestSliceIsAnArray(t *testing.T) {
	both := newNeighbours(2<<20, 4)
	a, b := both.join(1), both.join(2)
	_, err := AttachSlice[atomic.Uint32](a, "bits", 64)
	require.ErrorIs(t, err, fs.ErrNotExist)
	s, err := Slice[atomic.Uint32](a, "bits", 64)
	require.NoError(t, err)
	require.Equal(t, []int{64, 64}, []int{len(s), cap(s)})
	for i := range s {
		require.Zero(t, s[i].Load())
		s[i].Store(uint32(i) + 1)
	}
	same, err := Slice[atomic.Uint32](b, "bits", 64)
	require.NoError(t, err)
	attached, err := AttachSlice[atomic.Uint32](b, "bits", 64)
	require.NoError(t, err)
	array, err := Value[[64]atomic.Uint32](b, "bits")
	require.NoError(t, err)
	for i := range s {
		want := uint32(i) + 1
		require.Equal(t, []uint32{want, want, want}, []uint32{same[i].Load(), attached[i].Load(), array[i].Load()})
	}
	_, err = Value[[3]uint16](a, "three")
	require.NoError(t, err)
	three, err := AttachSlice[uint16](b, "three", 3)
	require.NoError(t, err)
	require.Len(t, three, 3)
}

func TestSliceRefuses(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	_, err := Slice[uint32](a, "bits", 64)
	require.NoError(t, err)
	for _, n := range []int{63, 65} {
		_, err = Slice[uint32](a, "bits", n)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, "64")
		_, err = AttachSlice[uint32](a, "bits", n)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
	}
	_, err = Slice[int32](a, "bits", 64)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = Slice[uint64](a, "bits", 32)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	for _, n := range []int{0, -1} {
		_, err = Slice[uint32](a, "none", n)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	_, err = Slice[struct{}](a, "none", 3)
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, n := range []int{2 << 20, 1 << 30, math.MaxInt} {
		_, err = Slice[uint64](a, "many", n)
		require.ErrorIs(t, err, shmsync.ErrNoSpace)
	}
	require.Panics(t, func() { Slice[string](a, "texts", 4) })
	require.NoError(t, a.Check())
}
