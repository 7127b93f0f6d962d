//go:build linux

package cinterop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

const (
	agentEnv = "SHMSYNC_CINTEROP_AGENT" // the name of the arena; set in an agent process
	labelEnv = "SHMSYNC_CINTEROP_LABEL"

	// cflagsEnv has more flags for the C programs, such as those of a sanitizer.
	cflagsEnv = "SHMSYNC_CINTEROP_CFLAGS"

	// partEnv has the name of a part of the header, "=", and the path of a file that replaces it. The mutants use it.
	partEnv = "SHMSYNC_CINTEROP_PART"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(agentEnv); name != "" {
		runAgent(name, os.Getenv(labelEnv))
	}
	if name := os.Getenv(stormEnv); name != "" {
		runStormer(name)
	}
	if args := os.Getenv(epochsEnv); args != "" {
		joinForever(strings.Fields(args))
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is what has been compiled, once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// compiler returns the C compiler. Without one it skips the test, or fails it if the environment requires a
// compiler.
func compiler(t testing.TB) string {
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); cc != "" && err == nil {
			return path
		}
	}
	if os.Getenv("SHMSYNC_NEED_CC") != "" {
		t.Fatal("there is no C compiler")
	}
	t.Skip("needs a C compiler")
	return ""
}

// part returns the source of a part of the header.
func part(name string) ([]byte, error) {
	if replaced, by, _ := strings.Cut(os.Getenv(partEnv), "="); replaced == name {
		return os.ReadFile(by)
	}
	return os.ReadFile(filepath.Join("..", "..", "include", "parts", name))
}

// header generates the C header in dir.
func header(dir string) error {
	parts, err := filepath.Glob(filepath.Join("..", "..", "include", "parts", "*.h"))
	if err != nil {
		return err
	}
	slices.Sort(parts)
	var whole []byte
	for _, p := range parts {
		src, err := part(filepath.Base(p))
		if err != nil {
			return err
		}
		whole = append(whole, src...)
	}
	return os.WriteFile(filepath.Join(dir, "shmsync.h"), whole, 0o644)
}

// cAgent returns the path of the C agent, which it builds on the first call.
func cAgent(t testing.TB) string {
	cc := compiler(t)
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "cinterop"); built.err == nil {
			built.err = header(built.dir)
		}
		if built.err == nil {
			built.err = internalHeader(built.dir)
		}
		if built.err == nil {
			built.err = writeSharedHeaders(built.dir)
		}
		if built.err == nil {
			built.err = compile(quickCompiler(cc), "agent.c", "agent", append(internalLinkage(quickCompiler(cc)), optimize())...)
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "agent")
}

// optimize returns the compiler flag for the level of optimization of the C programs. The optimizer takes three
// quarters of the time to compile the header, so only long runs use it.
func optimize() string {
	if proctest.Long() {
		return "-O1"
	}
	return "-O0"
}

// quickCompiler returns the compiler for the C programs. It returns cc in long runs, and if the user names a compiler
// or asks for a sanitizer. Otherwise it returns clang, if clang is installed, because clang takes a third of the time
// of gcc.
func quickCompiler(cc string) string {
	if proctest.Long() || os.Getenv("CC") != "" || os.Getenv(cflagsEnv) != "" {
		return cc
	}
	if clang, err := exec.LookPath("clang"); err == nil {
		return clang
	}
	return cc
}

// compile compiles a C program with the whole header.
func compile(cc, source, binary string, flags ...string) error {
	args := append(compilerFlags("", flags...), filepath.Join("testdata", source), "-pthread")
	return ccache.Compile(cc, args, filepath.Join(built.dir, binary))
}

