//go:build linux

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/topology"
)

// Complete checks the options that the user gave. It derives the other options from these and from this host.
func (o *Options) Complete(roles, spins []string) error {
	allowed, usual, err := o.host()
	if err != nil {
		return err
	}
	for _, cpu := range o.CPUs {
		if err := place.Usable(cpu, allowed, o.Topology); err != nil {
			return fmt.Errorf("--cpus: %w", err)
		}
	}
	o.CPUs = bench.Or(o.CPUs, usual...)
	if len(o.Nodes) > 0 {
		if o.CPUs, err = place.OnNodes(o.Nodes, o.CPUs, o.Topology); err != nil {
			return err
		}
	}
	if err := o.checkPlaces(allowed); err != nil {
		return err
	}
	o.namePlaces()
	if err := o.checkRoles(roles); err != nil {
		return err
	}
	if err := o.checkStream(); err != nil {
		return err
	}
	if err := o.checkHomes(); err != nil {
		return err
	}
	if err := o.checkArenas(); err != nil {
		return err
	}
	if err := o.checkShape(); err != nil {
		return err
	}
	if _, err := memShapes(o); err != nil {
		return err
	}
	if o.MiB < 0 || o.MiB > memMostAsked {
		return fmt.Errorf("--mib: %d is not within 0 and %d", o.MiB, memMostAsked)
	}
	if err := o.checkStress(spins); err != nil {
		return err
	}
	return o.check()
}

// host reads the topology of this host or of a recording. It returns the CPUs that may be used, and the CPUs that are
// used by default. An isolated CPU is used only if the user names it.
func (o *Options) host() (allowed, usual []int, err error) {
	if o.Recording != "" {
		if o.Topology, err = topology.Recorded(o.Recording); err != nil {
			return nil, nil, fmt.Errorf("--topology: %w", err)
		}
		return o.Topology.Limits.CPUs, o.Topology.Usable(), nil
	}
	if allowed, err = place.AllowedCPUs(); err != nil {
		return nil, nil, err
	}
	o.Topology, _ = topology.Host() // if it failed, a report says that there is no topology
	if o.Topology == nil {
		return allowed, allowed, nil
	}
	for _, cpu := range o.Topology.Usable() {
		if slices.Contains(allowed, cpu) {
			usual = append(usual, cpu)
		}
	}
	return allowed, bench.Or(usual, allowed...), nil
}

// check returns an error if the options are such that no measurement can run.
func (o *Options) check() error {
	positive := func(flag string, list ...int) error {
		for _, v := range list {
			if v < 1 {
				return fmt.Errorf("%s: %d is less than 1", flag, v)
			}
		}
		return nil
	}
	for _, err := range []error{
		positive("--procs", o.Procs...), positive("--threads", o.Threads...),
		positive("--count", o.Count), positive("--kills", o.Kills),
		positive("--time", int(o.Time)), positive("--timeout", int(o.Timeout)),
	} {
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Concat(o.CS, o.Think, o.Gaps, o.Slow, []time.Duration{o.Warmup}) {
		if d < 0 {
			return fmt.Errorf("%v is negative", d)
		}
	}
	return nil
}
