package arenakernel

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// PathState says whether the path of an arena still leads to the arena's file.
type PathState string

// The states of an arena's path. After the file at the path was removed or replaced, a process that
// opens the path joins another arena, or none. It does not meet the participants of the first arena.
const (
	PathThere    PathState = "there"    // the path leads to the arena
	PathRemoved  PathState = "removed"  // no file is at the path
	PathReplaced PathState = "replaced" // another file is at the path
	PathNone     PathState = "none"     // the arena has no path: a memfd, or an open file
)

// PathState reports whether the path of the arena still leads to the arena's file. If the file of
// an arena was removed, its participants can still use the arena, as [shm.Remove] intends, but no
// other process can join the arena by its path. The file may be removed by mistake: systemd's
// RemoveIPC and clean-up jobs also remove files that are in use. The call makes two system calls.
// [Arena.Metrics] reports the state, too.
func (a *Arena) PathState() PathState {
	a.mustUse("arena.path_state")
	return pathState(a.seg.File(), a.label)
}

func pathState(f *os.File, path string) PathState {
	if !strings.Contains(path, "/") {
		return PathNone
	}
	own, err := f.Stat()
	if err != nil {
		return PathNone
	}
	there, err := os.Stat(path)
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
