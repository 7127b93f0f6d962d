//go:build crashpoint && !linux

package crashpoint

import "os"

// dieHere ends the process as abruptly as is possible on every system. The library maps no memory
// on this platform, so no other process would notice.
func dieHere() { os.Exit(137) }

// stopHere is not supported here.
func stopHere() { panic("crashpoint: cannot stop a process on this platform") }
