//go:build !race

package race

// Enabled reports whether this program was built with -race.
const Enabled = false

// Acquire records that what was released on k happened before what follows.
func Acquire(k Key) {}

// Release records that what precedes happened before what follows the next
// Acquire of k.
func Release(k Key) {}

// ReleaseMerge is Release for one of several releasers: the next Acquire follows
// all of them.
func ReleaseMerge(k Key) {}
