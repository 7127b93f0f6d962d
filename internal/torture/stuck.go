//go:build linux

package torture

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/child"
)

// waitLimit is how long one operation may take before the torture counts as hanging.
func (t *torturer) waitLimit() time.Duration { return t.asked.Timeout / 2 }

// stuck describes an operation that has lasted longer than waitLimit. It does not count the time in which processes
// were stopped or had no CPU. It returns an empty string if there is no such operation.
func (t *torturer) stuck() string {
	for s := range t.asked.Residents {
		for j := range jobs {
			for g := range tortureThreads {
				at := t.page.worker[s].since[j][g].Load()
				if at == 0 || since(at) < int64(t.waitLimit()) {
					continue
				}
				now := shmsync.Monotonic()
				if now-at-covered(t.page.excuses(at, now)) > int64(t.waitLimit()) {
					return turnText(s, j, g, at)
				}
			}
		}
	}
	return ""
}

// longest describes the operation that has lasted longest. It counts all time, even the time in which processes
// were stopped or had no CPU.
func (t *torturer) longest() (text string) {
	first := int64(math.MaxInt64)
	for s := range t.asked.Residents {
		for j := range jobs {
			for g := range tortureThreads {
				if at := t.page.worker[s].since[j][g].Load(); at != 0 && at < first {
					first, text = at, turnText(s, j, g, at)
				}
			}
		}
	}
	return text
}

// autopsy ends all processes of a torture that does not continue, and collects their stacks and the state of the arena.
func (t *torturer) autopsy(what string) *violation {
	var b strings.Builder
	for _, p := range t.living() {
		fmt.Fprintf(&b, "process %d: %v\n%s", p.cmd.Process.Pid, p.cmd.Args, threadsOf(p.cmd.Process.Pid))
	}
	if p, err := t.launch(nil, "dump"); err != nil {
		fmt.Fprintln(&b, err)
	} else {
		select {
		case <-p.done:
		case <-time.After(child.DumpTime):
			fmt.Fprintln(&b, "who asks for the words is stuck itself")
			p.signal(syscall.SIGQUIT)
			time.Sleep(child.DumpTime / 10)
		}
		fmt.Fprintln(&b, p.said())
	}
	left := t.living()
	for _, p := range left {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGQUIT)
	}
	for _, p := range left {
		select {
		case <-p.done:
		case <-time.After(child.DumpTime):
		}
		fmt.Fprintf(&b, "process %d: %v\n%s\n", p.cmd.Process.Pid, p.cmd.Args, p.said())
	}
	return &violation{what: what, dump: b.String()}
}

// living returns the processes that have not ended.
func (t *torturer) living() []*tortured {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.all))
}

// threadsOf says where in the kernel the threads of a process are. The report of a program in C has no other
// information about its threads.
func threadsOf(pid int) string {
	var b strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		fmt.Fprintf(&b, "  thread %s:", filepath.Base(task))
		for _, file := range []string{"comm", "wchan", "syscall"} {
			text, _ := os.ReadFile(filepath.Join(task, file))
			fmt.Fprintf(&b, " %s", bytes.TrimSpace(text))
		}
		stat, _ := os.ReadFile(filepath.Join(task, "stat"))
		_, state, _ := bytes.Cut(stat, []byte(") "))
		fmt.Fprintf(&b, " %.1s\n", state)
	}
	return b.String()
}

// turnText describes the operation of a goroutine: s is the number of the resident, j is the index of the job, and at
// is when the operation began.
func turnText(s, j, g int, at int64) string {
	return fmt.Sprintf("goroutine %d of resident %d is at %s for %v", g, s, jobs[j].name, time.Duration(since(at)).Round(time.Millisecond))
}