// compilerFlags returns the given flags together with those that every C program gets. The parameter form is the folder
// below built.dir with the header. With -g1, the stacks in a report of a sanitizer have functions and lines. With -g,
// the compiler would take a sixth longer.
func compilerFlags(form string, flags ...string) []string {
	args := []string{"-std=c11", "-g1", "-DSHMSYNC_CRASHPOINTS"}
	if sanitizer := os.Getenv(cflagsEnv) != ""; sanitizer {
		args = append(args, "-w") // other runs have the warnings, which take gcc most of the time here
	} else {
		args = append(args, "-Wall", "-Wextra", "-Wpedantic", "-Werror")
	}
	return slices.Concat(args, flags, []string{"-I" + filepath.Join(built.dir, form)}, strings.Fields(os.Getenv(cflagsEnv)))
}

// wholeProgram returns the flags by which gcc drops the functions of the header that a program does not call, before it
// optimizes. That halves the time for most programs. But gcc then inlines more, and gives false warnings about texts
// that the header truncates on purpose, and about variables without a value. The flags switch these warnings off. The
// agent is compiled with all warnings, and TestScenario looks for variables without a value.
func wholeProgram(cc string) []string {
	out, err := exec.Command(cc, "-dM", "-E", "-x", "c", os.DevNull).Output()
	if err != nil || bytes.Contains(out, []byte("__clang__")) {
		return nil
	}
	return []string{"-fwhole-program", "-Wno-format-truncation", "-Wno-maybe-uninitialized"}
}

// internalLinkage returns the flags by which clang drops the functions of the header that a program does not call. That
// halves the time to compile a program. In long runs, and for other compilers, it returns no flags.
func internalLinkage(cc string) []string {
	if proctest.Long() || os.Getenv(cflagsEnv) != "" {
		return nil
	}
	out, err := exec.Command(cc, "-dM", "-E", "-x", "c", os.DevNull).Output()
	if err != nil || !bytes.Contains(out, []byte("__clang__")) {
		return nil
	}
	return []string{"-I" + filepath.Join(built.dir, "internal"), "-Wno-unused-function", "-Wno-undefined-internal"}
}

// internalHeader writes internal/shmsync.h below dir. This header includes the shmsync.h of dir, and gives internal
// linkage to its functions. It includes the headers of the system first, because the functions of the system must keep
// their linkage.
func internalHeader(dir string) error {
	whole, err := os.ReadFile(filepath.Join(dir, "shmsync.h"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "internal"), 0o755); err != nil {
		return err
	}
	system := bytes.Join(systemHeader.FindAll(whole, -1), []byte("\n"))
	text := fmt.Sprintf("#ifndef _GNU_SOURCE\n#define _GNU_SOURCE 1\n#endif\n%s\n"+
		"#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)\n"+
		"#include \"../shmsync.h\"\n#pragma clang attribute pop\n", system)
	return os.WriteFile(filepath.Join(dir, "internal", "shmsync.h"), []byte(text), 0o644)
}

var systemHeader = regexp.MustCompile(`(?m)^#include <.*>$`)

// newArena makes an arena and returns its name. This process is not a participant, so only agents are in the
// arena.
func newArena(t testing.TB) string {
	name := fmt.Sprintf("cinterop-%d-%s", os.Getpid(), strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '.'
	}, t.Name()))
	name = name[:min(len(name), 190)]
	shm.Remove(name)
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 16})
	require.NoError(t, err)
	t.Cleanup(func() { shm.Remove(name) })
	require.NoError(t, a.Close())
	return name
}

// agent is a participant in a process of its own. It carries out orders.
type agent struct {
	lang   string
	label  string
	arena  string
	cmd    *exec.Cmd
	in     *os.File
	stderr *lockedBuffer
	ended  chan struct{} // closed when the output of the process has ended
	mortal bool          // the process may end before it reads its orders

	mu   sync.Mutex
	next int
	said map[int]chan answer // by the number of the order
}

