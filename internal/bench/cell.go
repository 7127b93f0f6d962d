//go:build linux

package bench

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// Cell is one measurement of the plan: a scenario (what is done), a subject (the primitive that is measured), and
// parameters. Figures of cells with the same Group can be compared with each other, and so can the repetitions of
// one cell.
type Cell struct {
	Scenario *Scenario
	Subject  *Subject
	Place    string
	CPUs     []int // CPUs of processes 0, 1 and so on, if the placement names them; empty if the CPUs of the run apply
	Procs    int
	Threads  int // per process
	CS       time.Duration
	Think    time.Duration
	Gap      time.Duration
	Hog      int // number of busy loops in addition to the workers, one on each of the first CPUs
	N        int // number of kills or waiters
	control.Shape
	Stress
	Skew string    // how unevenly a multi cell chooses its keys, see skew.go
	Mem  *MemShape // shape of a mem cell

	Home     string       // where the memory of a home cell lies: one of HomeNames
	HomeNode int          // the NUMA node for which Home stands
	Stream   *StreamShape // shape of a stream cell

	// A matrix cell measures a class of pairs of CPUs. Pairs has the pairs that represent the class, and each
	// repetition visits some of them. If Pairs is empty, the cell has one pair of CPUs, which its placement
	// determines.
	Pairs [][2]int

	Arena   string // directory of the memory that subjects share; empty for a memfd
	Warmup  time.Duration
	Time    time.Duration
	MaxReps int    // the cell gets no more repetitions than this; 0: no limit
	Skip    string // the reason why the cell cannot run here; empty if it can
}

// Params returns the parameters that name the cell.
func (c *Cell) Params() map[string]string {
	all := map[string]string{
		"batch":    strconv.FormatUint(c.Batch, 10),
		"capacity": strconv.FormatUint(c.Capacity, 10),
		"keys":     strconv.FormatUint(c.Keys, 10),
		"locks":    strconv.FormatUint(c.Locks, 10),
		"permits":  strconv.FormatUint(c.Permits, 10),
		"read":     strconv.FormatUint(c.Read, 10),
		"skew":     c.Skew,
		"wake":     strconv.FormatUint(c.Wake, 10),
		"pad":      strconv.FormatUint(c.Pad, 10),
		"cs":       ShortDuration(c.CS),
		"gap":      ShortDuration(c.Gap),
		"hog":      strconv.Itoa(c.Hog),
		"kills":    strconv.Itoa(c.N),
		"place":    c.Place,
		"procs":    strconv.Itoa(c.Procs),
		"think":    ShortDuration(c.Think),
		"threads":  strconv.Itoa(c.Threads),
		"wait":     ShortDuration(c.Time),
		"waiters":  strconv.Itoa(c.N),
		"load":     strconv.Itoa(c.Load),
		"noise":    strconv.Itoa(c.Noise),
		"quota":    strconv.Itoa(c.Quota),
		"rate":     strconv.FormatUint(c.Rate, 10),
		"spin":     spinName(c.Spin),
		"home":     c.Home,
	}
	if m := c.Mem; m != nil {
		all["node"], all["mem"], all["huge"] = strconv.Itoa(m.Node), m.PolicyName(), HugeName(m.Huge)
	}
	if c.Stream != nil {
		maps.Copy(all, c.streamParams())
	}
	p := map[string]string{}
	for _, k := range c.Scenario.Keys {
		p[k] = all[k]
	}
	if c.Lines > 0 {
		p["lines"] = strconv.FormatUint(c.Lines, 10)
	}
	if c.Spin > 0 {
		p["spin"] = spinName(c.Spin)
	}
	if c.Slow > 0 {
		p["slow"] = ShortDuration(time.Duration(c.Slow))
	}
	if c.Role != RoleHolder {
		p["role"] = RoleNames[c.Role]
	}
	if c.Arena != "" {
		p["arena"] = ArenaName(c.Arena)
	}
	return p
}

// Key returns the name of the cell, which consists of sorted k=v pairs. A cell has the same name in every run.
func (c *Cell) Key() string {
	p := c.Params()
	p["by"], p["prim"] = c.Subject.By, c.Subject.Prim
	return c.Scenario.Name + "/" + JoinParams(p)
}

// Group returns the name of the group of cells with which c is compared: the key of c without the subject.
func (c *Cell) Group() string { return c.Scenario.Name + "/" + JoinParams(c.Params()) }

// JoinParams writes parameters as k=v, sorted by their names, with slashes between them.
func JoinParams(p map[string]string) string {
	parts := make([]string, 0, len(p))
	for k, v := range p {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, "/")
}

// ShortDuration renders d in ASCII without trailing zero units, and 0 as 0.
func ShortDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := strings.Replace(d.String(), "µ", "u", 1)
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = strings.TrimSuffix(s, zero[1:])
		}
	}
	return s
}

// Processes returns the number of processes that run the cell's threads.
func (c *Cell) Processes() int {
	if c.Subject.InProcess {
		return 1
	}
	return c.Procs
}

// Slots returns the number of threads that report results.
func (c *Cell) Slots() int {
	if c.Scenario.Name == "crash" {
		return crashSlots
	}
	return c.Procs * c.Threads
}

// CPUOf returns the CPU of the thread that reports in a slot, or -1 if that thread is not pinned. The parameter cpus
// has the CPUs of the run.
func (c *Cell) CPUOf(slot int, cpus []int) int {
	if c.Mem != nil {
		return c.Mem.CPU
	}
	if c.Stream != nil {
		return c.Stream.CPUs[slot]
	}
	cpus = Or(c.CPUs, cpus...)
	switch {
	case c.Place == PlaceSame:
		return cpus[0]
	case c.Place == PlaceAny:
		return -1
	case c.Scenario.Name == "crash":
		return cpus[min(slot, 1)%len(cpus)] // slot 0 is the survivor; all victims share the other CPU
	}
	if c.Spreads() { // slots of different processes get neighbouring CPUs
		return cpus[(slot%c.Threads*c.Procs+slot/c.Threads)%len(cpus)]
	}
	return cpus[slot/c.Threads%len(cpus)]
}

