//go:build linux

package pybind

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

const binding = "../../bindings/python"

// limit is the time after which the tests end a Python program that hangs.
const limit = 5 * time.Minute

func TestMain(m *testing.M) { proctest.Main(m) }

// python says how the tests run the interpreter.
type python struct {
	path string
	dir  string // a copy of the binding
	lib  string // libshmsync.so
	pure bool   // the binding has no module in C
	old  bool   // Python before 3.11
}

// install finds the interpreter and builds the library. If one of these steps is impossible, install skips the test. If
// the environment requires Python, install fails the test instead.
func install(t *testing.T) python {
	t.Helper()
	skip := func(why string) {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_PYTHON"), why)
		proctest.Skip(t, why, "hold")
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		skip("needs python3")
	}
	if exec.Command(path, "-c", "import sys, ctypes; sys.exit(sys.version_info < (3, 9))").Run() != nil {
		skip("needs Python 3.9 with ctypes")
	}
	if _, err := exec.LookPath("make"); err != nil {
		skip("needs make")
	}
	cc := os.Getenv("CC")
	for _, name := range []string{"cc", "gcc", "clang"} {
		if cc == "" {
			cc, _ = exec.LookPath(name)
		}
	}
	if cc == "" {
		skip("needs a C compiler")
	}
	dir := t.TempDir()
	out, err := exec.Command("make", "-C", filepath.Join("..", "..", "c"), "CC="+cc, "CFLAGS=-O0", "O="+dir, "shared").CombinedOutput()
	require.NoError(t, err, "%s", out)
	libs, err := filepath.Glob(filepath.Join(dir, "libshmsync.so.*"))
	require.NoError(t, err)
	require.Len(t, libs, 1, "%s", out)
	p := python{path: path, dir: filepath.Join(dir, "binding"), lib: libs[0]}
	p.old = exec.Command(path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil
	require.NoError(t, os.CopyFS(p.dir, os.DirFS(binding)))

	// The C module of the binding is built only if the headers of Python are installed.
	include, err := exec.Command(path, "-c", "import sysconfig; print(sysconfig.get_path('include'))").Output()
	require.NoError(t, err)
	headers := strings.TrimSpace(string(include))
	if _, err := os.Stat(filepath.Join(headers, "Python.h")); err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_PYTHON"), err)
		p.pure = true
		return p
	}
	out, err = exec.Command(cc, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I"+headers,
		filepath.Join(p.dir, "shmsync", "_fast.c"), "-o", filepath.Join(p.dir, "shmsync", "_fast.abi3.so")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

// TestPython checks that Python processes can share objects with Go processes, and that processes of both languages
// survive the death of a process of the other language.
func TestPython(t *testing.T) {
	p := install(t)
	fast := p
	for _, pure := range proctest.Sample([]bool{false, true}, 1) {
		if p.pure = pure; pure {
			t.Run("pure", p.units)
			continue
		}
		t.Run("fast", func(t *testing.T) {
			if fast.pure {
				t.Skip("needs Python.h, of the package python3-dev")
			}
			out, err := p.command(t, "-c", "import shmsync._calls as c; print(c.built)").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "True\n", string(out))
			p.units(t)
		})
	}
	p = fast
	t.Run("abi", p.abi)
	t.Run("recovers", p.recovers)
	t.Run("interrupt", p.interrupt)
	t.Run("queues", p.queues)
	t.Run("synchronized", p.synchronized)
	t.Run("conversation", p.conversation)
	t.Run("storm", p.storm)
}

// command returns a command that runs Python in the folder of the binding.
func (p python) command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Scale(limit))
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, p.path, append([]string{"-B", "-X", "dev"}, args...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "SHMSYNC_LIBRARY="+p.lib, "PYTHONPATH=", "PYTHONWARNINGS=error::ResourceWarning")
	if p.pure {
		cmd.Env = append(cmd.Env, "SHMSYNC_PURE=1")
	}
	return cmd
}

