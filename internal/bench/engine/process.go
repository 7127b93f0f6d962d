//go:build linux

package engine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/child"
)

// process is a worker, or a hog, that is, a process that only keeps a CPU busy.
type process struct {
	cmd      *exec.Cmd
	out      child.Tail
	done     chan struct{}
	err      error // valid after done is closed
	expected ending
}

// ending says how a process is expected to end.
type ending int

const (
	endNever  ending = iota // it must not end yet
	endStatus               // it was told to stop, and exits with status 0
	endKilled               // it was killed
)

// spawn starts the worker process with the number proc.
func (r *run) spawn(proc int) error {
	var argv []string
	if r.cell.Subject.C {
		if err := r.helper.Check(); err != nil {
			return err
		}
		argv = []string{r.helper.Path, strconv.Itoa(proc)}
	} else {
		self, err := child.Self()
		if err != nil {
			return err
		}
		argv = append(self, "worker", strconv.Itoa(proc))
	}
	if err := r.launch(argv); err != nil || r.quota == nil {
		return err
	}
	return r.quota.Join(r.procs[len(r.procs)-1].cmd.Process.Pid)
}

func (r *run) hog(cpu int) error {
	self, err := child.Self()
	if err != nil {
		return err
	}
	return r.launch(append(self, "worker", "--busy", strconv.Itoa(cpu)))
}

func (r *run) launch(argv []string) error {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.ExtraFiles = append([]*os.File{r.page.File}, r.files...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = append(os.Environ(), "GOGC=off", "GOTRACEBACK=all", "SHMBENCH_WORKER=1",
		"GOMAXPROCS="+strconv.Itoa(r.maxProcs()))
	p.cmd.Env = append(p.cmd.Env, r.cell.Subject.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	r.procs = append(r.procs, p)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

// maxProcs returns the GOMAXPROCS of a worker: the number of Ps in the Go scheduler. A thread needs a P to run Go code.
// maxProcs returns one more than the number of threads that can run at a time, so that at least one P is idle. While a
// P is idle, the runtime does not take away the P of a thread that sleeps in the kernel.
func (r *run) maxProcs() int {
	running := int(r.page.Control.Threads)
	cpus := len(r.cpus)
	switch {
	case r.cell.Spreads():
		cpus = min(running, len(bench.Or(r.cell.CPUs, r.cpus...)))
	case r.cell.Place == bench.PlaceSame || r.cell.Apart() && !r.cell.Subject.InProcess:
		cpus = 1
	}
	return min(running, max(cpus, 1), runtime.NumCPU()) + 1
}

// failure returns an error that describes the unexpected end of a worker.
func (p *process) failure() error {
	lines := strings.TrimSpace(string(p.out.B))
	if i := strings.IndexByte(lines, '\n'); i >= 0 {
		lines = lines[:i]
	}
	state := "exit status 0"
	if p.err != nil {
		state = p.err.Error()
	}
	return fmt.Errorf("%w: pid %d: %s: %s", errCrashed, p.cmd.Process.Pid, state, lines)
}
