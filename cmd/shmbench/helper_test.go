//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
	"github.com/shmsync/shmsync/internal/proctest"
)

// foreign makes another user the owner of files. Only root can do that.
func foreign(t *testing.T, paths ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file to another user")
	}
	for _, p := range paths {
		require.NoError(t, os.Lchown(p, 65534, 65534))
	}
}

// plant writes a program to the place in a cache where shmbench keeps its helper. The program creates the file with the
// path marker when it runs.
func plant(t *testing.T, cache string) (helper, marker string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	require.NoError(t, err)
	name, err := peers.HelperName(cc)
	require.NoError(t, err)
	marker = filepath.Join(t.TempDir(), "marker")
	helper = filepath.Join(cache, "shmbench", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(helper), 0o755))
	require.NoError(t, os.WriteFile(helper, []byte("#!/bin/sh\n: > "+marker+"\nexit 1\n"), 0o755))
	return helper, marker
}

// measureFutex measures a peer in C, which needs the helper. It checks that the planted program was not run.
func measureFutex(t *testing.T, marker string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := realMain([]string{"uncontended", "--prim=c:futex", "--time=5ms", "--count=1", "--cc=cc", "--timeout=1m"}, &out, &errs)
	require.NoFileExists(t, marker, "the planted file was run")
	require.Equal(t, exitOK, code, "%s%s", out.String(), errs.String())
	require.NotContains(t, errs.String(), "skipped")
}

// Another user may put a program at the place in /tmp where shmbench could look for its helper. That program is not
// run.
func TestHelperInTemporaryDirectoryIsNotTrusted(t *testing.T) {
	proctest.CCompiler(t)
	tmp := t.TempDir()
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", tmp)
	cache := filepath.Join(tmp, fmt.Sprintf("shmbench-%d", os.Getuid()))
	helper, marker := plant(t, cache)
	foreign(t, helper, filepath.Dir(helper), cache)
	measureFutex(t, marker)
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{cache}, left, "the temporary helper was removed")
}

// A cache to which another user can write is not used, whoever owns the file in it.
func TestHelperInForeignCacheIsNotTrusted(t *testing.T) {
	proctest.CCompiler(t)
	for name, spoil := range map[string]func(t *testing.T, cache, helper string){
		"the directory is somebody else's":     func(t *testing.T, _, helper string) { foreign(t, filepath.Dir(helper)) },
		"a directory above is somebody else's": func(t *testing.T, cache, _ string) { foreign(t, cache) },
		"the group can write": func(t *testing.T, _, helper string) {
			require.NoError(t, os.Chmod(filepath.Dir(helper), 0o770))
		},
		"everybody can write above": func(t *testing.T, cache, _ string) { require.NoError(t, os.Chmod(cache, 0o777)) },
		"the directory is a symbolic link": func(t *testing.T, cache, helper string) {
			elsewhere := filepath.Join(t.TempDir(), "there")
			require.NoError(t, os.Rename(filepath.Dir(helper), elsewhere))
			require.NoError(t, os.Symlink(elsewhere, filepath.Dir(helper)))
			foreign(t, elsewhere)
		},
	} {
		if !proctest.Long() && name != "the group can write" {
			continue // the other cases are slow, because each of them compiles the peers
		}
		t.Run(name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			t.Setenv("XDG_CACHE_HOME", cache)
			t.Setenv("TMPDIR", t.TempDir())
			helper, marker := plant(t, cache)
			require.NoError(t, os.Chmod(filepath.Dir(helper), 0o700))
			spoil(t, cache, helper)
			measureFutex(t, marker)
		})
	}
}

// A helper in a private cache is used again if its file has not changed since it was built. Otherwise shmbench builds
// the helper again.
func TestHelperIsCheckedBeforeEachRun(t *testing.T) {
	proctest.CCompiler(t)
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv("XDG_CACHE_HOME", cache)
	helper, marker := plant(t, cache) // without a digest, as an earlier version left it
	require.NoError(t, os.Chmod(filepath.Dir(helper), 0o700))
	measureFutex(t, marker)
	first := inode(t, helper)
	measureFutex(t, marker)
	require.Equal(t, first, inode(t, helper), "it was built again without need")

	h, err := peers.FindHelper("", "cc")
	require.NoError(t, err)
	require.NoError(t, h.Check())
	require.NoError(t, os.Chmod(helper, 0o722))
	require.ErrorContains(t, h.Check(), "others can write")
	require.NoError(t, os.Chmod(helper, 0o700))
	content, err := os.ReadFile(helper)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(helper, content, 0o700))
	require.ErrorContains(t, h.Check(), "digest")
	removed, err := os.Open(helper)
	require.NoError(t, err)
	defer removed.Close() // keeps the inode in use, so that the next helper has another one
	require.NoError(t, os.Remove(helper))
	require.NoError(t, os.Symlink("/bin/true", helper))
	require.Error(t, h.Check(), "a symbolic link")
	measureFutex(t, marker)
	require.NotEqual(t, first, inode(t, helper))
}

// Other users cannot write to a helper that shmbench builds, even if the umask allows the group to write. If others can
// write to a helper that the user names, shmbench refuses the helper and does not run it.
func TestHelperThatOthersCanWriteTo(t *testing.T) {
	proctest.CCompiler(t)
	defer syscall.Umask(syscall.Umask(0o002))
	file := filepath.Join(t.TempDir(), "helper")
	code, _, errs := shmbench(t, "helper", file)
	require.Equal(t, exitOK, code, errs)
	code, out, errs := shmbench(t, "uncontended", "--prim=c:futex", "--time=5ms", "--count=1", "--format=json", "--helper="+file)
	require.Equal(t, exitOK, code, errs)
	d := parseDocument(t, out)
	require.Equal(t, bench.StatusOK, d.Cells[0].Status, d.Cells[0].Reason)
	require.Contains(t, d.Env.Compiler, "-O2 -pthread")
	require.Contains(t, d.Env.Libc, "libc")

	marker := filepath.Join(t.TempDir(), "marker")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n: > "+marker+"\n"), 0o755))
	require.NoError(t, os.Chmod(file, 0o775))
	code, _, errs = shmbench(t, "uncontended", "--prim=c:futex", "--time=5ms", "--count=1", "--helper="+file)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "nobody else may write to it")
	require.NoFileExists(t, marker)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	require.NoError(t, syscall.Lstat(path, &st))
	return st.Ino
}
