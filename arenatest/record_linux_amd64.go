package arenatest

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/race"
)

// A process cannot single-step a thread of its own. So this package starts the test binary once
// more, as a tracer. The tracer single-steps the thread that calls the function, and compares the
// bytes of the arena after each instruction. The function still runs in the process of the test,
// and sees the variables of the test.

// envTracer names the environment variable that contains the ID of the thread to step. A process is a tracer if the
// variable is in its environment.
const envTracer = "SHMSYNC_ARENATEST_TRACE"

// tracerVariable is the environment variable that the function record sets to start a tracer. Tests that measure
// coverage set another variable than envTracer: a process with envTracer ends in an init function, so it does not write
// its coverage data.
var tracerVariable = envTracer

// The files of a tracer.
const (
	fdArena   = 3 + iota // the file of the arena
	fdControl            // the page of control
	fdGo                 // a pipe: a byte in it lets the thread continue
	fdResult             // a pipe for the recording
)

// mostSteps is the largest number of instructions of a function that are recorded.
const mostSteps = 5_000_000

func init() {
	if ran, code := runTracer(envTracer); ran {
		os.Exit(code)
	}
}

// runTracer does the work of a tracer if the environment variable makes this process one. It
// returns the exit status.
func runTracer(variable string) (ran bool, code int) {
	tid, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return false, 0
	}
	runtime.LockOSThread()
	var r recording
	if err := r.trace(tid); err != nil {
		r.Err = err.Error()
	}
	if err := gob.NewEncoder(os.NewFile(fdResult, "result")).Encode(&r); err != nil {
		fmt.Fprintln(os.Stderr, "arenatest: tracer:", err)
		return true, 1
	}
	return true, 0
}

// record calls op on a new thread and records the stores that op makes into the file. The error Is
// errNoTrace if this system does not let a process trace another.
func record(file *os.File, op func()) (*recording, error) {
	fd, err := unix.MemfdCreate("arenatest-control", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	page := os.NewFile(uintptr(fd), "control")
	defer page.Close()
	if err := page.Truncate(int64(os.Getpagesize())); err != nil {
		return nil, err
	}
	ctl, err := openControl(page)
	if err != nil {
		return nil, err
	}
	defer ctl.close()
	var pipes [2][2]*os.File // go, result
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return nil, err
		}
		defer pipes[i][0].Close()
		defer pipes[i][1].Close()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // otherwise the garbage collector would make the traced thread help it
	var stderr bytes.Buffer
	done := make(chan error, 1)
	var cmd *exec.Cmd
	go func() {
		// The thread is never unlocked. So it ends together with the goroutine, and its CPU affinity affects nothing
		// else.
		runtime.LockOSThread()
		returned := false
		var err error
		defer func() {
			p := recover()
			ctl.ended.Store(1) // before anything else, so that the tracer does not step through what follows op
			if p != nil {
				err = fmt.Errorf("the function panicked: %v\n%s", p, debug.Stack())
			} else if !returned {
				err = errors.New("the function ended its goroutine")
			}
			done <- err
		}()
		cmd = exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), tracerVariable+"="+strconv.Itoa(unix.Gettid()))
		cmd.ExtraFiles = []*os.File{file, page, pipes[0][1], pipes[1][1]}
		cmd.Stderr = &stderr
		var in io.WriteCloser
		if in, err = cmd.StdinPipe(); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			returned = true
			return
		}
		// If the Yama security module is active, a process can be traced only by its ancestors and
		// by the process that it names.
		unix.Prctl(unix.PR_SET_PTRACER, uintptr(cmd.Process.Pid), 0, 0, 0)
		in.Close()
		pipes[0][1].Close()
		pipes[1][1].Close()
		var b [1]byte
		for {
			// Read from the descriptor by a system call. A read from the os.File would park the goroutine, but it is
			// this thread that has to wait.
			n, err := unix.Read(int(pipes[0][0].Fd()), b[:])
			if err == unix.EINTR {
				continue
			}
			if n != 1 {
				returned = true
				return // the recording of the tracer contains the error
			}
			break
		}
		ctl.began.Store(1)
		op()
		returned = true
	}()
	err = <-done
	if cmd == nil || cmd.Process == nil {
		return nil, fmt.Errorf("%w: %w", errNoTrace, err)
	}
	var r recording
	decoded := gob.NewDecoder(pipes[1][0]).Decode(&r)
	ended := cmd.Wait()
	switch {
	case err != nil:
		return nil, err
	case decoded != nil:
		return nil, fmt.Errorf("the tracer failed: %w, %v\n%s", decoded, ended, stderr.String())
	case r.Err != "" && r.Refused:
		return nil, fmt.Errorf("%w: %s", errNoTrace, r.Err)
	case r.Err != "":
		return nil, errors.New(r.Err)
	}
	return &r, nil
}

