//go:build linux

package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// errNotPrivate is the error for a directory whose contents another user could change.
var errNotPrivate = errors.New("not private")

const (
	othersWrite = 0o022
	othersAny   = 0o077
)

// privateDir creates the directory if it is missing, and returns its path without symbolic links. It returns
// errNotPrivate if users other than this user and root can use the directory or replace it. Therefore each
// directory above it must belong to this user or root, and must be sticky if other users can write to it.
func privateDir(dir string) (string, error) {
	var missing []string
	there := filepath.Clean(dir)
	real, err := filepath.EvalSymlinks(there)
	for ; errors.Is(err, fs.ErrNotExist) && there != filepath.Dir(there); real, err = filepath.EvalSymlinks(there) {
		missing = append(missing, filepath.Base(there))
		there = filepath.Dir(there)
	}
	if err != nil {
		return "", err
	}
	for p := real; ; p = filepath.Dir(p) {
		if err := trustedDir(p); err != nil {
			return "", err
		}
		if p == filepath.Dir(p) {
			break
		}
	}
	for _, name := range slices.Backward(missing) {
		real = filepath.Join(real, name)
		if err := os.Mkdir(real, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := trustedDir(real); err != nil {
			return "", err
		}
	}
	owner, mode, err := ownerOf(real)
	if err == nil && (owner != os.Geteuid() || mode&othersAny != 0) {
		err = fmt.Errorf("%w: %s: user %d, mode %v", errNotPrivate, real, owner, mode)
	}
	return real, err
}

// trustedDir returns an error unless only this user and root can replace entries of a directory.
func trustedDir(dir string) error {
	owner, mode, err := ownerOf(dir)
	if err != nil {
		return err
	}
	if !mode.IsDir() || owner != 0 && owner != os.Geteuid() || mode&othersWrite != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("%w: %s: user %d, mode %v", errNotPrivate, dir, owner, mode)
	}
	return nil
}

// ownerOf returns the user and the mode of a file. It does not follow a symbolic link.
func ownerOf(path string) (uid int, mode fs.FileMode, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	return int(st.Sys().(*syscall.Stat_t).Uid), st.Mode(), nil
}
