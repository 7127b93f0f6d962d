//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// TestNameThatLooksLikeAnOffset checks that a name has precedence over an offset: if an object has the given name, the
// command acts on this object.
func TestNameThatLooksLikeAnOffset(t *testing.T) {
	name := testArena(t)
	alice, _ := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
	alice.does("lock mutex", "first")
	alice.does("lock mutex", "")
	_, d := shmctlJSON(t, "objects", name)
	require.Len(t, d.Objects, 2)
	for _, o := range d.Objects { // these names are the offsets of the first two objects
		alice.does("lock fair", arena.Offset(o.Offset).String())
		alice.does("lock fair", fmt.Sprint(o.Offset))
	}
	for _, o := range d.Objects {
		for _, object := range []string{arena.Offset(o.Offset).String(), fmt.Sprint(o.Offset)} {
			require.Contains(t, soon(t, exitOK, "show", name, object), "FairMutex "+object+": ")
		}
		require.Contains(t, soon(t, exitOK, "show", name, fmt.Sprintf("0x0%x", o.Offset)), "Mutex ") // no object has this name
	}
	_, names, _ := shmctl("objects", "-o", "name", name)
	require.Len(t, strings.Fields(names), 6)
	for i, object := range strings.Fields(names) {
		_, one := shmctlJSON(t, "show", name, object)
		_, all := shmctlJSON(t, "objects", name)
		require.Equal(t, all.Objects[i].Offset, one.Objects[0].Offset, object)
	}
	alice.Kill(t)
	eventually(t, "all locks are owner-dead", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		return len(d.Findings) == 6
	})
	obey(t, name, 6)
}

// shmctl does not choose one of several objects that are printed with the same name.
func TestNameOfSeveralObjects(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	for _, object := range []string{"x\x01", "x\x02", "y\x01"} {
		alice.does("open mutex", object)
	}
	_, d := shmctlJSON(t, "objects", name)
	for _, args := range [][]string{{"show", name, "x?"}, {"recover", name, "x?"}, {"delete", name, "x?"}, {"set", name, "x?", "spin=none"}} {
		code, out, errs := shmctl(args...)
		require.Equal(t, exitError, code, out)
		require.Contains(t, errs, fmt.Sprintf("2 objects are printed as \"x?\"; give the offset of one: %#x, %#x", d.Objects[0].Offset, d.Objects[1].Offset))
	}
	soon(t, exitOK, "show", name, "y?")
}

// The command value finds objects by the same rules as the other commands: it does not choose one of several objects
// that are printed with the same name, and a name has precedence over an offset.
func TestValueOfSeveralObjects(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	anonymous, err := prims.OpenSynchronized(a, "", int64(100), nil)
	require.NoError(t, err)
	for i, object := range []string{"x\x01", "x\x02", anonymous.Offset().String()} {
		_, err := prims.OpenSynchronized(a, object, int64(i), nil)
		require.NoError(t, err)
	}
	_, d := shmctlJSON(t, "objects", name)
	require.Len(t, d.Objects, 4)
	code, out, errs := shmctl("value", name, "x?")
	require.Equal(t, exitError, code, out)
	require.Contains(t, errs, fmt.Sprintf("2 objects are printed as \"x?\"; give the offset of one: %#x, %#x", d.Objects[1].Offset, d.Objects[2].Offset))

	_, names, _ := shmctl("objects", "-o", "name", name)
	require.Len(t, strings.Fields(names), 4)
	for i, want := range []int{100, 0, 1, 2} {
		_, one := shmctlJSON(t, "value", name, strings.Fields(names)[i])
		require.EqualValues(t, want, one.Value.Fields[0].Value, names)
	}
	_, one := shmctlJSON(t, "value", name, anonymous.Offset().String())
	require.EqualValues(t, 2, one.Value.Fields[0].Value, "a name has precedence over an offset")
}

