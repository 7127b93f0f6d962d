//go:build linux

package plan

import "time"

// idleLeast is the least time that the waiter of an idle cell waits.
const idleLeast = 250 * time.Millisecond
