//go:build linux

package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// recordedHosts returns the names of all recorded hosts. In a short run of the tests, it returns a sixth of them.
func recordedHosts(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(topotest.File("hosts/*.tree"))
	require.NoError(t, err)
	require.Greater(t, len(files), 40)
	for i, file := range files {
		if !proctest.Long() && i%6 != 0 {
			continue
		}
		names = append(names, "hosts/"+strings.TrimSuffix(filepath.Base(file), ".tree"))
	}
	return append(names, plantedHosts...)
}

// truth is a fact that a test plants in the results of a host, with the rule that must find the fact. The advice of
// this rule must contain all strings of the field text.
type truth struct {
	name, rule string
	text       []string
	allowed    string // other rules that may give advice because of the fact
	fact       fact
}

// mapped returns the classes of pairs of CPUs for which a scenario measures a subject, the nearest class first. For
// each class, the second result has a CPU of a measured pair. Classes that differ only in the kinds of their CPUs count
// as one, and pairs of threads of one core do not count.
func mapped(o *plan.Options, cells []*bench.Cell, scenario, subject string) (list []topology.Class, first map[topology.Class]int) {
	first = map[topology.Class]int{}
	for _, c := range cells {
		class := topology.Class(c.Place)
		if c.Scenario.Name != scenario || c.Subject.Name() != subject || c.Skip != "" || !class.Valid() || class.Base() == topology.SMT {
			continue
		}
		name, _, _ := strings.Cut(string(class), ":")
		if bare := topology.Class(name); !slices.Contains(list, bare) {
			list, first[bare] = append(list, bare), c.CPUOf(0, o.CPUs)
		}
	}
	slices.SortFunc(list, topology.CompareClasses)
	return list, first
}

// within lists the given CPU and all used CPUs that are near it. A CPU is near if it is a thread of the same core, or
// if the class of the two CPUs is in the parameter near.
func within(o *plan.Options, cpu int, near []topology.Class) string {
	var cpus []int
	for _, id := range o.CPUs {
		name, _, _ := strings.Cut(string(o.Topology.Class(cpu, id)), ":")
		if class := topology.Class(name); id == cpu || slices.Contains(near, class) || class.Base() == topology.SMT {
			cpus = append(cpus, id)
		}
	}
	return topology.FormatList(cpus)
}

// beyond returns a fact that multiplies the cost of some cells of a scenario: those whose CPUs are at least as far
// apart as the given class says.
func beyond(scenario string, class topology.Class, factor float64) fact {
	return func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
		if c.Scenario.Name != scenario || len(cpus) < 2 || cpus[0] < 0 || cpus[1] < 0 || !topology.Class(c.Place).Valid() {
			return 1
		}
		name, _, _ := strings.Cut(string(top.Class(cpus[0], cpus[1])), ":")
		if topology.CompareClasses(topology.Class(name), class) >= 0 {
			return factor
		}
		return 1
	}
}

// shared returns a fact that multiplies the cost of increments of counters, if the counters lie less than distance
// bytes apart.
func shared(distance uint64) fact {
	return func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
		if c.Scenario.Name == "padding" && c.Pad < distance {
			return 3
		}
		return 1
	}
}

// truthsOf returns the facts that the default plan of a host can show.
func truthsOf(o *plan.Options, cells []*bench.Cell) (list []truth) {
	list = append(list,
		truth{"false sharing of a line", "R15", []string{"at least 64 bytes apart"}, "", shared(64)},
		truth{"false sharing of a pair of lines", "R15", []string{"at least 128 bytes apart", "in pairs"}, "", shared(128)})
	classes, first := mapped(o, cells, "matrix", "go:one-line")
	for i := 1; i < len(classes); i++ {
		list = append(list, truth{"lines beyond " + string(classes[i]), "R2",
			[]string{"as on CPUs " + within(o, first[classes[i-1]], classes[:i]) + ":", string(classes[i])}, "", beyond("matrix", classes[i], 2)})
	}
	classes, first = mapped(o, cells, "wake", "shmsync:futex")
	for i := 1; i < len(classes); i++ {
		list = append(list, truth{"wakes beyond " + string(classes[i]), "R12",
			[]string{"as on CPUs " + within(o, first[classes[i-1]], classes[:i]) + ":", string(classes[i])}, "R1", beyond("wake", classes[i], 1.8)})
	}
	if slices.ContainsFunc(cells, func(c *bench.Cell) bool { return c.Place == string(topology.SMT) && c.Scenario.Name == "lock" }) && len(classes) > 0 {
		var cores []int
		for _, core := range o.Topology.Groups(o.CPUs, topology.ByCore) {
			cores = append(cores, core[0])
		}
		slices.Sort(cores)
		list = append(list, truth{"threads of a core", "R13", []string{"CPUs " + topology.FormatList(cores) + ":"}, "R6",
			func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
				if c.Scenario.Name == "lock" && among(top, cpus, topology.SMT) {
					return 1.6
				}
				return 1
			}})
	}
	list = append(list, cohortTruths(o, cells)...)
	return append(list, memoryTruths(o, cells)...)
}

