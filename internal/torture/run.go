//go:build linux

package torture

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// torturePhaseEnd is the phase, in torturePage.phase, in which all processes end. In round n, from 1, the phase is 2n
// while the processes work, and 2n+1 while they pause.
const torturePhaseEnd = 1<<32 - 1

// torturer is the state of the parent, which starts and kills the processes.
type torturer struct {
	ctx   context.Context
	asked *Options
	seed  uint64
	only  uint64
	start time.Time

	page                *torturePage
	pageFile, arenaFile *os.File
	inC                 *os.File // the program of the victims and residents in C; nil if there is none
	noC                 string   // why inC is nil
	residents           [tortureResidents]*tortured
	next                atomic.Int64 // number of the next victim
	over                atomic.Bool  // no more victims are started
	outcomes            [outcomes]atomic.Int64
	doomed              atomic.Int64   // number of residents that were killed
	doomedInC           atomic.Int64   // number of these residents that were programs in C
	following           sync.WaitGroup // goroutines of the parent that measure a resident in C until it ends
	victimsInC          atomic.Int64
	rounds              int
	cpus                []int
	busy                busyness
	hanging             sync.Once
	hangs               atomic.Bool // hang was called; it ends all processes
	hung                *violation  // what hang has reported

	mu  sync.Mutex
	all map[*tortured]bool // the processes that have not ended
}

// tortured is a victim or resident as the parent sees it.
type tortured struct {
	cmd    *exec.Cmd
	stderr *os.File
	done   chan struct{}
	err    error // valid when done is closed
}

// launch starts a process of this program. args begins with the role of the process.
func (t *torturer) launch(env []string, args ...string) (*tortured, error) {
	self, err := child.Self()
	if err != nil {
		return nil, err
	}
	return t.launchLine(env, append(append(self, "torture-worker"), args...))
}

// launchLine starts a process with the command line argv.
func (t *torturer) launchLine(env, argv []string) (_ *tortured, err error) {
	p := &tortured{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	if p.stderr, err = control.NewMemfd("stderr", 0); err != nil {
		return nil, err
	}
	p.cmd.ExtraFiles = []*os.File{t.pageFile, t.arenaFile}
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	p.cmd.Env = append(append(os.Environ(), "SHMBENCH_WORKER=1", "GOTRACEBACK=all"), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.stderr.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[*tortured]bool{}
	}
	t.all[p] = true
	go func() {
		p.err = p.cmd.Wait()
		close(p.done) // before the wait for t.mu, which other goroutines may hold for a long time
		t.mu.Lock()
		delete(t.all, p)
		t.mu.Unlock()
	}()
	return p, nil
}

func (p *tortured) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

func (p *tortured) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// gone reports whether the process has ended. It may return true seconds before the method Wait of the process
// returns: in Wait, the kernel removes the directories of the process from /proc, which is slow on a busy host.
func (p *tortured) gone() bool {
	return p.ended() || unix.Kill(p.cmd.Process.Pid, 0) == unix.ESRCH
}

// said returns the end of what the process has printed.
func (p *tortured) said() string {
	b, _ := io.ReadAll(io.NewSectionReader(p.stderr, 0, child.TailBytes))
	return strings.TrimSpace(string(b))
}

func (t *torturer) run() error {
	for worker := range t.asked.Residents {
		if err := t.settle(worker); err != nil {
			return err
		}
	}
	stop := t.watch()
	defer stop()
	for round := uint32(1); ; round++ {
		t.page.phase.Store(2 * round)
		if err := t.await("everybody works", func(s *tortureSlot) bool { return s.at.Load() == round }); err != nil {
			return err
		}
		if err := t.round(round); err != nil {
			return err
		}
		t.rounds++
		if t.over.Load() || t.page.faults.Load() != 0 {
			break
		}
	}
	t.page.phase.Store(torturePhaseEnd)
	if err := t.await("everybody ends", nil); err != nil {
		return err
	}
	t.following.Wait()
	return nil
}

// settle starts one resident; worker is its number.
func (t *torturer) settle(worker int) (err error) {
	if t.residesInC(worker) {
		t.residents[worker], err = t.launchResidentInC(worker)
	} else {
		t.residents[worker], err = t.launch(nil, "resident", strconv.Itoa(worker))
	}
	return err
}

// watch starts a goroutine that ends the torture when it has lasted long enough, or when something is wrong.
func (t *torturer) watch() (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		t.busy = busyness{t: t}
		for {
			if time.Since(t.busy.at) > busyPeriod {
				t.busy.look()
			}
			select {
			case <-done:
				return
			case <-t.ctx.Done():
				t.over.Store(true)
				return
			case <-tick.C:
			}
			enough := t.asked.Deaths != 0 && t.deaths() >= t.asked.Deaths
			if enough || time.Since(t.start) > t.asked.Duration || t.page.faults.Load() != 0 || t.stuck() != "" {
				t.over.Store(true)
			}
		}
	}()
	return func() { close(done); <-gone }
}

