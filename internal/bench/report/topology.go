//go:build linux

package report

import (
	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/topology"
)

// TopologySchema is the version of the JSON form of a topology.
const TopologySchema = "shmbench-topo/1"

// TopologyDocument is the JSON form of a topology.
type TopologyDocument struct {
	Schema string `json:"schema"`
	*topology.Topology
}

// TopologyPage returns a page that shows only a topology, and advice on settings of the host. The parameter here says
// whether t describes this host.
func TopologyPage(t *topology.Topology, here bool, args []string) *Document {
	d := &Document{Schema: Schema, Topology: t, Command: append([]string{"shmbench"}, args...)}
	d.Env = host.Environment{CPU: t.Model, CPUs: len(t.CPUs), Used: t.Limits.CPUs, Nodes: len(t.Nodes), Kernel: t.Kernel,
		Governor: t.Settings.Governor, NUMABalance: t.Settings.NUMABalancing}
	if here {
		d.Env = host.Read(t.Limits.CPUs)
	}
	d.Advice = hygiene(d)
	return d
}
