//go:build linux

package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// checkRoles parses the names of the roles of a victim, the process that a crash measurement kills.
func (o *Options) checkRoles(list []string) error {
	for _, text := range list {
		i := slices.Index(bench.RoleNames, text)
		if i < 0 {
			return fmt.Errorf("--role %q: want holder, waiter or reader", text)
		}
		o.Roles = append(o.Roles, uint64(i))
	}
	return nil
}

// checkShape refuses values that do not fit into the memory of a measurement, and parses how unevenly keys are chosen.
func (o *Options) checkShape() error {
	within := func(flag string, least, most int, list ...int) error {
		for _, v := range list {
			if v < least || v > most {
				return fmt.Errorf("%s: %d is not within %d and %d", flag, v, least, most)
			}
		}
		return nil
	}
	for _, err := range []error{
		within("--read", 0, 100, o.Read...), within("--permits", 1, math.MaxInt32, o.Permits...),
		within("--keys", 1, control.ScratchKeys, o.Keys...), within("--locks", 1, control.MaxLocks, o.Locks...),
		within("--waiters", 0, math.MaxInt32, o.Waiters...), within("--wake", 0, math.MaxInt32, o.Wake...), within("--batch", 1, control.MaxBatch, o.Batch...),
		within("--capacity", 1, control.MaxCapacity, o.Capacity...), within("--lines", 1, control.MaxLines, o.Lines...),
		within("--pad", leastPad, mostPad, o.Pads...),
	} {
		if err != nil {
			return err
		}
	}
	for _, pad := range o.Pads {
		if pad%leastPad != 0 {
			return fmt.Errorf("--pad: %d is no multiple of %d", pad, leastPad)
		}
	}
	names := make([]string, len(o.Skew))
	for i, text := range o.Skew {
		var err error
		if _, names[i], err = bench.ParseSkew(text); err != nil {
			return err
		}
	}
	o.Skew = names
	return nil
}

// checkStress refuses values that no measurement can have. It also parses the spin budgets, that is, the times for
// which waiters spin.
func (o *Options) checkStress(spins []string) error {
	within := func(flag string, least, most int, list []int) error {
		for _, v := range list {
			if v < least || v > most {
				return fmt.Errorf("%s: %d is not within %d and %d", flag, v, least, most)
			}
		}
		return nil
	}
	for _, err := range []error{
		within("--rate", 1, 10_000_000, o.Rates), within("--load", 1, 64, o.Loads),
		within("--noise", 0, 16, o.Noise), within("--quota", 0, 1_000_000, o.Quotas),
	} {
		if err != nil {
			return err
		}
	}
	for _, text := range spins {
		v, err := parseSpin(text)
		if err != nil {
			return err
		}
		o.Spins = append(o.Spins, v)
	}
	return nil
}

// parseSpin parses a spin budget, that is, a time for which waiters spin. It returns 0 for auto, and otherwise the time
// in ns plus 1.
func parseSpin(text string) (uint64, error) {
	if text == "auto" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil && text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 || d > time.Millisecond {
		return 0, fmt.Errorf("--spin %q: want auto, or a time of up to a millisecond", text)
	}
	return uint64(d) + 1, nil
}
