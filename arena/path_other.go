//go:build !linux

package arena

import "io/fs"

func unlinked(fs.FileInfo) bool { return false }
