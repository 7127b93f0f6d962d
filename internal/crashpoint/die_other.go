//go:build crashpoint && !linux

package crashpoint

import "os"

// dieHere ends the process as abruptly as can be done everywhere. The library
// maps nothing on this platform, so nobody is left to notice.
func dieHere() { os.Exit(137) }

// stopHere is not supported here.
func stopHere() { panic("crashpoint: cannot stop a process on this platform") }