// crowds reports whether at least two nodes have cohortCrowd or more of the given CPUs.
func crowds(top *topology.Topology, cpus []int) bool {
	nodes := map[int]map[int]bool{}
	for _, id := range cpus {
		if cpu, ok := top.CPU(id); ok {
			if nodes[cpu.Node] == nil {
				nodes[cpu.Node] = map[int]bool{}
			}
			nodes[cpu.Node][id] = true
		}
	}
	full := 0
	for _, on := range nodes {
		if len(on) >= cohortCrowd {
			full++
		}
	}
	return full > 1
}

func cohortTruths(o *plan.Options, cells []*bench.Cell) []truth {
	const cohort = "shmsync:mutex-cohort"
	can := slices.ContainsFunc(cells, func(c *bench.Cell) bool {
		var cpus []int
		for slot := range c.Slots() {
			cpus = append(cpus, c.CPUOf(slot, o.CPUs))
		}
		return c.Scenario.Name == "lock" && c.Subject.Name() == cohort && c.Skip == "" && crowds(o.Topology, cpus)
	})
	if !can {
		return nil
	}
	return []truth{{"a cohort lock that wins", "R6", []string{"use mutex-cohort for locks with"}, "", func(top *topology.Topology, c *bench.Cell, cpus []int) float64 {
		if c.Scenario.Name == "lock" && c.Subject.Name() == cohort && crowds(top, cpus) {
			return 1 / 1.6
		}
		return 1
	}}, {"a cohort lock that loses", "", nil, "", func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
		if c.Scenario.Name == "lock" && c.Subject.Name() == cohort {
			return 1.6
		}
		return 1
	}}}
}

// memoryTruths returns facts about memory: that one node is slow, and that interleaved memory is slow. A slow node can
// be found only if another node at the same distance was measured.
func memoryTruths(o *plan.Options, cells []*bench.Cell) (list []truth) {
	at := map[int]map[int]bool{} // nodes with memory, by distance
	spread := false
	for _, c := range cells {
		if c.Mem == nil || c.Skip != "" {
			continue
		}
		spread = spread || strings.Contains(c.Mem.PolicyName(), "interleave")
		number, bound := strings.CutPrefix(c.Mem.PolicyName(), "bind:")
		node, err := strconv.Atoi(number)
		if !bound || err != nil {
			continue
		}
		d := o.Topology.Distance(c.Mem.Node, node)
		if at[d] == nil {
			at[d] = map[int]bool{}
		}
		at[d][node] = true
	}
	slow := -1
	for _, nodes := range at {
		for node := range nodes {
			if len(nodes) > 1 {
				slow = max(slow, node)
			}
		}
	}
	if slow >= 0 {
		list = append(list, truth{"a slow node", "R14", []string{fmt.Sprintf("off node %d:", slow)}, "R3 R4", func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Mem != nil && c.Mem.PolicyName() == fmt.Sprintf("bind:%d", slow) {
				return 1.5
			}
			return 1
		}})
	}
	if spread {
		list = append(list, truth{"a bad interleave", "R4", []string{"do not spread data over the nodes"}, "", func(_ *topology.Topology, c *bench.Cell, _ []int) float64 {
			if c.Mem != nil && strings.Contains(c.Mem.PolicyName(), "interleave") {
				return 1.6
			}
			return 1
		}})
	}
	return list
}

// TestPlantedFactsOfEveryHost plants each fact that the default plan of a recorded host can show, for each such host.
// The advice must report the fact with its CPUs and nodes, and nothing that the fact does not explain. If all costs are
// equal, there must be no advice.
func TestPlantedFactsOfEveryHost(t *testing.T) {
	seeds, several := proctest.Rounds[uint64](1, 3), 0
	if proctest.Long() {
		several = 10
	}
	runs, nulls, with := 0, 0, 0
	var wrong, falsely []string
	kinds := map[string]int{}
	for _, name := range recordedHosts(t) {
		o, cells := plannedCells(t, name)
		for seed := range seeds {
			nulls++
			if list := timed(Recommend(planted(o, cells, seed))); len(list) > 0 {
				with++
				falsely = append(falsely, name+": "+list[0].Rule+" "+list[0].Text)
			}
		}
		for _, f := range truthsOf(o, cells) {
			for seed := range seeds {
				runs++
				right := f.rule == ""
				var said []string
				for _, a := range timed(Recommend(planted(o, cells, 100+seed, f.fact))) {
					said = append(said, a.Rule+" "+a.Text)
					if a.Rule != f.rule && !strings.Contains(f.allowed, a.Rule) {
						right = false
						break
					}
					right = right || a.Rule == f.rule
					for _, text := range f.text {
						right = right && (a.Rule != f.rule || strings.Contains(a.Text, text))
					}
				}
				if right {
					kinds[f.rule]++
				} else {
					wrong = append(wrong, fmt.Sprintf("%s: %s: want %q, got %q", name, f.name, f.text, said))
				}
			}
		}
	}
	require.LessOrEqual(t, with, nulls/20, "advice on equal costs: %q", falsely)
	require.LessOrEqual(t, len(wrong), runs/20, "of %d:\n%s", runs, strings.Join(wrong, "\n"))
	for _, rule := range []string{"R2", "R4", "R6", "R12", "R13", "R14", "R15"} {
		require.Greater(t, kinds[rule], several, "%s was planted and found on several hosts", rule)
	}
	t.Logf("%d of %d planted facts found, advice in %d of %d files of equal costs", runs-len(wrong), runs, with, nulls)
}
