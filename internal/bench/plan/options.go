//go:build linux

package plan

import (
	"time"

	"github.com/shmsync/shmsync/internal/topology"
)

// UsualGap is long enough for a waiter to be fast asleep.
const UsualGap = 1500 * time.Microsecond

// Options is what the user asked for; zero fields take a scenario's defaults.
type Options struct {
	CPUs                                              []int
	Topology                                          *topology.Topology // nil where the host does not say
	Recording                                         string             // file that the topology is read from; empty: this host
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
	Suite                                             bool     // cells of all classes of CPUs
	known                                             *known   // of the topology; copies share it
	Dropped                                           []string // scenarios that had no room in a suite's budget
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

// known keeps what was derived from a topology and CPUs, which each cell asks for.
type known struct {
	classes []topology.Class
	places  map[string][]int
}

// maxCells keeps a slip in a list from planning a week. A suite has its own bound, which
// is time.
const maxCells = 500
