//go:build linux

package race

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedWord returns a word that the race detector does not see.
func mappedWord(tb testing.TB) *atomic.Uint32 {
	tb.Helper()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Munmap(page) })
	// SAFETY: a page is aligned and longer than a word, and no caller uses the
	// pointer after the end of its test.
	return (*atomic.Uint32)(unsafe.Pointer(&page[0]))
}
