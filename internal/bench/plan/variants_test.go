//go:build linux

package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// planned returns the names of the subjects of a plan.
func planned(t *testing.T, o *Options, scenario string) (names []string) {
	t.Helper()
	cells, err := Cells(o, scenario)
	require.NoError(t, err)
	for _, c := range cells {
		if !slices.Contains(names, c.Subject.Name()) {
			names = append(names, c.Subject.Name())
		}
	}
	return names
}

// TestVariants checks that a plan has only the selected subjects whose variant is in Options.Variants. The variant of a
// subject is the part of its name after the first dash, or "plain" if the name has no dash.
func TestVariants(t *testing.T) {
	o := &Options{CPUs: []int{0, 1}, Prims: []string{"shmsync:mutex*"}}
	all := planned(t, o, "lock")
	for _, c := range []struct {
		variants []string
		want     func(name string) bool
	}{
		{[]string{"plain"}, func(name string) bool { return name == "shmsync:mutex" }},
		{[]string{"plain", "near"}, func(name string) bool { return name == "shmsync:mutex" || name == "shmsync:mutex-near" }},
		{[]string{"no*"}, func(name string) bool { return name == "shmsync:mutex-nofence" }},
		{[]string{"*"}, func(string) bool { return true }},
	} {
		o.Variants = c.variants
		require.Equal(t, slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !c.want(name) }), planned(t, o, "lock"), c.variants)
	}
	require.Contains(t, all, "shmsync:mutex-cohort")
}

// TestSpinOfALock checks that a subject whose spin budget can be set has a cell for each budget, and that any other
// subject has one cell without a budget.
func TestSpinOfALock(t *testing.T) {
	o := &Options{CPUs: []int{0, 1}, Procs: []int{2}, Threads: []int{1}, Spins: []uint64{0, 1, 20_001}}
	cells, err := Cells(o, "lock")
	require.NoError(t, err)
	budgets := map[string]map[string]bool{}
	for _, c := range cells {
		name := c.Subject.Name()
		if budgets[name] == nil {
			budgets[name] = map[string]bool{}
		}
		budgets[name][c.Params()["spin"]] = true
	}
	require.Equal(t, map[string]bool{"": true, "0": true, "20us": true}, budgets["shmsync:mutex"])
	require.Equal(t, budgets["shmsync:mutex"], budgets["shmsync:mutex-cohort"])
	require.Equal(t, map[string]bool{"": true}, budgets["shmsync:fairmutex"])
	require.Equal(t, map[string]bool{"": true}, budgets["c:robust"])
}
