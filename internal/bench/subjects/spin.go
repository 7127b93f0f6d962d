//go:build linux

package subjects

import "time"

// spinOption is the budget as the library's objects take it: 0 is their own choice, and
// less is none.
func spinOption(v uint64) time.Duration {
	switch v {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(v - 1)
}
