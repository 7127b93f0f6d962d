//go:build linux

package stopstorm

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// laneIsSlow is how long an operation makes no progress before the parent asks the kernel whether the thread of the
// operation waits for a CPU.
const laneIsSlow = 2 * time.Millisecond

// cpuWait estimates how long a thread that makes no progress has waited for a CPU: the time in which the thread
// could run, minus the CPU time that it got. So a thread that only spins does not count as waiting. The heartbeat
// of the process does not show such a wait, because the kernel prefers threads that seldom run, and the thread of
// the heartbeat is one of these.
type cpuWait struct {
	at     time.Time // of the last sample
	ran    time.Duration
	waited time.Duration // may be negative until the kernel has counted the thread's CPU time
}

// sample asks the kernel for the state of a thread. It ignores a thread that is gone, because storm.sound reports that.
func (c *cpuWait) sample(pid int, tid uint32, now time.Time) {
	canRun, ran, err := threadState(pid, tid)
	if err != nil {
		return
	}
	if !c.at.IsZero() {
		if canRun {
			c.waited += now.Sub(c.at)
		}
		c.waited -= ran - c.ran
	}
	c.at, c.ran = now, ran
}

// threadState reports whether a thread runs or waits for a CPU, and how much CPU time it has had.
func threadState(pid int, tid uint32) (canRun bool, ran time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return false, 0, err
	}
	times, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		return false, 0, err
	}
	first, _, _ := bytes.Cut(times, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	// The state follows the name of the thread, which is in parentheses and may contain any byte.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(state, []byte("R")), time.Duration(ns), err
}