// TestLayoutOfTheBinding checks that the binding states the present layout of an arena. The library refuses a binding
// for another layout.
func TestLayoutOfTheBinding(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(binding, "shmsync", "_library.py"))
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("\nABI = %d << 8 | 8\n", arenakernel.LayoutVersion))

	// The binding reads the random ID of an arena at this place in the header.
	text, err = os.ReadFile(filepath.Join(binding, "shmsync", "arena.py"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\n_ID_AT, _ID_BYTES = 56, 16\n")
	text, err = os.ReadFile(filepath.Join(binding, "shmsync", "signals.py"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\n_WAIT_NODE_BYTES = 64\n")
	text, err = os.ReadFile("../../docs/abi.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "\n| `nodeSize` | 64 | |\n")
	require.Contains(t, string(text), "\n| 56 | 16 | `hdrID` | fixed | random |\n")
}

// TestHintsOfTheBinding checks that the binding translates each error text of the library that names something of C,
// unless Python cannot get this error.
func TestHintsOfTheBinding(t *testing.T) {
	elsewhere := []string{
		"SHMSYNC_CREATE_ONLY", "SHMSYNC_KERNEL_IO_x", "SHMSYNC_POLICY_ROLLBACK", // options that the binding does not have
		"shmsync_latch_attach", // a kind that it does not have
		"shmsync_layout",       // the binding makes the descriptions of types itself
	}
	translated, err := os.ReadFile(filepath.Join(binding, "shmsync", "errors.py"))
	require.NoError(t, err)
	parts, err := filepath.Glob("../../include/parts/*.h")
	require.NoError(t, err)
	found := 0
	for _, part := range parts {
		text, err := os.ReadFile(part)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`.*shmi_fail\(.*`).FindAll(text, -1) {
			for _, literal := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"`).FindAll(line, -1) {
				for _, name := range regexp.MustCompile(`(?i)\bshmsync_\w+`).FindAllString(string(literal), -1) {
					found++
					if !slices.Contains(elsewhere, name) {
						require.True(t, bytes.Contains(translated, []byte(name)), "%s: %s", part, literal)
					}
				}
			}
		}
	}
	require.Greater(t, found, 10)
}

// TestTypesOfTheBinding checks with mypy that the annotations of the binding and of its tests agree with the code.
func TestTypesOfTheBinding(t *testing.T) {
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_MYPY"), err)
		t.Skip("needs mypy")
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(binding)))
	// Versions of mypy differ in which errors need a comment to ignore them. So mypy does not report unused comments.
	cmd := exec.Command(mypy, "--cache-dir", t.TempDir(), "--no-warn-unused-ignores", ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Success")
}

// units runs the tests of the binding itself. It checks how many tests are skipped for each reason, such as a missing
// module in C.
func (p python) units(t *testing.T) {
	out, err := p.command(t, "-m", "unittest", "discover", "-v", "-t", ".", "-s", "tests").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "\nOK (skipped=")
	want := map[string]int{"a get in Python": 1}
	if p.pure {
		want = map[string]int{"the module in C": 3}
	}
	skipped := map[string]int{}
	for _, why := range regexp.MustCompile(`(?m)\.\.\. skipped ['"](?:needs )?([^:'"]*)`).FindAllSubmatch(out, -1) {
		skipped[string(why[1])]++
	}
	if p.old { // one class of tests needs Python 3.11; two tests of this class need the module in C, too
		require.NotZero(t, skipped["Python 3.11"], "%s", out)
		delete(skipped, "Python 3.11")
		if p.pure {
			want["the module in C"] -= 2
		}
	}
	delete(skipped, "to become another user") // as only root can
	require.Equal(t, want, skipped, "%s", out)
}

// A scene is a Python program that exchanges lines with a test.
type scene struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	ended  bool
}

// play starts a scene of tests/scenes.py.
func (p python) play(t *testing.T, name, arenaName string) *scene {
	t.Helper()
	s := &scene{cmd: p.command(t, "-m", "tests.scenes", name, arenaName)}
	s.cmd.Stderr = &s.stderr
	var err error
	s.in, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		if !s.ended {
			s.kill()
		}
	})
	return s
}

// hears reads a line from the scene, and requires that the line is equal to want.
func (s *scene) hears(t *testing.T, want string) {
	t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.end()
	}
	require.NoError(t, err, "want %q; standard error: %s", want, &s.stderr)
	require.Equal(t, want, strings.TrimSuffix(line, "\n"))
}

func (s *scene) end() error {
	s.ended = true
	s.in.Close()
	return s.cmd.Wait()
}

func (s *scene) kill() {
	s.cmd.Process.Kill()
	s.end()
}

func (s *scene) pid() int { return s.cmd.Process.Pid }

