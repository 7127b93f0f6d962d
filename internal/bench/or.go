//go:build linux

package bench

// Or gives what was asked for, or the default where nothing was.
func Or[T any](asked []T, byDefault ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return byDefault
}
