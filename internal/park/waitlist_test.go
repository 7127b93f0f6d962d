//go:build linux

package park

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWordTable covers both states of the announcement, with extreme sequences.
func TestWordTable(t *testing.T) {
	for _, sequence := range []uint32{0, 1, 2, 1<<30 - 1, 1<<31 - 2, 1<<31 - 1} {
		for bit := range uint32(2) {
			w := Word(sequence<<1 | bit)
			require.Equal(t, bit == 1, w.Announced())
			b := w.Bumped()
			require.False(t, b.Announced())
			require.Equal(t, (sequence+1)&(1<<31-1), uint32(b)>>1)
			require.NotEqual(t, w, b)
			require.NotEqual(t, w|announced, b, "a waiter that is about to sleep on the old word does not sleep")
			require.NotEqual(t, w.turn()&1, b.turn()&1, "a bump changes whose turn it is")
		}
	}
}

// heapWakeWord returns a WakeWord on the heap, where the race detector checks its atomics. It has
// no poller nodes.
func heapWakeWord() *WakeWord {
	word := new(atomic.Uint32)
	return &WakeWord{WaitList: WaitList{Word: word, Raw: wordPtr(word), Poller: new(atomic.Uint64)}}
}

func TestWakeWord(t *testing.T) {
	b := heapWakeWord()
	require.False(t, b.Announced())
	b.Release()
	require.Zero(t, b.Word.Load(), "a release without a waiter changes nothing")
	w := b.Announce()
	require.EqualValues(t, 1, w)
	require.Equal(t, w, b.Announce())
	require.True(t, b.Announced())
	b.Touch()
	require.EqualValues(t, 3, b.Word.Load(), "a touch leaves the announcement")
	b.Release()
	require.EqualValues(t, 4, b.Word.Load())
	b.Release()
	require.EqualValues(t, 4, b.Word.Load())
	b.WakeOne()
	require.EqualValues(t, 6, b.Word.Load())
	b.Announce()
	b.WakeAll()
	require.EqualValues(t, 8, b.Word.Load())
	b.Word.Store(^uint32(0))
	b.Release()
	require.Zero(t, b.Word.Load(), "the sequence wraps")
}

// TestWakeWordHammer checks that no announcement is left when four goroutines have called Announce and Release at the
// same time, and that each announcement has changed the sequence at most once.
func TestWakeWordHammer(t *testing.T) {
	b := heapWakeWord()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				b.Announce()
				b.Release()
			}
		})
	}
	wg.Wait()
	require.False(t, b.Announced())
	require.LessOrEqual(t, b.Word.Load()>>1, uint32(8000))
	require.Positive(t, b.Word.Load()>>1)
}

func TestCPUNote(t *testing.T) {
	var n cpuNote
	require.Zero(t, n.other(1))
	n = n.by(1, 0)
	require.EqualValues(t, 1, n.other(2), "CPU 0 of participant 1")
	require.Zero(t, n.other(1), "nobody else has released")
	n = n.by(1, 5)
	require.Zero(t, n.other(1))
	n = n.by(2, 3)
	require.EqualValues(t, 6, n.other(2))
	require.EqualValues(t, 4, n.other(1))
	n = n.by(2047, noteCPUs-1)
	require.EqualValues(t, 2047, n.slot())
	require.EqualValues(t, noteCPUs, n.other(1))
	require.Zero(t, n.by(7, noteCPUs).other(1), "a CPU that does not fit is unknown")
}
