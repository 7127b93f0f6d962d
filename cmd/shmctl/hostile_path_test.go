//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// The path of an arena cannot control a terminal. Any user can choose a path, and "ls --all" shows it to root.
func TestPathThatControlsATerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a\x1b[31mb\nc\u202ed\u009be")
	seg, err := shm.CreateAt(path, 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 8})
	}, nil)
	require.NoError(t, err)
	require.NoError(t, seg.Close())
	alice, _ := newAgent(t, path, "alice"), newAgent(t, path, "bob") // bob reaps
	alice.does("lock mutex", "ledger")
	id, ok := fileIDOf(path)
	require.True(t, ok)
	found := ""
	for _, p := range otherPlaces() {
		if is, ok := fileIDOf(p); ok && is == id {
			found = p
		}
	}
	require.Regexp(t, "^/proc/[0-9]+/fd/[0-9]+$", found)
	alice.Kill(t)
	for _, p := range otherPlaces() { // now the path of an open file of bob
		if is, ok := fileIDOf(p); ok && is == id {
			found = p
		}
	}
	awaitFinding(t, diagnose.OwnerDead, "waits", found)
	commands := [][]string{{"ls", "--all"}, {"ls", "--all", "-o", "wide"}, {"ls", "--all", "-o", "name"}, {"show", path, "nothing"}, {"ps", path + "x"},
		{"dump", path, "-o", filepath.Join(t.TempDir(), "d")}, {"diff", path, path}, {"graph", "-f", "dot", path}, {"rm", path}}
	for _, args := range append(commands, lookers(path)...) {
		_, out, errs := shmctl(args...)
		require.NotEmpty(t, out+errs, args)
		text := strings.NewReplacer("\n", "", "\t", "").Replace(out + errs)
		require.Equal(t, diagnose.Clean(text), text, args)
	}
	obey(t, found, 1)
}

// TestPipesKeepNoCommandWaiting checks that no command waits if the path of an arena is a pipe: a pipe without a
// writer, or a pipe whose writer writes nothing.
func TestPipesKeepNoCommandWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	for _, written := range []bool{false, true} {
		if written {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close() // if a command waits for the pipe, the close also ends this wait
		}
		for _, args := range [][]string{{"ps", path}, {"rm", path}, {"metrics", path}, {"recover", "--all", path}} {
			ends(t, func() {
				code, _, errs := shmctl(args...)
				require.Contains(t, []int{exitMissing, exitRefused}, code, errs)
				require.Contains(t, errs, "is not a regular file", args)
			}, args)
		}
		ends(t, func() { require.False(t, isArena(path)) }, "isArena")
	}
}

// ends fails the test if f does not return in time.
func ends(t *testing.T, f func(), what any) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		require.Fail(t, "it waits", "%v", what)
	}
}

// TestLinksOfOthersAreNotFollowed checks that shmctl follows no symbolic link in another mount namespace. The target
// may be a device, and even the open of a device can have an effect.
func TestLinksOfOthersAreNotFollowed(t *testing.T) {
	root := t.TempDir()
	other := root + shm.Dir
	require.NoError(t, os.MkdirAll(other, 0o700))
	create := func(path string) string {
		seg, err := shm.CreateAt(path, 1<<20, func(s *shm.Segment) error {
			return arena.Format(s, &arena.Options{MaxParticipants: 4})
		}, nil)
		require.NoError(t, err)
		require.NoError(t, seg.Close())
		return path
	}
	own, outside, pipe := create(other+"/own"), create(filepath.Join(t.TempDir(), "a")), filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(outside, other+"/link"))
	require.NoError(t, os.Symlink(pipe, other+"/pipe"))
	opened := opens(t, outside, pipe)
	require.Equal(t, []string{own}, arenasIn(root))
	require.False(t, opened())

	linked := t.TempDir()
	require.NoError(t, os.Mkdir(linked+"/dev", 0o700))
	require.NoError(t, os.Symlink(other, linked+shm.Dir))
	require.Empty(t, arenasIn(linked))
	require.True(t, isArena(other+"/link"), "a user may give a link to his own arena")
	require.True(t, opened())
}

// TestPathWithAnyBytes checks that an argument reaches the command unchanged, even if it is no valid UTF-8. Package
// kong on its own would replace such bytes, and the command would act on another file.
func TestPathWithAnyBytes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a\xffb")
	soon(t, exitOK, "create", "--size=1M", path)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "a\xffb", entries[0].Name())
	for _, args := range [][]string{{"check", path}, {"metrics", path}, {"dump", "--output=" + path + ".dump", path}, {"check", path + ".dump"}} {
		soon(t, exitOK, args...)
	}
	require.FileExists(t, path+".dump")
	soon(t, exitOK, "rm", path)
	require.NoFileExists(t, path)
}

// A command never opens a file that is not regular, not even to examine it.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	opened := opens(t, pipe)
	_, err := openRegular(pipe)
	require.EqualError(t, err, pipe+" is not a regular file")
	require.False(t, opened())
}

// opens watches files. It returns a function that reports whether one of them was opened since the last call of this
// function.
func opens(t *testing.T, paths ...string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	for _, path := range paths {
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		require.NoError(t, err)
	}
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		if err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
		}
		return n > 0
	}
}

// TestFileThatBecomesAPipe checks that openDump does not wait if another user replaces the file by a pipe at any
// moment.
func TestFileThatBecomesAPipe(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(file, []byte("no dump"), 0o600))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	var stop atomic.Bool
	stopped := make(chan error)
	go func() {
		var err error
		for !stop.Load() && err == nil {
			err = unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, pipe, unix.RENAME_EXCHANGE)
		}
		stopped <- err
	}()
	ends(t, func() {
		for range proctest.Rounds(20_000, 100_000) {
			src, err := openDump(file)
			require.Nil(t, src)
			require.NoError(t, err)
		}
	}, "openDump")
	stop.Store(true)
	require.NoError(t, <-stopped)
}

// rm --force removes a file, and never a directory.
func TestForcedRemovalLeavesDirectories(t *testing.T) {
	dir := t.TempDir()
	code, _, errs := shmctl("rm", "--force", dir)
	require.Equal(t, exitError, code, errs)
	require.Contains(t, errs, dir+": is a directory")
	require.DirExists(t, dir)
}
