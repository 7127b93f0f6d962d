package arenakernel

import (
	"cmp"
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
	_ = crashpoint.Register("arena.remove.placed")
	_ = crashpoint.Register("arena.remove.renamed")
)

// removedSuffix ends the private name that a file has during its removal: .base.inode.removed~ in the
// same directory. No segment can have such a name.
const removedSuffix = ".removed~"

// directoryOf returns the directory of the file at path, with a slash at the end. Unlike filepath.Dir, it does not
// remove ".." from the path, because ".." may follow a symbolic link.
func directoryOf(path string) string {
	dir, _ := filepath.Split(path)
	return cmp.Or(dir, "./")
}

// removedPrefix returns the beginning of the private names of files at path. It uses at most 200 bytes
// of the file name, so that a private name is not too long. The C code of this library does the same.
func removedPrefix(path string) string {
	base := filepath.Base(path)
	return "." + base[:min(len(base), 200)] + "."
}

// removeFile removes the file f from path. The caller has the gate of the arena in f. The first result is true
// if the path led to another file. In this case the other file is still at the path.
//
// The kernel has no call that removes a name only if it leads to a certain file. So removeFile first
// renames the file at path to a private name, which no other program uses. If the private name then
// leads to f, removeFile removes it. Otherwise it renames the file back.
func removeFile(f *os.File, path string) (moved bool, err error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	private := fmt.Sprint(directoryOf(path), removedPrefix(path), inode(own), removedSuffix)
	crashpoint.Hit("arena.remove.checked")
	switch err := takePrivateName(own, path, private); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("another program has a file at %q, which %q needs while it is removed: move it away: %w", private, path, err)
	case err != nil && !leadsTo(path, own):
		return true, nil // something else is at the path, such as a directory, which rename cannot put over the placeholder
	case err != nil:
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
		return false, fmt.Errorf("another program has put a file at %q, which is at %q now: %w", path, private, err)
	}
	return true, nil
}

// leadsTo reports whether the directory entry at path is the file own.
func leadsTo(path string, own os.FileInfo) bool {
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// takePrivateName renames the file at path to its private name. Something may already be at the private name.
// takePrivateName replaces it if it was left by a process that died while it removed the same file. Otherwise
// the error Is [fs.ErrExist].
func takePrivateName(own os.FileInfo, path, private string) error {
	err := renameToPrivate(own, path, private)
	if errors.Is(err, fs.ErrExist) && leftByRemover(own, private) {
		if err := os.Remove(private); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = renameToPrivate(own, path, private)
	}
	return err
}

func renameToPrivate(own os.FileInfo, path, private string) error {
	if err := renameNew(path, private); !errors.Is(err, shmsync.ErrNotSupported) {
		return err
	}
	// On this system, rename replaces an existing file. So this process first creates a symbolic link
	// at the private name, which fails if the name exists. Then it lets rename replace the link.
	if err := os.Symlink(placeholder(own), private); err != nil {
		return err
	}
	crashpoint.Hit("arena.remove.placed")
	if err := os.Rename(path, private); err != nil {
		os.Remove(private)
		return err
	}
	return nil
}

// placeholder returns the text of the symbolic link that a process that removes a file may first
// create at the private name.
func placeholder(own os.FileInfo) string { return fmt.Sprint("removal of inode ", inode(own)) }

// leftByRemover reports whether the private name leads to something that an earlier remover of the file
// has left: the file itself, or the symbolic link that a remover creates. The earlier remover is dead,
// because otherwise it would still have the gate, which this process has now.
func leftByRemover(own os.FileInfo, private string) bool {
	if leadsTo(private, own) {
		return true
	}
	says, err := os.Readlink(private)
	return err == nil && says == placeholder(own)
}

// sweepRemoved cleans up after processes that died while they removed a file from path: it removes the
// files that they left at private names. If it cannot remove a file, it ignores the error.
func sweepRemoved(path string) {
	dir, err := os.Open(directoryOf(path))
	if err != nil {
		return
	}
	defer dir.Close()
	prefix := removedPrefix(path)
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			if number, ok := strings.CutSuffix(name, removedSuffix); ok && strings.HasPrefix(number, prefix) {
				sweepRemovedFile(dir.Name()+name, number[len(prefix):])
			}
		}
		if err != nil {
			return
		}
	}
}

// sweepRemovedFile removes the file at a private name, if the file has the inode number given as
// text and no remover holds the gate of the file.
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
	if leadsTo(private, own) {
		os.Remove(private)
	}
}
