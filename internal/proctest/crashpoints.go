//go:build crashpoint

package proctest

// crashPoints reports whether the build has crash points, as crashpoint.Enabled does. This package
// cannot import crashpoint, because the tests of crashpoint import this package.
const crashPoints = true