// answer is the result of an order.
type answer struct {
	err syscall.Errno
	n   uint64
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// cWithoutByteLock is the language of a C agent that has no byte lock, because it cannot open the file of the arena a
// second time.
const cWithoutByteLock = "c without a byte lock"

// rarely is the compiler flag for programs whose threads make no periodic checks. A thread checks before its first sleep
// if the host has run for longer than the time between two checks. So this time is ten years.
const rarely = "-DSHMI_CHECK_EVERY=INT64_C(315360000000000000)"

// withoutChecks adds to the name of a language that the agent makes no periodic checks. A Go agent obeys this only with
// the build tag crashpoint.
const withoutChecks = " without checks"

// newAgent starts an agent with the given language, arena and label. env has settings such as a crash point.
func newAgent(t testing.TB, lang, arenaName, label string, env ...string) *agent {
	t.Helper()
	x := &agent{lang: lang, label: label, arena: arenaName, stderr: &lockedBuffer{}, said: map[int]chan answer{}, ended: make(chan struct{})}
	switch lang {
	case "c":
		x.cmd = exec.Command(cAgent(t), arenaName, label)
		x.cmd.Env = append(os.Environ(), env...)
	case cWithoutByteLock:
		x.lang = "c"
		x.cmd = exec.Command(cAgent(t), arenaName, label)
		x.cmd.Env = append(append(os.Environ(), "SHMSYNC_TEST_NO_REOPEN=1"), env...)
	case "c" + withoutChecks:
		x.lang = "c"
		x.cmd = exec.Command(program(t, "agent.c", rarely), arenaName, label)
		x.cmd.Env = append(os.Environ(), env...)
	case "go", "go" + withoutChecks:
		x.lang = "go"
		if lang != x.lang {
			env = append(env, "SHMSYNC_CHECK_EVERY=1h")
		}
		exe, err := os.Executable()
		require.NoError(t, err)
		x.cmd = exec.Command(exe)
		x.cmd.Env = append(append(os.Environ(), agentEnv+"="+arenaName, labelEnv+"="+label), env...)
	default:
		t.Fatalf("an agent in %q", lang)
	}
	in, w, err := os.Pipe()
	require.NoError(t, err)
	r, out, err := os.Pipe()
	require.NoError(t, err)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr, x.in = in, out, x.stderr, w
	require.NoError(t, x.cmd.Start())
	in.Close()
	out.Close()
	ready := make(chan struct{})
	go x.listen(r, ready)
	t.Cleanup(func() {
		x.in.Close()
		x.cmd.Process.Kill()
		<-x.ended
		x.cmd.Wait()
		if t.Failed() {
			t.Logf("%s (%s):\n%s", label, lang, x.stderr)
		}
	})
	select {
	case <-ready:
	case <-x.ended:
		t.Fatalf("the agent %s in %s did not start:\n%s", label, lang, x.stderr)
	case <-time.After(timeout):
		t.Fatalf("the agent %s in %s is not ready:\n%s", label, lang, x.stderr)
	}
	return x
}

var timeout = proctest.Scale(time.Minute)

func (x *agent) listen(r *os.File, ready chan struct{}) {
	defer close(x.ended)
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			continue
		}
		if f[0] == "ready" {
			close(ready)
			continue
		}
		id, _ := strconv.Atoi(f[0])
		e, _ := strconv.Atoi(f[1])
		n, _ := strconv.ParseUint(f[2], 10, 64)
		x.mu.Lock()
		c := x.said[id]
		x.mu.Unlock()
		if c != nil {
			c <- answer{syscall.Errno(e), n}
		}
	}
}

// pending is an order that has been given.
type pending struct {
	x    *agent
	what string
	c    chan answer
}

// start gives an order to the agent and does not wait for the result.
func (x *agent) start(t testing.TB, verb, name string, args ...any) pending {
	t.Helper()
	x.mu.Lock()
	x.next++
	id, c := x.next, make(chan answer, 1)
	x.said[id] = c
	x.mu.Unlock()
	line := fmt.Sprintf("%d %s %s", id, verb, name)
	for _, a := range args {
		line += fmt.Sprintf(" %v", a)
	}
	if _, err := x.in.WriteString(line + "\n"); !x.mortal || !errors.Is(err, syscall.EPIPE) {
		require.NoError(t, err, "%s: %s\n%s", x.label, line, x.stderr)
	}
	return pending{x, x.label + ": " + line, c}
}