// join makes an arena, and returns its name and the arena.
func join(t *testing.T) (string, *arena.Arena) {
	name := fmt.Sprintf("pybind-%d-%x", os.Getpid(), rand.Uint64())
	t.Cleanup(func() { shm.Remove(name) })
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 12})
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return name, a
}

func init() {
	proctest.Register("hold", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "holder"})
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		m.Lock()
		c.Ready()
		c.Await()
	})
}

// abi requires that the structs of the binding have their fields at the offsets of the library.
func (p python) abi(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("..", "..", "c", "abi.txt"))
	require.NoError(t, err)
	name, _ := join(t)
	s := p.play(t, "abi", name)
	n := 0
	for {
		line, err := s.out.ReadString('\n')
		require.NoError(t, err, &s.stderr)
		line = strings.TrimSuffix(line, "\n")
		if line == "that is all" {
			break
		}
		require.Contains(t, string(recorded), "\n"+line)
		n++
	}
	require.Greater(t, n, 50)
	require.NoError(t, s.end(), &s.stderr)
}

// recovers kills a process in Go while it holds a mutex for which Python waits.
func (p python) recovers(t *testing.T) {
	name, a := join(t)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	holder := proctest.Start(t, "hold", proctest.Params(name))
	holder.Await(t)
	s := p.play(t, "lock", name)
	s.hears(t, "waits")
	require.Eventually(t, func() bool { return m.State().Waiting }, proctest.Scale(limit), time.Millisecond, m)
	holder.Kill(t)
	s.hears(t, fmt.Sprintf("owner died: %d holder", holder.Pid()))
	s.hears(t, "repairs")
	s.hears(t, "holds")
	require.False(t, m.TryLock())

	// Then Python is killed while it holds the mutex for which Go waits.
	locked := make(chan error, 1)
	go func() { locked <- m.LockContext(context.Background()) }()
	require.Eventually(t, func() bool { return m.State().Waiting }, proctest.Scale(limit), time.Millisecond, m)
	s.kill()
	err = <-locked
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	var e *shmsync.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, s.pid(), e.Who.PID)
	require.Equal(t, "python", e.Who.Label)
	require.NoError(t, m.Recover(func() error { return nil }))
	m.Lock()
	//lint:ignore SA2001 the test is that Lock returns
	m.Unlock()
}

// interrupt ends a wait of Python by Ctrl-C, while a process in Go holds the lock.
func (p python) interrupt(t *testing.T) {
	name, a := join(t)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	m.Lock()
	s := p.play(t, "interrupted", name)
	s.hears(t, "waits")
	require.Eventually(t, func() bool { return m.State().Waiting }, proctest.Scale(limit), time.Millisecond, m)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	s.hears(t, "interrupted")
	m.Unlock()
	s.hears(t, "holds")
	require.NoError(t, s.end(), &s.stderr)
	m.Lock()
	//lint:ignore SA2001 the test is that Lock returns
	m.Unlock()
}

// Job is the Job of tests/scenes.py.
type Job struct {
	ID     uint64
	Size   [3]int32
	Weight float64
	Last   bool
}

// Text is the type in Go for the items of a Queue in Python whose parameter max_bytes is 29 to 32.
type Text struct {
	Len  uint32
	Data [32]byte
}

// queues lets Python fill queues that Go empties. A process in Python that dies with an item on lease gives the
// item back.
func (p python) queues(t *testing.T) {
	name, a := join(t)
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(limit)) // the Python program may fail
	defer cancel()
	jobs, err := prims.OpenQueue[Job](a, "records", 4, nil)
	require.NoError(t, err)
	texts, err := prims.OpenQueue[Text](a, "texts", 4, nil)
	require.NoError(t, err)
	s := p.play(t, "produce", name)
	for i := range 200 {
		job, err := jobs.GetContext(ctx)
		require.NoError(t, err, &s.stderr)
		n := int32(i)
		require.Equal(t, Job{1<<40 | uint64(i), [3]int32{n, -n, 7}, float64(i) / 4, i == 199}, job)
		text, err := texts.GetContext(ctx)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("x", i%31), string(text.Data[:text.Len]))
	}
	s.hears(t, "done")
	require.NoError(t, s.end(), &s.stderr)

	require.NoError(t, jobs.Put(Job{ID: 7}))
	s = p.play(t, "lease", name)
	s.hears(t, "leased 7")
	require.Zero(t, jobs.Len())
	s.kill()
	job, err := jobs.GetContext(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 7, job.ID)
}

