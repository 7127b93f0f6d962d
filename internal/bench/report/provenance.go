//go:build linux

package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/topology"
)

// Facts returns facts about the host, the limits under which the run was made, and its duration.
func (d *Document) Facts() []host.Fact {
	facts := d.Env.Facts()
	if d.Topology != nil {
		limits := d.Topology.Limits
		if list := limits.Cgroup(); len(list) > 0 {
			facts = append(facts, host.Fact{Name: "cgroup", Text: strings.Join(list, "; ")})
		}
		facts = append(facts, host.Fact{Name: "allowed", Text: fmt.Sprintf("CPUs %s; memory of nodes %s",
			topology.FormatList(limits.CPUs), topology.FormatList(limits.Nodes))})
	}
	if d.DurationNs > 0 {
		facts = append(facts, host.Fact{Name: "duration", Text: time.Duration(d.DurationNs).Round(100 * time.Millisecond).String()})
	}
	return facts
}

// writeFacts renders the facts about the host and the run. Each fact takes as many lines as it needs.
func writeFacts(w io.Writer, d *Document) {
	fmt.Fprintln(w)
	for _, f := range d.Facts() {
		for _, line := range wrap(f.Name+": ", "  ", f.Text, TableWidth, mostFactLines) {
			fmt.Fprintln(w, line)
		}
	}
}

// mostFactLines is the largest number of lines for one fact. It is enough for the mitigations of a CPU that has all
// known flaws.
const mostFactLines = 40
