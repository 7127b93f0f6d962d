//go:build linux

package stopstorm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/shm"
)

// Options are the options of a storm.
type Options struct {
	Prims  []string      // primitives; empty: all
	In     []string      // languages of the workers: "go", "c" and "mixed", with a storm for each; empty: "go"
	CC     string        // C compiler; empty: cc
	Stops  int           // number of stops of each primitive
	Procs  int           // number of workers
	Watch  time.Duration // least duration of a stop
	Bound  time.Duration // longest time that an operation may make no progress
	Quota  int           // percent of a CPU that one worker gets, instead of random stops; 0: random stops
	Every  int           // if not 0, stop after each Every-th instruction of an operation, at most Stops times
	Seed   uint64
	Format string // table or json
	Out    io.Writer
	Log    io.Writer
	// Trouble is how long the parent waits for something that must happen. After that time, the storm fails.
	Trouble time.Duration

	program *cProgram
}

// ErrFreeze says that a stopped process kept others from making progress, although the primitive must not allow that.
var ErrFreeze = errors.New("a stopped process froze others")

const arenaSize = 8 << 20

// target is the primitive of one storm, and the languages of its workers.
type target struct {
	which int    // index in the list workloads
	in    string // languages of the workers
}

// set checks the options, and returns the targets of the storms.
func (o *Options) set() (list []target, err error) {
	switch {
	case o.Procs < 3 || o.Procs > mostProcs:
		return nil, fmt.Errorf("--procs is 3 to %d", mostProcs)
	case o.Stops < 1:
		return nil, errors.New("--stops is 1 or more")
	case o.Watch <= 0 || o.Bound <= 0:
		return nil, errors.New("--watch and --bound are positive")
	case o.Quota < 0 || o.Quota >= 100:
		return nil, errors.New("--quota is 1 to 99 percent, or 0 for random stops")
	case o.Format != "json" && o.Format != "table":
		return nil, fmt.Errorf("--format is table or json for this command, not %q", o.Format)
	case o.Quota != 0 && o.Every != 0:
		return nil, errors.New("--quota means nothing with --step")
	}
	if o.Trouble == 0 {
		o.Trouble = 30 * time.Second
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if len(o.In) == 0 {
		o.In = []string{inGo}
	}
	if o.CC == "" {
		o.CC = "cc"
	}
	for _, in := range o.In {
		if !slices.Contains([]string{inGo, inC, inMixed}, in) {
			return nil, fmt.Errorf("%q is no language of workers: they are %s, %s and %s", in, inGo, inC, inMixed)
		}
	}
	for _, name := range o.Prims {
		i := slices.IndexFunc(workloads, func(p prim) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%q is none of %s", name, Names())
		}
		for _, in := range o.In {
			if why := onlyGo[name]; why != "" && in != inGo {
				return nil, fmt.Errorf("%q has no workers in C: %s", name, why)
			}
			list = append(list, target{i, in})
		}
	}
	if len(list) == 0 {
		for i := range sound {
			for _, in := range o.In {
				if in == inGo || onlyGo[workloads[i].name] == "" {
					list = append(list, target{i, in})
				}
			}
		}
	}
	return list, nil
}

// storm is the state of the parent during a storm, that is, the test of one primitive by stopping its users.
type storm struct {
	ctx      context.Context
	o        *Options
	prim     *prim
	in       string    // languages of the workers
	program  *cProgram // nil if all workers are in Go
	r        *rand.Rand
	page     *page
	files    [2]*os.File // for the shared page and the arena
	look     *arenakernel.Inspector
	procs    []*proc
	lanes    []lane // the operations, and whether they need what others hold
	res      *Result
	observed observed
}

// proc is a worker as the parent sees it.
type proc struct {
	cmd    *exec.Cmd
	page   *procPage
	stderr *os.File
	done   chan struct{}
	err    error // valid when the process has ended
}

// newStorm starts the workers. If step is 0, each worker runs all its operations. Otherwise worker 0 runs only the
// operation with the index step-1, for stops between single instructions.
func newStorm(ctx context.Context, o *Options, t target, step int) (s *storm, err error) {
	which := t.which
	s = &storm{ctx: ctx, o: o, prim: &workloads[which], in: t.in, program: o.program, r: rand.New(rand.NewPCG(o.Seed, uint64(which)))}
	s.res = &Result{Prim: s.prim.name, Lang: t.in}
	s.observed.lanes = map[string]int{}
	s.observed.where = map[string]int{}
	begun := s // a return statement with an error sets s to nil
	defer func() {
		if err != nil {
			begun.end()
		}
	}()
	if s.page, s.files[0], err = newPage(); err != nil {
		return nil, err
	}
	s.page.magic, s.page.prim, s.page.procs = pageMagic, uint32(which), uint32(o.Procs)
	format := func(seg *shm.Segment) error { return arena.Format(seg, &arena.Options{Size: seg.Size()}) }
	seg, err := shm.CreateMemfd("shmbench-stopstorm", arenaSize, format, nil)
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	if s.files[1], err = seg.Reopen(); err != nil {
		return nil, err
	}
	if s.lanes, err = describe(seg, which); err != nil {
		return nil, err
	}
	own, err := seg.Reopen()
	if err != nil {
		return nil, err
	}
	if s.look, err = arenakernel.InspectFile(own); err != nil {
		return nil, err
	}
	s.page.proc[0].step.Store(uint32(step))
	for i := range o.Procs {
		p, err := s.launch(i)
		if err != nil {
			return nil, err
		}
		s.procs = append(s.procs, p)
	}
	for i := range s.procs {
		if i == 0 && step != 0 {
			continue // worker 0 may be ready only after phaseRun, because its first operations may wait for the others
		}
		if err := s.until("it is ready", func() bool { return s.page.proc[i].ready.Load() != 0 }); err != nil {
			return nil, err
		}
	}
	s.page.phase.Store(phaseRun)
	if step != 0 {
		return s, s.until("the stepped worker is ready", func() bool { return s.page.proc[0].ready.Load() != 0 })
	}
	return s, nil
}

// describe opens the objects of a workload once, to find out which operations it has.
func describe(seg *shm.Segment, which int) ([]lane, error) {
	f, err := seg.Reopen()
	if err != nil {
		return nil, err
	}
	own, err := shm.FromFile(f, nil)
	if err != nil {
		return nil, err
	}
	a, err := arena.FromSegment(own, &arena.Options{Label: "parent"})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	p := &page{}
	return workloads[which].open(&worker{page: p, self: &p.proc[0], a: a})
}

func (s *storm) launch(number int) (*proc, error) {
	var argv []string
	if s.inC(number) {
		argv = s.program.argv(number, s.prim.name, s.lanes)
	} else {
		self, err := child.Self()
		if err != nil {
			return nil, err
		}
		argv = append(self, "stopstorm-worker", strconv.Itoa(number))
	}
	p := &proc{cmd: exec.Command(argv[0], argv[1:]...), page: &s.page.proc[number], done: make(chan struct{})}
	var err error
	if p.stderr, err = control.NewMemfd("stderr", 0); err != nil {
		return nil, err
	}
	p.cmd.ExtraFiles = s.files[:]
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	p.cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1", "GOTRACEBACK=all", "GORACE=atexit_sleep_ms=0")
	if s.page.proc[number].step.Load() != 0 {
		p.cmd.Env = append(p.cmd.Env, "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=3")
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.stderr.Close()
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *proc) said() string {
	b, _ := io.ReadAll(io.NewSectionReader(p.stderr, 0, child.TailBytes))
	return strings.TrimSpace(string(b))
}

// end kills the workers.
func (s *storm) end() {
	for _, p := range s.procs {
		p.cmd.Process.Kill()
	}
	for _, p := range s.procs {
		<-p.done
		p.stderr.Close()
	}
	if s.look != nil {
		s.look.Close()
	}
	for _, f := range s.files {
		if f != nil {
			f.Close()
		}
	}
	if s.page != nil {
		s.page.unmap()
	}
}

// sound returns an error if a worker has ended, or has recorded that something unexpected happened.
func (s *storm) sound() error {
	if texts := s.page.failures(); len(texts) != 0 {
		return fmt.Errorf("%s: %s", s.prim.name, strings.Join(texts, "\n"))
	}
	for i, p := range s.procs {
		if p.ended() {
			return fmt.Errorf("%s: worker %d ended by itself: %v\n%s", s.prim.name, i, p.cmd.ProcessState, p.said())
		}
	}
	return s.ctx.Err()
}

// until waits until the function reached returns true. It returns an error if that takes longer
// than Trouble.
func (s *storm) until(what string, reached func() bool) error {
	for end := time.Now().Add(s.o.Trouble); !reached(); nap(200 * time.Microsecond) {
		if err := s.sound(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not reached within %v: %s\n%s\n%s", s.prim.name, s.o.Trouble, what, s.words(), s.stacks())
		}
	}
	return nil
}

// nap sleeps in a system call. The timers of the Go scheduler are not precise enough here.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&ts, nil)
}

// stop stops a worker, and returns when all its threads have stopped.
func (s *storm) stop(p *proc) error {
	if err := unix.Kill(p.pid(), unix.SIGSTOP); err != nil {
		return os.NewSyscallError("kill", err)
	}
	for {
		var info unix.Siginfo
		switch err := unix.Waitid(unix.P_PID, p.pid(), &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err {
		case nil:
			return nil // the worker has ended, and sound reports it
		case unix.EINTR:
		default:
			return os.NewSyscallError("waitid", err)
		}
	}
}

func (s *storm) resume(p *proc) { unix.Kill(p.pid(), unix.SIGCONT) }

// stacks makes the workers print their stacks. This ends the workers.
func (s *storm) stacks() string {
	var b strings.Builder
	for i, p := range s.procs {
		s.resume(p)
		p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.done:
		case <-time.After(child.DumpTime):
		}
		fmt.Fprintf(&b, "worker %d:\n%s\n", i, p.said())
	}
	return b.String()
}
