//go:build linux

package cinterop

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/stretchr/testify/require"
)

// slabArena opens an arena whose first chunks are in use.
func slabArena(t *testing.T) (name string, a *arena.Arena) {
	t.Helper()
	name = unusedName(t)
	a, err := arena.Open(name, &arena.Options{Size: 16 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	for range 64 * 40 {
		_, err := a.Alloc(1024, 0)
		require.NoError(t, err)
	}
	return name, a
}

func usedChunks(a *arena.Arena) uint64 {
	s := a.Stats()
	return s.Chunks - s.FreeChunks
}

// TestCrowdInCSharesAFreshChunk: if many threads need a wait node and no slab has one, they share one fresh chunk.
func TestCrowdInCSharesAFreshChunk(t *testing.T) {
	t.Parallel()
	name, a := slabArena(t)
	before := usedChunks(a)
	runC(t, "slabs.c", "crowd", name)
	require.Equal(t, before+1, usedChunks(a))
}

// TestShortLivedProcessesInCShareASlab checks many openings, one after the other. Each opening claims a wait node and a
// block, and is closed. All openings take their nodes and blocks from the same two slabs.
func TestShortLivedProcessesInCShareASlab(t *testing.T) {
	name, a := slabArena(t)
	before := usedChunks(a)
	runC(t, "slabs.c", "short", name)
	require.Equal(t, before+2, usedChunks(a))
}

// TestPoolInCGivesNodesBack: a program in C has had many waits at the same time. When they are over, it gives their nodes
// back to the arena, but for a few.
func TestPoolInCGivesNodesBack(t *testing.T) {
	t.Parallel()
	name, _ := slabArena(t)
	out, err := exec.Command(program(t, "slabs.c", "-DSHMI_FREE_PERIOD=1000000"), "pool", name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	sound(t, name)
}

// TestBlocksFreedInGoAreUsedAgainInC checks a program in C that allocates blocks while a program in Go frees them. The
// program in C uses the freed blocks again.
func TestBlocksFreedInGoAreUsedAgainInC(t *testing.T) {
	name, a := slabArena(t)
	before := usedChunks(a)
	cmd := exec.Command(program(t, "slabs.c"), "ring", name)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	lines, freed := bufio.NewReader(out), 0
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		off, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		require.NoError(t, err)
		a.Free(arena.Offset(off))
		if freed++; freed%1000 == 0 {
			_, err := in.Write([]byte("\n"))
			require.NoError(t, err)
		}
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, 20_000, freed)
	require.LessOrEqual(t, usedChunks(a)-before, uint64(2))
}
