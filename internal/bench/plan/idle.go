//go:build linux

package plan

import "time"

// idleLeast is the least time for which an idle cell measures a thread that waits.
const idleLeast = 250 * time.Millisecond
