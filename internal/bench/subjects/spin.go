//go:build linux

package subjects

import "time"

// spinOption converts a spin budget in the form of control.Shape to the form of the library's options: 0 lets the
// library choose, and a negative value means no spinning.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}
