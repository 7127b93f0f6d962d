//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/shmsync/shmsync/internal/topology"
)

type topoCmd struct {
	Sysfs  string `placeholder:"DIR" help:"Read a recorded tree, not this host."`
	Record string `placeholder:"DIR" help:"Also write the files that were read to this directory, which it makes."`
}

// topoSchema is the version of the JSON form.
const topoSchema = "shmbench-topo/1"

// topoDocument is the JSON form of a topology.
type topoDocument struct {
	Schema string `json:"schema"`
	*topology.Topology
}

// Run shows the topology of this host, or of a recorded one.
func (c *topoCmd) Run(s *session) error {
	root := "/"
	read := topology.Host
	if c.Sysfs != "" {
		root = c.Sysfs
		read = func() (*topology.Topology, error) { return topology.Recorded(c.Sysfs) }
	}
	t, err := read()
	if err != nil {
		return err
	}
	if c.Record != "" {
		if err := recordTree(root, c.Record); err != nil {
			return err
		}
	}
	if s.common.HTML != "" {
		if err := createHTML(s.common.HTML, topoPage(t, c.Sysfs == "", s.args)); err != nil {
			return err
		}
	}
	if s.common.Out != "" {
		b, err := json.MarshalIndent(topoDocument{topoSchema, t}, "", "  ")
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
		writeAdvice(s.stdout, topoPage(t, c.Sysfs == "", s.args).Advice)
		return nil
	case "json":
		e := json.NewEncoder(s.stdout)
		e.SetIndent("", "  ")
		return e.Encode(topoDocument{topoSchema, t})
	}
	return fmt.Errorf("a topology has no form %q: ask for table or json", s.common.Format)
}

// Help describes the output.
func (*topoCmd) Help() string {
	return `A line for each last-level cache has its cores; threads of one core are joined as in
--place 0+1. Nodes without CPUs come last. Distances are those of firmware (SLIT): 10 is
local. --record makes a tree of the files that were read, and of long ones only the lines
that matter; --sysfs reads such a tree, of whatever host.`
}

// recordTree writes the files below root to a directory that there is not, or that is
// empty.
func recordTree(root, dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("--record %s: there are files in it already", dir)
	}
	return topology.Record(os.DirFS(root), dir)
}

// topoPage is a page that shows a topology, what speaks against placing things there,
// and nothing else.
func topoPage(t *topology.Topology, here bool, args []string) *document {
	d := &document{Schema: jsonSchema, Topology: t, Command: append([]string{"shmbench"}, args...)}
	d.Env = environment{CPU: t.Model, CPUs: len(t.CPUs), Used: t.Limits.CPUs, Nodes: len(t.Nodes), Kernel: t.Kernel,
		Governor: t.Settings.Governor, NUMABalance: t.Settings.NUMABalancing}
	if here {
		d.Env = readEnvironment(t.Limits.CPUs)
	}
	d.Advice = hygiene(d)
	return d
}
