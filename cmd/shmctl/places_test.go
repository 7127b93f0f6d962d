//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// This process has its own /dev/shm, with an arena in it.
	proctest.Register("shmctl/elsewhere", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.Mount("tmpfs", shm.Dir, "tmpfs", 0, "")
		}
		if err != nil {
			c.Say(err.Error())
			return
		}
		a, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 4, Label: "elsewhere"})
		if err != nil {
			c.Fatal(err)
		}
		defer a.Close()
		c.Say("")
		c.Await()
	})
}

// listedAll returns the arenas in the output of "ls --all" for which f returns true.
func listedAll(t *testing.T, f func(a arenaInfo) bool) (found []arenaInfo) {
	t.Helper()
	code, d := shmctlJSON(t, "ls", "--all")
	require.Contains(t, []int{exitOK, exitTrouble}, code) // other arenas of this host may be in trouble
	for _, a := range d.Arenas {
		if f(a) {
			found = append(found, a)
		}
	}
	return found
}

// "ls --all" finds the arenas of processes at any path, and memfds. It lists each once.
func TestArenasOfProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "at a path")
	soon(t, exitOK, "create", "--size=1M", path)
	at := func(a arenaInfo) bool { return a.Name == path }
	require.Empty(t, listedAll(t, at), "no process has it open")
	newAgent(t, path, "alice")
	newAgent(t, path, "bob")
	found := listedAll(t, at)
	require.Len(t, found, 1)
	require.Equal(t, 2, found[0].Participants)

	label := fmt.Sprintf("shmctl-test-%d", os.Getpid())
	seg, err := shm.CreateMemfd(label, 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 4})
	}, nil)
	require.NoError(t, err)
	a, err := arena.FromSegment(seg, &arena.Options{Label: "memfd"})
	require.NoError(t, err)
	defer a.Close()
	found = listedAll(t, func(a arenaInfo) bool {
		link, _ := os.Readlink(a.Name)
		return strings.Contains(link, label)
	})
	require.Len(t, found, 1)
	require.Equal(t, 1, found[0].Participants)
	require.Contains(t, soon(t, exitOK, "ps", found[0].Name), "memfd")
	_, out, _ := shmctl("ls", "--all")
	require.Regexp(t, `ok, memfd \S*`+label, out)

	// The creator opened this file before it had a name, so the descriptor of the creator shows no path. ls must still
	// list the arena only once.
	name := fmt.Sprintf("shmctl-test-made-%d", os.Getpid())
	made, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer shm.Remove(name)
	defer made.Close()
	newAgent(t, name, "alice")
	require.Len(t, listedAll(t, func(a arenaInfo) bool { return filepath.Base(a.Path) == name }), 1, "it is listed twice")
}

// TestPathOfAMadeArena checks that "ls --all" gives the path of an arena that its creator has open. The descriptor of the
// creator shows no path, because the file had no name when it was opened.
func TestPathOfAMadeArena(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made here")
	made, err := arena.Create(path, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	at := func(a arenaInfo) bool { return a.Name == path && a.Path == path }
	require.Len(t, listedAll(t, at), 1, "the directory shows the name")
	newAgent(t, path, "alice") // its process has a higher pid than this one, so shmctl finds it later
	require.Len(t, listedAll(t, at), 1)
	require.NoError(t, os.Rename(path, path+" moved"))
	moved := func(a arenaInfo) bool { return a.Name == path+" moved" }
	require.Len(t, listedAll(t, moved), 1)
	require.NoError(t, os.Remove(path+" moved"))
	removed := listedAll(t, func(a arenaInfo) bool { return a.Removed == path+" moved" })
	require.Len(t, removed, 1, "the descriptor of another process shows the name that the file had")
	require.NoError(t, made.Close())

	name := fmt.Sprintf("shmctl-test-gone-%d", os.Getpid())
	made, err = arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer made.Close()
	newAgent(t, name, "alice")
	require.NoError(t, shm.Remove(name))
	_, out, _ := shmctl("ls")
	require.Contains(t, out, removedNote(shm.Dir+"/"+name))
}

// TestFileNameThatNamesNoSegment checks an arena in /dev/shm whose file name is not valid as the name of a segment. ls
// lists the arena by its path, and the printed commands contain the path.
func TestFileNameThatNamesNoSegment(t *testing.T) {
	path := fmt.Sprintf("%s/shmctl test %d", shm.Dir, os.Getpid())
	hostile := fmt.Sprintf("%s/shmctl\x1b test\n%d", shm.Dir, os.Getpid())
	for _, p := range []string{path, hostile} {
		a, err := arena.Create(p, &arena.Options{Size: 1 << 20, MaxParticipants: 8})
		require.NoError(t, err)
		t.Cleanup(func() { os.Remove(p) })
		require.NoError(t, a.Close())
	}
	noArena := path + " no arena"
	require.NoError(t, os.WriteFile(noArena, make([]byte, 1<<16), 0o600))
	t.Cleanup(func() { os.Remove(noArena) })
	require.NoError(t, os.Symlink(path, path+" link"))
	t.Cleanup(func() { os.Remove(path + " link") })
	var listed []string
	_, d := shmctlJSON(t, "ls")
	for _, a := range d.Arenas {
		if strings.HasSuffix(a.Path, fmt.Sprint(os.Getpid())) && strings.Contains(a.Path, "shmctl") && strings.Contains(a.Path, " test") {
			listed = append(listed, a.Name)
		}
		require.NotContains(t, a.Path, path+" ")
	}
	require.ElementsMatch(t, []string{path, diagnose.Clean(hostile)}, listed)
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "name"}, {"ls", "-o", "wide"}, {"metrics"}, {"complete", "--", "ps", ""}} {
		_, out, _ := shmctl(args...)
		require.Contains(t, out, path, args)
		require.NotContains(t, out, "\x1b", args)
	}
	alice, _ := newAgent(t, path, "alice"), newAgent(t, path, "bob") // bob reaps
	alice.does("lock mutex", "ledger")
	alice.Kill(t)
	f := awaitFinding(t, diagnose.OwnerDead, "waits", path)
	require.Equal(t, "shmctl recover '"+path+"' ledger", f.Command)
	pasted(t)(t, f.Command)
	soon(t, exitOK, "waits", path)
}

// TestArenasOfMountNamespaces checks that "ls --all" finds arenas in the segment directories of other mount namespaces,
// and that other commands accept the printed paths.
func TestArenasOfMountNamespaces(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	proctest.NeedAttr(t, attr, "a mount namespace", "shmctl/elsewhere")
	name := testArena(t) // an arena of the same name, in the namespace of the test
	p := proctest.Start(t, "shmctl/elsewhere", proctest.Params(name), proctest.Attr(attr))
	var text string
	if p.Recv(t, &text); text != "" {
		t.Skipf("needs to mount a tmpfs on /dev/shm: %s", text)
	}
	found := listedAll(t, func(a arenaInfo) bool { return filepath.Base(a.Path) == name })
	require.Len(t, found, 2)
	require.Equal(t, name, found[0].Name)
	require.Equal(t, 0, found[0].Participants)
	require.Equal(t, fmt.Sprintf("/proc/%d/root%s/%s", p.Pid(), shm.Dir, name), found[1].Name)
	require.Equal(t, 1, found[1].Participants)
	require.Contains(t, soon(t, exitOK, "ps", found[1].Name), "elsewhere")
	require.Contains(t, soon(t, exitOK, "reap", found[1].Name), "nobody is dead")
	p.Send(true)
}
