//go:build linux

package bench

import "strings"

// ArenaName converts the path of a directory to the form that keys of cells and names of benchmarks have, such as
// dev:shm. It returns an empty string for memory without a directory.
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