// deaths returns how many processes have died so far. Processes that left by Close do not count.
func (t *torturer) deaths() int {
	sum := t.doomed.Load()
	for f := range outcomes {
		if f != outcomeClose {
			sum += t.outcomes[f].Load()
		}
	}
	return int(sum)
}

// round runs one round: it starts the victims of the round, waits until they have ended, and lets a resident check
// the arena.
func (t *torturer) round(round uint32) error {
	number := int(round-1) * RoundSize
	t.next.Store(int64(number))
	errs := make(chan error, t.asked.Processes)
	for lane := range t.asked.Processes {
		go func() { errs <- t.lane(lane, number+RoundSize) }()
	}
	var first error
	for range t.asked.Processes {
		if err := <-errs; err != nil && first == nil {
			first = err
			t.over.Store(true)
		}
	}
	if first != nil {
		return first
	}
	if everybodyDies(t.seed, int(round-1)) {
		if err := t.doom(round); err != nil {
			return err
		}
	}
	t.page.phase.Store(2*round + 1)
	if err := t.await("everybody rests", func(s *tortureSlot) bool { return s.still.Load() == round }); err != nil {
		return err
	}
	t.page.referee.Store(round)
	return t.await("the arena is checked", func(*tortureSlot) bool { return t.page.judged.Load() == round })
}

// lane runs the victims of a round one after the other. Several lanes run at the same time.
func (t *torturer) lane(lane, end int) error {
	for !t.over.Load() {
		i := int(t.next.Add(1) - 1)
		if i >= end {
			break
		}
		v := victimOf(t.seed, i, t.only)
		if err := t.live(lane, v); err != nil {
			return fmt.Errorf("victim %v: %w", v, err)
		}
		t.outcomes[v.outcome].Add(1)
	}
	return nil
}

// live starts one victim and waits until it has ended as planned.
func (t *torturer) live(lane int, v victim) error {
	p, err := t.launchVictim(lane, v)
	if err != nil {
		return err
	}
	defer p.stderr.Close()
	defer t.page.lane[lane].until.Store(0)
	if v.outcome != outcomeNewborn {
		ready := &t.page.lane[lane].ready
		err := t.until("it works", p, func() bool { return ready.Load() == uint32(v.number)+1 })
		if err != nil {
			return err
		}
	}
	switch v.outcome {
	case outcomeExec, outcomeExit, outcomeClose, outcomePanic: // the victim ends by itself
	default:
		time.Sleep(v.delay)
		if v.held != 0 {
			defer t.holdUp(t.residents[v.number%t.asked.Residents], v.held)()
		}
		t.kill(p, v)
	}
	if err := t.until("it ends", nil, p.gone); err != nil {
		return err
	}
	<-p.done
	if bad := v.judge(p); bad != nil {
		return t.unlessHung(bad)
	}
	return nil
}

// kill kills a victim by a signal. If the plan says so, it stops the victim first.
func (t *torturer) kill(p *tortured, v victim) {
	if v.outcome == outcomeStopped || v.outcome == outcomeContinue {
		stop := t.page.stops.begin(shmsync.Monotonic())
		p.signal(syscall.SIGSTOP)
		time.Sleep(v.stop)
		if v.outcome == outcomeContinue {
			p.signal(syscall.SIGCONT)
			t.page.stops.end(stop, shmsync.Monotonic())
			time.Sleep(v.after)
		} else {
			defer func() { t.page.stops.end(stop, shmsync.Monotonic()) }()
		}
	}
	t.page.deaths.end(t.page.deaths.begin(shmsync.Monotonic()), shmsync.Monotonic()+1)
	p.signal(syscall.SIGKILL)
}

// holdUp stops a resident. The function that it returns waits for d, and then continues the resident.
func (t *torturer) holdUp(p *tortured, d time.Duration) (goOn func()) {
	stop := t.page.stops.begin(shmsync.Monotonic())
	p.signal(syscall.SIGSTOP)
	return func() {
		time.Sleep(d)
		p.signal(syscall.SIGCONT)
		t.page.stops.end(stop, shmsync.Monotonic())
	}
}

