//go:build linux

package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// Each placement has CPUs, or a reason why the host has none for it.
func TestPlacesOnRecordedHosts(t *testing.T) {
	for _, c := range []struct {
		tree, place string
		want        []int
		why         string
	}{
		{"two-socket", bench.PlaceSMT, []int{1, 5}, ""},
		{"two-socket", bench.PlaceLLC, []int{2, 3}, ""},
		{"two-socket", bench.PlaceNode, nil, "of the class node; there are smt, llc, remote-21"},
		{"two-socket", "package-12", nil, "of the class package-12"},
		{"two-socket", "remote-21", []int{1, 2, 0, 3}, ""},
		{"two-socket", bench.PlacePack, []int{0, 1, 2, 3, 4, 5, 6, 7}, ""},
		{"two-socket", bench.PlaceSpread, []int{0, 2, 1, 3, 4, 6, 5, 7}, ""},
		{"two-socket", "7+0", []int{7, 0}, ""},
		{"nps4", bench.PlaceSMT, nil, "of the class smt"},
		{"nps4", bench.PlaceLLC, []int{2, 3}, ""},
		{"nps4", bench.PlaceNode, []int{4, 6, 5, 7}, ""},
		{"nps4", "package-12", []int{2, 4, 3, 5}, ""},
		{"nps4", "remote-32", nil, "of the class remote-32"},
		{"nps4", bench.PlaceSpread, []int{0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15}, ""},
		{"hybrid", "node:EE", []int{4, 8, 5, 9, 6, 7}, ""},
		{"memoryless", "remote-30", []int{1, 4, 0, 5}, ""},
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
		if len(got) > 1 && topology.Class(c.place).Valid() {
			require.Equal(t, topology.Class(c.place), top.Class(got[0], got[1]), "the first two are what the name says")
		}
	}
}

// Placements use only the CPUs that the cpuset and --cpus allow.
func TestPlacesKeepToTheCPUs(t *testing.T) {
	top := topotest.Host(t, "nps4")
	o := &Options{Topology: top, CPUs: []int{1, 3, 6}}
	for place, want := range map[string][]int{bench.PlaceLLC: nil, "package-12": {1, 6}, bench.PlaceNode: {1, 3}} {
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

// TestPlacesAreNamed checks that namePlaces replaces names such as remote by the full names of classes of the host,
// such as remote-21.
func TestPlacesAreNamed(t *testing.T) {
	for _, c := range []struct {
		tree        string
		asked, want []string
	}{
		{"two-socket", []string{"remote", "cross"}, []string{"remote-21", "cross"}},
		{"two-socket", []string{"package"}, []string{"package"}},
		{"memoryless", []string{"remote"}, []string{"remote-15", "remote-20", "remote-30"}},
		{"hybrid", []string{"classes"}, []string{"smt:PP", "module:EE", "llc:EE", "llc:EP", "llc:PP", "node:EE", "node:EP"}},
		{"hybrid", []string{"node", "llc:PP", "4+0"}, []string{"node:EE", "node:EP", "llc:PP", "4+0"}},
	} {
		top := topotest.Host(t, c.tree)
		o := &Options{Topology: top, CPUs: top.IDs(), Places: c.asked}
		require.NoError(t, o.checkPlaces(o.CPUs))
		o.namePlaces()
		require.Equal(t, c.want, o.Places)
	}
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
