//go:build !linux

package arena

import "os"

// backedBytes is not known on this system.
func backedBytes(*os.File) (n uint64, exact bool) { return 0, false }
