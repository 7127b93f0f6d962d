//go:build linux

package arenakernel

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// TestOpenGivesASparseCopyItsMemory: in a sparse copy of an arena, pages of zeros are holes. Open
// allocates memory for these pages. If an arena already has all its memory, Open recognizes that
// without a system call that reserves memory.
func TestOpenGivesASparseCopyItsMemory(t *testing.T) {
	ta, copied := newTestArena(t, 4), newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	for range 3 {
		off, err := a.Alloc(chunkSize, 0)
		require.NoError(t, err)
		a.slice(off, chunkSize)[0] = 1
	}
	believed := believedBytes(t, a)
	require.Greater(t, believed, a.geo.fixedEnd()+2*chunkSize)
	backed, exact := backedBytes(a.seg.File())
	if !exact {
		t.Skip("needs a tmpfs with pages of 4 KiB in /dev/shm: elsewhere Open reserves the memory in any case")
	}
	require.GreaterOrEqual(t, backed, believed)
	require.NoError(t, a.Close())

	whole, err := os.ReadFile(ta.path())
	require.NoError(t, err)
	f, err := os.OpenFile(copied.path(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	const page = 4096
	for i := 0; i < len(whole); i += page {
		if !bytes.Equal(whole[i:i+page], make([]byte, page)) {
			_, err = f.WriteAt(whole[i:i+page], int64(i))
			require.NoError(t, err)
		}
	}
	require.NoError(t, f.Truncate(int64(len(whole))))
	backed, _ = backedBytes(f)
	require.Less(t, backed, believed)
	require.NoError(t, f.Close())

	a, err = Open(copied.name, &copied.opts)
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, believed, believedBytes(t, a))
	backed, _ = backedBytes(a.seg.File())
	require.GreaterOrEqual(t, backed, believed)
}

func believedBytes(t *testing.T, a *Arena) uint64 {
	n, err := a.reservedInFile()
	require.NoError(t, err)
	marked := uint64(0)
	for i := range a.geo.chunkCount {
		if a.loadChunk(i).reserved() {
			marked++
		}
	}
	require.Equal(t, marked, n)
	return a.geo.fixedEnd() + n*(chunkSize+blockWords*blockWordSize)
}

// TestFailedOpenLeavesNoWatcher: an Open that fails for any reason ends the thread that it has
// started for the death watcher.
func TestFailedOpenLeavesNoWatcher(t *testing.T) {
	name := fmt.Sprintf("shmsync-none.%d", os.Getpid())
	ta := newTestArena(t, 4)
	seg, err := shm.Create(ta.name, 4096, nil, nil)
	require.NoError(t, err)
	require.NoError(t, seg.Close())
	before := runtime.NumGoroutine()
	for range 20 {
		_, err := Attach(name, nil)
		require.Error(t, err)
		_, err = Attach(ta.name, nil) // no arena
		require.Error(t, err)
	}
	pollUntil(func() bool { return runtime.NumGoroutine() <= before })
}

// TestMeeting checks that await returns when another goroutine calls arrive. The call of arrive comes before or
// after that of await. The test runs with one P and with two.
func TestMeeting(t *testing.T) {
	for _, ps := range []int{1, 2} {
		t.Run(fmt.Sprint(ps), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(ps))
			for _, locked := range []bool{false, true} {
				m, n := newMeeting(), newMeeting()
				go func() {
					if locked {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
					}
					m.await(locked)
					n.arrive()
				}()
				m.arrive()
				n.await(false)
				n.await(false)
			}
		})
	}
}
