//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether this program was built with -race.
const Enabled = true

// stripes is the number of words that the keys share.
const stripes = 1 << 14

// words are what the detector sees instead of shared memory. Nothing reads or
// writes them; the detector keeps its own state per address.
var words = new([stripes]uint64)

func word(k Key) unsafe.Pointer { return unsafe.Pointer(&words[k%stripes]) }

// Acquire records that what was released on k happened before what follows.
func Acquire(k Key) { runtime.RaceAcquire(word(k)) }

// Release records that what precedes happened before what follows the next
// Acquire of k.
func Release(k Key) { runtime.RaceRelease(word(k)) }

// ReleaseMerge is Release for one of several releasers: the next Acquire follows
// all of them.
func ReleaseMerge(k Key) { runtime.RaceReleaseMerge(word(k)) }
