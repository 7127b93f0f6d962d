//go:build linux

package engine

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/load"
	"github.com/shmsync/shmsync/internal/bench/subjects"
	"github.com/shmsync/shmsync/internal/topology"
)

// matrixCells returns n cells of a subject. Each cell has the two given CPUs, and every second cell has them in the
// opposite order.
func matrixCells(t *testing.T, subject string, cpus []int, n int) (cells []*bench.Cell) {
	t.Helper()
	s, err := subjects.Find(subject)
	require.NoError(t, err)
	for i := range n {
		pair := []int{cpus[i%2], cpus[1-i%2]}
		cells = append(cells, &bench.Cell{Scenario: bench.ScenarioByName("matrix"), Subject: s, Procs: 2, Threads: 1,
			Place: topology.JoinCPUs(pair), CPUs: pair, Time: time.Millisecond})
	}
	return cells
}

// TestToursAreOfOneSubject checks that a tour has the cells of one subject, each once, and no cell that is skipped.
func TestToursAreOfOneSubject(t *testing.T) {
	cpus := []int{3, 5}
	cells := append(matrixCells(t, "go:one-line", cpus, 6), matrixCells(t, "go:two-lines", cpus, 4)...)
	cells[2].Skip = "not today"
	e := &Engine{CPUs: cpus, Seed: 1}
	none := func(*bench.Cell) int { return 0 }
	require.ElementsMatch(t, []*bench.Cell{cells[0], cells[1], cells[3], cells[4], cells[5]}, e.tourOf(cells[0], cells, none))
	require.ElementsMatch(t, cells[6:], e.tourOf(cells[7], cells, none))
	cells[1].MaxReps, cells[3].MaxReps = 3, 3
	require.ElementsMatch(t, []*bench.Cell{cells[0], cells[3], cells[4], cells[5]}, e.tourOf(cells[0], cells, func(c *bench.Cell) int {
		return map[*bench.Cell]int{cells[1]: 3, cells[3]: 2}[c]
	}), "a cell that has all its repetitions is not visited again")
	require.Nil(t, e.tourOf(cells[0], cells[:1], none), "a pair alone has processes of its own")
	require.LessOrEqual(t, len(e.tourOf(cells[0], matrixCells(t, "go:one-line", cpus, 2*load.TourMost), none)), load.TourMost+1)
}

// TestToursVisitPairsOfClasses checks that a tour visits only some of the 64 pairs of CPUs of a cell in each round, and
// all 64 in twelve rounds.
func TestToursVisitPairsOfClasses(t *testing.T) {
	cells := matrixCells(t, "go:one-line", []int{3, 5}, 1)
	for i := range 64 {
		cells[0].Pairs = append(cells[0].Pairs, [2]int{2 * i, 2*i + 1})
	}
	require.Equal(t, bench.PairsEachRound*matrixCells(t, "go:one-line", []int{3, 5}, 1)[0].Length(), cells[0].Length())
	e := &Engine{CPUs: []int{3, 5}, Seed: 1}
	seen := map[[2]int]bool{}
	for round := range 12 {
		done := func(*bench.Cell) int { return round }
		require.Equal(t, cells, e.tourOf(cells[0], cells, done), "a cell with several pairs makes a tour, even alone")
		steps := e.stepsOf(cells, done)
		require.Len(t, steps, bench.PairsEachRound)
		for _, s := range steps {
			require.Same(t, cells[0], s.Cell)
			seen[s.CPUs] = true
		}
	}
	require.Len(t, seen, 64)
	cells[0].Pairs = cells[0].Pairs[:4]
	require.Len(t, e.stepsOf(cells, func(*bench.Cell) int { return 7 }), 4, "a round visits each of the four pairs once")
}

// TestManyPairsMakeSeveralTours checks that a round with more pairs of CPUs than a tour can visit has several tours,
// and that they visit each pair once.
func TestManyPairsMakeSeveralTours(t *testing.T) {
	cells := matrixCells(t, "go:one-line", []int{3, 5}, 2*load.TourMost+10)
	e := &Engine{CPUs: []int{3, 5}, Seed: 1}
	tours, visited := 0, map[*bench.Cell]bool{}
	for _, c := range cells {
		if visited[c] {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(cells), func(o *bench.Cell) bool { return visited[o] })
		group := e.tourOf(c, left, func(*bench.Cell) int { return 0 })
		require.LessOrEqual(t, len(group), load.TourMost)
		require.Contains(t, group, c)
		for _, o := range group {
			require.False(t, visited[o])
			visited[o] = true
		}
		tours++
	}
	require.Equal(t, 3, tours)
	require.Len(t, visited, len(cells))
}

// TestTourWithoutEnds checks that the repetitions of all cells of a tour fail if no process has measured anything.
func TestTourWithoutEnds(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "segment")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<20))
	cells := matrixCells(t, "go:one-line", []int{0, 1}, 3)
	tour, err := load.NewTour(f, (&Engine{CPUs: []int{0, 1}}).stepsOf(cells, func(*bench.Cell) int { return 0 }))
	require.NoError(t, err)
	defer tour.Close()
	require.Zero(t, tour.Done())
	for c, rep := range tour.Collect(bench.StatusHung, "no end") {
		require.Contains(t, cells, c)
		require.Equal(t, bench.StatusHung, rep.Status)
		require.Equal(t, "no end", rep.Reason)
	}
	require.Equal(t, bench.StatusCrashed, tour.Collect(bench.StatusOK, "")[cells[0]].Status)
}
