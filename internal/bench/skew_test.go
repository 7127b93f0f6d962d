//go:build linux

package bench

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// TestDrawsAreSkewed checks that each key is drawn about as often as its weight requires.
func TestDrawsAreSkewed(t *testing.T) {
	const keys = 100
	for _, skew := range []string{SkewUniform, skewZipf, "zipf:0.5", "zipf:1.5", "zipf:3"} {
		theta, _, err := ParseSkew(skew)
		require.NoError(t, err)
		total := 0.0
		for k := 1; k <= keys; k++ {
			total += math.Pow(float64(k), -theta)
		}
		counts := [keys]float64{}
		const seeds = 50
		for seed := range uint64(seeds) {
			draws := new([control.ScratchDraws]uint32)
			DrawKeys(draws, keys, theta, seed)
			for _, k := range draws {
				require.Less(t, k, uint32(keys))
				counts[k]++
			}
		}
		for k, n := range counts {
			want := seeds * control.ScratchDraws * math.Pow(float64(k+1), -theta) / total
			require.InDelta(t, want, n, 6*math.Sqrt(want)+3, "%s: key %d", skew, k)
		}
	}
}

// TestParseSkew checks that all spellings of a skew give the same name.
func TestParseSkew(t *testing.T) {
	for text, want := range map[string]string{
		"uniform": "uniform", "zipf": "zipf", "zipf:.99": "zipf", "zipf:1.20": "zipf:1.2", "zipf:1e-1": "zipf:0.1", "zipf:10": "zipf:10",
	} {
		_, name, err := ParseSkew(text)
		require.NoError(t, err, text)
		require.Equal(t, want, name, text)
	}
	for _, text := range []string{"", "bent", "zipf:", "zipf:x", "zipf:0", "zipf:-1", "zipf:11", "zipf:NaN", "zipf:Inf", "zipf:1:2", "uniform:1"} {
		_, _, err := ParseSkew(text)
		require.ErrorContains(t, err, "--skew", text)
	}
}
