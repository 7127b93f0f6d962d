package arenakernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.remove.checked")
	_ = crashpoint.Register("arena.remove.renamed")
)

// removedSuffix ends the private name that a file has while it is removed: .base.inode.removed~ in the same
// directory. No segment may have such a name.
const removedSuffix = ".removed~"

// removedPrefix is the beginning of the private names that files at path get.
func removedPrefix(path string) string {
	return fmt.Sprintf(".%.200s.", filepath.Base(path))
}

// removeFile removes the file f, whose gate the caller has, from path. moved reports that path led to another
// file, which is still there.
//
// The kernel has no call that removes a name only if it leads to a certain file. So the file first gets a
// private name, which no other program replaces. removeFile then removes the private name if it leads to
// the right file.
func removeFile(f *os.File, path string) (moved bool, err error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	private := filepath.Join(filepath.Dir(path), fmt.Sprint(removedPrefix(path), inode(own), removedSuffix))
	crashpoint.Hit("arena.remove.checked")
	if err := os.Rename(path, private); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	there, err := os.Lstat(private)
	switch {
	case err == nil && os.SameFile(own, there):
		crashpoint.Hit("arena.remove.renamed")
		return false, os.Remove(private)
	case err != nil:
		return false, err
	}
	if err := renameNoReplace(private, path); err != nil {
		return false, fmt.Errorf("another program has put a file at %s, which is at %s now: %w", path, private, err)
	}
	return true, nil
}

// sweepRemoved removes files that were at path and whose remover died before it removed their private
// name. It leaves files that it cannot remove.
func sweepRemoved(path string) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return
	}
	defer dir.Close()
	prefix := removedPrefix(path)
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			if number, ok := strings.CutSuffix(name, removedSuffix); ok && strings.HasPrefix(number, prefix) {
				sweepRemovedFile(filepath.Join(dir.Name(), name), number[len(prefix):])
			}
		}
		if err != nil {
			return
		}
	}
}

// sweepRemovedFile removes the file at a private name if the file has that inode number and no remover
// holds its gate.
func sweepRemovedFile(private, number string) {
	f, err := os.OpenFile(private, os.O_RDWR|openFlags, 0)
	if err != nil {
		return
	}
	defer f.Close()
	own, err := f.Stat()
	if err != nil || fmt.Sprint(inode(own)) != number {
		return
	}
	if locked, err := shmsync.LockByte(f, gateByte); err != nil || !locked {
		return
	}
	if there, err := os.Lstat(private); err == nil && os.SameFile(own, there) {
		os.Remove(private)
	}
}
