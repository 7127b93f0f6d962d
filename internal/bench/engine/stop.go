//go:build linux

package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/shmsync/shmsync/internal/bench/child"
)

// stacks finds out what hung workers are doing. It reads what the kernel says about their threads. Then it sends
// SIGQUIT, which makes a Go process print its stacks.
func (r *run) stacks() string {
	var b strings.Builder
	for _, p := range r.procs {
		select {
		case <-p.done:
			continue
		default:
		}
		pid := p.cmd.Process.Pid
		fmt.Fprintf(&b, "process %d: %s\n", pid, strings.Join(p.cmd.Args[1:], " "))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			wchan, _ := os.ReadFile(task + "/wchan")
			call, _ := os.ReadFile(task + "/syscall")
			fmt.Fprintf(&b, "  task %s in %s: %s\n", filepath.Base(task), wchan, strings.TrimSpace(string(call)))
		}
		p.expected = endKilled
		p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.done:
			b.Write(p.out.B)
		case <-time.After(child.DumpTime):
			fmt.Fprintln(&b, "  no answer to SIGQUIT")
		}
	}
	return b.String()
}

// stop ends all remaining processes and waits for them.
func (r *run) stop() {
	for _, p := range r.procs {
		select {
		case <-p.done:
		default:
			p.expected = endKilled
			p.cmd.Process.Kill()
		}
	}
	for _, p := range r.procs {
		<-p.done
	}
}
