//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testOptions() *options {
	return &options{CPUs: []int{0, 1}, Time: time.Millisecond, Count: 3, Kills: 5, Waiters: []int{100, 1000}, Gap: 1500 * time.Microsecond, Seed: 9, Shuffle: true, MaxCells: 5000}
}

func keys(cells []*cell) []string {
	var ks []string
	for _, c := range cells {
		ks = append(ks, c.key())
	}
	return ks
}

func TestSameSeedSamePlan(t *testing.T) {
	names := scenarioNames()
	a, err := planCells(testOptions(), names...)
	require.NoError(t, err)
	b, err := planCells(testOptions(), names...)
	require.NoError(t, err)
	require.Equal(t, keys(order(a, 3, true, 9)), keys(order(b, 3, true, 9)))
	require.NotEqual(t, keys(order(a, 3, true, 9)), keys(order(a, 3, true, 10)))
	a = slices.DeleteFunc(a, func(c *cell) bool { return c.Skip != "" }) // what this host cannot do
	require.Equal(t, keys(a), keys(order(a, 1, false, 9)))

	sequence := keys(order(a, 3, true, 9))
	for round := range slices.Chunk(sequence, len(a)) {
		require.ElementsMatch(t, keys(a), round, "every round runs every cell once")
	}
}

func TestCellKeys(t *testing.T) {
	o := testOptions()
	o.CS, o.Think, o.Threads = []time.Duration{time.Microsecond}, []time.Duration{0}, []int{4}
	o.Prims = []string{"c:robust"}
	cells, err := planCells(o, "lock")
	require.NoError(t, err)
	require.Equal(t, []string{"lock/by=c/cs=1us/place=cross/prim=robust/procs=2/think=0/threads=4"}, keys(cells))
	all, err := planCells(testOptions(), scenarioNames()...)
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

func TestParseInts(t *testing.T) {
	for text, want := range map[string][]int{
		"3": {3}, "1,2,4": {1, 2, 4}, "0-3,8": {0, 1, 2, 3, 8}, "1:4": {1, 2, 3, 4}, "1:9:4": {1, 5, 9}, "1:20:*2": {1, 2, 4, 8, 16},
	} {
		got, err := parseInts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1", "3:1", "1:2:0", "1:2:3:4", "0:8:*2", "1:8:*1"} {
		_, err := parseInts(text)
		require.Error(t, err, text)
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 100: "100ns", 1500: "1.5us", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
	} {
		require.Equal(t, want, shortDuration(d))
	}
}

func TestBarsName(t *testing.T) {
	for _, b := range bars {
		sc := scenarioByName(b.Scenario)
		require.NotNil(t, sc, b.Name)
		for _, name := range []string{b.Subject, b.Peer} {
			if name == "" {
				continue
			}
			s, err := findSubject(name)
			require.NoError(t, err, b.Name)
			require.Contains(t, s.Scenarios, b.Scenario, b.Name)
		}
	}
}

func TestVerdict(t *testing.T) {
	r := interval{Center: 0.9, Lo: 0.8, Hi: 1.1}
	require.Equal(t, verdictPass, verdict(r, 1, false))
	require.Equal(t, verdictOpen, verdict(r, 0.85, false))
	require.Equal(t, verdictFail, verdict(r, 0.7, false))
	require.Equal(t, verdictOpen, verdict(r, 1, true))
	require.Equal(t, verdictPass, verdict(r, 0.9, true))
	require.Equal(t, verdictFail, verdict(r, 1.2, true))
}
