//go:build linux

package bench

import "strings"

// ArenaName is the form of a directory in keys of cells and names of benchmarks, such as dev:shm;
// it is empty for memory without a directory.
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
