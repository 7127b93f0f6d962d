package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// throttle is the CPU quota of a control group that throttles its processes now. A throttled process makes hardly any
// progress, and looks like a process that runs.
type throttle struct {
	share   float64 // how many CPUs the group may use on average
	dir     string
	version int
}

// throttler finds out which processes a CPU quota throttles.
type throttler struct {
	groups controlGroups
	known  map[string]*throttle // by directory of the lowest group with a quota; nil if no quota throttles its processes
}

func newThrottler(proc string) throttler {
	return throttler{groups: controlGroups{proc: proc, controller: "cpu"}, known: map[string]*throttle{}}
}

// mostThrottled limits for how many processes a snapshot waits to see whether a quota throttles them.
const mostThrottled = 4

// of returns the quota that throttles a process now, or nil. If the process has a quota, it waits for up to two periods
// of the quota.
func (t *throttler) of(pid int) *throttle {
	var all []throttle
	var before []uint64
	longest := time.Duration(0)
	for _, g := range t.groups.of(pid) {
		for _, dir := range g.upwards() {
			if share, period, ok := readQuota(dir, g.version); ok {
				all = append(all, throttle{share, dir, g.version})
				before = append(before, throttledPeriods(dir))
				longest = max(longest, period)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	if q, known := t.known[all[0].dir]; known || len(t.known) == mostThrottled {
		return q
	}
	t.known[all[0].dir] = nil
	for end := time.Now().Add(2 * longest); time.Now().Before(end); time.Sleep(longest / 10) {
		for i := range all {
			if throttledPeriods(all[i].dir) > before[i] {
				t.known[all[0].dir] = &all[i]
				return &all[i]
			}
		}
	}
	return nil
}

// readQuota returns the quota of a control group, in CPUs, and its period. ok is false if the group has no quota.
func readQuota(dir string, version int) (share float64, period time.Duration, ok bool) {
	read := func(file string) string {
		b, _ := os.ReadFile(filepath.Join(dir, file))
		return string(b)
	}
	text := read("cpu.max")
	if version == 1 {
		text = read("cpu.cfs_quota_us") + " " + read("cpu.cfs_period_us")
	}
	words := strings.Fields(text)
	if len(words) != 2 {
		return 0, 0, false
	}
	quota, err1 := strconv.ParseInt(words[0], 10, 64)
	us, err2 := strconv.ParseInt(words[1], 10, 64)
	if err1 != nil || err2 != nil || quota <= 0 || us <= 0 || us > 1e6 { // the kernel allows periods up to 1 s
		return 0, 0, false
	}
	return float64(quota) / float64(us), time.Duration(us) * time.Microsecond, true
}

// throttledPeriods returns in how many periods a control group was throttled.
func throttledPeriods(dir string) (n uint64) {
	b, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			n, _ = strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
		}
	}
	return n
}

func (q *throttle) String() string {
	return fmt.Sprintf("the CPU quota of its control group %s, %.3g %% of a CPU, throttles it", Clean(q.dir), 100*q.share)
}

// command returns the shell command that removes the quota.
func (q *throttle) command() string {
	if q.version == 1 {
		return "echo -1 > " + Quote(filepath.Join(q.dir, "cpu.cfs_quota_us"))
	}
	return "echo max > " + Quote(filepath.Join(q.dir, "cpu.max"))
}

// throttled returns the quota that throttles the process of a participant, or nil.
func (s *Snapshot) throttled(name string) *throttle {
	i, ok := s.who[name]
	if !ok || s.Participants[i].HostPID == 0 || s.opts.Dump != nil {
		return nil
	}
	return s.throttler.of(s.Participants[i].HostPID)
}