// Spreads reports whether each thread of the cell has a CPU of its own, as long as there are
// enough CPUs.
func (c *Cell) Spreads() bool { return c.Place == PlacePack || c.Place == PlaceSpread }

// Apart reports whether each process of the cell has a CPU of its own.
func (c *Cell) Apart() bool { return c.Place != PlaceSame && c.Place != PlaceAny }

// PairsEachRound is the largest number of pairs of CPUs that one repetition of a matrix measurement visits. It is large
// enough that twelve rounds visit 64 pairs.
const PairsEachRound = 6

// PairsOf returns the pairs of CPUs that one repetition of a matrix cell visits. Successive rounds visit all pairs of
// the cell in turn.
func (c *Cell) PairsOf(round int, cpus []int) (list [][2]int) {
	if len(c.Pairs) == 0 {
		return [][2]int{{c.CPUOf(0, cpus), c.CPUOf(1, cpus)}}
	}
	n := min(PairsEachRound, len(c.Pairs))
	for i := range n {
		list = append(list, c.Pairs[(round*n+i)%len(c.Pairs)])
	}
	return list
}

// matrixStep is the longest time that a tour takes for one pair of CPUs. In a tour, one pair of processes measures
// many pairs of CPUs (see load.Tour).
const matrixStep = 4 * time.Millisecond

// victimTime returns about how long a victim, a process that a crash cell starts and kills, takes to start and to end.
// A victim in C is faster, because it has no runtime to start.
func (c *Cell) victimTime() time.Duration {
	if c.Subject.C {
		return 3 * time.Millisecond
	}
	return 11 * time.Millisecond
}

// Length returns an estimate of the time that one repetition takes.
func (c *Cell) Length() time.Duration {
	const spawn = 25 * time.Millisecond
	switch c.Scenario.Name {
	case "crash":
		return spawn + time.Duration(c.N)*(2*CrashAsleep+c.victimTime()+c.Subject.Startup)
	case "seq":
		return 3*spawn + WaitersSettle + time.Duration(c.N)*waiterTime/4 + c.Warmup + c.Time
	case "mem":
		return 2*spawn + time.Duration(c.N)*memMiBTime + c.Warmup + c.Time
	case "stream":
		return 2*spawn + time.Duration(c.N)*memMiBTime + c.Warmup + c.Time
	case "matrix":
		return matrixStep * time.Duration(max(1, min(PairsEachRound, len(c.Pairs)))) // the time as part of a tour
	case "waiters":
		return 2*spawn + 4*WaitersSettle + time.Duration(c.N)*waiterTime
	}
	return time.Duration(c.Processes())*spawn/2 + spawn + c.Warmup + c.Time
}

// Check returns the reason why this measurement cannot run with these CPUs on this host, or an empty string.
func (c *Cell) Check(cpus []int) string {
	if why := c.CheckShape(cpus); why != "" {
		return why
	}
	if c.Quota > 0 && place.QuotaCheck() != nil {
		return place.QuotaCheck().Error()
	}
	if why := c.homeRefused(); why != "" {
		return why
	}
	if why := c.streamRefused(); why != "" {
		return why
	}
	if c.Mem != nil {
		if why := c.Mem.refused(c.N); why != "" {
			return why
		}
	}
	if c.Subject.Check != nil {
		if err := c.Subject.Check(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// CheckShape returns the reason why this measurement is impossible with these CPUs, whatever host has them, or an empty
// string.
func (c *Cell) CheckShape(cpus []int) string {
	switch {
	case c.Load > 0 && c.Procs > oversubMost:
		return fmt.Sprintf("has more than %d processes", oversubMost)
	case c.Stream != nil && c.Stream.Missing != "":
		return c.Stream.Missing
	case c.Apart() && len(Or(c.CPUs, cpus...)) < 2:
		return "needs two CPUs"
	case c.Capacity > 0 && (c.Slots() < 2 || c.Slots() > 2*control.ScratchLanes):
		return fmt.Sprintf("needs 2 to %d threads", 2*control.ScratchLanes)
	case c.Scenario.Name == "barrier" && c.Slots() > control.ScratchParts:
		return fmt.Sprintf("has more than %d parties", control.ScratchParts)
	case c.Scenario.Name == "padding" && c.Slots() > control.ScratchParts:
		return fmt.Sprintf("has more than %d counters", control.ScratchParts)
	case c.Scenario.Name == "matrix" && !c.Apart():
		return "needs a CPU for each end: both spin"
	case c.Slow > 0 && time.Duration(c.Slow) > SeqMostBehind*c.Gap:
		return fmt.Sprintf("falls behind by more than %d: give a longer --gap", SeqMostBehind)
	case c.Scenario.Name == "event" && c.Procs < 2:
		return "needs two processes"
	case c.Scenario.Name == "waiters" && c.Subject.MaxN > 0 && c.N > c.Subject.MaxN:
		return fmt.Sprintf("takes a thread for each of %d waiters", c.N)
	case len(c.Subject.Places) > 0 && !slices.Contains(c.Subject.Places, c.Place) &&
		!(c.Apart() && slices.Contains(c.Subject.Places, PlaceCross)):
		return fmt.Sprintf("makes no sense with place=%s", c.Place)
	}
	return ""
}
