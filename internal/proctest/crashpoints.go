//go:build crashpoint

package proctest

// crashPoints reports whether the build has crash points, as crashpoint.Enabled does. This package
// cannot import crashpoint, since the tests of crashpoint use this package.
const crashPoints = true
