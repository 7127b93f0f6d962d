package arenakernel

import (
	"os"

	"golang.org/x/sys/unix"
)

// backedBytes returns how many bytes of the file are backed by memory or disk blocks. The second result is true
// if the number is exact, as it is for a tmpfs with pages of 4096 bytes. On other file systems the number may
// be too large: a disk also counts blocks of metadata, and larger pages contain more bytes than were asked for.
func backedBytes(f *os.File) (n uint64, exact bool) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0, false
	}
	var fs unix.Statfs_t
	exact = st.Blksize == 4096 && unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.TMPFS_MAGIC
	return uint64(st.Blocks) * 512, exact
}