// judge returns a violation if a victim did not end as planned.
func (v victim) judge(p *tortured) *violation {
	ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	ok := ws.Signaled() && ws.Signal() == syscall.SIGKILL
	switch v.outcome {
	case outcomeExec, outcomeExit, outcomeClose:
		ok = ws.Exited() && ws.ExitStatus() == 0
	case outcomePanic:
		ok = ws.Exited() && strings.Contains(p.said(), tortureLastWords) || v.c && ws.Signaled() && ws.Signal() == syscall.SIGABRT
	}
	if !ok {
		return &violation{what: "it ended by itself: " + p.cmd.ProcessState.String(), dump: p.said()}
	}
	return nil
}

// doom kills all residents at once, and starts new ones.
func (t *torturer) doom(round uint32) error {
	now := shmsync.Monotonic()
	t.page.deaths.end(t.page.deaths.begin(now), now+1)
	for _, p := range t.residents[:t.asked.Residents] {
		if p.ended() {
			return t.unlessHung(&violation{what: "a resident ended by itself", dump: p.said()})
		}
		p.signal(syscall.SIGKILL)
	}
	for worker, p := range t.residents[:t.asked.Residents] {
		<-p.done
		p.stderr.Close()
		s := &t.page.worker[worker]
		s.at.Store(0)
		s.until.Store(0)
		for j := range jobs {
			for g := range tortureThreads {
				s.since[j][g].Store(0)
			}
		}
		t.doomed.Add(1)
		if t.residesInC(worker) {
			t.doomedInC.Add(1)
		}
	}
	t.following.Wait() // these goroutines write to the slots that the new residents will use
	for worker := range t.asked.Residents {
		if err := t.settle(worker); err != nil {
			return err
		}
	}
	if err := t.await("newcomers work", func(s *tortureSlot) bool { return s.at.Load() == round }); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	return nil
}

// await waits until a condition holds for each resident. Without a condition, it waits until all residents have
// ended.
func (t *torturer) await(what string, there func(*tortureSlot) bool) error {
	for worker, p := range t.residents[:t.asked.Residents] {
		reached, of := p.gone, (*tortured)(nil)
		if there != nil {
			reached, of = func() bool { return there(&t.page.worker[worker]) }, p
		}
		if err := t.until(what, of, reached); err != nil {
			return fmt.Errorf("resident %d: %w", worker, err)
		}
		if there != nil {
			continue
		}
		if <-p.done; p.err != nil {
			return t.unlessHung(&violation{what: fmt.Sprintf("resident %d ended by itself: %v", worker, p.err), dump: p.said()})
		}
	}
	return nil
}

// Of the time between two checks of a condition, at most lookMost counts as waiting time.
const lookMost = 20 * time.Millisecond

// until waits until the function in the parameter reached returns true. It returns an error if the torture hangs, or
// if p is not nil and the process p ends first.
func (t *torturer) until(what string, p *tortured, reached func() bool) error {
	left, last := 2*t.asked.Timeout+t.waitLimit(), time.Now()
	for n := 0; !reached(); n++ {
		// While the parent has no CPU, it cannot check the condition. So at most lookMost of the time since the last
		// check counts.
		now := time.Now()
		left -= min(now.Sub(last), lookMost)
		last = now
		if p != nil && p.ended() && !reached() {
			return t.unlessHung(&violation{what: fmt.Sprintf("before %s: %v", what, p.cmd.ProcessState), dump: p.said()})
		}
		if s := t.stuck(); s != "" || left < 0 {
			return t.hang(fmt.Sprintf("not reached: %s: %s", what, cmp.Or(s, t.longest())))
		}
		time.Sleep(min(time.Duration(50+10*n)*time.Microsecond, time.Millisecond))
	}
	return nil
}

// hang ends a torture that does not continue, and returns a report. Only the first call makes the report.
func (t *torturer) hang(what string) error {
	t.over.Store(true)
	t.hanging.Do(func() {
		t.hangs.Store(true)
		t.hung = t.autopsy(what)
	})
	return t.hung
}

// unlessHung returns the report v, which says that a process ended unexpectedly. But if hang has ended the processes,
// that end is expected, and unlessHung returns the report of hang.
func (t *torturer) unlessHung(v *violation) error {
	if t.hangs.Load() {
		return t.hang("")
	}
	return v
}

func (t *torturer) killAll() {
	left := t.living()
	for _, p := range left {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}
