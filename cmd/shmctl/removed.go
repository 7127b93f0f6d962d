//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/shmsync/shmsync/shm"
)

const deleted = " (deleted)" // what the kernel adds to the path of a file that has no name any more

// removedNote tells the user about it.
func removedNote(path string) string {
	return "its file " + path + " was removed; its members still use it"
}

// removedSegments are the paths below /proc of files that were segments of this host, were
// removed, and are still open in a process that this user may examine. Each file occurs once.
func removedSegments() (paths []string) {
	seen := map[fileID]bool{}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(link, shm.Dir+"/") || !strings.HasSuffix(link, deleted) {
			continue
		}
		// A file that got its name after it was made looks removed through its maker.
		if id, names, ok := fileOf(fd); ok && names == 0 && !seen[id] {
			seen[id] = true
			paths = append(paths, fd)
		}
	}
	return paths
}
