//go:build !linux

package shmsync

import "time"

// WaitVEntry is one word of a WaitV call.
type WaitVEntry struct{}

// NewWaitVEntry makes an entry that waits on addr while its value is val.
func NewWaitVEntry(addr *uint32, val uint32) WaitVEntry { return WaitVEntry{} }

// WaitVMax is the largest number of words that one WaitV call takes.
const WaitVMax = 128

// Wait reports ErrNotSupported on this system.
func Wait(addr *uint32, val uint32, deadline int64) (Outcome, error) {
	return Failed, ErrNotSupported
}

// WaitBitset reports ErrNotSupported on this system.
func WaitBitset(addr *uint32, val, bitset uint32, deadline int64) (Outcome, error) {
	return Failed, ErrNotSupported
}

// Wake wakes nobody on this system.
func Wake(addr *uint32, n int) int { return 0 }

// WakeBitset wakes nobody on this system.
func WakeBitset(addr *uint32, n int, bitset uint32) int { return 0 }

// Requeue reports ErrNotSupported on this system.
func Requeue(addr *uint32, val uint32, wake int, target *uint32, move int) (n int, o Outcome, err error) {
	return 0, Failed, ErrNotSupported
}

// WaitV reports ErrNotSupported on this system.
func WaitV(ws []WaitVEntry, deadline int64) (index int, o Outcome, err error) {
	return -1, Failed, ErrNotSupported
}

var clockBase = time.Now()

// Monotonic reads a monotonic clock in nanoseconds.
func Monotonic() int64 { return int64(time.Since(clockBase)) }

// MonotonicOf converts a time that carries a monotonic reading. The result is never 0, because 0 means no deadline.
func MonotonicOf(t time.Time) int64 {
	if d := int64(t.Sub(clockBase)); d != 0 {
		return d
	}
	return 1
}
