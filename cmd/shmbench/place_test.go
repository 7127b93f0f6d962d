//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology"
)

// Each placement has its CPUs, or a reason why the host has none such.
func TestPlacesOnRecordedHosts(t *testing.T) {
	for _, c := range []struct {
		tree, place string
		want        []int
		why         string
	}{
		{"two-socket", placeSMT, []int{0, 4}, ""},
		{"two-socket", placeLLC, []int{0, 1, 4, 5}, ""},
		{"two-socket", placeNode, []int{0, 1, 4, 5}, ""},
		{"two-socket", placeOtherLLC, nil, "no node has two last-level caches"},
		{"two-socket", placePackage, nil, "no package has CPUs of two nodes"},
		{"two-socket", placeCrossPackage, []int{0, 2, 1, 3, 4, 6, 5, 7}, ""},
		{"two-socket", placePack, []int{0, 4, 1, 5, 2, 6, 3, 7}, ""},
		{"two-socket", placeSpread, []int{0, 2, 1, 3, 4, 6, 5, 7}, ""},
		{"two-socket", "7+0", []int{7, 0}, ""},
		{"nps4", placeSMT, nil, "no core has two threads"},
		{"nps4", placeLLC, []int{0, 1}, ""},
		{"nps4", placeNode, []int{0, 1, 2, 3}, ""},
		{"nps4", placeOtherLLC, []int{0, 2, 1, 3}, ""},
		{"nps4", placePackage, []int{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}, ""},
		{"nps4", placeCrossPackage, nil, "no two packages"},
		{"nps4", placeSpread, []int{0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15}, ""},
		{"hybrid", placeOtherLLC, []int{0, 8, 2, 9, 4, 5, 6, 7, 1, 3}, ""},
		{"memoryless", placeCrossPackage, []int{0, 2, 4, 1, 3, 5}, ""},
		{"two-socket", placeSame, nil, ""},
		{"two-socket", placeCross, nil, ""},
		{"two-socket", placeAny, nil, ""},
	} {
		top := hostOf(t, c.tree)
		o := &options{Topology: top, CPUs: top.IDs()}
		got, why := o.on(c.place)
		require.Equal(t, c.want, got, "%s %s", c.tree, c.place)
		require.Contains(t, why, c.why)
		require.Equal(t, c.why == "", why == "", "%s %s: %s", c.tree, c.place, why)
		if len(got) > 1 && slices.Contains([]string{placeSMT, placeLLC, placeOtherLLC, placePackage, placeCrossPackage}, c.place) {
			require.Equal(t, topology.Class(c.place), top.Class(got[0], got[1]), "the first two are what the name says")
		}
	}
}

// A cpuset and --cpus leave out what they leave out.
func TestPlacesKeepToTheCPUs(t *testing.T) {
	top := hostOf(t, "nps4")
	o := &options{Topology: top, CPUs: []int{1, 3, 6}}
	for place, want := range map[string][]int{placeLLC: nil, placeOtherLLC: {1, 3}, placePackage: {1, 6, 3}, placeNode: {1, 3}} {
		got, why := o.on(place)
		require.Equal(t, want, got, place)
		require.Equal(t, want == nil, why != "", place)
	}
	one := &options{Topology: top, CPUs: []int{5}}
	for _, place := range []string{placePack, placeSpread, placeNode} {
		got, why := one.on(place)
		require.Nil(t, got)
		require.NotEmpty(t, why)
	}
	blind := &options{CPUs: []int{0, 1}}
	_, why := blind.on(placeLLC)
	require.Contains(t, why, "does not say")
}

func TestNodesChooseCPUs(t *testing.T) {
	top := hostOf(t, "memoryless")
	got, err := onNodes([]int{0, 2}, top.IDs(), top)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 4, 5}, got)
	for node, want := range map[int]string{3: "no CPUs, only memory", 7: "no node 7, only 0-3"} {
		_, err := onNodes([]int{node}, top.IDs(), top)
		require.ErrorContains(t, err, want)
	}
	_, err = onNodes([]int{2}, []int{0, 1}, top)
	require.ErrorContains(t, err, "may use none")
	_, err = onNodes([]int{0}, []int{0, 1}, nil)
	require.Error(t, err)
}

func TestUnusableCPUs(t *testing.T) {
	top := hostOf(t, "asymmetric")
	o := &options{Topology: top, Places: []string{"0+1", "4+0+1"}}
	require.NoError(t, o.checkPlaces(top.Limits.CPUs))
	for place, want := range map[string]string{
		"0+2": "may not run on CPU 2, only on 0-1,4: its affinity or cpuset", "0+3": "CPU 3 is offline", "0+9": "no CPU 9, only 0-2,4",
		"0+": `"" is no CPU`, "0+x": `"x" is no CPU`, "1+1": "is there twice", "0+-1": "is no CPU", "moon": "want CPUs as in 0+1",
	} {
		o.Places = []string{place}
		require.ErrorContains(t, o.checkPlaces(top.Limits.CPUs), want, place)
	}
}

func TestPlaceUsage(t *testing.T) {
	for _, args := range [][]string{{"--place=0+4000"}, {"--place=0+0"}, {"--place=x+y"}, {"--nodes=900"}, {"--nodes=x"}, {"--cpus=4000"}} {
		code, _, errs := shmbench(t, append(args, "handoff", "-n")...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs)
	}
}

// Workers of a pair run where it says, in its order.
func TestPairsRunWhereTheySay(t *testing.T) {
	cpus, err := allowedCPUs()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("one CPU")
	}
	place := fmt.Sprintf("%d+%d", cpus[1], cpus[0])
	code, out, errs := shmbench(t, "handoff", "--prim=go:pipe", "--place="+place, "--time=10ms", "--warmup=1ms", "--count=1", "--gap=1ms", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, place, c.Params["place"])
		require.Equal(t, statusOK, c.Status, c.Reason)
		require.Len(t, c.Reps[0].Workers, 2)
		require.Equal(t, cpus[1], c.Reps[0].Workers[0].CPU)
		require.Equal(t, cpus[0], c.Reps[0].Workers[1].CPU)
	}

	// A class that this host lacks is skipped, with a reason.
	code, out, errs = shmbench(t, "handoff", "--prim=go:pipe", "--place="+placeCrossPackage, "--cpus="+strconv.Itoa(cpus[0]), "--time=5ms", "--count=1", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, statusSkipped, c.Status)
		require.Contains(t, c.Reason, "no two packages")
	}
}
