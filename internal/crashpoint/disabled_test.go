//go:build !crashpoint

package crashpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDisabled(t *testing.T) {
	t.Setenv("SHMSYNC_CRASHPOINT", "test.point.one")
	require.False(t, Enabled)
	Hit("test.point.one")
	Hit("no such point")
	Disarm()
	require.Zero(t, HitCount("test.point.one"))
	require.Panics(t, func() { Arm("test.point.one", 1) })
	require.Panics(t, func() { ArmStop("test.point.one", 1) })
	require.Panics(t, func() { ArmFunc("test.point.one", 1, func() {}) })
}
