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

// spinLock is a correct lock in memory whose accesses the race detector does not see. If hooks is set, the lock reports
// its happens-before edges to the detector.
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

// hammer starts one goroutine for each of the locks. Each goroutine increments the same counter under its lock. hammer
// returns the counter.
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

// TestHooksCarryTheEdge uses two handles of one lock. With -race, the detector fails this test unless both handles
// report their edges under the same key.
func TestHooksCarryTheEdge(t *testing.T) {
	w := mappedWord(t)
	a := &spinLock{word: w, key: KeyOf(1, 2, 64), hooks: true}
	b := &spinLock{word: w, key: KeyOf(1, 2, 64), hooks: true}
	require.Equal(t, 400, hammer(a, b))
}

// TestReleaseMerge checks that a writer sees what all readers did before, if each reader releases by ReleaseMerge and
// then the writer acquires.
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

// TestDetectorIgnoresMappedWords checks that the detector reports a race for a correct lock without annotations. If
// this test fails, the detector has learned to see mapped memory.
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
	cmd := exec.Command(os.Args[0], "-test.run=^TestDetectorIgnoresMappedWords$", "-test.timeout=1m")
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
