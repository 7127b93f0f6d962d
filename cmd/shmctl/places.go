//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

// fileID identifies a file on this host. It is the same for all paths of the file.
type fileID struct{ dev, ino uint64 }

func fileIDOf(path string) (id fileID, ok bool) {
	id, _, ok = fileOf(path)
	return id, ok
}

// fileOf returns the ID of a file and the number of its names. ok is false if the file cannot be examined.
func fileOf(path string) (id fileID, names uint64, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return id, 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, 0, false
	}
	return fileID{uint64(st.Dev), st.Ino}, uint64(st.Nlink), true
}

// openRegular opens a regular file for reading. Any user may put a device or a pipe at a path, or a symbolic link to
// one, and even the open of a device can have an effect. An examination before the open would not help, because another
// user may replace the file in between. So openRegular first gets a descriptor with O_PATH, which opens no device. It
// examines the file of this descriptor, and opens exactly that file for reading.
func openRegular(path string) (*os.File, error) { return openRegularWith(path, 0) }

// openRegularWith is openRegular with further flags for the path, such as O_NOFOLLOW.
func openRegularWith(path string, flags int) (*os.File, error) {
	at, err := os.OpenFile(path, unix.O_PATH|flags, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// isArena reports whether a file begins like an arena, of any layout.
func isArena(path string) bool { return isArenaWith(path, 0) }

// isArenaWith is isArena with further flags for the path, such as O_NOFOLLOW.
func isArenaWith(path string, flags int) bool {
	f, err := openRegularWith(path, flags)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, len(arenaMagic))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == arenaMagic
}

const arenaMagic = "shmsync\x00"

// otherPlaces returns the paths of arenas that this user may examine, wherever they are: files that processes have
// open, and files in the segment directories of other mount namespaces.
func otherPlaces() (paths []string) {
	own, _ := os.Readlink("/proc/self/ns/mnt")
	spaces := map[string]bool{own: true}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if space, err := os.Readlink(proc + "/ns/mnt"); err == nil && !spaces[space] {
			spaces[space] = true
			paths = append(paths, arenasIn(proc+"/root")...)
		}
	}
	seen := map[fileID]bool{}
	for _, proc := range procs {
		fds, _ := filepath.Glob(proc + "/fd/[0-9]*")
		for _, fd := range fds {
			if id, ok := fileIDOf(fd); ok && !seen[id] {
				seen[id] = true
				if isArena(fd) {
					paths = append(paths, pathOf(proc, fd, id))
				}
			}
		}
	}
	return paths
}

// arenasIn returns the paths of the arenas in the segment directory below the root directory of another process. It
// follows no symbolic link in this directory: the other process chooses the target, and the kernel would resolve an
// absolute target from the root directory of shmctl.
func arenasIn(root string) (paths []string) {
	dir := root
	for part := range strings.SplitSeq(strings.TrimPrefix(shm.Dir, "/"), "/") {
		dir += "/" + part
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return nil
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if file := dir + "/" + e.Name(); diagnose.Clean(file) == file && isArenaWith(file, unix.O_NOFOLLOW) {
			paths = append(paths, file)
		}
	}
	return paths
}

// pathOf returns the best path of a file that a process has open: the path in this mount namespace, or else the path
// in the mount namespace of the process, or else the path of the descriptor.
func pathOf(proc, fd string, id fileID) string {
	link, err := os.Readlink(fd)
	if err != nil || !strings.HasPrefix(link, "/") || diagnose.Clean(link) != link {
		return fd // link may also contain control sequences for a terminal
	}
	for _, path := range []string{link, proc + "/root" + link} {
		if is, ok := fileIDOf(path); ok && is == id {
			return path
		}
	}
	return fd
}