// TestMetricsAreUnique checks that the metrics contain each series once. If a series occurs twice, Prometheus refuses
// all metrics.
func TestMetricsAreUnique(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	for _, object := range []string{"x\x01", "x\x02", "a\"b", "a\\b", "c\nd", "", "", "é\u202e", "é\u202d", "}"} {
		_, err := prims.OpenMutex(a, object, nil)
		require.NoError(t, err)
	}
	_, d := shmctlJSON(t, "objects", name)
	_, err = prims.OpenMutex(a, arena.Offset(d.Objects[0].Offset).String(), nil)
	require.NoError(t, err)
	dir := t.TempDir()
	dumps := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "three")}
	for _, dump := range dumps {
		soon(t, exitOK, "dump", "-o", dump, name)
	}
	unsafe := []string{filepath.Join(dir, "a\x01"), filepath.Join(dir, "a\x02"), filepath.Join(dir, "a\ufffd"), filepath.Join(dir, `a\x01`), filepath.Join(dir, "a?")}
	for _, path := range unsafe {
		soon(t, exitOK, "create", "--size=1M", path)
	}
	series := regexp.MustCompile(`^[a-z_]+\{([a-z]+="([^"\\\n]|\\\\|\\"|\\n)*",?)*\} [0-9.e+-]+$`)
	for _, args := range [][]string{{"metrics", name}, {"metrics", name, "/dev/shm/" + name}, {"metrics", name, name},
		append([]string{"metrics", name}, dumps...), append([]string{"metrics"}, unsafe...)} {
		seen, arenas := map[string]bool{}, 0
		for line := range strings.Lines(soon(t, exitOK, args...)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "#") {
				require.False(t, seen[line], line)
				seen[line] = true
				continue
			}
			require.Regexp(t, series, line)
			key := line[:strings.LastIndex(line, " ")]
			require.False(t, seen[key], key)
			seen[key] = true
			if strings.HasPrefix(key, "shmsync_arena_bytes{") {
				arenas++
			}
		}
		files := map[fileID]bool{}
		for _, arg := range args[1:] {
			id, ok := idOfArena(arg)
			require.True(t, ok, "%q", arg)
			files[id] = true
		}
		require.Equal(t, len(files), arenas, args)
	}
}

// TestManyFindings checks that the work of a command grows linearly with the number of findings.
func TestManyFindings(t *testing.T) {
	costs := func(n int64, args ...string) uint64 {
		name := fmt.Sprintf("shmctl-test.%d.%d", os.Getpid(), n)
		seg, err := shm.Create(name, 4<<20, func(s *shm.Segment) error {
			return arena.Format(s, &arena.Options{MaxParticipants: 4})
		}, nil)
		require.NoError(t, err)
		require.NoError(t, seg.Close())
		defer shm.Remove(name)
		alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
		alice.does("lock mutexes", "m", n)
		alice.Kill(t)
		eventually(t, "reaped", func() bool {
			_, d := shmctlJSON(t, "ps", name)
			return len(d.Participants) == 1
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, out, errs := shmctl(append(args, name)...)
		runtime.ReadMemStats(&after)
		require.Contains(t, []int{exitOK, exitTrouble}, code, errs)
		if args[0] == "waits" {
			require.Contains(t, out, fmt.Sprintf("\nOWNER-DEAD: %d more like these; --json lists all, and recover --all makes all locks usable\n", n-mostFindings))
			require.Less(t, strings.Count(out, "\n"), 4*mostFindings)
		} else {
			require.Equal(t, n, int64(strings.Count(out, "\n")))
		}
		bob.Kill(t)
		return after.Mallocs - before.Mallocs
	}
	for _, args := range [][]string{{"waits"}, {"recover", "--all"}} {
		few, many := costs(100, args...), costs(800, args...)
		t.Log(args, few, many)
		require.Less(t, many, 24*few, args) // for 8 times as many findings: 8 times if linear, 64 if quadratic
	}
}
