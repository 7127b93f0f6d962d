//go:build !crashpoint

package park

import "time"

// checkEvery is the time between two checks of the words that a process waits for.
const checkEvery = 100 * time.Millisecond
