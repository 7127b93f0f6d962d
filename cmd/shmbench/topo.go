//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/topology"
)

type topoCmd struct {
	Record string `placeholder:"DIR" help:"Also write the files that were read to this directory, which it makes."`
}

// Run shows the topology of this host, or of a recorded one.
func (c *topoCmd) Run(s *session) error {
	from := s.common.Topology
	read := topology.Host
	if from != "" {
		read = func() (*topology.Topology, error) { return topology.Recorded(from) }
	}
	t, err := read()
	if err != nil {
		return err
	}
	if c.Record != "" {
		if err := recordTree(from, c.Record); err != nil {
			return err
		}
	}
	if s.common.HTML != "" {
		if err := report.CreateHTML(s.common.HTML, report.TopologyPage(t, from == "", s.args)); err != nil {
			return err
		}
	}
	if s.common.Out != "" {
		b, err := json.MarshalIndent(report.TopologyDocument{Schema: report.TopologySchema, Topology: t}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.common.Out, append(b, '\n'), 0o666); err != nil {
			return err
		}
	}
	switch s.common.Format {
	case "table":
		if err := t.WriteText(s.stdout); err != nil {
			return err
		}
		report.WriteAdvice(s.stdout, report.TopologyPage(t, from == "", s.args).Advice)
		return nil
	case "json":
		e := json.NewEncoder(s.stdout)
		e.SetIndent("", "  ")
		return e.Encode(report.TopologyDocument{Schema: report.TopologySchema, Topology: t})
	}
	return fmt.Errorf("a topology has no form %q: ask for table or json", s.common.Format)
}

// Help describes the output.
func (*topoCmd) Help() string {
	return `Show the CPUs, caches and NUMA nodes of this host, or of a recording.

A line for each last-level cache has its cores; threads of one core are joined as in
--place 0+1. Nodes without CPUs come last. Distances are those of firmware (SLIT): 10 is
local. Notes say what the host does not tell, or contradicts, and what is assumed instead.
--record writes a tree of the files that were read, and of long ones only the lines that
matter. --topology reads such a tree, a .tree file, an archive of tar, or XML of lstopo.`
}

// recordTree copies the files that describe the topology of a host to the directory dir, which must be empty or
// missing. The parameter from names a recording that has these files. If it is empty, they are those of this host.
func recordTree(from, dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("--record %s: there are files in it already", dir)
	}
	return topology.Record(from, dir)
}
