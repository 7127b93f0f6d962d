//go:build !linux

package diagnose

import "os"

// maySignal reports whether this user may send signals to a process. Without Linux there are no participants.
func maySignal(int) bool { return true }

// ownerOf returns the user of a process.
func ownerOf(int) string { return "of the process" }

// mayJoin reports whether this user may join the arena in a file.
func mayJoin(*os.File) (may bool, owner int) { return true, 0 }
