package shm

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listBatch is how many directory entries are read at a time.
const listBatch = 128

func list(dir string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		d, err := os.Open(dir)
		if err != nil {
			yield(Info{}, &opError{op: "list", name: dir, err: err})
			return
		}
		defer d.Close()
		for {
			entries, err := d.ReadDir(listBatch)
			for _, e := range entries {
				if info, ok, err := describe(e); ok && !yield(info, err) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Info{}, &opError{op: "list", name: dir, err: err})
				return
			}
		}
	}
}

// describe returns the Info of a directory entry. ok reports whether the entry could be a segment. It
// is false for an entry that has just been removed.
func describe(e fs.DirEntry) (info Info, ok bool, err error) {
	if !e.Type().IsRegular() || ValidName(e.Name()) != nil {
		return Info{}, false, nil
	}
	info.Name = e.Name()
	fi, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, false, nil
	}
	if err != nil {
		return info, true, &opError{op: "list", name: info.Name, err: err}
	}
	if size := fi.Size(); size == 0 || size%int64(os.Getpagesize()) != 0 {
		return Info{}, false, nil
	}
	info.Size, info.Mode, info.ModTime = fi.Size(), fi.Mode().Perm(), fi.ModTime()
	info.UID = fi.Sys().(*syscall.Stat_t).Uid
	return info, true, nil
}

func remove(path string) error {
	if err := retry(func() error { return unix.Unlink(path) }); err != nil {
		return fail("remove", path, "", err)
	}
	return nil
}
