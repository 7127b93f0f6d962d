package arenakernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// PathState says whether the path of an arena still leads to the arena's file.
type PathState string

// The states of an arena's path. After the file at the path was removed or replaced, a process that
// opens the path joins another arena, or none. It does not meet the participants of the first arena.
const (
	PathThere    PathState = "there"    // the path leads to the arena
	PathRemoved  PathState = "removed"  // no file is at the path
	PathReplaced PathState = "replaced" // another file is at the path
	PathNone     PathState = "none"     // no path: see PathState
)

// PathState reports whether the path of the arena still leads to the arena's file. After the file
// of an arena was removed, its participants can still use the arena, but no other process can join
// the arena by its path. [shm.Remove] intends that, but the file may also be removed by mistake:
// systemd's RemoveIPC and clean-up jobs also remove files that are in use. The call makes two
// system calls. [Arena.Metrics] reports the state, too.
//
// A relative path belongs to the directory that was the working directory when the program passed
// the path. The path still leads to the file after this directory was renamed.
//
// The state is PathNone for a memfd, and for a file that was opened by a name that does not lead to it. If this
// process has changed its root directory or its mount namespace since it joined, the path may not lead to the file any
// more. Then the state is PathRemoved if the file has no name any more, and PathNone otherwise.
func (a *Arena) PathState() PathState {
	a.mustUse("arena.path_state")
	return a.pathState()
}

func (a *Arena) pathState() PathState {
	own, err := a.ownFile()
	path := a.seg.Path()
	if err != nil || path == "" {
		return PathNone
	}
	s := stateFor(own, path)
	if (s == PathRemoved || s == PathReplaced) && a.home.leadsTo(own) != "" {
		return PathThere
	}
	if (s == PathRemoved || s == PathReplaced) && !a.origin.same(originNow()) {
		if unlinked(own) {
			return PathRemoved
		}
		return PathNone
	}
	return s
}

// origin says from where this process looks up an absolute path. In another root directory or mount namespace, the path
// may lead elsewhere although nobody has touched the file.
type origin struct {
	root   os.FileInfo // nil: unknown
	mounts os.FileInfo // the mount namespace of the thread; nil: unknown, because there is no /proc
}

func originNow() (o origin) {
	o.root, _ = os.Stat("/")
	o.mounts, _ = os.Stat("/proc/thread-self/ns/mnt")
	return o
}

// same reports whether o and p are the same origin, as far as they are known.
func (o origin) same(p origin) bool {
	differ := func(a, b os.FileInfo) bool { return a != nil && b != nil && !os.SameFile(a, b) }
	return !differ(o.root, p.root) && !differ(o.mounts, p.mounts)
}

// ownFile describes the file of the arena. If other code of the program has closed the descriptor of the segment by
// mistake, ownFile returns the description from the time of the join. The error is not nil if the segment is closed.
func (a *Arena) ownFile() (os.FileInfo, error) {
	own, err := a.seg.File().Stat()
	if a.info == nil || errors.Is(err, os.ErrClosed) {
		return own, err
	}
	if err != nil || !os.SameFile(own, a.info) {
		return a.info, nil
	}
	return own, nil
}

// currentPath returns the path of the arena. If the path is below a working directory that was
// renamed since, currentPath returns the path that leads to the file now.
func (a *Arena) currentPath() string {
	own, err := a.ownFile()
	if err != nil || stateFor(own, a.label) == PathThere {
		return a.label
	}
	return cmp.Or(a.home.leadsTo(own), a.label)
}

// workingDir is the working directory in which the program passed the relative path of an arena. The zero value stands
// for an arena without such a path, or for a directory that this process may not read.
type workingDir struct {
	dir   *os.File
	info  os.FileInfo // of dir
	below string      // the relative path
}

func workingDirOf(name string) workingDir {
	if !isPath(name) || filepath.IsAbs(name) {
		return workingDir{}
	}
	dir, err := os.Open(".")
	if err != nil {
		return workingDir{}
	}
	info, err := dir.Stat()
	if err != nil {
		dir.Close()
		return workingDir{}
	}
	return workingDir{dir, info, strings.TrimPrefix(name, "./")}
}

// leadsTo returns an absolute path of the file own, if the relative path still leads from the directory to that
// file. Otherwise it returns "". The directory may have been renamed, so leadsTo asks the kernel for its
// current path. It does not ask for the path of the file itself: if a file was made without a name, the kernel
// always says that the file is deleted.
func (w workingDir) leadsTo(own os.FileInfo) string {
	if w.dir == nil {
		return ""
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.dir.Fd()))
	if err != nil {
		return ""
	}
	path := strings.TrimSuffix(dir, "/") + "/" + w.below
	if stateFor(own, path) != PathThere {
		return ""
	}
	return path
}

func (w workingDir) close() {
	if w.dir != nil {
		info, err := w.dir.Stat()
		closeUnlessLost(w.dir, err == nil && os.SameFile(info, w.info))
	}
}

// lostFiles holds files whose descriptors other code of the program has closed by mistake. The number of such a
// descriptor may refer to another file by now. The garbage collector closes the descriptor of a file that nothing refers
// to, so these files stay here.
var lostFiles sync.Map // *os.File to nil

// closeUnlessLost closes f if own is true, that is, if f still has its own descriptor.
func closeUnlessLost(f *os.File, own bool) {
	if own {
		f.Close()
	} else {
		lostFiles.Store(f, nil)
	}
}

// stateOfPath reports whether path leads to the open file f.
func stateOfPath(f *os.File, path string) PathState {
	own, err := f.Stat()
	if err != nil {
		return PathNone
	}
	return stateFor(own, path)
}

// stateFor reports whether path leads to the file own. A symbolic link to the file does not count, because an open
// follows no link at the end of a path.
func stateFor(own os.FileInfo, path string) PathState {
	there, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return PathRemoved
	case err != nil:
		// The path cannot be examined. If the file has no name at all, no path leads to it.
		if unlinked(own) {
			return PathRemoved
		}
		return PathThere
	case os.SameFile(own, there):
		return PathThere
	}
	return PathReplaced
}
