//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cells run where the arena is said to be, and leave nothing there.
func TestArenaLiesWhereItIsSaid(t *testing.T) {
	requireCC(t)
	dir := t.TempDir()
	o := testOptions()
	o.Arenas = []string{"memfd", dir}
	require.NoError(t, o.checkArenas())
	require.Equal(t, []string{"", dir}, o.Arenas)
	for _, name := range []string{"shmsync:mutex", "c:robust"} {
		o.Prims = []string{name}
		cells, err := planCells(o, "lock")
		require.NoError(t, err)
		for _, c := range cells {
			create := c.Subject.Segment
			if create == nil {
				create = newSegment
			}
			f, err := create(c)
			require.NoError(t, err)
			at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			if c.Arena == "" {
				require.Contains(t, at, "memfd:")
				require.NotContains(t, c.key(), "arena=")
				continue
			}
			require.True(t, strings.HasPrefix(at, dir+"/"), at)
			require.True(t, strings.HasSuffix(at, " (deleted)"), at)
			require.True(t, strings.HasPrefix(c.key(), "lock/arena="+arenaName(dir)+"/by="), c.key())
		}
	}

	for _, args := range [][]string{
		{"lock", "--prim=shmsync:mutex,c:robust,go:flock,go:pipe,in-process:sync.Mutex", "--procs=2", "--threads=1"},
		{"crash", "--prim=shmsync:mutex,c:robust", "--kills=2"},
		{"handoff", "--prim=shmsync:futex,c:sysv,go:pipe", "--gap=100us"},
	} {
		code, out, errs := shmbench(t, append(args, "--arena=memfd,"+dir, "--place=any", "--time=10ms", "--warmup=1ms", "--count=1", "--format=json")...)
		require.Zero(t, code, errs)
		there := 0
		for _, c := range parseDocument(t, out).Cells {
			if c.Params["arena"] == arenaName(dir) {
				there++
			} else {
				require.NotContains(t, c.Params, "arena")
			}
			require.Equal(t, statusOK, c.Status, c.Key)
		}
		require.Positive(t, there)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestArenaNames(t *testing.T) {
	for dir, want := range map[string]string{"": "", "/dev/shm": "dev:shm", "/": ":", "/a b/c=d/é": "a:b:c:d::"} {
		require.Equal(t, want, arenaName(dir), dir)
	}
}
