//go:build linux

package torture

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The torture reports operations that take too long only while other programs leave nearly all CPU time to the
// torture. Otherwise it cannot distinguish a long wait for a CPU from a lost wake.
const (
	busyPeriod = 250 * time.Millisecond
	busyMost   = 100 // thousandths of all CPU time that other programs may take
)

// busyness measures how much of the CPU time other programs take.
type busyness struct {
	t           *torturer
	at          time.Time
	all, own    time.Duration
	sum, judged time.Duration // the time of all samples, and of those in which other programs took little CPU time
}

// ticks is the unit in which the kernel counts CPU time in /proc.
const ticks = 10 * time.Millisecond

// look measures the share of CPU time that other programs took since the last call. It stores the share in the field
// busy of the page, where the residents read it.
func (b *busyness) look() {
	all, own := usedByAll(), b.t.usedByUs()
	now := time.Now()
	if !b.at.IsZero() && all != 0 {
		passed := now.Sub(b.at) * time.Duration(len(b.t.cpus))
		share := max(0, (all-b.all)-(own-b.own)) * 1000 / max(passed, 1)
		b.t.page.busy.Store(uint32(share))
		b.sum += now.Sub(b.at)
		if share <= busyMost {
			b.judged += now.Sub(b.at)
		}
	}
	b.at, b.all, b.own = now, all, own
}

// usedByAll returns the CPU time that all processes of the system have used, on all CPUs.
func usedByAll() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	sum := time.Duration(0)
	for i, field := range strings.Fields(string(line)) {
		// The fields are user, nice, system, idle, iowait, irq, softirq and steal. Steal is the time that other virtual
		// machines took, so it counts as time of others.
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i != 4 && i != 5 && i <= 8 {
			sum += time.Duration(n) * ticks
		}
	}
	return sum
}

// usedByUs returns the CPU time that the processes of the torture have used.
func (t *torturer) usedByUs() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.all {
		sum += usedBy(p.cmd.Process.Pid)
	}
	return sum
}

func usedBy(pid int) (sum time.Duration) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += time.Duration(n) * ticks
		}
	}
	return sum
}
