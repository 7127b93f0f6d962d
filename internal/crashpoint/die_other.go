//go:build crashpoint && !linux

package crashpoint

import "os"

// dieHere ends the process with os.Exit, the most abrupt end that works on every system. SIGKILL is not
// needed: the library maps no memory on this platform, so no other process can see a difference.
func dieHere() { os.Exit(137) }

// stopHere is not supported here.
func stopHere() { panic("crashpoint: cannot stop a process on this platform") }
