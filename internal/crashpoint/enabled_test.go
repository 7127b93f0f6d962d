//go:build crashpoint

package crashpoint

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArmFunc(t *testing.T) {
	defer Disarm()
	before := HitCount("test.point.one")
	var at []int
	for _, n := range []int{1, 3, 3} {
		ArmFunc("test.point.one", n, func() { at = append(at, HitCount("test.point.one")-before) })
	}
	ArmFunc("test.point.two", 1, func() { t.Error("another point") })
	for range 5 {
		Hit("test.point.one")
	}
	require.Equal(t, []int{1, 3, 3}, at, "each arming acts once, at its hit")
	require.Equal(t, 5, HitCount("test.point.one")-before)
}

// An action may itself hit and arm points.
func TestArmFuncNested(t *testing.T) {
	defer Disarm()
	var order []string
	ArmFunc("test.point.one", 1, func() {
		ArmFunc("test.point.two", 1, func() { order = append(order, "two") })
		Hit("test.point.two")
		order = append(order, "one")
	})
	Hit("test.point.one")
	require.Equal(t, []string{"two", "one"}, order)
}

func TestDisarm(t *testing.T) {
	ArmFunc("test.point.one", 1, func() { t.Error("disarmed") })
	Disarm()
	Hit("test.point.one")
}

func TestConcurrentHits(t *testing.T) {
	defer Disarm()
	const goroutines, hits = 8, 100
	var acted atomic.Int32
	ArmFunc("test.point.one", goroutines*hits, func() { acted.Add(1) })
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range hits {
				Hit("test.point.one")
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, acted.Load())
}

func TestMistakes(t *testing.T) {
	require.Panics(t, func() { Hit("test.point.none") })
	require.Panics(t, func() { Arm("test.point.none", 1) })
	require.Panics(t, func() { Arm("test.point.one", 0) })
}

func TestParseSpec(t *testing.T) {
	for spec, want := range map[string]int{"test.point.one": 1, "test.point.one:1": 1, "test.point.one:12": 12} {
		name, n, err := parseSpec(spec)
		require.NoError(t, err, spec)
		require.Equal(t, "test.point.one", name)
		require.Equal(t, want, n, spec)
	}
	for _, spec := range []string{"test.point.none", "test.point.one:", "test.point.one:0", "test.point.one:-1", "test.point.one:x", ":1"} {
		_, _, err := parseSpec(spec)
		require.Error(t, err, spec)
	}
}
