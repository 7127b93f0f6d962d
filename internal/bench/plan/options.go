//go:build linux

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
)

// UsualGap is long enough for a waiter to be fast asleep.
const UsualGap = 1500 * time.Microsecond

// Complete checks what was asked for, and fills in what follows from it and from this host.
func (o *Options) Complete(roles, spins []string) error {
	allowed, err := place.AllowedCPUs()
	if err != nil {
		return err
	}
	o.Topology, _ = topology.Host() // a report says why there is none
	for _, cpu := range o.CPUs {
		if err := place.Usable(cpu, allowed, o.Topology); err != nil {
			return fmt.Errorf("--cpus: %w", err)
		}
	}
	o.CPUs = bench.Or(o.CPUs, allowed...)
	if len(o.Nodes) > 0 {
		if o.CPUs, err = place.OnNodes(o.Nodes, o.CPUs, o.Topology); err != nil {
			return err
		}
	}
	if err := o.checkPlaces(allowed); err != nil {
		return err
	}
	if err := o.checkRoles(roles); err != nil {
		return err
	}
	if err := o.checkArenas(); err != nil {
		return err
	}
	if err := o.checkShape(); err != nil {
		return err
	}
	if _, err := memShapes(o); err != nil {
		return err
	}
	if o.MiB < 0 || o.MiB > memMostAsked {
		return fmt.Errorf("--mib: %d is not within 0 and %d", o.MiB, memMostAsked)
	}
	if err := o.checkStress(spins); err != nil {
		return err
	}
	return o.check()
}

// check refuses what no cell could run with.
func (o *Options) check() error {
	positive := func(flag string, list ...int) error {
		for _, v := range list {
			if v < 1 {
				return fmt.Errorf("%s: %d is less than 1", flag, v)
			}
		}
		return nil
	}
	for _, err := range []error{
		positive("--procs", o.Procs...), positive("--threads", o.Threads...),
		positive("--count", o.Count), positive("--kills", o.Kills),
		positive("--time", int(o.Time)), positive("--timeout", int(o.Timeout)),
	} {
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Concat(o.CS, o.Think, o.Gaps, o.Slow, []time.Duration{o.Warmup}) {
		if d < 0 {
			return fmt.Errorf("%v is negative", d)
		}
	}
	return nil
}

// Options is what the user asked for; zero fields take a scenario's defaults.
type Options struct {
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
