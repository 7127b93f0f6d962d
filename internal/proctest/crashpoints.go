//go:build crashpoint

package proctest

// crashPoints reports whether the build has crash points, as crashpoint.Enabled does: the tests of
// that package use this one, which cannot import it.
const crashPoints = true
