//go:build linux

package shm

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRetireLeavesAddressesThatItMayHaveLost: the kernel unmaps the segment, and then fails to move the new memory to
// the addresses of the segment. Other code has mapped memory there meanwhile. Retire does not unmap that memory.
func TestRetireLeavesAddressesThatItMayHaveLost(t *testing.T) {
	s, err := CreateMemfd("lost", 4*page, nil, nil)
	require.NoError(t, err)
	mem := s.Bytes()
	before := mremap
	defer func() { mremap = before }()
	mremap = func(_ unsafe.Pointer, _ uintptr, to unsafe.Pointer, n uintptr, _ int) (unsafe.Pointer, error) {
		_, err := unix.MmapPtr(-1, 0, to, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
		require.NoError(t, err)
		return nil, unix.ENOMEM
	}
	require.NoError(t, s.Retire(time.Hour))
	require.NoError(t, unix.Madvise(mem, unix.MADV_NORMAL), "the addresses are mapped") // ENOMEM if they are not
	require.NoError(t, unmap(mem))
}
