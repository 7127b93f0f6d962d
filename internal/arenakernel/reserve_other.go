//go:build !linux

package arenakernel

import "os"

// backedBytes returns 0 and false, because the number is not known on this system.
func backedBytes(*os.File) (n uint64, exact bool) { return 0, false }
