//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether this program was built with -race.
const Enabled = true

// stripes is the number of words that stand for all keys. Several keys may share a word.
const stripes = 1 << 14

// words are the addresses at which the race detector sees synchronisation, because it does not watch shared memory. No
// code reads or writes these words. The detector keeps its own state for each address.
var words = new([stripes]uint64)

func word(k Key) unsafe.Pointer { return unsafe.Pointer(&words[k%stripes]) }

// Acquire tells the race detector that everything before the last Release of k happened before what follows this call.
func Acquire(k Key) { runtime.RaceAcquire(word(k)) }

// Release tells the race detector that what precedes this call happened before what follows the next Acquire of k.
func Release(k Key) { runtime.RaceRelease(word(k)) }

// ReleaseMerge is Release for one of several goroutines that release k: what precedes each of their calls happened
// before what follows the next Acquire.
func ReleaseMerge(k Key) { runtime.RaceReleaseMerge(word(k)) }
