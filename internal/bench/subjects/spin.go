//go:build linux

package subjects

import "time"

// spinOption converts the time for which waiters spin from the form of control.Shape to the form of the library's
// options. In the options, 0 lets the library choose, and a negative value means no spinning.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}
