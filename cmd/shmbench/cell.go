//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Placements of a cell's processes.
const (
	placeSame  = "same"  // all on one CPU
	placeCross = "cross" // one CPU each, in turn
	placeAny   = "any"   // unpinned
)

// cell is one point of the plan: a scenario, a subject, and parameters. Its
// repetitions are comparable, and so are cells of one group.
type cell struct {
	Scenario *scenario
	Subject  *subject
	Place    string
	CPUs     []int // of the processes in turn, where the placement says which; else those of the run
	Procs    int
	Threads  int // per process
	CS       time.Duration
	Think    time.Duration
	Gap      time.Duration
	Hog      int // busy loops beside the workers, one on each of the first CPUs
	N        int // kills or waiters
	shape
	stress
	Skew    string    // of the keys of a multi cell
	Mem     *memShape // of a mem cell
	Arena   string    // directory of the memory that subjects share; empty for a memfd
	Warmup  time.Duration
	Time    time.Duration
	MaxReps int    // repeat it no more often than this; 0 for no bound
	Skip    string // why it cannot run here; empty where it can
}

// params lists the parameters that name the cell.
func (c *cell) params() map[string]string {
	all := map[string]string{
		"batch":    strconv.FormatUint(c.Batch, 10),
		"capacity": strconv.FormatUint(c.Capacity, 10),
		"keys":     strconv.FormatUint(c.Keys, 10),
		"locks":    strconv.FormatUint(c.Locks, 10),
		"permits":  strconv.FormatUint(c.Permits, 10),
		"read":     strconv.FormatUint(c.Read, 10),
		"skew":     c.Skew,
		"wake":     strconv.FormatUint(c.Wake, 10),
		"cs":       shortDuration(c.CS),
		"gap":      shortDuration(c.Gap),
		"hog":      strconv.Itoa(c.Hog),
		"kills":    strconv.Itoa(c.N),
		"place":    c.Place,
		"procs":    strconv.Itoa(c.Procs),
		"think":    shortDuration(c.Think),
		"threads":  strconv.Itoa(c.Threads),
		"wait":     shortDuration(c.Time),
		"waiters":  strconv.Itoa(c.N),
		"load":     strconv.Itoa(c.Load),
		"noise":    strconv.Itoa(c.Noise),
		"quota":    strconv.Itoa(c.Quota),
		"rate":     strconv.FormatUint(c.Rate, 10),
		"spin":     spinName(c.Spin),
	}
	if m := c.Mem; m != nil {
		all["node"], all["mem"], all["huge"] = strconv.Itoa(m.Node), m.policyName(), hugeName(m.Huge)
	}
	p := map[string]string{}
	for _, k := range c.Scenario.keys {
		p[k] = all[k]
	}
	if c.Lines > 0 {
		p["lines"] = strconv.FormatUint(c.Lines, 10)
	}
	if c.Spin > 0 {
		p["spin"] = spinName(c.Spin)
	}
	if c.Slow > 0 {
		p["slow"] = shortDuration(time.Duration(c.Slow))
	}
	if c.Role != roleHolder {
		p["role"] = roleNames[c.Role]
	}
	if c.Arena != "" {
		p["arena"] = arenaName(c.Arena)
	}
	return p
}

// key names the cell: sorted k=v pairs, stable from run to run.
func (c *cell) key() string {
	p := c.params()
	p["by"], p["prim"] = c.Subject.By, c.Subject.Prim
	return c.Scenario.name + "/" + joinParams(p)
}

// group names what the cell is compared within: its key without the subject.
func (c *cell) group() string { return c.Scenario.name + "/" + joinParams(c.params()) }

func joinParams(p map[string]string) string {
	parts := make([]string, 0, len(p))
	for k, v := range p {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, "/")
}

// shortDuration renders d in ASCII without trailing zero units, and 0 as 0.
func shortDuration(d time.Duration) string {
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

// processes is how many processes run the cell's threads.
func (c *cell) processes() int {
	if c.Subject.InProcess {
		return 1
	}
	return c.Procs
}

// slots is how many threads report.
func (c *cell) slots() int {
	if c.Scenario.name == "crash" {
		return crashSlots
	}
	return c.Procs * c.Threads
}

// cpuOf is the CPU of a slot, or -1.
func (c *cell) cpuOf(slot int, cpus []int) int {
	if c.Mem != nil {
		return c.Mem.CPU
	}
	cpus = or(c.CPUs, cpus...)
	switch {
	case c.Place == placeSame:
		return cpus[0]
	case c.Place == placeAny:
		return -1
	case c.Scenario.name == "crash":
		return cpus[min(slot, 1)%len(cpus)] // survivor on one, victims on the other
	}
	return cpus[slot/c.Threads%len(cpus)]
}

// apart tells a cell each of whose processes has a CPU of its own.
func (c *cell) apart() bool { return c.Place != placeSame && c.Place != placeAny }

// length estimates how long one repetition takes.
func (c *cell) length() time.Duration {
	const spawn = 25 * time.Millisecond
	switch c.Scenario.name {
	case "crash":
		return spawn + time.Duration(c.N)*(2*crashAsleep+spawn)
	case "seq":
		return 3*spawn + waitersSettle + time.Duration(c.N)*waiterTime/4 + c.Warmup + c.Time
	case "mem":
		return 2*spawn + time.Duration(c.N)*memMiBTime + c.Warmup + c.Time
	case "waiters":
		return 2*spawn + 4*waitersSettle + time.Duration(c.N)*waiterTime
	}
	return time.Duration(c.processes())*spawn/2 + spawn + c.Warmup + c.Time
}

// check says why the cell cannot run with these CPUs.
func (c *cell) check(cpus []int) string {
	switch {
	case c.Quota > 0 && quotaCheck() != nil:
		return quotaCheck().Error()
	case c.Load > 0 && c.Procs > oversubMost:
		return fmt.Sprintf("has more than %d processes", oversubMost)
	case c.apart() && len(or(c.CPUs, cpus...)) < 2:
		return "needs two CPUs"
	case c.Capacity > 0 && (c.slots() < 2 || c.slots() > 2*scratchLanes):
		return fmt.Sprintf("needs 2 to %d threads", 2*scratchLanes)
	case c.Scenario.name == "barrier" && c.slots() > scratchParts:
		return fmt.Sprintf("has more than %d parties", scratchParts)
	case c.Scenario.name == "matrix" && !c.apart():
		return "needs a CPU for each end: both spin"
	case c.Slow > 0 && time.Duration(c.Slow) > seqMostBehind*c.Gap:
		return fmt.Sprintf("falls behind by more than %d: give a longer --gap", seqMostBehind)
	case c.Scenario.name == "event" && c.Procs < 2:
		return "needs two processes"
	case c.Scenario.name == "waiters" && c.Subject.MaxN > 0 && c.N > c.Subject.MaxN:
		return fmt.Sprintf("takes a thread for each of %d waiters", c.N)
	case len(c.Subject.Places) > 0 && !slices.Contains(c.Subject.Places, c.Place) &&
		!(c.apart() && slices.Contains(c.Subject.Places, placeCross)):
		return fmt.Sprintf("makes no sense with place=%s", c.Place)
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
