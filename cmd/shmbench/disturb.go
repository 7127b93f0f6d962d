//go:build linux

package main

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// disturbance counts what others did to this host's CPUs since it runs.
type disturbance struct {
	total, steal float64 // ticks of all CPUs
	throttled    int     // periods in which a quota stopped the cgroup
}

func readDisturbance() (d disturbance) {
	first, _, _ := strings.Cut(readLine("/proc/stat"), "\n")
	const stolen = 8 // after the name: user nice system idle iowait irq softirq steal guest guest_nice
	for i, field := range strings.Fields(first) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i > stolen {
			continue // guests are part of user and nice
		}
		d.total += v
		if i == stolen {
			d.steal = v
		}
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return d
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && !strings.Contains(","+f[1]+",", ",cpu,") {
			continue
		}
		root := "/sys/fs/cgroup"
		if f[1] != "" {
			root += "/cpu"
		}
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			for stat := range strings.Lines(readLine(path.Join(root, dir, "cpu.stat"))) {
				if n, ok := strings.CutPrefix(stat, "nr_throttled "); ok {
					v, _ := strconv.Atoi(strings.TrimSpace(n))
					d.throttled += v
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return d
}

// disturbed notes what happened during the run.
func (r *report) disturbed(before, after disturbance) {
	if ticks := after.total - before.total; ticks > 0 {
		r.Env.Steal = (after.steal - before.steal) / ticks
	}
	r.Env.Throttled = after.throttled - before.throttled
	if r.Env.Steal > mostSteal {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the hypervisor took %.1f %% of the CPUs' time", 100*r.Env.Steal))
	}
	if r.Env.Throttled > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("a quota of CPU time stopped the run %d times", r.Env.Throttled))
	}
}
