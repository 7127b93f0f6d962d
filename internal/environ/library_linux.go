package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// tellFeatures prints the version of the kernel, and each kernel feature that the library lacks, with the reason.
func tellFeatures(out io.Writer) {
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		fmt.Fprintf(out, "kernel\t%s\n", unix.ByteSliceToString(u.Release[:]))
	}
	for _, f := range shmsync.Features() {
		if err := f.Check(); err != nil {
			fmt.Fprintf(out, "absent\t%s\t%v\n", f.Name(), err)
		}
	}
}

// useLibrary creates a named arena of 4 MiB, allocates memory in it, and uses a Mutex in it, to find out whether that
// works here.
func useLibrary() (err error) {
	name := fmt.Sprintf("shmsync-environ-%d", os.Getpid())
	a, err := arena.Open(name, &arena.Options{Size: 4 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close(), arena.Remove(name)) }()
	m, err := prims.OpenMutex(a, "lock", nil)
	if err != nil {
		return err
	}
	if err := m.LockContext(context.Background()); err != nil {
		return err
	}
	defer m.Unlock()
	_, err = a.Alloc(1<<20, 0)
	return err
}

// useHugePages makes an arena on pages of 2 MiB.
func useHugePages() error {
	format := func(s *shm.Segment) error { return arena.Format(s, nil) }
	s, err := shm.CreateMemfd("shmsync-environ", 4<<20, format, &shm.Options{HugePages: shm.Huge2M})
	if err != nil {
		return err
	}
	return s.Close()
}
