//go:build linux

package host

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Disturbance has the time that some CPUs of this host have spent since the host was started, and how much of that time
// programs used.
type Disturbance struct {
	Total, Steal float64 // ticks of these CPUs: in all, and taken by the hypervisor
	Busy         float64 // ticks in which these CPUs ran programs or interrupts
	Own          float64 // ticks of this process and of its children that have ended
	Throttled    int     // periods in which a quota stopped the cgroup
}

// Others returns the share of the time between two readings that other programs used. The kernel counts time in coarse
// ticks, so the share may be a little too high or too low.
func Others(before, after Disturbance) float64 {
	total := after.Total - before.Total
	if total <= 0 {
		return 0
	}
	return max((after.Busy-before.Busy)-(after.Own-before.Own), 0) / total
}

// Dirty reports whether other programs, the hypervisor or a quota disturbed the used CPUs between two readings. Other
// programs may take a share of the time up to MostOthers, and the hypervisor up to MostSteal. The kernel samples at
// each tick, so a measured share has an error of about 1 divided by the square root of the number of ticks. Dirty adds
// this error to both limits.
func Dirty(before, after Disturbance) bool {
	total := after.Total - before.Total
	if total <= 0 {
		return false
	}
	doubt := 1 / math.Sqrt(total)
	return Others(before, after) > MostOthers+doubt || (after.Steal-before.Steal)/total > MostSteal+doubt || after.Throttled > before.Throttled
}

// ticks is the number of ticks per second in /proc: USER_HZ, which is 100 on all architectures of Linux that Go
// supports.
const ticks = 100

// ownTicks returns the CPU time of this process and of its children that have ended, in ticks.
func ownTicks() (sum float64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9 * ticks
		}
	}
	return sum
}

// readStat adds up the lines for the used CPUs in text, the contents of /proc/stat.
func (d *Disturbance) readStat(text string, used []int) {
	const idle, iowait, stolen = 4, 5, 8 // indices of the fields after the name: user nice system idle iowait irq softirq steal guest guest_nice
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		number, ok := strings.CutPrefix(fields[0], "cpu")
		cpu, err := strconv.Atoi(number)
		if !ok || err != nil || !slices.Contains(used, cpu) {
			continue
		}
		for i, field := range fields {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil || i > stolen {
				continue // guest time is part of user and nice
			}
			d.Total += v
			switch i {
			case stolen:
				d.Steal += v
			case idle, iowait:
			default:
				d.Busy += v
			}
		}
	}
}

// ReadDisturbance reads the counters of the used CPUs of this host.
func ReadDisturbance(used []int) (d Disturbance) {
	stat, _ := os.ReadFile("/proc/stat")
	d.readStat(string(stat), used)
	d.Own = ownTicks()
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

// A report considers the host quiet during the run if no share of time exceeds these limits. MostOthers limits two
// shares: the time of the used CPUs that other programs took, and the time that a worker waited for its CPU. MostSteal
// limits the share of the time that the hypervisor took.
const (
	MostOthers = 0.05
	MostSteal  = 0.01
)