// synchronized kills Python half way through a change of a value. The value stays as it was.
func (p python) synchronized(t *testing.T) {
	name, a := join(t)
	v, err := prims.OpenSynchronized(a, "value", Job{ID: 5}, nil)
	require.NoError(t, err)
	s := p.play(t, "change", name)
	s.hears(t, "half way, at 105")
	s.kill()
	require.NoError(t, v.Update(func(j *Job) error { j.ID++; return nil }))
	require.EqualValues(t, 6, v.Load().ID)

	// Without a kill the change takes effect.
	s = p.play(t, "change", name)
	s.hears(t, "half way, at 106")
	require.NoError(t, s.end(), &s.stderr) // end closes the input of the program
	require.EqualValues(t, 106, v.Load().ID)
}

// conversation tests further kinds of objects, with Go on one side and Python on the other side.
func (p python) conversation(t *testing.T) {
	name, a := join(t)
	sem, err := prims.OpenSemaphore(a, "semaphore", 2, nil)
	require.NoError(t, err)
	event, err := prims.OpenEvent(a, "event", nil)
	require.NoError(t, err)
	seq, err := prims.OpenSequencer(a, "sequencer", nil)
	require.NoError(t, err)
	barrier, err := prims.OpenBarrier(a, "barrier", 2, nil)
	require.NoError(t, err)
	rw, err := prims.OpenRWMutex(a, "rwmutex", nil)
	require.NoError(t, err)
	m, err := prims.OpenMutex(a, "mutex", nil)
	require.NoError(t, err)
	cond, err := prims.OpenCond(a, "cond", m, nil)
	require.NoError(t, err)
	value, err := arena.Value[[2]uint32](a, "value")
	require.NoError(t, err)

	sem.Acquire(2)
	rw.Lock()
	s := p.play(t, "conversation", name)
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(limit))
	defer cancel()
	waits := func(wait func(context.Context) error) {
		t.Helper()
		if err := wait(ctx); err != nil { // the program may have ended
			s.end()
			require.NoError(t, err, &s.stderr)
		}
	}
	sem.Release(2)
	waits(event.WaitContext)
	for range 5 {
		seq.Increment()
	}
	waits(barrier.ArriveAndWaitContext)
	value[0] = 11
	rw.Unlock()
	s.hears(t, "read 11")
	m.Lock()
	value[1] = 12
	cond.Broadcast()
	m.Unlock()
	s.hears(t, "saw 12")
	require.NoError(t, s.end(), &s.stderr)
}

// storm lets two processes in Python and this process change two numbers under a mutex. The processes in Python
// are killed again and again, at random moments of a change, and the survivors repair the numbers.
func (p python) storm(t *testing.T) {
	name, a := join(t)
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	counts, err := arena.Value[[3]uint64](a, "counts")
	require.NoError(t, err)
	survivor := p.play(t, "storm", name)
	survivor.hears(t, "counts")
	recovered := 0
	// counted locks the mutex, repairs the numbers after a death, and adds one to both numbers. It returns the number
	// of increments that processes in Python have made.
	counted := func() uint64 {
		for {
			err := m.LockContext(context.Background())
			if errors.Is(err, shmsync.ErrOwnerDead) {
				recovered++
				require.NoError(t, m.Recover(func() error { counts[1] = counts[0]; return nil }))
				continue
			}
			require.NoError(t, err)
			defer m.Unlock()
			require.Equal(t, counts[0], counts[1])
			counts[0]++
			counts[1]++
			return counts[2]
		}
	}
	for range proctest.Rounds(2, 6) {
		victim := p.play(t, "storm", name)
		victim.hears(t, "counts")
		for range 20 {
			counted()
		}
		victim.kill()
		// The survivor in Python goes on.
		end := time.Now().Add(proctest.Scale(limit))
		for before := counted(); counted() < before+10; {
			require.True(t, time.Now().Before(end), "no other process counts: %v", m)
		}
		survivor.kill()
		survivor = p.play(t, "storm", name)
		survivor.hears(t, "counts")
	}
	t.Logf("Python counted %d times, and this process repaired %d times", counted(), recovered)
}
