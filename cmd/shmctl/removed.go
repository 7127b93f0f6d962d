//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/shmsync/shmsync/shm"
)

const deleted = " (deleted)" // the kernel adds this to the path of an open file that was removed

// removedNote returns the note that tells the user that the file of an arena was removed.
func removedNote(path string) string {
	return "its file " + path + " was removed; its members still use it"
}

// removedSegments returns paths below /proc of files that were segments of this host, were removed, and are still
// open in a process that this user may examine. Each file occurs once.
func removedSegments() (paths []string) {
	seen := map[fileID]bool{}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(link, shm.Dir+"/") || !strings.HasSuffix(link, deleted) {
			continue
		}
		// The suffix alone does not show that the file was removed. If a file is created without a name and linked later, the
		// descriptor of its creator keeps the suffix. So the number of names decides.
		if id, names, ok := fileOf(fd); ok && names == 0 && !seen[id] {
			seen[id] = true
			paths = append(paths, fd)
		}
	}
	return paths
}
