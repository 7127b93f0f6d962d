//go:build linux

package place

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseInts(t *testing.T) {
	for text, want := range map[string][]int{
		"3": {3}, "1,2,4": {1, 2, 4}, "0-3,8": {0, 1, 2, 3, 8}, "1:4": {1, 2, 3, 4}, "1:9:4": {1, 5, 9}, "1:20:*2": {1, 2, 4, 8, 16},
	} {
		got, err := ParseInts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1", "3:1", "1:2:0", "1:2:3:4", "0:8:*2", "1:8:*1"} {
		_, err := ParseInts(text)
		require.Error(t, err, text)
	}
}
