//go:build crashpoint

package shm

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	proctest.Register("create/crash", func(c *proctest.Child) {
		var dir string
		c.Params(&dir)
		s, err := CreateAt(filepath.Join(dir, "seg"), page, greet, nil)
		c.Fatal("survived: ", s, err)
	})
	proctest.Register("create/crash-link", func(c *proctest.Child) {
		var dir string
		c.Params(&dir)
		dirfd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			c.Fatal(err)
		}
		fd, temp, err := openTemp(dirfd, "seg")
		if err != nil {
			c.Fatal(err)
		}
		if err := unix.Fchmod(fd, 0o600); err != nil {
			c.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "seg")
		if _, err := build(f, "seg", page, settings{Options: Options{Mode: 0o600}}, nil, greet); err != nil {
			c.Fatal(err)
		}
		c.Fatal("survived: ", publishByLink(dirfd, temp, "seg"))
	})
}

// TestCreatorDies: a creator is killed at each crash point. The next process finds a complete segment
// or none, and the next creator removes what is left.
func TestCreatorDies(t *testing.T) {
	// A point is a way to reach a crash point. There are two ways to create a segment, and the feature in the field
	// disable, which the test disables, selects one of them. The field published says whether the creator has
	// published the segment when it reaches the crash point.
	type point struct {
		disable   string
		published bool
	}
	expect := map[string][]point{
		"shm.create.after_open":    {{"", false}},
		"shm.create.after_size":    {{"", false}, {"otmpfile", false}},
		"shm.create.before_link":   {{"", false}},
		"shm.create.after_link":    {{"", true}},
		"shm.sweep.before_unlink":  {{"otmpfile", false}},
		"shm.create.temp_unlocked": {{"otmpfile", false}},
		"shm.create.temp_locked":   {{"otmpfile", false}},
		"shm.create.before_rename": {{"otmpfile", false}},
		"shm.create.after_rename":  {{"otmpfile", true}},
		"shm.create.before_unlink": {{"otmpfile", true}},
	}
	for _, name := range crashpoint.All() {
		if !strings.HasPrefix(name, "shm.") {
			continue
		}
		require.NotEmpty(t, expect[name], "%s has no expectation", name)
		for _, p := range expect[name] {
			t.Run(name+"/disable="+p.disable, func(t *testing.T) {
				t.Setenv("SHMSYNC_DISABLE", p.disable)
				dir := t.TempDir()
				leftover := filepath.Join(dir, tempName("dead"))
				require.NoError(t, os.WriteFile(leftover, nil, 0o600))
				helper := "create/crash"
				if name == "shm.create.before_unlink" {
					helper = "create/crash-link"
				}
				proctest.Start(t, helper, proctest.Params(dir), proctest.Env("SHMSYNC_CRASHPOINT="+name)).
					WaitSignal(t, syscall.SIGKILL)

				s, created, err := OpenOrCreateAt(filepath.Join(dir, "seg"), page, greet, nil)
				require.NoError(t, err)
				closing(t, s)
				require.Equal(t, p.published, !created)
				require.True(t, greeted(s))
				require.NoError(t, unix.Flock(int(s.File().Fd()), unix.LOCK_EX|unix.LOCK_NB), "no lock is left")

				t.Setenv("SHMSYNC_DISABLE", "otmpfile")
				next, err := CreateAt(filepath.Join(dir, "next"), page, greet, nil)
				require.NoError(t, err)
				closing(t, next)
				require.Equal(t, []string{"next", "seg"}, entries(t, dir))
			})
		}
	}
}
