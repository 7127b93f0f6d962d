//go:build linux

package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench/host"
	"github.com/shmsync/shmsync/internal/bench/place"
)

// Options are the options of a selftest.
type Options struct {
	Only    []string      // patterns of names of proofs; empty: all proofs
	Timeout time.Duration // silence of three times this length makes an agent fail
	DryRun  bool          // only list the proofs
	Strict  bool          // a skipped proof is an error
	Out     io.Writer     // for the results
}

// Errors of a selftest that has printed its result.
var (
	ErrFailed  = errors.New("a proof failed")
	ErrSkipped = errors.New("a proof was skipped")
)

// proof is the test of one promise. The function run returns a text that says what the proof observed. A notHere error
// means that this host cannot run the proof.
type proof struct {
	name string
	run  func(t *selftester) (string, error)
}

// notHere is an error with the reason why a proof is skipped.
type notHere string

func (e notHere) Error() string { return string(e) }

func cannot(format string, args ...any) error { return notHere(fmt.Sprintf(format, args...)) }

// selftester runs proofs.
type selftester struct {
	*Options
	ctx       context.Context
	nodes     []numaNode
	waitLimit time.Duration
	agents    []*agent // the agents of the current proof
}

// Run tests whether the promises of the library hold on this host. It measures nothing, so it is also useful where
// times have no meaning, as in an emulator.
func Run(ctx context.Context, o *Options) error {
	nodes, err := readNodes("/sys")
	if err != nil {
		return err
	}
	t := &selftester{Options: o, ctx: ctx, nodes: nodes, waitLimit: 3 * o.Timeout}
	proofs, err := pickProofs(t.proofs(), o.Only)
	if err != nil {
		return err
	}
	if o.DryRun {
		for _, p := range proofs {
			fmt.Fprintln(o.Out, p.name)
		}
		return nil
	}
	return t.runAll(proofs)
}

// runAll runs the proofs one after the other, and prints their results. It returns an error if a proof failed.
func (t *selftester) runAll(proofs []proof) error {
	count := map[string]int{}
	for _, p := range proofs {
		if t.ctx.Err() != nil {
			return errors.New("interrupted")
		}
		verdict, text := t.prove(p)
		count[verdict]++
		if _, err := fmt.Fprintf(t.Out, "RESULT %s %s: %s\n", verdict, p.name, strings.ReplaceAll(text, "\n", " ")); err != nil {
			return err
		}
	}
	fmt.Fprintf(t.Out, "RESULT total: %d ok, %d skip, %d fail\n", count["ok"], count["skip"], count["fail"])
	switch {
	case count["fail"] > 0:
		return ErrFailed
	case count["skip"] > 0 && t.Strict:
		return ErrSkipped
	}
	return nil
}

// prove runs one proof, and then ends the agents, that is, the processes, that the proof has left running.
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

// pickProofs returns the proofs whose names match one of the patterns. Without patterns, it returns all proofs.
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

// proofs returns the proofs that make sense on a host with the nodes of t.
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
	cpus, err := place.AllowedCPUs()
	if err != nil {
		return "", err
	}
	var nodes []string
	for _, n := range t.nodes {
		nodes = append(nodes, n.String())
	}
	e := host.Read(cpus)
	return fmt.Sprintf("Linux %s, %s, CPUs %s; %s", e.Kernel, e.GOARCH, place.JoinInts(cpus), strings.Join(nodes, "; ")), nil
}

// RunWorker is the main function of an agent, which is a process of a test, in the role with the given name. It prints
// a line for each step that it has reached.
func RunWorker(name string, args []string) error {
	role, ok := selftestRoles[name]
	if !ok {
		return fmt.Errorf("no role %q", name)
	}
	err := role(args)
	if err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
	}
	return err
}
