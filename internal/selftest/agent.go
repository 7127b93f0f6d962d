//go:build linux

package selftest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// agent is a process that a proof starts, where a proof is the test of one promise. It inherits a segment or a page as
// descriptor 3.
type agent struct {
	role  string
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // the lines that the agent prints; closed when it has ended
	errs  child.Tail
	gone  chan struct{}
}

const agentFD = 3

// start starts an agent that plays a role. file becomes its descriptor 3.
func (t *selftester) start(file *os.File, env []string, role string, args ...string) (*agent, error) {
	self, err := child.Self()
	if err != nil {
		return nil, err
	}
	argv := append(append(self, "selftest-worker", role), args...)
	a := &agent{role: role, cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 64), gone: make(chan struct{})}
	if file != nil {
		a.cmd.ExtraFiles = []*os.File{file}
	}
	a.cmd.Env = append(append(os.Environ(), "SHMBENCH_WORKER=1", "GOMAXPROCS=2"), env...)
	a.cmd.Stderr = &a.errs
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	t.agents = append(t.agents, a)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			a.lines <- s.Text()
		}
		close(a.lines)
		a.cmd.Wait()
		close(a.gone)
	}()
	return a, nil
}

// says waits for the agent's next line, which must begin with the text want. It returns the rest of
// the line.
func (a *agent) says(t *selftester, want string) (rest string, err error) {
	select {
	case line, ok := <-a.lines:
		rest, found := strings.CutPrefix(line, want)
		switch {
		case !ok:
			<-a.gone
			return "", fmt.Errorf("%s, of which %q was expected, ended: %v: %s", a.role, want, a.cmd.ProcessState, a.errs.B)
		case !found:
			return "", fmt.Errorf("%s said %q, not %q", a.role, line, want)
		}
		return strings.TrimSpace(rest), nil
	case <-time.After(t.waitLimit):
		return "", fmt.Errorf("%s has not said %q for %v", a.role, want, t.waitLimit)
	case <-t.ctx.Done():
		return "", t.ctx.Err()
	}
}

// kill kills the agent, and returns when the agent is gone.
func (a *agent) kill() error {
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	a.drain()
	return nil
}

// drain waits until the agent is gone, and discards its lines.
func (a *agent) drain() {
	for range a.lines {
	}
	<-a.gone
}

func (a *agent) end() {
	a.cmd.Process.Kill()
	a.drain()
}

// selftestRoles has the function of each role. If the function returns an error, the agent prints it and exits.
var selftestRoles = map[string]func(args []string) error{
	"near":      beNear,
	"victim":    beVictim,
	"successor": beSuccessor,
	"adder":     beAdder,
	"sleeper":   beSleeper,
	"waitv":     beWaitV,
	"toucher":   beToucher,
	"placer":    bePlacer,
	"opener":    beOpener,
	"pinned":    bePinned,
}

func say(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// pinAgent confines the agent to the CPU in its first argument. If that is empty, the agent stays unpinned.
func pinAgent(args []string) error {
	if len(args) == 0 || args[0] == "" {
		return nil
	}
	cpu, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return place.PinProcess(cpu)
}

// joinAgent pins the agent and opens the arena that it inherits.
func joinAgent(args []string) (*arena.Arena, *prims.Mutex, error) {
	if err := pinAgent(args); err != nil {
		return nil, nil, err
	}
	seg, err := shm.FromFile(os.NewFile(agentFD, "arena"), nil)
	if err != nil {
		return nil, nil, err
	}
	a, err := arena.FromSegment(seg, &arena.Options{Label: "selftest"})
	if err != nil {
		return nil, nil, err
	}
	m, err := prims.OpenMutex(a, "mutex", nil)
	return a, m, err
}

// beVictim is the role of a process that takes the lock, and waits to be killed.
func beVictim(args []string) error {
	_, m, err := joinAgent(args)
	if err != nil {
		return err
	}
	m.Lock()
	say("held")
	for {
		unix.Pause()
	}
}

// beSuccessor is the role of a process that waits for the lock of the victim, and recovers the lock after the victim's
// death.
func beSuccessor(args []string) error {
	a, m, err := joinAgent(args)
	if err != nil {
		return err
	}
	say("waiting")
	ctx := context.Background()
	if err := m.LockContext(ctx); !errors.Is(err, shmsync.ErrOwnerDead) {
		return fmt.Errorf("the death of the owner was not told, but: %v", err)
	}
	repaired := false
	if err := m.RecoverContext(ctx, func() error { repaired = true; return nil }); err != nil {
		return err
	}
	if !repaired {
		return errors.New("recovered without a repair")
	}
	m.Lock()
	//lint:ignore SA2001 the check is that Lock returns
	m.Unlock()
	if err := a.Check(); err != nil {
		return err
	}
	say("owned")
	return nil
}

// adderTurns is how often a process in the role adder increments the counter.
const adderTurns = 2000

// beAdder is the role of a process that increments a counter under the lock. If the lock does not exclude other
// processes, increments are lost.
func beAdder(args []string) error {
	a, m, err := joinAgent(args)
	if err != nil {
		return err
	}
	sum, err := arena.Value[uint64](a, "sum")
	if err != nil {
		return err
	}
	say("ready")
	for i := range adderTurns {
		m.Lock()
		v := *sum
		if i%64 == 0 {
			shmsync.Yield()
		}
		*sum = v + 1
		m.Unlock()
	}
	say("added")
	return a.Close()
}
