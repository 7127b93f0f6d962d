//go:build linux

package load

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemLink(t *testing.T) {
	const lines = 1000
	words := make([]uint64, lines*memLine)
	link(words, rand.New(rand.NewPCG(1, 2)))
	at := uint64(0)
	for i := range lines {
		require.Equal(t, i == 0, at == 0, "the chain has all lines")
		at = words[at*memLine]
	}
	require.Zero(t, at)
	require.EqualValues(t, lines*(lines-1)/2, sumWords(words))
	require.EqualValues(t, 6, sumWords([]uint64{0, 1, 2, 3, 0}))
}
