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

// The torture judges the length of waits only while other programs leave it the CPUs.
// Otherwise the scheduler decides how long a process waits for its turn, and the
// measurements here cannot tell that from a lost wake.
const (
	busyPeriod = 250 * time.Millisecond
	busyMost   = 100 // thousandths of all CPU time that others may take
)

// busyness measures what share of the CPUs others take.
type busyness struct {
	t           *torturer
	at          time.Time
	all, own    time.Duration
	sum, judged time.Duration // the time of all samples, and the part of it in which waits were judged
}

// ticks is the unit of the kernel's counters of CPU time.
const ticks = 10 * time.Millisecond

// look takes a sample and tells the residents what it says.
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

// usedByAll is the CPU time that all processes have had, on all CPUs.
func usedByAll() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	sum := time.Duration(0)
	for i, field := range strings.Fields(string(line)) {
		// user nice system idle iowait irq softirq steal; what steals is others, too.
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i != 4 && i != 5 && i <= 8 {
			sum += time.Duration(n) * ticks
		}
	}
	return sum
}

// usedByUs is the CPU time that the processes of the torture have had.
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
