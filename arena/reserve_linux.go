package arena

import (
	"os"
	"syscall"
)

// backedBytes is how much of the file has memory, or blocks, behind it.
func backedBytes(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Blocks) * 512
	}
	return 0
}
