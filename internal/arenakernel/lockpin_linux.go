package arenakernel

import (
	"os"

	"golang.org/x/sys/unix"
)

// pinLock keeps the byte locks of f's open file description until this process is gone, even if
// other code in the program closes the descriptor by mistake. It maps a page of the file, because a
// mapping keeps the open file description alive as a descriptor does. The child of a fork is not a
// participant, so it must not inherit the mapping.
func pinLock(f *os.File) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	n := max(os.Getpagesize(), int(st.Blksize)) // the size of a huge page if the file has huge pages
	page, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if err := unix.Madvise(page, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(page)
		return nil, os.NewSyscallError("madvise", err)
	}
	return page, nil
}

func unpinLock(page []byte) {
	if page != nil {
		unix.Munmap(page)
	}
}

// losesItsPin returns a text for the error of a process that was declared dead. The text is empty unless the
// file at path is on overlayfs. On overlayfs, the kernel maps the file of the upper layer. So the mapping of
// pinLock does not keep the open file description that has the byte lock.
func losesItsPin(path string) string {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil || uint32(fs.Type) != unix.OVERLAYFS_SUPER_MAGIC {
		return ""
	}
	return "; the file is on overlayfs, where the byte lock of a program that closes all its descriptors is lost"
}

// isFile reports whether f is still a descriptor of the file with the given identity.
func isFile(f *os.File, id segmentID) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && uint64(st.Dev) == id.dev && st.Ino == id.ino
}
