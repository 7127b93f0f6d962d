//go:build crashpoint

package park

import (
	"os"
	"time"
)

// checkEvery is the time between two checks of the words that a process waits for. A periodic check
// ends a wait even if its wake was lost. A test that has to notice lost wakes sets
// SHMSYNC_CHECK_EVERY to an hour: it then hangs if a wake is lost.
var checkEvery = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SHMSYNC_CHECK_EVERY")); err == nil && d > 0 {
		return d
	}
	return 100 * time.Millisecond
}()
