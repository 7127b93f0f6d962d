//go:build linux

package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/subjects"
	"github.com/shmsync/shmsync/internal/topology"
)

// Cells returns the measurements of the named scenarios.
func Cells(o *Options, names ...string) ([]*bench.Cell, error) {
	var cells []*bench.Cell
	for _, name := range names {
		sc := bench.ScenarioByName(name)
		picked, err := subjects.Select(name, o.Prims, o.Variants)
		if err != nil {
			return nil, err
		}
		for _, s := range picked {
			if o.Few && len(o.Prims) == 0 && s.Brief != nil && !slices.Contains(s.Brief, name) {
				continue
			}
			for _, c := range o.everywhere(sc, variants(sc, o)) {
				c.Scenario, c.Subject = sc, s
				if takes := takers[sc.Name]; takes != nil && !takes(c) {
					continue
				}
				if c.CPUs, c.Skip = o.on(c.Place); c.Skip == "" {
					c.Skip = o.settleHome(c)
				}
				if c.Skip == "" {
					c.Skip = o.refused(c)
				}
				if name == "matrix" && c.Skip == "" {
					c.Pairs = o.pairsOf(topology.Class(c.Place))
				}
				if c.Skip == "" || len(s.Places) == 0 {
					cells = append(cells, c)
				}
			}
		}
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("nothing to run: no subject of %v matches %v", names, slices.Concat(o.Prims, o.Variants))
	}
	most := max(o.MaxCells, maxCells)
	if slices.Equal(names, []string{"matrix"}) {
		most = max(most, 2*mostPairsAlone) // a matrix of two subjects
		if o.AllPairs {
			most = len(cells)
		}
	}
	if len(cells) > most {
		return nil, fmt.Errorf("%d cells are more than %d: give shorter lists, or --max-cells", len(cells), most)
	}
	return cells, nil
}

// refused returns the reason why a cell cannot run, or an empty string. If the topology comes from a recording of
// another host, refused checks only the parameters of the cell.
func (o *Options) refused(c *bench.Cell) string {
	if o.Recording != "" {
		return c.CheckShape(o.CPUs)
	}
	return c.Check(o.CPUs)
}

