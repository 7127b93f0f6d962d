//go:build !linux

package arenakernel

import "io/fs"

func unlinked(fs.FileInfo) bool { return false }
