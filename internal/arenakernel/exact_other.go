//go:build !linux

package arenakernel

// ExactSleeps does nothing on this system.
func ExactSleeps() (undo func()) { return func() {} }
