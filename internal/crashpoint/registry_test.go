package crashpoint

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegister(t *testing.T) {
	require.Equal(t, []string{"test.point.one", "test.point.two"}, All())
	require.PanicsWithValue(t, `crashpoint: duplicate registration of "test.point.one"`,
		func() { Register("test.point.one") })
	require.True(t, slices.IsSorted(All()))
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a.b", "mutex.unlock.before_wake", "m2.l3.x_9"} {
		require.True(t, valid(name), name)
	}
	for _, name := range []string{"", "a", ".a.b", "a..b", "a.b.", "A.b", "a b.c", "a.1b", "a._b", "a-b.c", "a.é", "a.b:2"} {
		require.False(t, valid(name), name)
		require.Panics(t, func() { Register(name) }, name)
	}
}
