//go:build linux

package place

import (
	"math"
	"strconv"
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

func TestParseIntsOfLargeNumbers(t *testing.T) {
	most := strconv.Itoa(math.MaxInt)
	for text, want := range map[string][]int{
		most:                      {math.MaxInt},
		most + ":" + most:         {math.MaxInt},
		"1:" + most + ":" + most:  {1},
		"0:" + most + ":" + most:  {0, math.MaxInt},
		"3:" + most + ":*" + most: {3},
		"2:" + most + ":*" + strconv.Itoa(1<<(strconv.IntSize-3)): {2, 1 << (strconv.IntSize - 2)},
	} {
		got, err := ParseInts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseIntsOfLongLists(t *testing.T) {
	list, err := ParseInts("1-" + strconv.Itoa(maxInts))
	require.NoError(t, err)
	require.Len(t, list, maxInts)
	for _, text := range []string{"0-" + strconv.Itoa(maxInts), "1-" + strconv.Itoa(maxInts) + ",7", "0:" + strconv.Itoa(math.MaxInt)} {
		_, err := ParseInts(text)
		require.ErrorContains(t, err, "more than", text)
	}
}
