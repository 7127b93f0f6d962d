//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/topology"
)

// options is what the user asked for; zero fields take a scenario's defaults.
type options struct {
	CPUs                                              []int
	Topology                                          *topology.Topology // nil where the host does not say
	Places                                            []string
	Procs                                             []int
	Threads                                           []int
	CS                                                []time.Duration
	Think                                             []time.Duration
	Gap                                               time.Duration   // of cells that have one
	Gaps                                              []time.Duration // of those whose figure is a curve
	WakeGaps                                          []time.Duration // of wake cells, where Gaps is empty
	Hogs                                              []int
	Kills                                             int
	Waiters                                           []int
	Read, Permits, Keys, Locks, Wake, Batch, Capacity []int
	Lines                                             []int
	Slow                                              []time.Duration
	Skew                                              []string
	Mem, Huge                                         []string
	Nodes                                             []int
	MiB                                               int
	Rates, Loads, Noise, Quotas                       []int
	Spins                                             []uint64 // as in shape
	Brief, Few                                        bool     // few shapes, few subjects: a look at everything
	Sample                                            string   // how a matrix chooses its pairs
	Prims, Variants                                   []string
	Roles                                             []uint64 // of the victims of a crash cell
	Arenas                                            []string // directories; empty for a memfd
	MaxCells                                          int      // 0: maxCells
	Time                                              time.Duration
	Warmup                                            time.Duration
	Count                                             int
	Seed                                              uint64
	Shuffle                                           bool
	Timeout                                           time.Duration
}

// maxCells keeps a slip in a list from planning a week. A suite has its own bound, which
// is time.
const maxCells = 500

func or[T any](asked []T, byDefault ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return byDefault
}