// tracer single-steps one thread of its parent. It makes all calls of ptrace on one thread, as ptrace requires.
type tracer struct {
	pid, tid int
	text     map[uint64]bool // by address: whether the instruction there is a system call
	sig      int             // the signal to deliver with the next step

	goAt, goFrame uint64          // the last instruction of Go code outside the runtime, and its frame pointer
	goText        map[uint64]bool // by address: whether Go code is there; used with the race detector only
}

// trace steps the thread tid and records its stores.
func (r *recording) trace(tid int) error {
	io.Copy(io.Discard, os.Stdin) // wait until the parent permits tracing
	ctl, err := openControl(os.NewFile(fdControl, "control"))
	if err != nil {
		return err
	}
	t := &tracer{pid: os.Getppid(), tid: tid, text: map[uint64]bool{}, goText: map[uint64]bool{}}
	if err := unix.PtraceSeize(tid); err != nil {
		r.Refused = true
		return os.NewSyscallError("ptrace", err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return os.NewSyscallError("ptrace", err)
	}
	if err := t.wait(); err != nil {
		return err
	}
	defer unix.PtraceDetach(tid)
	t.together()
	if _, err := unix.Write(fdGo, []byte{1}); err != nil {
		return os.NewSyscallError("write", err)
	}
	for ctl.began.Load() == 0 {
		if _, _, err := t.step(); err != nil {
			return err
		}
	}
	w, err := newWatch(os.NewFile(fdArena, "arena"))
	if err != nil {
		return err
	}
	r.First = bytes.Clone(w.last)
	for ctl.ended.Load() == 0 {
		if r.Steps++; r.Steps > mostSteps {
			return fmt.Errorf("the function takes more than %d instructions", mostSteps)
		}
		at, called, err := t.step()
		if err != nil {
			return err
		}
		if called {
			if err := w.refresh(); err != nil {
				return err
			}
		}
		if changes := w.changes(); changes != nil {
			r.Stores = append(r.Stores, store{Changes: changes, Calls: t.calls(at)})
		}
	}
	return nil
}

// together confines the tracer and the traced thread to one CPU, because waking a thread on another
// CPU takes far longer than an instruction. If that fails, tracing only takes longer.
func (t *tracer) together() {
	cpu, _, ok := asm.CPU()
	if !ok {
		return
	}
	var one unix.CPUSet
	one.Set(int(cpu))
	unix.SchedSetaffinity(t.tid, &one)
	unix.SchedSetaffinity(0, &one)
}

// The indices of registers in user_regs_struct of arch/x86/include/asm/user_64.h.
const (
	rbpOffset = 4 * 8
	ripOffset = 16 * 8
)

func (t *tracer) peek(register uintptr) (uint64, error) {
	var word [8]byte
	if _, err := unix.PtracePeekUser(t.tid, register, word[:]); err != nil {
		return 0, os.NewSyscallError("ptrace", err)
	}
	return binary.LittleEndian.Uint64(word[:]), nil
}

// step executes one instruction. It returns the address of the instruction, and whether it was a
// system call.
func (t *tracer) step() (at uint64, called bool, err error) {
	if at, err = t.peek(ripOffset); err != nil {
		return 0, false, err
	}
	called, seen := t.text[at]
	if !seen {
		var text [2]byte
		if _, err := unix.PtracePeekText(t.tid, uintptr(at), text[:]); err != nil {
			return 0, false, os.NewSyscallError("ptrace", err)
		}
		called = text == [2]byte{0x0f, 0x05}
		t.text[at] = called
	}
	if race.Enabled {
		if err := t.noteGo(at); err != nil {
			return 0, false, err
		}
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(t.tid), 0, uintptr(t.sig), 0, 0); errno != 0 {
		return 0, false, os.NewSyscallError("ptrace", errno)
	}
	t.sig = 0
	return at, called, t.wait()
}

// noteGo remembers the address of an instruction if it is Go code. The race detector makes atomic stores in C code,
// which has no frame pointers. The last Go instruction before such a store then shows where the store was made.
func (t *tracer) noteGo(at uint64) (err error) {
	is, seen := t.goText[at]
	if !seen {
		if f := runtime.FuncForPC(uintptr(at)); f != nil {
			file, _ := f.FileLine(uintptr(at))
			is = filepath.Ext(file) != "" && !strings.HasPrefix(f.Name(), "runtime.")
		}
		t.goText[at] = is
	}
	if is {
		t.goAt = at
		t.goFrame, err = t.peek(rbpOffset)
	}
	return err
}

// wait waits until the thread has stopped.
func (t *tracer) wait() error {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(t.tid, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case !ws.Stopped():
			return errors.New("the thread of the function ended")
		}
		switch s := ws.StopSignal(); s {
		case unix.SIGTRAP, unix.SIGURG, unix.SIGPROF:
			// The thread has ended a step, or the Go runtime has sent it a signal to interrupt it. The tracer does
			// not deliver such a signal.
		default:
			if int(ws)>>16 == 0 {
				t.sig = int(s)
			}
		}
		return nil
	}
}

