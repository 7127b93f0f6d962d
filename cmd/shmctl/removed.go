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
	// The suffix alone does not show that the file was removed. If a file is created without a name and linked later, the
	// descriptor of its creator keeps the suffix. So the number of names decides.
	places := &places{found: map[fileID]*place{}, wanted: func(_ string, names uint64) bool { return names == 0 }}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, shm.Dir+"/") && strings.HasSuffix(link, deleted) {
			places.add(filepath.Dir(filepath.Dir(fd)), fd)
		}
	}
	return places.paths()
}