// wait waits for the result of the order.
func (p pending) wait(t testing.TB) answer {
	t.Helper()
	select {
	case a := <-p.c:
		return a
	case <-p.x.ended:
		select {
		case a := <-p.c:
			return a
		default:
		}
		t.Fatalf("%s: the process has ended\n%s", p.what, p.x.stderr)
	case <-time.After(timeout):
		t.Fatalf("%s: is not done\n%s\n%s", p.what, p.x.stderr, describe(p.x.arena))
	}
	return answer{}
}

// must waits for the result of an order that has to succeed.
func (p pending) must(t testing.TB) uint64 {
	t.Helper()
	a := p.wait(t)
	require.Zero(t, a.err, "%s: %v\n%s", p.what, a.err, p.x.stderr)
	return a.n
}

// fails waits for the result of an order that has to fail with the error want.
func (p pending) fails(t testing.TB, want syscall.Errno) {
	t.Helper()
	require.Equal(t, want, p.wait(t).err, p.what)
}

// do gives an order that has to succeed, waits for it, and returns its result.
func (x *agent) do(t testing.TB, verb, name string, args ...any) uint64 {
	t.Helper()
	return x.start(t, verb, name, args...).must(t)
}

// kill kills the process and waits for its end.
func (x *agent) kill(t testing.TB) {
	t.Helper()
	require.NoError(t, x.cmd.Process.Kill())
	<-x.ended
	x.cmd.Wait()
}

// ends waits until the process has ended, and does not kill it.
func (x *agent) ends(t testing.TB) {
	t.Helper()
	select {
	case <-x.ended:
	case <-time.After(timeout):
		t.Fatalf("%s in %s does not end\n%s\n%s", x.label, x.lang, x.stderr, describe(x.arena))
	}
}

// stop stops the process by SIGSTOP, and returns when it has stopped.
func (x *agent) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGSTOP))
	x.awaitStop(t)
}

// awaitStop returns when the process has been stopped.
func (x *agent) awaitStop(t testing.TB) {
	t.Helper()
	eventually(t, x.label+" is stopped", x.arena, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", x.cmd.Process.Pid))
		require.NoError(t, err)
		return !slices.ContainsFunc(threads, func(stat string) bool {
			b, err := os.ReadFile(stat)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				return true // a thread that has just ended; read the state again
			}
			require.NoError(t, err)
			_, after, _ := strings.Cut(string(b), ") ")
			return !strings.HasPrefix(after, "T")
		})
	})
}

// describe returns the state of an arena as text.
func describe(name string) string {
	a, err := arena.Attach(name, &arena.Options{Label: "describer"})
	if err != nil {
		return err.Error()
	}
	defer a.Close()
	var b strings.Builder
	for p := range a.Participants() {
		fmt.Fprintf(&b, "%v\n", p)
	}
	for o := range a.Objects() {
		fmt.Fprintf(&b, "%v: %s\n", o, (*arenakernel.Arena)(a).Describe(arenakernel.Object(o)))
	}
	return b.String()
}

// eventually waits until is returns true, and fails the test after a time limit.
func eventually(t testing.TB, what string, arenaName string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !is(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s\n%s", what, describe(arenaName))
		}
		// No process reports the change, so check again after 1 ms.
		syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil)
	}
}

// blocked starts an order of x, and returns when n threads sleep in the object at off, including the thread of this
// order.
func (x *agent) blocked(t testing.TB, off uint64, n uint64, verb, name string, args ...any) pending {
	t.Helper()
	p := x.start(t, verb, name, args...)
	eventually(t, fmt.Sprintf("%d wait in %s", n, name), x.arena, func() bool {
		return x.do(t, "waiters", "-", off) == n
	})
	return p
}
