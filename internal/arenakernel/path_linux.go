package arenakernel

import (
	"io/fs"
	"syscall"
)

// unlinked reports whether a file has no name any more.
func unlinked(f fs.FileInfo) bool {
	st, ok := f.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}
