//go:build !race

package race

// Enabled reports whether this program was built with -race.
const Enabled = false

// Acquire tells the race detector that everything before the last Release of k happened before what follows this call.
func Acquire(k Key) {}

// Release tells the race detector that what precedes this call happened before what follows the next Acquire of k.
func Release(k Key) {}

// ReleaseMerge is Release for one of several goroutines that release k: what precedes each of their calls happened
// before what follows the next Acquire.
func ReleaseMerge(k Key) {}