// calls returns the instruction at an address and the calls that led to it, as far as frame
// pointers show them.
func (t *tracer) calls(at uint64) []uintptr {
	frame, err := t.peek(rbpOffset)
	if race.Enabled {
		at, frame = t.goAt, t.goFrame
	}
	all := []uintptr{uintptr(at) + 1} // plus 1: where() expects return addresses
	for err == nil && frame != 0 && len(all) < 64 {
		var words [16]byte
		local := []unix.Iovec{{Base: &words[0], Len: uint64(len(words))}}
		remote := []unix.RemoteIovec{{Base: uintptr(frame), Len: len(words)}}
		if n, err := unix.ProcessVMReadv(t.pid, local, remote, 0); err != nil || n != len(words) {
			break
		}
		next := binary.LittleEndian.Uint64(words[:])
		all = append(all, uintptr(binary.LittleEndian.Uint64(words[8:])))
		if next <= frame {
			break
		}
		frame = next
	}
	return all
}

// watch finds changes of the bytes of a file that other processes have mapped.
type watch struct {
	f       *os.File
	bytes   []byte
	last    []byte
	extents [][2]int64 // the parts that are backed by memory; reading other parts would allocate memory
}

func newWatch(f *os.File) (*watch, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	w := &watch{f: f, bytes: b, last: make([]byte, len(b))}
	if err := w.refresh(); err != nil {
		return nil, err
	}
	w.changes()
	return w, nil
}

// refresh finds the parts of the file that are backed by memory now.
func (w *watch) refresh() error {
	w.extents = w.extents[:0]
	return eachExtent(w.f, int64(len(w.bytes)), func(from, to int64) {
		w.extents = append(w.extents, [2]int64{from, to})
	})
}

// changes returns the ranges of bytes that have changed since the last call.
func (w *watch) changes() (all []change) {
	const piece = 4096
	for _, e := range w.extents {
		for at := e[0]; at < e[1]; at += piece {
			now, was := w.bytes[at:at+piece], w.last[at:at+piece]
			if bytes.Equal(now, was) {
				continue
			}
			for i := 0; i < piece; i++ {
				if now[i] == was[i] {
					continue
				}
				from := i
				for i < piece && now[i] != was[i] {
					was[i] = now[i]
					i++
				}
				all = append(all, change{Offset: at + int64(from), Bytes: bytes.Clone(was[from:i])})
			}
		}
	}
	return all
}

// where says which instruction made a store: the functions and lines of its calls, the innermost
// first.
func where(calls []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(calls)
	for n := 0; n < 12; {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/arenatest.record.func1") {
			break
		}
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "racecall") {
			fmt.Fprintf(&b, "\t\t%s\n\t\t\t%s:%d\n", f.Function, f.File, f.Line)
			n++
		}
		if !more {
			break
		}
	}
	return b.String()
}
