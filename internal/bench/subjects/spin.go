//go:build linux

package subjects

import "time"

// spinOption converts a spin budget, the time for which waiters spin, from the form of control.Shape to the form of the
// options of the library. An option of 0 lets the library choose, and a negative one turns spinning off.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}
