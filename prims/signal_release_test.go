//go:build linux

package prims_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestReleaseOfTooManyPermitsWritesNothing: a Release that would make too many permits panics before it changes the
// permits, so no death can leave a sum that has wrapped. During the call the memory of the permits is read-only, so a
// write would end the call with a fault.
func TestReleaseOfTooManyPermitsWritesNothing(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 4 << 20})
	w, err := prims.OpenSignalWaker(a, "w", nil)
	require.NoError(t, err)
	w.Release(math.MaxInt)
	w.Release(math.MaxInt)
	all := a.Segment().Bytes()
	at := bytes.Index(all, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1))
	require.GreaterOrEqual(t, at, 0)
	at -= at % os.Getpagesize()
	page := all[at : at+os.Getpagesize()]
	released := func() (said any) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { said = recover() }()
		w.Release(2)
		return nil
	}
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ))
	said := released()
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
	require.IsType(t, "", said)
	require.Contains(t, said, "too many permits")
	require.EqualValues(t, uint64(math.MaxUint64-1), w.Permits())
}
