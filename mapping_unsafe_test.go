//go:build linux

package shmsync_test

import (
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// words is a page of memory that two processes share.
type words []byte

// newWords makes words in a new file, and returns the file, so that the test can pass it to a child.
func newWords(t *testing.T) (words, *os.File) {
	fd, err := unix.MemfdCreate("shmsync-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	require.NoError(t, f.Truncate(4096))
	w, err := mapWords(f)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(w) })
	return w, f
}

func mapWords(f *os.File) (words, error) {
	return unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (w words) word(i int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&w[8*i])) }
func (w words) raw(i int) *uint32         { return (*uint32)(unsafe.Pointer(&w[8*i])) }
