//go:build crashpoint

package park

import (
	"os"
	"time"
)

// checkEvery is how often a process checks the words that it waits for. A periodic check makes up
// for a lost wake. If a test sets SHMSYNC_CHECK_EVERY to an hour, a lost wake makes the test hang,
// so that it is noticed.
var checkEvery = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SHMSYNC_CHECK_EVERY")); err == nil && d > 0 {
		return d
	}
	return 100 * time.Millisecond
}()