// variants returns the cells of a scenario, one for each combination of the parameters that concern the scenario.
func variants(sc *bench.Scenario, o *Options) []*bench.Cell {
	var cells []*bench.Cell
	add := func(c bench.Cell) {
		c.Warmup, c.Time = o.Warmup, max(o.Time, c.Time)
		cells = append(cells, &c)
	}
	switch sc.Name {
	case "uncontended":
		add(bench.Cell{Place: bench.PlaceSame, Procs: 1, Threads: 1})
	case "handoff":
		for _, place := range bench.Or(o.Places, o.places()...) {
			for _, hog := range bench.Or(o.Hogs, 0) {
				add(bench.Cell{Place: place, Procs: 2, Threads: 1, Hog: hog})
			}
		}
	case "wake":
		for _, place := range bench.Or(o.Places, bench.PlaceSame, o.apart()) {
			for _, gap := range bench.Or(o.Gaps, bench.Or(o.WakeGaps, o.Gap)...) {
				add(bench.Cell{Place: place, Procs: 2, Threads: 1, Gap: gap, Time: fewRounds / 2 * gap})
			}
		}
	case "lock":
		for _, work := range workPairs(o) {
			for _, place := range bench.Or(o.Places, o.apart()) {
				for _, procs := range bench.Or(o.Procs, 2) {
					for _, threads := range bench.Or(o.Threads, 1, 8) {
						for _, lines := range bench.Or(o.Lines, 0) {
							for _, spin := range bench.Or(o.Spins, 0) {
								add(bench.Cell{Place: place, Procs: procs, Threads: threads, CS: work[0], Think: work[1], Shape: control.Shape{Lines: uint64(lines), Spin: spin}})
							}
						}
					}
				}
			}
		}
	case "crash":
		for _, place := range bench.Or(o.Places, o.crashPlaces()...) {
			for _, role := range bench.Or(o.Roles, bench.RoleHolder) {
				add(bench.Cell{Place: place, Procs: 1, Threads: 1, N: o.Kills, Shape: control.Shape{Role: role}})
			}
		}
	case "waiters":
		for _, n := range bench.Or(o.Waiters, o.some([]int{1000}, []int{1000, 10_000})...) {
			if n == 0 {
				continue
			}
			add(bench.Cell{Place: bench.PlaceAny, Procs: 1, Threads: 1, N: n})
		}
	case "readers":
		for _, place := range bench.Or(o.Places, o.apart()) {
			for _, procs := range bench.Or(o.Procs, 1, 2) {
				add(bench.Cell{Place: place, Procs: procs, Threads: 1})
			}
		}
	case "seq":
		for _, n := range bench.Or(o.Waiters, o.some([]int{1000}, []int{0, 10_000})...) {
			for _, wake := range bench.Or(o.Wake, o.some([]int{0, 10}, []int{0, 1, 10, 100, 1000})...) {
				for _, place := range bench.Or(o.Places, o.apart()) {
					for _, slow := range bench.Or(o.Slow, 0) {
						if wake > n || wake == 0 && slow > 0 {
							continue // more wakes than waiters, or slow consumers that nothing wakes
						}
						add(bench.Cell{Place: place, Procs: 2, Threads: 1, N: n, Gap: o.Gap, Shape: control.Shape{Wake: uint64(wake), Slow: uint64(slow)}, Time: o.rounds(wake)})
					}
				}
			}
		}
	case "rw", "sem", "cond", "event", "multi", "barrier", "queue":
		for _, c := range shapes(sc, o) {
			for _, place := range bench.Or(o.Places, o.apart()) {
				for _, procs := range bench.Or(o.Procs, 2) {
					for _, threads := range bench.Or(o.Threads, o.some([]int{1}, []int{1, 8})...) {
						c.Place, c.Procs, c.Threads = place, procs, threads
						add(c)
					}
				}
			}
		}
	case "mem":
		shapes, err := memShapes(o)
		if err != nil {
			return nil // the options have been checked already
		}
		for _, m := range shapes {
			add(bench.Cell{Place: bench.PlaceSame, Procs: 1, Threads: 1, N: memSize(o), Mem: m, Time: memLeastTime})
		}
	case "matrix":
		places, _ := o.matrixPlaces()
		for _, place := range places {
			add(bench.Cell{Place: place, Procs: 2, Threads: 1})
		}
	case "idle":
		add(bench.Cell{Place: o.apart(), Procs: 2, Threads: 1, Time: idleLeast})
	default:
		for _, c := range loadCells[sc.Name](o) {
			add(c)
		}
	}
	return cells
}

// workPairs returns all combinations of the lengths of the critical section and the think times that the user asked
// for. By default there are two combinations: both times are short, or both are zero.
func workPairs(o *Options) [][2]time.Duration {
	if o.Brief && len(o.CS) == 0 && len(o.Think) == 0 {
		return [][2]time.Duration{{100, 100}}
	}
	if len(o.CS) == 0 && len(o.Think) == 0 {
		return [][2]time.Duration{{100, 100}, {0, 0}}
	}
	var pairs [][2]time.Duration
	for _, cs := range bench.Or(o.CS, 100) {
		for _, think := range bench.Or(o.Think, 100) {
			pairs = append(pairs, [2]time.Duration{cs, think})
		}
	}
	return pairs
}

// Order returns the sequence in which cells are measured. Every round measures every cell once, except for a cell that
// has had its MaxReps. If shuffle is set, each round has a random order, so that a slow change of the host affects all
// cells alike. The same seed gives the same order.
func Order(cells []*bench.Cell, count int, shuffle bool, seed uint64) []*bench.Cell {
	rng := rand.New(rand.NewPCG(seed, 0))
	var runs []*bench.Cell
	for i := range count {
		round := slices.DeleteFunc(slices.Clone(cells), func(c *bench.Cell) bool {
			return c.Skip != "" || c.MaxReps > 0 && i >= c.MaxReps
		})
		if shuffle {
			rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		}
		runs = append(runs, round...)
	}
	return runs
}

// ETA returns about how long the given repetitions will take.
func ETA(runs []*bench.Cell) time.Duration {
	var d time.Duration
	for _, c := range runs {
		d += c.Length()
	}
	return d.Round(100 * time.Millisecond)
}
