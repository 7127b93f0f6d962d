//go:build !crashpoint

package park

import "time"

// checkEvery is how often a process checks the words that it waits for.
const checkEvery = 100 * time.Millisecond
