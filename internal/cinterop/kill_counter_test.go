//go:build linux

package cinterop

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// A C program is killed when it returns from a wait for a WaitGroup, or when it folds the share of a dead process.
func TestKillWaitGroup(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run("counter.wait.woken/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "counts")
			off := x.do(t, "wg.open", "g")
			x.do(t, "wg.add", "g", 1)
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=counter.wait.woken")
			victim.do(t, "wg.open", "g")
			victim.start(t, "wg.wait", "g")
			eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) == 1 })
			waits := x.asleep(t, off, 2, "wg.wait", "g")
			x.do(t, "wg.done", "g")
			victim.ends(t)
			waits.must(t)
			x.do(t, "wg.add", "g", 1)
			x.do(t, "wg.done", "g")
			x.do(t, "wg.wait", "g")
			sound(t, name)
		})
		t.Run("counter.reap.lost/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "dies")
			x.do(t, "wg.open", "g")
			x.do(t, "wg.add", "g", 2)
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=counter.reap.lost")
			victim.mortal = true
			victim.do(t, "wg.open", "g")
			waits := victim.start(t, "wg.wait", "g") // this process watches the counter
			x.kill(t)
			victim.ends(t)
			require.Empty(t, waits.c)
			successor := newAgent(t, lang, name, "successor")
			successor.do(t, "wg.open", "g")
			successor.start(t, "wg.wait", "g").fails(t, syscall.EOWNERDEAD)
			successor.do(t, "wg.reset", "g")
			require.Zero(t, successor.do(t, "wg.count", "g"))
			successor.do(t, "wg.wait", "g")
			sound(t, name)
		})
	}
}

// A C program is killed while it removes an arena. The next program completes the removal, and can make another
// arena of that name.
func TestKillRemoving(t *testing.T) {
	core, n := program(t, "core.c"), 0
	for _, point := range points(t) {
		// This test passes neither of two crash points. A program passes arena.remove.judged only before it replaces a
		// file. A program passes arena.remove.placed only on a file system without RENAME_NOREPLACE: see firsts.c.
		if elsewhere[prefixOf(point)] != "TestKillRemoving" || point == "arena.remove.judged" || point == "arena.remove.placed" {
			continue
		}
		n++
		t.Run(point, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			killCore(t, point, core, "remove", name)
			if err := arena.Remove(name); err != nil {
				require.ErrorIs(t, err, fs.ErrNotExist)
			}
			a, err := arena.Create(name, &arena.Options{Size: 2 << 20})
			require.NoError(t, err)
			require.NoError(t, a.Close())
			says, ok := openCore(t, name)
			require.True(t, ok, says)
			sound(t, name)
		})
	}
	require.NotZero(t, n)
}
