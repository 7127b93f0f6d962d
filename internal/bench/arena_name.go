//go:build linux

package bench

import "strings"

// ArenaName is a directory as keys of cells and names of benchmarks may have it, as in
// dev:shm; empty for memory without one.
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
