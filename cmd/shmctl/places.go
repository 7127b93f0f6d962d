//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

// openRegular opens a regular file for reading. It examines the file after it has opened it, because another user may
// replace a file between an examination and an open. The flags matter if the file is not regular: then open must not
// wait for the other end of a pipe, and must not make a terminal the controlling terminal of this process.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isArena reports whether a file begins like an arena, of any layout.
func isArena(path string) bool {
	f, err := openRegular(path)
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
			files, _ := filepath.Glob(proc + "/root" + shm.Dir + "/*")
			for _, file := range files {
				if diagnose.Clean(file) == file && isArena(file) {
					paths = append(paths, file)
				}
			}
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

// pathOf returns the best path of a file that a process has open: the path in this mount namespace, or else the path
// in the mount namespace of the process, or else the path of the descriptor.
func pathOf(proc, fd string, id fileID) string {
	link, err := os.Readlink(fd)
	if err != nil || !strings.HasPrefix(link, "/") || diagnose.Clean(link) != link {
		return fd // also for a path that could control a terminal: any user can choose one
	}
	for _, path := range []string{link, proc + "/root" + link} {
		if is, ok := fileIDOf(path); ok && is == id {
			return path
		}
	}
	return fd
}
