package race

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyOf(t *testing.T) {
	require.Equal(t, KeyOf(1, 2, 3), KeyOf(1, 2, 3))

	// Neighbouring words of neighbouring files differ, also in the low bits that
	// select a stripe.
	seen := make(map[Key]bool)
	perStripe := make(map[Key]int)
	const stripes = 1 << 14
	for dev := range uint64(4) {
		for ino := range uint64(16) {
			for off := range uint64(256) {
				k := KeyOf(dev, ino, 64*off)
				require.False(t, seen[k], "dev %d ino %d off %d", dev, ino, 64*off)
				seen[k] = true
				perStripe[k%stripes]++
			}
		}
	}
	for stripe, n := range perStripe {
		require.Less(t, n, 12, "stripe %d", stripe)
	}
	require.NotEqual(t, KeyOf(1, 2, 3), KeyOf(2, 1, 3))
	require.NotEqual(t, KeyOf(1, 2, 3), KeyOf(1, 3, 2))
}
