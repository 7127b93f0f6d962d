//go:build linux

package host

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// Disturbance counts what others did to this host's CPUs since it runs.
type Disturbance struct {
	Total, Steal float64 // ticks of all CPUs
	Throttled    int     // periods in which a quota stopped the cgroup
}

// ReadDisturbance reads the counts of this host.
func ReadDisturbance() (d Disturbance) {
	first, _, _ := strings.Cut(ReadLine("/proc/stat"), "\n")
	const stolen = 8 // after the name: user nice system idle iowait irq softirq steal guest guest_nice
	for i, field := range strings.Fields(first) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i > stolen {
			continue // guests are part of user and nice
		}
		d.Total += v
		if i == stolen {
			d.Steal = v
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
			for stat := range strings.Lines(ReadLine(path.Join(root, dir, "cpu.stat"))) {
				if n, ok := strings.CutPrefix(stat, "nr_throttled "); ok {
					v, _ := strconv.Atoi(strings.TrimSpace(n))
					d.Throttled += v
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return d
}

// Bounds of what R0 takes for a quiet host.
const (
	MostLoad  = 0.5  // for each CPU, before the run
	MostSteal = 0.01 // of the time of the run
)
