//go:build linux

package subjects

import "time"

// spinOption converts a spin budget, the time for which waiters spin, from a value of control.Shape to an option of the
// library. The option 0 lets the library choose the budget, and a negative option turns spinning off.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}
