package proctest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cldStopped is CLD_STOPPED of include/uapi/asm-generic/siginfo.h.
const cldStopped = 5

func (p *Proc) stop(t testing.TB) {
	t.Helper()
	p.Signal(t, unix.SIGSTOP)
	p.awaitStop(t)
}

func (p *Proc) cont(t testing.TB) {
	t.Helper()
	p.Signal(t, unix.SIGCONT)
}

// awaitStop waits until the kernel reports the stop of the process. The kernel does so when the
// last thread of the process is in state T, and withdraws the report at a SIGCONT.
func (p *Proc) awaitStop(t testing.TB) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- waitStopped(p.Pid()) }()
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	select {
	case err := <-result:
		if err != nil {
			t.Fatalf("proctest: stop of %s: %v", p, err)
		}
	case <-timer.C:
		p.hang(t, "stop")
	}
}

// errEnded says that a process ended instead of stopping.
var errEnded = errors.New("the process has ended")

// waitStopped waits until the child with the process ID pid has stopped. If the child has ended instead,
// waitStopped leaves the exit status for os.Process.Wait.
func waitStopped(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return errEnded
		case err != nil:
			return os.NewSyscallError("waitid", err)
		case info.Code != cldStopped:
			return errEnded
		}
		return nil
	}
}

// resume continues the process if it is stopped.
func (p *Proc) resume() { p.cmd.Process.Signal(unix.SIGCONT) }

// processState describes what the kernel is doing with the process.
func (p *Proc) processState() string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return err.Error()
	}
	var fields []string
	for line := range strings.Lines(string(status)) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "State", "Threads", "SigPnd", "ShdPnd":
			fields = append(fields, key+" "+strings.TrimSpace(value))
		}
	}
	return strings.Join(fields, ", ")
}
