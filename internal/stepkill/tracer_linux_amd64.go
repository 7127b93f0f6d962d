package stepkill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/asm"
)

// Tracer single-steps one thread of another process. All methods except Kill must be called on the OS thread that
// called Seize, so the calling goroutine must be locked to that thread.
type Tracer struct {
	pid, tid int
	called   bool // the last step was a system call
	killed   bool
	end      string // how the thread ended, in words

	self int             // the thread that called Seize
	cpus unix.CPUSet     // the CPUs on which that thread may run when it traces nothing
	text map[uint64]bool // by address: whether the instruction there is a system call
}

// State is the result of a step.
type State int

const (
	Stopped State = iota // the instruction has been executed
	Asleep               // the instruction is a system call in which the thread sleeps
	Gone                 // the thread has ended
)

// Seize stops thread tid of process pid between two instructions. The thread is killed if the tracer's thread
// ends.
func Seize(pid, tid int) (*Tracer, error) {
	if err := unix.PtraceSeize(tid); err != nil {
		return nil, os.NewSyscallError("ptrace seize", err)
	}
	t := &Tracer{pid: pid, tid: tid, text: map[uint64]bool{}}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return nil, os.NewSyscallError("ptrace interrupt", err)
	}
	if s, err := t.wait(0); err != nil {
		return nil, err
	} else if s == Gone {
		return nil, fmt.Errorf("thread %d ended: %s", tid, t.end)
	}
	if err := unix.PtraceSetOptions(tid, unix.PTRACE_O_EXITKILL); err != nil {
		return nil, os.NewSyscallError("ptrace setoptions", err)
	}
	if err := t.together(); err != nil {
		unix.SchedSetaffinity(t.self, &t.cpus) // the caller goes on without a tracer
		return nil, err
	}
	return t, nil
}

// together confines the thread of the tracer and the traced thread to one CPU, because waking a thread on another CPU
// takes far longer than an instruction.
func (t *Tracer) together() error {
	t.self = unix.Gettid()
	if err := unix.SchedGetaffinity(t.self, &t.cpus); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	cpu, _, ok := asm.CPU()
	if !ok {
		return nil
	}
	var one unix.CPUSet
	one.Set(int(cpu))
	return errors.Join(
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(t.tid, &one)),
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(t.self, &one)))
}

// The offset of rip in user_regs_struct of arch/x86/include/asm/user_64.h.
const ripOffset = 16 * 8

var syscallInstruction = []byte{0x0f, 0x05}

// atSyscall reports whether the next instruction is a system call.
func (t *Tracer) atSyscall() (bool, error) {
	var word [8]byte
	if _, err := unix.PtracePeekUser(t.tid, ripOffset, word[:]); err != nil {
		return false, os.NewSyscallError("ptrace peekuser", err)
	}
	at := binary.LittleEndian.Uint64(word[:])
	is, seen := t.text[at]
	if !seen {
		var text [2]byte
		if _, err := unix.PtracePeekText(t.tid, uintptr(at), text[:]); err != nil {
			return false, os.NewSyscallError("ptrace peektext", err)
		}
		is = bytes.Equal(text[:], syscallInstruction)
		t.text[at] = is
	}
	return is, nil
}

// Step executes one instruction. If the instruction is a system call, and the thread sleeps in it, Step returns
// Asleep. Wait then waits for the end of the system call.
func (t *Tracer) Step() (State, error) {
	var err error
	if t.called, err = t.atSyscall(); err != nil {
		return t.lost(err)
	}
	if err := unix.PtraceSingleStep(t.tid); err != nil {
		return t.lost(os.NewSyscallError("ptrace singlestep", err))
	}
	if !t.called {
		return t.wait(0)
	}
	for pause := time.Microsecond; ; pause = min(2*pause, 200*time.Microsecond) {
		s, err := t.wait(unix.WNOHANG)
		if err != nil || s != Asleep {
			return s, err
		}
		if pause > 50*time.Microsecond && t.Sleeps() {
			return Asleep, nil
		}
		unix.Nanosleep(&unix.Timespec{Nsec: int64(pause)}, nil)
	}
}

// End says in words how a thread that is gone has ended.
func (t *Tracer) End() string { return t.end }

// Called reports whether the last step was a system call.
func (t *Tracer) Called() bool { return t.called }

// Wait waits until a thread that is asleep has returned from its system call. It returns Asleep if that takes
// longer than limit.
func (t *Tracer) Wait(limit time.Duration) (State, error) {
	for end := time.Now().Add(limit); ; {
		s, err := t.wait(unix.WNOHANG)
		if err != nil || s != Asleep || time.Now().After(end) {
			return s, err
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
	}
}

// wait waits until the thread stops, and collects the stop. With the flag WNOHANG it does not wait, and returns Asleep
// if there is no stop to collect.
func (t *Tracer) wait(flags int) (State, error) {
	for {
		var ws unix.WaitStatus
		switch n, err := unix.Wait4(t.tid, &ws, flags|unix.WALL, nil); {
		case err == unix.EINTR:
		case err != nil:
			return t.lost(os.NewSyscallError("wait4", err))
		case n == 0:
			return Asleep, nil
		case !ws.Stopped():
			t.end = fmt.Sprintf("wait status %#x", uint32(ws))
			return Gone, nil
		default:
			return Stopped, nil
		}
	}
}

func (t *Tracer) lost(err error) (State, error) {
	t.end = err.Error()
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ECHILD) {
		return Gone, nil
	}
	return Gone, err
}

// Sleeps reports whether the thread sleeps, as the kernel shows in /proc.
func (t *Tracer) Sleeps() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", t.pid, t.tid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i > 0 && i+2 < len(b) && b[i+2] == 'S'
}

// Kill kills the process, and collects the end of the stepped thread. The parent of the process still has to wait for
// the process. Any thread may call Kill, and a second call does nothing.
func (t *Tracer) Kill() error {
	if t.killed {
		return nil
	}
	t.killed = true
	defer unix.SchedSetaffinity(t.self, &t.cpus)
	if err := unix.Kill(t.pid, unix.SIGKILL); err != nil {
		return os.NewSyscallError("kill", err)
	}
	for end := time.Now().Add(time.Minute); ; {
		// The thread keeps its ID until its end is collected here, so no other thread can have that ID yet.
		t.wait(unix.WNOHANG)
		if unix.Tgkill(t.pid, t.tid, 0) == unix.ESRCH {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("thread %d does not end (%s):%s", t.tid, t.end, threads(t.pid))
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
	}
}

// threads describes the threads of a process in words.
func threads(pid int) string {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	all := ""
	for _, task := range tasks {
		all += "\n" + task.Name()
		for _, file := range []string{"wchan", "syscall", "stat"} {
			b, err := os.ReadFile(dir + "/" + task.Name() + "/" + file)
			if err != nil {
				b = []byte(err.Error())
			}
			all += fmt.Sprintf(" %s %q", file, b)
		}
	}
	return all
}
