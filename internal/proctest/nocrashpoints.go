//go:build !crashpoint

package proctest

const crashPoints = false
