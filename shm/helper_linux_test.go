package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const page = 64 << 10 // a multiple of every page size

const greeting = "made by init"

// greet is an init function that leaves a mark at both ends of the segment.
func greet(s *Segment) error {
	if err := s.Reserve(0, s.Size()); err != nil {
		return err
	}
	copy(s.Bytes(), greeting)
	copy(s.Bytes()[s.Size()-int64(len(greeting)):], greeting)
	return nil
}

// greeted reports whether greet has completed on s.
func greeted(s *Segment) bool {
	b := s.Bytes()
	return string(b[:len(greeting)]) == greeting && string(b[len(b)-len(greeting):]) == greeting
}

// uniqueName returns an unused segment name that is removed after the test.
func uniqueName(t *testing.T) string {
	name := fmt.Sprintf("shmsync-test.%d.%x", os.Getpid(), rand.Uint64())
	t.Cleanup(func() {
		if err := Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cleanup: %v", err)
		}
	})
	return name
}

// eachCreation runs the test twice: with unnamed temporary files, and without them.
func eachCreation(t *testing.T, test func(t *testing.T)) {
	for _, disable := range []string{"", "otmpfile"} {
		t.Run("disable="+disable, func(t *testing.T) {
			t.Setenv("SHMSYNC_DISABLE", disable)
			test(t)
		})
	}
}

// entries returns the names in a directory, sorted.
func entries(t *testing.T, dir string) []string {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func needRoot(t *testing.T, what string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to " + what)
	}
}

// smallTmpfs mounts a tmpfs with the given mount options, which limit its size or its inodes.
func smallTmpfs(t *testing.T, options string) string {
	needRoot(t, "mount a tmpfs")
	dir := filepath.Join(t.TempDir(), "tmpfs")
	require.NoError(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs a tmpfs of its own, and this process may not mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// closing closes s at the end of the test.
func closing(t *testing.T, s *Segment) *Segment {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
