//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// manyWaits makes an arena with n participants. Each participant holds a Mutex, for which the next participant waits.
// If ring is set, the first participant waits for the Mutex of the last participant, so all are in a deadlock.
// Otherwise the first half of the participants has all permits of a Semaphore, for which the second half waits.
func manyWaits(t *testing.T, n int, ring bool) (name string) {
	w := arenatest.New(t, &arena.Options{Size: 64 << 20, MaxParticipants: n + 1})
	ctx, cancel := context.WithCancel(t.Context())
	var (
		all  []*arena.Arena
		wg   sync.WaitGroup
		held []func()
	)
	t.Cleanup(func() { // before the World ends
		cancel()
		wg.Wait()
		for _, release := range held {
			release()
		}
	})
	for i := range n {
		all = append(all, w.Join(fmt.Sprintf("worker-%d", i)))
	}
	mutex := func(a *arena.Arena, i int) *prims.Mutex {
		m, err := prims.OpenMutex(a, fmt.Sprintf("lock-%d", i), nil)
		require.NoError(t, err)
		return m
	}
	for i, a := range all {
		m := mutex(a, i)
		m.Lock()
		held = append(held, m.Unlock)
		s, err := prims.OpenSemaphore(a, "pool", int64(n/2), nil)
		require.NoError(t, err)
		if !ring && i < n/2 {
			s.Acquire(1)
			held = append(held, func() { s.Release(1) })
		}
	}
	waits := 0
	begin := func(wait func(context.Context) error, release func()) {
		waits++
		wg.Go(func() {
			if wait(ctx) == nil {
				release()
			}
		})
	}
	for i, a := range all {
		if i > 0 || ring {
			before := mutex(a, (i+n-1)%n)
			begin(before.LockContext, before.Unlock)
		}
		if !ring && i >= n/2 {
			s, err := prims.OpenSemaphore(a, "pool", int64(n/2), nil)
			require.NoError(t, err)
			begin(func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }, func() { s.Release(1) })
		}
	}
	awaitWaits(t, w.Name(), waits)
	return w.Name()
}

// TestManyParticipants checks that the output of the commands stays readable if an arena has very many participants. No
// line names all participants, and the number of lines grows only linearly with the number of participants. The finding
// of a deadlock has a command that ends one process.
func TestManyParticipants(t *testing.T) {
	const (
		widest = 1500 // maximum length in bytes of the line that reports a deadlock
		table  = 200  // maximum length in bytes of any other line
	)
	n := proctest.Rounds(60, 500)
	for _, ring := range []bool{false, true} {
		name := manyWaits(t, n, ring)
		want := exitOK
		if ring {
			want = exitTrouble
		}
		for _, args := range [][]string{{"ps"}, {"objects"}, {"locks"}, {"waits"}, {"graph"}, {"show", "pool"}, {"show", "lock-1"}} {
			code, out, errs := measured(t, append([]string{args[0], name}, args[1:]...)...)
			if args[0] != "show" {
				require.Equal(t, want, code, errs)
			}
			rows := 0
			for line := range strings.SplitSeq(out, "\n") {
				if rows++; strings.HasPrefix(line, "DEADLOCK: ") {
					require.Less(t, len(line), widest, args)
					require.Contains(t, line, fmt.Sprintf("DEADLOCK: %d processes wait for each other: worker-0 (pid ", n))
					require.Contains(t, line, fmt.Sprintf("; and so on through %d more; ", n-8))
					require.Contains(t, line, fmt.Sprintf("; worker-%d (pid ", 1), "the process that the command ends")
				} else {
					require.Less(t, len(line), table, "%v: %s", args, line)
				}
			}
			require.Less(t, rows, 8*n, args)
			require.Equal(t, ring && args[len(args)-1] != "pool", strings.Contains(out, "\n    $ kill "), "%v\n%s", args, out)
		}
		// The tree names each process that waits.
		_, out, _ := shmctl("graph", name)
		for i := range n {
			if i > 0 || ring { // without a ring, the first participant does not wait
				require.Contains(t, out, fmt.Sprintf("─ worker-%d[", i))
			}
		}
		code, _, errs := shmctl("rm", name)
		require.Equal(t, exitRefused, code)
		require.Contains(t, errs, fmt.Sprintf(" and %d more; not removed", n-5))
		_, out, _ = shmctl("waits", "-o", "wide", name)
		require.Equal(t, !ring, strings.Contains(out, fmt.Sprintf(", worker-%d[", n/2-1)), "all holders of permits")
	}
}

