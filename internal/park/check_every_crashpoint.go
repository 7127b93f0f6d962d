//go:build crashpoint

package park

import (
	"os"
	"time"
)

// checkEvery is how often a process looks at the words that it waits for. A periodic check makes
// up for a lost wake. A test that sets SHMSYNC_CHECK_EVERY to an hour hangs instead, and so finds
// the loss.
var checkEvery = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SHMSYNC_CHECK_EVERY")); err == nil && d > 0 {
		return d
	}
	return 100 * time.Millisecond
}()
