package prims

import "time"

// spinNever is the stored spin budget of an object whose waiters never spin.
const spinNever = 1

// spinField returns the spin budget for d as an object stores it. 0 means that waiters learn the budget; any other
// value is the budget in nanoseconds, plus 1.
func spinField(d time.Duration) uint32 {
	switch {
	case d == 0:
		return 0
	case d < 0:
		return 1
	}
	return uint32(min(d, time.Millisecond)) + 1
}

func spinOf(field uint32) time.Duration {
	switch field {
	case 0:
		return 0
	case 1:
		return -1
	}
	return time.Duration(field - 1)
}
