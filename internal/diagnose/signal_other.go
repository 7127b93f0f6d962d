//go:build !linux

package diagnose

// maySignal reports whether this user may send signals to a process. Without Linux there are no participants.
func maySignal(int) bool { return true }

// ownerOf returns the user of a process.
func ownerOf(int) string { return "of the process" }