// measured runs a command in this process, and logs its time and the memory that it has allocated.
func measured(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	code, stdout, stderr = shmctl(args...)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	t.Logf("%v: %v, %d MiB allocated, %d bytes of output", args, took, (after.TotalAlloc-before.TotalAlloc)>>20, len(stdout))
	return code, stdout, stderr
}

// TestManyObjects checks that the work of each command grows linearly with the number of objects.
func TestManyObjects(t *testing.T) {
	n := proctest.Rounds(400, 100_000)
	w := arenatest.New(t, &arena.Options{Size: int64(n)*1024 + 16<<20, MaxParticipants: 8})
	a := w.Join("clerk")
	dump := filepath.Join(t.TempDir(), "dump")
	name := w.Name()
	commands := [][]string{{"ps", name}, {"objects", name}, {"du", name}, {"show", name, "account-7"}, {"locks", name}, {"waits", name}, {"graph", name},
		{"top", "-n", "1", name}, {"check", name}, {"metrics", name}, {"diff", dump, name}, {"reap", "-n", name}, {"recover", "--all", name}, {"complete", "show", name, ""}}
	costs := map[string][]uint64{}
	var locks []*prims.Mutex
	defer func() {
		for _, m := range locks {
			m.Unlock()
		}
	}()
	for _, count := range []int{n / 8, n} {
		for i := len(locks); i < count; i++ {
			m, err := prims.OpenMutex(a, fmt.Sprintf("account-%d", i), nil)
			require.NoError(t, err)
			m.Lock()
			locks = append(locks, m)
		}
		if count == n/8 {
			soon(t, exitOK, "dump", "-o", dump, name)
		}
		for _, args := range commands {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			code, _, errs := measured(t, args...)
			runtime.ReadMemStats(&after)
			require.Equal(t, exitOK, code, errs)
			costs[args[0]] = append(costs[args[0]], after.Mallocs-before.Mallocs)
		}
	}
	for command, c := range costs {
		require.Less(t, c[1], 24*c[0]+10_000, command) // for 8 times as many objects: 8 times if linear, 64 if quadratic
	}
	// top makes no more rows than the screen has.
	src, err := open(name)
	require.NoError(t, err)
	defer src.Close()
	var b bytes.Buffer
	topText(&b, &topState{sort: "name"}, src.look(), nil, time.Now(), 24)
	require.Equal(t, 24, strings.Count(b.String(), "\naccount-"))
}

// TestManyKeys checks that recover --all uses one handle of a MultiLock for all its keys: for each further key, it
// allocates less memory than a handle takes.
func TestManyKeys(t *testing.T) {
	var costs []uint64
	for _, n := range []uint64{250, 2000} {
		w := arenatest.New(t, &arena.Options{Size: 8 << 20})
		victim, name := w.JoinVictim("victim"), w.Name()
		w.Join("reaper")
		m, err := prims.OpenMultiLock(victim, "keys", nil)
		require.NoError(t, err)
		for key := range n {
			m.Lock(key)
		}
		w.Kill(victim)
		eventually(t, "reaped", func() bool {
			_, d := shmctlJSON(t, "ps", name)
			return len(d.Participants) == 1
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, out, errs := measured(t, "recover", "--all", name)
		runtime.ReadMemStats(&after)
		require.Equal(t, exitOK, code, errs)
		require.EqualValues(t, n, strings.Count(out, " can be locked again\n"))
		costs = append(costs, after.TotalAlloc-before.TotalAlloc)
	}
	require.Less(t, costs[1]-costs[0], uint64(1750*10_000), "less for each key than a handle of the MultiLock takes")
}

// TestManyIsMoreThanOneMore checks that a list never ends in "and 1 more": it has the last name instead.
func TestManyIsMoreThanOneMore(t *testing.T) {
	require.Equal(t, "a, b, c, d, e, f", listed([]string{"a", "b", "c", "d", "e", "f"}))
	require.Equal(t, "a, b, c, d, e and 2 more", listed([]string{"a", "b", "c", "d", "e", "f", "g"}))
	var s diagnose.Snapshot
	require.Equal(t, "1.1 gone, 2.1 gone, 3.1 gone, 4.1 gone", s.ShortsOfMany([]string{"1.1", "2.1", "3.1", "4.1"}))
	require.Equal(t, "1.1 gone, 2.1 gone, 3.1 gone +2", s.ShortsOfMany([]string{"1.1", "2.1", "3.1", "4.1", "5.1"}))
}
