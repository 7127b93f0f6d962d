//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// selftestCmd proves that what the library promises holds on this host. It measures
// nothing, so that it also means something where time does not: in an emulator.
type selftestCmd struct {
	Only []string `placeholder:"PATTERN" help:"Proofs, as in crash/* or place/*. Default: all."`
}

// Help describes the command.
func (selftestCmd) Help() string {
	return `Prints a line for each proof, and one for all of them:

  RESULT ok NAME: what was seen
  RESULT skip NAME: why this host cannot show it
  RESULT fail NAME: what is wrong
  RESULT total: 20 ok, 3 skip, 0 fail

No proof looks at the time, but a process that does not answer within three times
--timeout counts as failed. Exit status 3 if one failed.`
}

// proof is one thing that must hold. It returns what it saw; an error that is
// notHere says why this host cannot show it.
type proof struct {
	name string
	run  func(t *selftester) (string, error)
}

// notHere is why a proof is skipped.
type notHere string

func (e notHere) Error() string { return string(e) }

func cannot(format string, args ...any) error { return notHere(fmt.Sprintf(format, args...)) }

// selftester runs proofs.
type selftester struct {
	*session
	nodes    []numaNode
	patience time.Duration
	agents   []*agent // of the proof that runs
}

// Run runs the proofs.
func (c *selftestCmd) Run(s *session) error {
	nodes, err := readNodes("/sys")
	if err != nil {
		return err
	}
	t := &selftester{session: s, nodes: nodes, patience: 3 * s.common.Timeout}
	proofs, err := pickProofs(t.proofs(), c.Only)
	if err != nil {
		return err
	}
	if s.common.DryRun {
		for _, p := range proofs {
			fmt.Fprintln(s.stdout, p.name)
		}
		return nil
	}
	return t.runAll(proofs)
}

// runAll proves one after another, and gives the status of all.
func (t *selftester) runAll(proofs []proof) error {
	s := t.session
	count := map[string]int{}
	for _, p := range proofs {
		if s.ctx.Err() != nil {
			return errors.New("interrupted")
		}
		verdict, text := t.prove(p)
		count[verdict]++
		if _, err := fmt.Fprintf(s.stdout, "RESULT %s %s: %s\n", verdict, p.name, strings.ReplaceAll(text, "\n", " ")); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.stdout, "RESULT total: %d ok, %d skip, %d fail\n", count["ok"], count["skip"], count["fail"])
	switch {
	case count["fail"] > 0:
		return status(exitViolation)
	case count["skip"] > 0 && s.common.Strict:
		return status(exitSkipped)
	}
	return nil
}

// prove runs a proof, and ends what it has left behind.
func (t *selftester) prove(p proof) (verdict, text string) {
	defer func() {
		for _, a := range t.agents {
			a.end()
		}
		t.agents = nil
	}()
	text, err := p.run(t)
	var skip notHere
	switch {
	case errors.As(err, &skip):
		return "skip", err.Error()
	case err != nil:
		return "fail", err.Error()
	}
	return "ok", text
}

// pickProofs gives those whose names match a pattern; all where there is none.
func pickProofs(all []proof, patterns []string) ([]proof, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var picked []proof
	for _, p := range all {
		for _, pattern := range patterns {
			ok, err := path.Match(pattern, p.name)
			if err != nil {
				return nil, fmt.Errorf("--only %q: %w", pattern, err)
			}
			if ok {
				picked = append(picked, p)
				break
			}
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("--only %v: no proof has such a name; -n lists them", patterns)
	}
	return picked, nil
}

// proofs lists what is to be proven on a host with these nodes.
func (t *selftester) proofs() []proof {
	list := []proof{
		{"host", (*selftester).proveHost},
		{"features", (*selftester).proveFeatures},
		{"pin", (*selftester).provePin},
		{"arena/named", (*selftester).proveNamed},
		{"exclusion", (*selftester).proveExclusion},
		{"wake/bitset", (*selftester).proveBitset},
		{"wake/waitv", (*selftester).proveWaitV},
		{"wake/near", (*selftester).proveNear},
	}
	list = append(list, t.placeProofs()...)
	return append(list, t.crashProofs()...)
}

func (t *selftester) proveHost() (string, error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return "", err
	}
	var nodes []string
	for _, n := range t.nodes {
		nodes = append(nodes, n.String())
	}
	e := readEnvironment(cpus)
	return fmt.Sprintf("Linux %s, %s, CPUs %s; %s", e.Kernel, e.GOARCH, joinInts(cpus), strings.Join(nodes, "; ")), nil
}

// selftestWorkerCmd is a process of a proof.
type selftestWorkerCmd struct {
	Role string   `arg:"" help:"What it does."`
	Args []string `arg:"" optional:"" help:"With what."`
}

// Run is the life of the process: it says what it has come to, a line each.
func (c *selftestWorkerCmd) Run(*session) error {
	role, ok := selftestRoles[c.Role]
	if !ok {
		return fmt.Errorf("no role %q", c.Role)
	}
	err := role(c.Args)
	if err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
	}
	return err
}
