//go:build linux

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

func testOptions() *Options {
	return &Options{CPUs: []int{0, 1}, Time: time.Millisecond, Count: 3, Kills: 5, Waiters: []int{100, 1000}, Gap: 1500 * time.Microsecond, Seed: 9, Shuffle: true, MaxCells: 5000}
}

func keys(cells []*bench.Cell) []string {
	var ks []string
	for _, c := range cells {
		ks = append(ks, c.Key())
	}
	return ks
}

func TestSameSeedSamePlan(t *testing.T) {
	names := bench.ScenarioNames()
	a, err := Cells(testOptions(), names...)
	require.NoError(t, err)
	b, err := Cells(testOptions(), names...)
	require.NoError(t, err)
	require.Equal(t, keys(Order(a, 3, true, 9)), keys(Order(b, 3, true, 9)))
	require.NotEqual(t, keys(Order(a, 3, true, 9)), keys(Order(a, 3, true, 10)))
	a = slices.DeleteFunc(a, func(c *bench.Cell) bool { return c.Skip != "" }) // drops cells that this host cannot run
	require.Equal(t, keys(a), keys(Order(a, 1, false, 9)))

	sequence := keys(Order(a, 3, true, 9))
	for round := range slices.Chunk(sequence, len(a)) {
		require.ElementsMatch(t, keys(a), round, "every round runs every cell once")
	}
}

func TestCellKeys(t *testing.T) {
	o := testOptions()
	o.CS, o.Think, o.Threads = []time.Duration{time.Microsecond}, []time.Duration{0}, []int{4}
	o.Prims = []string{"c:robust"}
	cells, err := Cells(o, "lock")
	require.NoError(t, err)
	require.Equal(t, []string{"lock/by=c/cs=1us/place=cross/prim=robust/procs=2/think=0/threads=4"}, keys(cells))
	all, err := Cells(testOptions(), bench.ScenarioNames()...)
	require.NoError(t, err)
	ks := keys(all)
	slices.Sort(ks)
	require.Equal(t, len(ks), len(slices.Compact(ks)), "keys are unique")
	for _, k := range ks {
		parts := strings.Split(k, "/")[1:]
		require.True(t, slices.IsSorted(parts), k)
		for _, r := range k {
			require.Less(t, r, rune(128), k)
		}
	}
}

// An arena in a memfd has no directory.
func TestDirectoriesOfArenas(t *testing.T) {
	dir := t.TempDir()
	o := testOptions()
	o.Arenas = []string{"memfd", dir}
	require.NoError(t, o.checkArenas())
	require.Equal(t, []string{"", dir}, o.Arenas)
}
