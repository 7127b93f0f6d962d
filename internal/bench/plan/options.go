//go:build linux

package plan

import (
	"time"

	"github.com/shmsync/shmsync/internal/topology"
)

// UsualGap is the default pause before a wake. It is long enough for a waiter to fall asleep.
const UsualGap = 1500 * time.Microsecond

// Options has what the user asked for. A field that is zero stands for the default of the scenario.
type Options struct {
	CPUs                                              []int
	Topology                                          *topology.Topology // nil if the host does not describe it
	Recording                                         string             // file from which the topology is read; empty: this host
	Places                                            []string
	Procs                                             []int
	Threads                                           []int
	CS                                                []time.Duration
	Think                                             []time.Duration
	Gap                                               time.Duration   // for scenarios that have a pause
	Gaps                                              []time.Duration // for scenarios that show a curve over the pause
	WakeGaps                                          []time.Duration // for wake cells if Gaps is empty
	Hogs                                              []int
	Kills                                             int
	Waiters                                           []int
	Read, Permits, Keys, Locks, Wake, Batch, Capacity []int
	Lines                                             []int
	Pads                                              []int // bytes between two counters
	Slow                                              []time.Duration
	Skew                                              []string
	Mem, Huge                                         []string
	Nodes                                             []int
	MiB                                               int
	Rates, Loads, Noise, Quotas                       []int
	Spins                                             []uint64 // times for which waiters spin, in the form of control.Shape
	Brief, Few                                        bool     // Brief: few values of each parameter; Few: few subjects
	Suite                                             bool     // cells of all classes of CPUs
	Map                                               bool     // the matrix has up to mostPairsSuite pairs of CPUs
	known                                             *known   // derived from the topology; copies share it
	Dropped                                           []string // scenarios that did not fit into a suite's budget
	Homes                                             []string // where the memory of a home cell lies
	Data                                              []string // places of the data of a stream cell
	Duty, Streams                                     []int    // the duty cycles and the numbers of streams of a stream cell
	MemNote                                           string   // the note on what the mem cells of a suite leave out
	AllPairs                                          bool     // a matrix of all pairs of CPUs, however many
	Sample                                            string   // how a matrix chooses its pairs
	Prims, Variants                                   []string
	Roles                                             []uint64 // roles of the victims of a crash cell
	Arenas                                            []string // directories for the memory; empty for a memfd
	MaxCells                                          int      // 0: the default maxCells
	Time                                              time.Duration
	Warmup                                            time.Duration
	Count                                             int
	Seed                                              uint64
	Shuffle                                           bool
	Timeout                                           time.Duration
}

// known caches what was derived from the topology and the CPUs, because every measurement needs it.
type known struct {
	classes []topology.Class
	places  map[string][]int
}

// maxCells limits the number of measurements. Without a limit, a typing error in a list could plan a week of
// measurements. The limit of a suite is its time instead.
const maxCells = 500
