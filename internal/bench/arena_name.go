//go:build linux

package bench

import "strings"

// ArenaName converts the path of a directory to a form that can be part of the name of a measurement or benchmark. For
// example, /dev/shm becomes dev:shm. An empty path stands for memory without a directory, and stays empty.
func ArenaName(dir string) string {
	if len(dir) > 1 {
		dir = strings.TrimPrefix(dir, "/")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
			return r
		}
		return ':'
	}, dir)
}
