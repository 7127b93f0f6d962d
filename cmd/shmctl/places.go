//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
	places := &places{found: map[fileID]*place{}, wanted: func(fd string, _ uint64) bool { return isArena(fd) }}
	for _, proc := range procs {
		fds, _ := filepath.Glob(proc + "/fd/[0-9]*")
		for _, fd := range fds {
			places.add(proc, fd)
		}
	}
	return append(paths, places.paths()...)
}

// places collects open files of processes, and chooses a path for each file.
type places struct {
	wanted func(fd string, names uint64) bool // reports whether the file of a descriptor is wanted
	found  map[fileID]*place
	order  []*place
}

// place is a file that processes have open.
type place struct {
	id     fileID
	path   string
	rank   pathRank
	unseen []string // if the file has a name that no descriptor shows: directories that may have it
	skip   bool     // the file is not wanted
}

// pathRank says how good a path is. A lower rank is better.
type pathRank int

const (
	ownPath    pathRank = iota // a path in this mount namespace
	rootPath                   // a path below the root directory of a process that has the file open
	namedFd                    // a descriptor; its link shows the name that the file has or had
	namelessFd                 // a descriptor of the process that made the file before it had a name
)

// add examines a descriptor of a process. Several processes may have the file open, and not each descriptor shows its
// name: a file is made without a name, and gets its name later. The descriptor of its maker never shows this name.
func (p *places) add(proc, fd string) {
	id, names, ok := fileOf(fd)
	if !ok {
		return
	}
	f := p.found[id]
	if f != nil && (f.skip || f.rank == ownPath) {
		return
	}
	link, err := os.Readlink(fd)
	if f == nil {
		f = &place{id: id, path: fd, rank: namelessFd + 1, skip: err != nil || !p.wanted(fd, names)}
		p.found[id] = f
		if f.skip {
			return
		}
		p.order = append(p.order, f)
	}
	path, rank := pathOf(proc, fd, link, id)
	if rank < f.rank {
		f.path, f.rank = path, rank
	}
	if rank == namelessFd && names > 0 {
		dir := filepath.Dir(link)
		f.unseen = append(f.unseen, dir, proc+"/root"+dir)
	}
}

// paths returns the best path of each file.
func (p *places) paths() (paths []string) {
	for _, f := range p.order {
		for _, dir := range f.unseen {
			if f.rank < namedFd {
				break
			}
			if path := nameIn(dir, f.id); path != "" {
				f.path, f.rank = path, ownPath
			}
		}
		paths = append(paths, f.path)
	}
	return paths
}

// mostEntries limits how many entries of a directory nameIn examines.
const mostEntries = 1 << 16

// nameIn returns the path of a file in a directory, or an empty string.
func nameIn(dir string, id fileID) string {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer d.Close()
	entries, _ := d.ReadDir(mostEntries)
	for _, e := range entries {
		path := dir + "/" + e.Name()
		if !e.Type().IsRegular() || diagnose.Clean(path) != path {
			continue
		}
		if is, ok := fileIDOf(path); ok && is == id {
			return path
		}
	}
	return ""
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

// pathOf returns the best path of a file that a process has open, by the link of its descriptor: the path in this mount
// namespace, or else the path in the mount namespace of the process, or else the path of the descriptor.
func pathOf(proc, fd, link string, id fileID) (string, pathRank) {
	if !strings.HasPrefix(link, "/") || diagnose.Clean(link) != link {
		return fd, namedFd // link may also contain control sequences for a terminal
	}
	if is, ok := fileIDOf(link); ok && is == id {
		return link, ownPath
	}
	path := proc + "/root" + link
	if is, ok := fileIDOf(path); ok && is == id {
		return path, rootPath
	}
	if nameless.MatchString(link) {
		return fd, namelessFd
	}
	return fd, namedFd
}

// nameless matches the link of a file that was made without a name (O_TMPFILE).
var nameless = regexp.MustCompile(`/#[0-9]+ \(deleted\)$`)
