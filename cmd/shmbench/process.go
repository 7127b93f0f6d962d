//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a worker or a hog.
type process struct {
	cmd      *exec.Cmd
	out      tail
	done     chan struct{}
	err      error // valid once done
	expected ending
}

// ending is what end of a process is no surprise.
type ending int

const (
	endNever  ending = iota // it must not end yet
	endStatus               // it was told to stop, and exits with status 0
	endKilled               // it was killed
)

// tail keeps the end of what a worker prints.
type tail struct{ b []byte }

const tailBytes = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - tailBytes; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}

// spawn starts worker process proc.
func (r *run) spawn(proc int) error {
	var argv []string
	if r.cell.Subject.C {
		if err := r.helper.check(); err != nil {
			return err
		}
		argv = []string{r.helper.path, strconv.Itoa(proc)}
	} else {
		self, err := selfCommand()
		if err != nil {
			return err
		}
		argv = append(self, "worker", strconv.Itoa(proc))
	}
	if err := r.launch(argv); err != nil || r.quota == nil {
		return err
	}
	return r.quota.join(r.procs[len(r.procs)-1].cmd.Process.Pid)
}

func (r *run) hog(cpu int) error {
	self, err := selfCommand()
	if err != nil {
		return err
	}
	return r.launch(append(self, "worker", "--busy", strconv.Itoa(cpu)))
}

// selfCommand is how to run this program again.
func selfCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append(strings.Fields(os.Getenv("SHMSYNC_EXEC_WRAP")), self), nil
}

func (r *run) launch(argv []string) error {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.ExtraFiles = append([]*os.File{r.page.file}, r.files...)
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

// maxProcs leaves a worker one P more than it has running threads: with a P
// idle, the runtime does not take one from a thread that sleeps in the kernel.
func (r *run) maxProcs() int {
	running := int(r.page.control.threads)
	cpus := len(r.cpus)
	if r.cell.Place == placeSame || r.cell.apart() && !r.cell.Subject.InProcess {
		cpus = 1
	}
	return min(running, max(cpus, 1), runtime.NumCPU()) + 1
}

// failure describes a worker's unexpected end.
func (p *process) failure() error {
	lines := strings.TrimSpace(string(p.out.b))
	if i := strings.IndexByte(lines, '\n'); i >= 0 {
		lines = lines[:i]
	}
	state := "exit status 0"
	if p.err != nil {
		state = p.err.Error()
	}
	return fmt.Errorf("%w: pid %d: %s: %s", errCrashed, p.cmd.Process.Pid, state, lines)
}
