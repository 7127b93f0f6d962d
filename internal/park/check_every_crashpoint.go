//go:build crashpoint

package park

import (
	"os"
	"time"
)

// checkEvery is how often a process looks at the words that it waits for. A test
// that sets SHMSYNC_CHECK_EVERY to an hour hangs where a wake is lost, which the
// looks make up for otherwise.
var checkEvery = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SHMSYNC_CHECK_EVERY")); err == nil && d > 0 {
		return d
	}
	return 100 * time.Millisecond
}()
