//go:build !crashpoint

package park

import "time"

// lookEvery is how often a process looks at the words that it waits for.
const lookEvery = 100 * time.Millisecond
