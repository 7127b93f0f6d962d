//go:build linux

package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// Each placement has its CPUs, or a reason why the host has none such.
func TestPlacesOnRecordedHosts(t *testing.T) {
	for _, c := range []struct {
		tree, place string
		want        []int
		why         string
	}{
		{"two-socket", bench.PlaceSMT, []int{0, 4}, ""},
		{"two-socket", bench.PlaceLLC, []int{0, 1, 4, 5}, ""},
		{"two-socket", bench.PlaceNode, []int{0, 1, 4, 5}, ""},
		{"two-socket", bench.PlaceOtherLLC, nil, "no node has two last-level caches"},
		{"two-socket", bench.PlacePackage, nil, "no package has CPUs of two nodes"},
		{"two-socket", bench.PlaceCrossPackage, []int{0, 2, 1, 3, 4, 6, 5, 7}, ""},
		{"two-socket", bench.PlacePack, []int{0, 4, 1, 5, 2, 6, 3, 7}, ""},
		{"two-socket", bench.PlaceSpread, []int{0, 2, 1, 3, 4, 6, 5, 7}, ""},
		{"two-socket", "7+0", []int{7, 0}, ""},
		{"nps4", bench.PlaceSMT, nil, "no core has two threads"},
		{"nps4", bench.PlaceLLC, []int{0, 1}, ""},
		{"nps4", bench.PlaceNode, []int{0, 1, 2, 3}, ""},
		{"nps4", bench.PlaceOtherLLC, []int{0, 2, 1, 3}, ""},
		{"nps4", bench.PlacePackage, []int{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}, ""},
		{"nps4", bench.PlaceCrossPackage, nil, "no two packages"},
		{"nps4", bench.PlaceSpread, []int{0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15}, ""},
		{"hybrid", bench.PlaceOtherLLC, []int{0, 8, 2, 9, 4, 5, 6, 7, 1, 3}, ""},
		{"memoryless", bench.PlaceCrossPackage, []int{0, 2, 4, 1, 3, 5}, ""},
		{"two-socket", bench.PlaceSame, nil, ""},
		{"two-socket", bench.PlaceCross, nil, ""},
		{"two-socket", bench.PlaceAny, nil, ""},
	} {
		top := topotest.Host(t, c.tree)
		o := &Options{Topology: top, CPUs: top.IDs()}
		got, why := o.on(c.place)
		require.Equal(t, c.want, got, "%s %s", c.tree, c.place)
		require.Contains(t, why, c.why)
		require.Equal(t, c.why == "", why == "", "%s %s: %s", c.tree, c.place, why)
		if len(got) > 1 && slices.Contains([]string{bench.PlaceSMT, bench.PlaceLLC, bench.PlaceOtherLLC, bench.PlacePackage, bench.PlaceCrossPackage}, c.place) {
			require.Equal(t, topology.Class(c.place), top.Class(got[0], got[1]), "the first two are what the name says")
		}
	}
}

// A cpuset and --cpus leave out what they leave out.
func TestPlacesKeepToTheCPUs(t *testing.T) {
	top := topotest.Host(t, "nps4")
	o := &Options{Topology: top, CPUs: []int{1, 3, 6}}
	for place, want := range map[string][]int{bench.PlaceLLC: nil, bench.PlaceOtherLLC: {1, 3}, bench.PlacePackage: {1, 6, 3}, bench.PlaceNode: {1, 3}} {
		got, why := o.on(place)
		require.Equal(t, want, got, place)
		require.Equal(t, want == nil, why != "", place)
	}
	one := &Options{Topology: top, CPUs: []int{5}}
	for _, place := range []string{bench.PlacePack, bench.PlaceSpread, bench.PlaceNode} {
		got, why := one.on(place)
		require.Nil(t, got)
		require.NotEmpty(t, why)
	}
	blind := &Options{CPUs: []int{0, 1}}
	_, why := blind.on(bench.PlaceLLC)
	require.Contains(t, why, "does not say")
}

func TestUnusableCPUs(t *testing.T) {
	top := topotest.Host(t, "asymmetric")
	o := &Options{Topology: top, Places: []string{"0+1", "4+0+1"}}
	require.NoError(t, o.checkPlaces(top.Limits.CPUs))
	for place, want := range map[string]string{
		"0+2": "may not run on CPU 2, only on 0-1,4: its affinity or cpuset", "0+3": "CPU 3 is offline", "0+9": "no CPU 9, only 0-2,4",
		"0+": `"" is no CPU`, "0+x": `"x" is no CPU`, "1+1": "is there twice", "0+-1": "is no CPU", "moon": "want CPUs as in 0+1",
	} {
		o.Places = []string{place}
		require.ErrorContains(t, o.checkPlaces(top.Limits.CPUs), want, place)
	}
}
