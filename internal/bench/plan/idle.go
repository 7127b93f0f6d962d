//go:build linux

package plan

import "time"

// idleLeast is how long the waiter of an idle cell waits at least.
const idleLeast = 250 * time.Millisecond
