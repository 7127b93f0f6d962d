//go:build linux

package bench

// Or returns asked, or byDefault if asked is empty.
func Or[T any](asked []T, byDefault ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return byDefault
}
