//go:build linux

package bench

// Or returns the values in asked, or those in byDefault if asked is empty.
func Or[T any](asked []T, byDefault ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return byDefault
}
