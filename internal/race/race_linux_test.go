package race

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// spinLock is a correct lock in memory whose accesses the race detector does not see.
// With hooks it tells the detector of its edges.
type spinLock struct {
	word  *atomic.Uint32
	key   Key
	hooks bool
}

func (l *spinLock) Lock() {
	for !l.word.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
	if l.hooks {
		Acquire(l.key)
	}
}

func (l *spinLock) Unlock() {
	if l.hooks {
		Release(l.key)
	}
	l.word.Store(0)
}

// hammer increments a counter under the locks in turn, one goroutine each.
func hammer(locks ...sync.Locker) int {
	const rounds = 200
	counter := 0
	var wg sync.WaitGroup
	for _, l := range locks {
		wg.Go(func() {
			for range rounds {
				l.Lock()
				counter++
				l.Unlock()
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	return counter
}

// Under -race, the detector fails this test unless the two handles of one word
// meet in the annotations.
func TestHooksCarryTheEdge(t *testing.T) {
	w := mappedWord(t)
	a := &spinLock{word: w, key: KeyOf(1, 2, 64), hooks: true}
	b := &spinLock{word: w, key: KeyOf(1, 2, 64), hooks: true}
	require.Equal(t, 400, hammer(a, b))
}

// Readers that release by merging are all seen by the writer that follows them.
func TestReleaseMerge(t *testing.T) {
	const readers = 4
	left := mappedWord(t)
	left.Store(readers)
	key := KeyOf(1, 2, 128)
	var seen [readers]int
	for i := range readers {
		go func() {
			seen[i] = i + 1
			ReleaseMerge(key)
			left.Add(^uint32(0))
		}()
	}
	for left.Load() != 0 {
		runtime.Gosched()
	}
	Acquire(key)
	require.Equal(t, [readers]int{1, 2, 3, 4}, seen)
}

// The reason for this package: a correct lock without annotations is reported.
// Should this ever fail, the detector has learned to see mapped memory.
func TestDetectorIgnoresMappedWords(t *testing.T) {
	const env = "SHMSYNC_RACE_SELFTEST_UNANNOTATED"
	if !Enabled {
		t.Skip("needs -race")
	}
	if os.Getenv(env) != "" {
		w := mappedWord(t)
		hammer(&spinLock{word: w}, &spinLock{word: w})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDetectorIgnoresMappedWords$")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "WARNING: DATA RACE")
}

func TestHooksDoNotAllocate(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		Acquire(7)
		Release(7)
		ReleaseMerge(7)
	}))
}