// planCells lists the cells of the named scenarios.
func planCells(o *options, names ...string) ([]*cell, error) {
	var cells []*cell
	for _, name := range names {
		sc := scenarioByName(name)
		picked, err := selectSubjects(name, o.Prims, o.Variants)
		if err != nil {
			return nil, err
		}
		for _, s := range picked {
			if o.Few && len(o.Prims) == 0 && s.Brief != nil && !slices.Contains(s.Brief, name) {
				continue
			}
			for _, c := range o.everywhere(sc, variants(sc, o)) {
				c.Scenario, c.Subject = sc, s
				if sc.takes != nil && !sc.takes(c) {
					continue
				}
				if c.CPUs, c.Skip = o.on(c.Place); c.Skip == "" {
					c.Skip = c.check(o.CPUs)
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
	if most := max(o.MaxCells, maxCells); len(cells) > most {
		return nil, fmt.Errorf("%d cells are more than %d: give shorter lists, or --max-cells", len(cells), most)
	}
	return cells, nil
}

// variants multiplies the lists that concern a scenario.
func variants(sc *scenario, o *options) []*cell {
	var cells []*cell
	add := func(c cell) {
		c.Warmup, c.Time = o.Warmup, max(o.Time, c.Time)
		cells = append(cells, &c)
	}
	switch sc.name {
	case "uncontended":
		add(cell{Place: placeSame, Procs: 1, Threads: 1})
	case "handoff":
		for _, place := range or(o.Places, o.places()...) {
			for _, hog := range or(o.Hogs, 0) {
				add(cell{Place: place, Procs: 2, Threads: 1, Hog: hog})
			}
		}
	case "wake":
		for _, place := range or(o.Places, placeSame, placeCross) {
			for _, gap := range or(o.Gaps, or(o.WakeGaps, o.Gap)...) {
				add(cell{Place: place, Procs: 2, Threads: 1, Gap: gap, Time: fewRounds / 2 * gap})
			}
		}
	case "lock":
		for _, work := range works(o) {
			for _, place := range or(o.Places, placeCross) {
				for _, procs := range or(o.Procs, 2) {
					for _, threads := range or(o.Threads, 1, 8) {
						for _, lines := range or(o.Lines, 0) {
							for _, spin := range or(o.Spins, 0) {
								add(cell{Place: place, Procs: procs, Threads: threads, CS: work[0], Think: work[1], shape: shape{Lines: uint64(lines), Spin: spin}})
							}
						}
					}
				}
			}
		}
	case "crash":
		for _, place := range or(o.Places, placeSame, placeCross) {
			for _, role := range or(o.Roles, roleHolder) {
				add(cell{Place: place, Procs: 1, Threads: 1, N: o.Kills, shape: shape{Role: role}})
			}
		}
	case "waiters":
		for _, n := range or(o.Waiters, o.some([]int{1000}, []int{1000, 10_000})...) {
			if n == 0 {
				continue
			}
			add(cell{Place: placeAny, Procs: 1, Threads: 1, N: n})
		}
	case "readers":
		for _, place := range or(o.Places, placeCross) {
			for _, procs := range or(o.Procs, 1, 2) {
				add(cell{Place: place, Procs: procs, Threads: 1})
			}
		}
	case "seq":
		for _, n := range or(o.Waiters, o.some([]int{1000}, []int{0, 10_000})...) {
			for _, wake := range or(o.Wake, o.some([]int{0, 10}, []int{0, 1, 10, 100, 1000})...) {
				for _, place := range or(o.Places, placeCross) {
					for _, slow := range or(o.Slow, 0) {
						if wake > n || wake == 0 && slow > 0 {
							continue // it has fewer waiters than it wakes, or nobody to be slow
						}
						add(cell{Place: place, Procs: 2, Threads: 1, N: n, Gap: o.Gap, shape: shape{Wake: uint64(wake), Slow: uint64(slow)}, Time: o.rounds(wake)})
					}
				}
			}
		}
	case "rw", "sem", "cond", "event", "multi", "barrier", "queue":
		for _, c := range shapes(sc, o) {
			for _, place := range or(o.Places, placeCross) {
				for _, procs := range or(o.Procs, 2) {
					for _, threads := range or(o.Threads, o.some([]int{1}, []int{1, 8})...) {
						c.Place, c.Procs, c.Threads = place, procs, threads
						add(c)
					}
				}
			}
		}
	case "mem":
		shapes, err := memShapes(o)
		if err != nil {
			return nil // options has said so
		}
		for _, m := range shapes {
			add(cell{Place: placeSame, Procs: 1, Threads: 1, N: memSize(o), Mem: m, Time: memLeastTime})
		}
	case "matrix":
		places, _ := o.matrixPlaces()
		for _, place := range places {
			add(cell{Place: place, Procs: 2, Threads: 1})
		}
	case "idle":
		add(cell{Place: placeCross, Procs: 2, Threads: 1, Time: idleLeast})
	default:
		for _, c := range sc.variants(o) {
			add(c)
		}
	}
	return cells
}

// works pairs critical sections and think times: the product of what was asked
// for, by default short ones and none.
func works(o *options) [][2]time.Duration {
	if o.Brief && len(o.CS) == 0 && len(o.Think) == 0 {
		return [][2]time.Duration{{100, 100}}
	}
	if len(o.CS) == 0 && len(o.Think) == 0 {
		return [][2]time.Duration{{100, 100}, {0, 0}}
	}
	var pairs [][2]time.Duration
	for _, cs := range or(o.CS, 100) {
		for _, think := range or(o.Think, 100) {
			pairs = append(pairs, [2]time.Duration{cs, think})
		}
	}
	return pairs
}

// order gives the sequence of runs: every round runs every cell once, each in
// a random order of its own, so that drift is spread over all cells. The same
// seed gives the same order.
func order(cells []*cell, count int, shuffle bool, seed uint64) []*cell {
	rng := rand.New(rand.NewPCG(seed, 0))
	var runs []*cell
	for i := range count {
		round := slices.DeleteFunc(slices.Clone(cells), func(c *cell) bool {
			return c.Skip != "" || c.MaxReps > 0 && i >= c.MaxReps
		})
		if shuffle {
			rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		}
		runs = append(runs, round...)
	}
	return runs
}

// eta is how long the runs will take, about.
func eta(runs []*cell) time.Duration {
	var d time.Duration
	for _, c := range runs {
		d += c.length()
	}
	return d.Round(100 * time.Millisecond)
}
