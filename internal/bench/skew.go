//go:build linux

package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// These are the distributions from which a multi measurement draws the keys that its threads lock.
const (
	SkewUniform = "uniform"
	skewZipf    = "zipf" // the k-th key has a weight of k^-theta; zipf:1.2 sets theta to 1.2
)

const (
	zipfUsual = 0.99 // theta if the name is only zipf, without a number
	zipfMost  = 10
)

// ParseSkew parses the name of a distribution of keys, such as zipf:1.2. It returns the exponent theta, which is 0 if
// all keys are equally likely. The returned name is the same for all spellings of a distribution, such as zipf for
// zipf:.99.
func ParseSkew(text string) (theta float64, name string, err error) {
	switch text {
	case SkewUniform:
		return 0, text, nil
	case skewZipf:
		return zipfUsual, text, nil
	}
	number, ok := strings.CutPrefix(text, skewZipf+":")
	if !ok {
		return 0, "", fmt.Errorf("--skew %q: want %s, %s or %s:THETA", text, SkewUniform, skewZipf, skewZipf)
	}
	if theta, err = strconv.ParseFloat(number, 64); err != nil || !(theta > 0 && theta <= zipfMost) {
		return 0, "", fmt.Errorf("--skew %q: theta is no number above 0 and up to %d", text, zipfMost)
	}
	if theta == zipfUsual {
		return theta, skewZipf, nil
	}
	return theta, skewZipf + ":" + strconv.FormatFloat(theta, 'g', -1, 64), nil
}

// DrawKeys draws random keys, with repetitions. The workers of a multi measurement lock the keys in this order. If
// theta is not 0, keys with lower numbers are more frequent.
func DrawKeys(draws *[control.ScratchDraws]uint32, keys int, theta float64, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	sums := make([]float64, keys)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -theta)
		sums[i] = total
	}
	for i := range draws {
		at, _ := slices.BinarySearch(sums, rng.Float64()*total)
		draws[i] = uint32(min(at, keys-1))
	}
}
