//go:build linux

package prims_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// millionRoom is the memory that the full form of TestRWMutexMillion may take: 0.4 GiB of the arena, 2.6 GiB of
// handles, and as much again for the garbage collector.
const millionRoom = 8 << 30

// TestRWMutexMillion: one process can open and use a million RWMutexes at once in an arena of 512 MiB. The
// short form of the test uses 20,000 RWMutexes, and a fiftieth of the memory.
func TestRWMutexMillion(t *testing.T) {
	n := uint64(20_000)
	if proctest.Long() && freeMemory(t) >= millionRoom {
		n = 1_000_000
		// Without a limit, the garbage collector would mark the growing heap again and again.
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(millionRoom * 3 / 4))
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	a := newArena(t, &arena.Options{Size: 512 << 20})
	before := a.Stats()
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	all := make([]*prims.RWMutex, n)
	for i := range all {
		var err error
		all[i], err = prims.OpenRWMutex(a, "", nil)
		require.NoError(t, err)
	}
	for _, m := range all {
		m.RLock()
	}
	for _, m := range all {
		require.False(t, m.TryLock())
		m.RUnlock()
		m.Lock()
	}
	for _, m := range all {
		m.Unlock()
	}
	runtime.GC()
	runtime.ReadMemStats(&m1)
	s := a.Stats()
	require.EqualValues(t, n, s.Objects)
	require.EqualValues(t, n, s.SlotRecords)
	require.EqualValues(t, n*(256+128), s.BytesUsed-before.BytesUsed)
	chunks := before.FreeChunks - s.FreeChunks
	const perChunk = 64<<10 + 1024*4 + 8 // a chunk, its block words, and its chunk word
	t.Logf("%d RWMutexes: %d bytes of the arena each, %d bytes of the process's heap each",
		n, chunks*perChunk/n, (m1.HeapAlloc-m0.HeapAlloc)/n)
	require.Less(t, chunks*perChunk*(1_000_000/n), uint64(512<<20))
	for _, m := range all[:100] {
		off := m.Offset()
		require.NoError(t, m.Close())
		o, err := a.Object(off)
		require.NoError(t, err)
		require.NoError(t, a.DeleteObject(o))
	}
	s = a.Stats()
	require.EqualValues(t, n-100, s.Objects)
	require.EqualValues(t, n-100, s.SlotRecords)
}

// freeMemory returns how many bytes a process could take, in its heap and in /dev/shm.
func freeMemory(t *testing.T) uint64 {
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(shm.Dir, &fs))
	if fs.Bavail*uint64(fs.Bsize) < 1<<30 {
		return 0
	}
	b, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if kib := uint64(0); strings.HasPrefix(line, "MemAvailable:") {
			_, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib)
			require.NoError(t, err)
			return kib << 10
		}
	}
	return 0
}

// TestRWMutexSize: the body of an RWMutex has the same size for any number of participants. Only the open bits
// of the object grow: there is one bit for each slot of the arena.
func TestRWMutexSize(t *testing.T) {
	requireSizes(t, 128, func(a *arena.Arena) (sized, error) { return prims.OpenRWMutex(a, "", nil) })
	a := newArena(t, &arena.Options{Size: 16 << 20, Counted: true})
	m, err := prims.OpenRWMutex(a, "", nil)
	require.NoError(t, err)
	require.EqualValues(t, 192, m.Object().Size, "the counters follow")
	m.Lock()
	m.Unlock()
	require.EqualValues(t, 1, (*arenakernel.Arena)(a).Inspect(m.Object()).Counts.Acquired)
}

// TestRWMutexWithoutRoom: if there is no room for the reader word of this process, opening the RWMutex fails
// and leaves nothing behind. So a later RLock never fails for lack of memory.
func TestRWMutexWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	named, err := prims.OpenRWMutex(a, "named", nil)
	require.NoError(t, err)
	require.NoError(t, named.Close())
	var blocks []arena.Offset
	for {
		off, err := a.Alloc(128, 0)
		if err != nil {
			break
		}
		blocks = append(blocks, off)
	}
	for {
		off, err := a.Alloc(256, 0)
		if err != nil {
			break
		}
		blocks = append(blocks, off)
	}
	a.Free(blocks[len(blocks)-1]) // makes room for an RWMutex
	before := a.Stats()
	_, err = prims.OpenRWMutex(a, "", nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats(), "the anonymous object is deleted")
	named, err = prims.OpenRWMutex(a, "named", nil)
	require.NoError(t, err, "the slot has its record")
	named.RLock()
	named.RUnlock()
}
