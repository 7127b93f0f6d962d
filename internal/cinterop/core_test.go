//go:build linux

package cinterop

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// programs holds the C programs that have been built, by name and flags.
var programs struct {
	sync.Mutex
	paths map[string]string
}

// runC runs a C program of testdata, and requires that it ends well.
func runC(t *testing.T, source string, args ...string) {
	t.Helper()
	out, err := exec.Command(program(t, source), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// program builds a C program of testdata, once for each set of flags, and returns its path.
func program(t testing.TB, source string, flags ...string) string {
	t.Helper()
	cAgent(t) // makes the directory and the header
	programs.Lock()
	defer programs.Unlock()
	key := source + " " + strings.Join(flags, " ")
	if path := programs.paths[key]; path != "" {
		return path
	}
	name := fmt.Sprintf("%s-%d", strings.TrimSuffix(source, ".c"), len(programs.paths))
	cc := quickCompiler(compiler(t))
	all := append([]string{optimize()}, flags...)
	// The usual form of the header serves three programs: a plugin exports its functions, the files of a program share
	// them, and a test with -O2 measures what users compile.
	usual := slices.ContainsFunc(flags, func(f string) bool { return f == "-shared" || strings.HasSuffix(f, ".c") || f == "-O2" })
	switch {
	case usual:
		require.NoError(t, compile(cc, source, name, all...))
	case shares(t, source, flags):
		args := append(compilerFlags("program", all...), filepath.Join("testdata", source), "-pthread")
		_, err := ccache.CompileWith(cc, args, []string{sharedObject(t, cc, all)}, filepath.Join(built.dir, name))
		require.NoError(t, err)
	default:
		if proctest.Long() {
			all = append(all, wholeProgram(cc)...)
		}
		require.NoError(t, compile(cc, source, name, append(all, internalLinkage(cc)...)...))
	}
	if programs.paths == nil {
		programs.paths = map[string]string{}
	}
	programs.paths[key] = filepath.Join(built.dir, name)
	return programs.paths[key]
}

// core starts the program at path, and kills it when the test ends.
func core(t testing.TB, path string, args ...string) (cmd *exec.Cmd, out *bufio.Reader, stderr *lockedBuffer) {
	t.Helper()
	cmd = exec.Command(path, args...)
	stderr = &lockedBuffer{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	cmd.Stdin = nil
	stdins.Store(cmd, in)
	return cmd, bufio.NewReader(pipe), stderr
}

var stdins sync.Map // *exec.Cmd to its standard input

// tell writes a line to a program.
func tell(t testing.TB, cmd *exec.Cmd) {
	in, _ := stdins.Load(cmd)
	_, err := fmt.Fprintln(in.(interface{ Write([]byte) (int, error) }))
	require.NoError(t, err)
}

// ready reads the line by which a program says that it is ready.
func ready(t testing.TB, out *bufio.Reader, stderr *lockedBuffer) {
	t.Helper()
	line, err := out.ReadString('\n')
	require.NoError(t, err, stderr)
	require.Equal(t, "ready\n", line)
}

// unusedName returns a name that no arena has.
func unusedName(t testing.TB) string {
	name := fmt.Sprintf("cinterop-%d-%x", os.Getpid(), rand.Uint64())
	t.Cleanup(func() { shm.Remove(name) })
	return name
}

// A program in C creates an arena, and one in Go opens it. In all other tests Go creates the arena.
func TestCreateInC(t *testing.T) {
	for _, disable := range []string{"", "otmpfile"} {
		t.Run("disable="+disable, func(t *testing.T) {
			t.Setenv("SHMSYNC_DISABLE", disable)
			name := unusedName(t)
			cmd, out, stderr := core(t, program(t, "core.c"), "create", name, "3000000", "20")
			ready(t, out, stderr)
			a, err := arena.Attach(name, &arena.Options{Size: 3000000, MaxParticipants: 20})
			require.NoError(t, err)
			defer a.Close()
			require.NoError(t, a.Check())
			labels := map[string]bool{}
			for p := range a.Participants() {
				labels[p.Label] = true
				if p.Label == "maker" {
					require.Equal(t, cmd.Process.Pid, p.PID)
					require.Equal(t, os.Geteuid(), p.UID)
					require.NotZero(t, p.StartTime)
					require.NotZero(t, p.PIDNS)
					require.NotZero(t, p.BootID)
					require.Equal(t, "robust", p.Notice)
				}
			}
			require.True(t, labels["maker"])
			m, err := prims.OpenMutex(a, "m", nil)
			require.NoError(t, err)
			m.Lock()
			//lint:ignore SA2001 the test is that Lock returns
			m.Unlock()
			b, err := a.Block("b", 1000)
			require.NoError(t, err)
			require.Equal(t, "from C\x00", string(b[:7]))
			copy(b, "from Go\x00")
			tell(t, cmd)
			require.NoError(t, cmd.Wait(), stderr)
			require.NoError(t, m.Close())
			require.NoError(t, a.Delete("m"))
			require.NoError(t, a.Check())
		})
	}
}

// Many processes try to create the same arena at the same time. One creates it, and all join it.
func TestCreateRace(t *testing.T) {
	path, name := program(t, "core.c"), unusedName(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			out, err := exec.Command(path, "open", name).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "0 ") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	defer a.Close()
	wg.Wait()
	require.NoError(t, a.Check())
}

// C programs use the core without a Go process.
func TestCore(t *testing.T) {
	for _, verb := range []string{"fork", "close", "misuse", "threads", "fill", "sweep", "waits", "names"} {
		t.Run(verb, func(t *testing.T) {
			for _, disable := range []string{"", "waitv", "membarrier", "robust", "waitv,membarrier,ofd"} {
				if disable != "" && verb != "fork" && verb != "close" {
					continue
				}
				name := coreArena(t, 3<<20)
				cmd := exec.Command(program(t, "core.c"), verb, name)
				cmd.Env = append(os.Environ(), "SHMSYNC_DISABLE="+disable)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "without %s: %s", disable, out)
				sound(t, name)
			}
		})
	}
}

func coreArena(t testing.TB, size int64) string {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: size, MaxParticipants: 12})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	return name
}

// A participant forks, and is killed. Its child, which is not a participant, does not make the dead process look alive.
func TestForkedChildKeepsNobodyAlive(t *testing.T) {
	for _, disable := range []string{"", "robust"} {
		t.Run("disable="+disable, func(t *testing.T) {
			t.Setenv("SHMSYNC_DISABLE", disable)
			name := coreArena(t, 2<<20)
			cmd, out, stderr := core(t, program(t, "core.c"), "forkhold", name)
			ready(t, out, stderr)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			m, err := prims.OpenMutex(a, "m", nil)
			require.NoError(t, err)
			require.False(t, m.TryLock())
			require.NoError(t, cmd.Process.Kill())
			require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrOwnerDead)
		})
	}
}

// A C program closes the descriptor of its byte lock by mistake. A Go program that joins later still takes the C
// program for alive, and the C program keeps its Mutex.
func TestStrayCloseInC(t *testing.T) {
	name := coreArena(t, 2<<20)
	cmd, out, stderr := core(t, program(t, "core.c"), "losehold", name)
	ready(t, out, stderr)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	require.False(t, m.TryLock(), "two owners")
	require.Len(t, slices.Collect(a.Participants()), 2)
	require.NoError(t, cmd.Process.Kill())
	require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrOwnerDead)
}

// A C program closes all descriptors of an arena by mistake, and opens other files with their numbers. The library
// neither closes these files nor changes them, and the arena stays usable.
func TestStrayCloseInCSparesOtherFiles(t *testing.T) {
	runC(t, "core.c", "loseall", unusedName(t))
}

// A C program that a peer marks dead by mistake ends at once.
func TestDeclaredDeadInC(t *testing.T) {
	name := coreArena(t, 2<<20)
	cmd, out, stderr := core(t, program(t, "core.c"), "losehold", name)
	ready(t, out, stderr)
	peer, outPeer, stderrPeer := core(t, program(t, "core.c"), "accuse", name)
	ready(t, outPeer, stderrPeer)
	late := time.AfterFunc(timeout, func() { cmd.Process.Kill() })
	require.Error(t, cmd.Wait())
	require.True(t, late.Stop(), "it was not told")
	require.Contains(t, stderr.String(), "this process was declared dead by a peer")
	tell(t, peer)
	require.NoError(t, peer.Wait())
}

// A C program is stopped while a participant dies and many others leave. When the program continues, it still learns of
// the death.
func TestLeavesDisplaceNoDeathsInC(t *testing.T) {
	name := coreArena(t, 2<<20)
	observer, out, stderr := core(t, program(t, "core.c"), "observe", name)
	ready(t, out, stderr)
	victim, outVictim, stderrVictim := core(t, program(t, "core.c"), "observe", name)
	ready(t, outVictim, stderrVictim)
	require.NoError(t, observer.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, victim.Process.Kill())
	for range 300 {
		a, err := arena.Attach(name, nil)
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	require.NoError(t, observer.Process.Signal(syscall.SIGCONT))
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%d died, 0 missed\n", victim.Process.Pid), line)
}

// A C program that reaps a dead participant visits only the objects that this participant has touched.
func TestDeathLooksAtWhatWasTouchedInC(t *testing.T) {
	for _, n := range []int{0, 3000} {
		name := coreArena(t, 4<<20)
		a, err := arena.Attach(name, nil)
		require.NoError(t, err)
		for k := range n {
			m, err := prims.OpenMutex(a, fmt.Sprint(k), nil)
			require.NoError(t, err)
			require.NoError(t, m.Close())
		}
		require.NoError(t, a.Close())
		// These wait nodes have nothing to do with the death.
		a, err = arena.Attach(name, nil)
		require.NoError(t, err)
		for range n / 10 {
			_, err := (*arenakernel.Arena)(a).ClaimNode()
			require.NoError(t, err)
		}
		t.Cleanup(func() { require.NoError(t, a.Close()) })
		path := program(t, "core.c")
		reaper, out, _ := core(t, path, "looks", name)
		before, err := out.ReadString('\n')
		require.NoError(t, err)
		victim, outVictim, _ := core(t, path, "looks", name)
		_, err = outVictim.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, victim.Process.Kill())
		end := time.Now().Add(timeout)
		for there := 3; there != 2; {
			i, err := arenakernel.Inspect(name)
			require.NoError(t, err)
			there = len(i.Participants())
			require.NoError(t, i.Close())
			require.True(t, time.Now().Before(end), "%d participants are there", there)
		}
		tell(t, reaper)
		after, err := out.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, before, after, "the number of words that the reaper has read among %d objects", n)
	}
}

// C participants that stay only for a moment still free the slots of dead participants.
func TestShortLivesFreeTheSlotsOfTheDeadInC(t *testing.T) {
	path, name := program(t, "core.c"), coreArena(t, 2<<20)
	var victims []*exec.Cmd
	for range 2 {
		victim, out, _ := core(t, path, "looks", name)
		_, err := out.ReadString('\n')
		require.NoError(t, err)
		victims = append(victims, victim)
	}
	for _, v := range victims {
		require.NoError(t, v.Process.Kill())
		v.Wait()
	}
	const joins = 50
	out, err := exec.Command(path, "comeandgo", name, fmt.Sprint(joins)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	i, err := arenakernel.Inspect(name)
	require.NoError(t, err)
	defer i.Close()
	require.Empty(t, i.Participants(), "after %d joins", joins)
}

// All slots are taken. One slot belongs to a dead joiner, whose death shows only when its byte lock becomes free.
// Another joiner waits until then.
func TestFullArenaWaitsForADeadJoiner(t *testing.T) {
	t.Parallel()
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			// On a busy machine, the joiner may give up before the byte lock becomes free.
			for begun := time.Now(); !joinerWaits(t, lang); {
				require.Less(t, time.Since(begun), timeout, "no joiner gets the slot")
			}
		})
	}
}

// joinerWaits lets a joiner wait for the slot of a dead joiner, and meanwhile frees the byte lock of the dead one. It
// reports whether the waiting joiner got the slot.
func joinerWaits(t *testing.T, lang string) bool {
	t.Helper()
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 2})
	require.NoError(t, err)
	defer a.Close()
	f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	const slot2, joining, heldByte = 4096 + 2048, 1 | 1<<3, 1 << (21 - 16)
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: slot2, Len: 1}))
	_, err = f.WriteAt([]byte{joining, 0, heldByte, 0}, slot2)
	require.NoError(t, err)
	begun := time.Now()
	says, joined := joinElsewhere(t, lang, name)
	require.False(t, joined, "the byte lock is held")
	full := shmsync.ErrNoSpace.Error()
	require.Contains(t, says, full)
	waited := time.Since(begun)
	require.Greater(t, waited, time.Second/2)
	time.AfterFunc(waited/4, func() { f.Close() })
	says, joined = joinElsewhere(t, lang, name)
	require.True(t, joined || strings.Contains(says, full), says)
	return joined
}

// joinElsewhere makes another process join an arena and leave it. It returns what the process says, and whether the join
// succeeded.
func joinElsewhere(t *testing.T, lang, name string) (says string, joined bool) {
	t.Helper()
	cmd := exec.Command(cAgent(t), name, "joins")
	if lang == "go" {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd = exec.Command(self)
		cmd.Env = append(os.Environ(), agentEnv+"="+name, labelEnv+"=joins")
	}
	cmd.Stdin = strings.NewReader("1 close -\n")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// A joiner without a byte lock has the only slot. Another joiner takes the slot over if the first joiner began to join
// long ago. It also takes the slot over if the time in the slot is in the future.
func TestJoinerGivesUpAnotherWithoutByteLock(t *testing.T) {
	t.Parallel()
	for lang, open := range map[string]func(*testing.T, string) (string, bool){"c": openCore, "go": openGo} {
		for ago, joins := range map[time.Duration]bool{0: false, time.Minute: true, -time.Hour: true} {
			t.Run(fmt.Sprintf("%s/%v", lang, ago), func(t *testing.T) {
				name := unusedName(t)
				a, err := arena.Create(name, &arena.Options{Size: 1 << 20, MaxParticipants: 1})
				require.NoError(t, err)
				require.NoError(t, a.Close())
				s := slotIn(t, name, 1)
				const joining, generation = 1, 2
				binary.LittleEndian.PutUint64(s[40:], uint64(time.Now().Add(-ago).UnixNano()))
				binary.LittleEndian.PutUint32(s[8:], generation<<14) // the joiner has no capabilities
				binary.LittleEndian.PutUint32(s, joining|generation<<3)
				says, joined := open(t, name)
				require.Equal(t, joins, joined, says)
			})
		}
	}
}

// More participants die than the arena has death records, while a C program is stopped. When it continues, it
// learns how many deaths it has missed.
func TestMissedDeathsAreCountedInC(t *testing.T) {
	path, name := program(t, "core.c"), coreArena(t, 2<<20)
	out, err := exec.Command(path, "records").Output()
	require.NoError(t, err)
	records, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.Positive(t, records)
	observer, said, stderr := core(t, path, "observe", name)
	ready(t, said, stderr)
	require.NoError(t, observer.Process.Signal(syscall.SIGSTOP))
	a, err := arena.Attach(name, nil) // only a participant reaps
	require.NoError(t, err)
	defer a.Close()
	const more = 3
	for range records + more {
		require.Error(t, exec.Command(path, "die", name).Run(), "it dies")
		eventually(t, "the slot of the dead is free", name, func() bool {
			n := 0
			for range a.Participants() {
				n++
			}
			return n == 2
		})
	}
	require.NoError(t, observer.Process.Signal(syscall.SIGCONT))
	for i := range records {
		var pid, missed int
		_, err := fmt.Fscanf(said, "%d died, %d missed\n", &pid, &missed)
		require.NoError(t, err, "%d of %d deaths were told: %s", i, records, stderr)
		require.Equal(t, map[bool]int{true: more}[i == 0], missed, "death %d", i)
	}
}

// waitersInWaitable is how many goroutines wait in the test below.
const waitersInWaitable = 20

func init() {
	// The verb never.wait waits in a Waitable for a state that never comes. C programs do not know this kind of object.
	verbs["never"] = func(x *goAgent, o order) (uint64, error) {
		w, err := openWaitable(x.a, o.name)
		if err != nil || o.verb == "never.open" {
			return uint64(w.Offset()), err
		}
		return 0, w.Wait(0)
	}
}

func openWaitable(a *arena.Arena, name string) (*prims.Waitable[int64, int64], error) {
	never := func(*int64, int64) bool { return false }
	return prims.OpenWaitable(a, name, 0, prims.Rules[int64, int64]{Claim: never}, nil)
}

// A C program deletes a Waitable, although it does not know this kind of object. The program also frees the wait nodes
// of dead waiters. So the next object at the same offset has no waits.
func TestNodesOfTheDeadGoWithTheirObjectInC(t *testing.T) {
	name := newArena(t)
	x, other := newAgent(t, "go", name, "waiter"), newAgent(t, "c", name, "witness")
	off := x.do(t, "never.open", "x")
	for range waitersInWaitable {
		x.start(t, "never.wait", "x")
	}
	eventually(t, "they wait", name, func() bool { return other.do(t, "waiters", "-", off) == waitersInWaitable })
	other.do(t, "close", "-")
	x.kill(t) // now no waiter is left
	runC(t, "core.c", "delete", name)

	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	require.Zero(t, a.Stats().Nodes, "wait nodes of the dead are left")
	next, err := openWaitable(a, "y")
	require.NoError(t, err)
	require.EqualValues(t, off, next.Offset(), "this test is about an object at the same place")
	require.Empty(t, a.Inspect(arena.Object(objectAt(t, a, off))).Waits)
	require.NoError(t, a.Check())
}

func objectAt(t *testing.T, a *arena.Arena, off uint64) arenakernel.Object {
	t.Helper()
	o, err := (*arenakernel.Arena)(a).ObjectAt(arena.Offset(off))
	require.NoError(t, err)
	(*arenakernel.Arena)(a).CloseObject(o)
	return o
}

// A program opens an arena by the descriptor of an open file, such as one that it has inherited.
func TestFromFD(t *testing.T) {
	seg, err := shm.CreateMemfd("cinterop", 2<<20, func(s *shm.Segment) error { return arena.Format(s, nil) }, nil)
	require.NoError(t, err)
	f, err := seg.Reopen()
	require.NoError(t, err)
	defer f.Close()
	a, err := arena.FromSegment(seg, nil)
	require.NoError(t, err)
	defer a.Close()
	cmd := exec.Command(program(t, "core.c"), "fd", "3")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	require.True(t, m.TryLock())
}

// compiledAgain skips, with -short, a test that has to compile the header again.
func compiledAgain(t *testing.T) {
	if proctest.Quick() {
		t.Skip("needs a run without -short: it compiles the header again")
	}
}

// A program that was built for another layout gets an error that names both layouts. A program that does not know a
// feature that the arena needs gets an error that says so.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	opened := func(path, name string) string {
		out, err := exec.Command(path, "open", name).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	refused := fmt.Sprint(int(syscall.EPROTONOSUPPORT), " ")
	// The programs only open one arena and end, so optimizing them would take longer than it saves.
	version := func(n int) string {
		return program(t, "core.c", "-O0", fmt.Sprint("-DSHMSYNC_LAYOUT_VERSION=", n))
	}
	t.Run("older program", func(t *testing.T) {
		compiledAgain(t)
		name := coreArena(t, 2<<20)
		out := opened(version(arenakernel.LayoutVersion-1), name)
		require.True(t, strings.HasPrefix(out, refused), out)
		require.Contains(t, out, fmt.Sprintf("its layout is version %d, this program knows version %d", arenakernel.LayoutVersion, arenakernel.LayoutVersion-1))
	})
	t.Run("older Go program", func(t *testing.T) {
		compiledAgain(t)
		name := unusedName(t)
		out := opened(version(arenakernel.LayoutVersion+1), name)
		require.True(t, strings.HasPrefix(out, "0 "), out)
		_, err := arena.Attach(name, nil)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, fmt.Sprintf("its layout is version %d, this program knows version %d", arenakernel.LayoutVersion+1, arenakernel.LayoutVersion))
	})
	t.Run("older arena", func(t *testing.T) {
		compiledAgain(t)
		name := unusedName(t)
		out := opened(version(arenakernel.LayoutVersion-1), name)
		require.True(t, strings.HasPrefix(out, "0 "), out)
		says := fmt.Sprintf("its layout is version %d, this program knows version %d", arenakernel.LayoutVersion-1, arenakernel.LayoutVersion)
		out = opened(program(t, "core.c"), name)
		require.True(t, strings.HasPrefix(out, refused), out)
		require.Contains(t, out, says)
		_, err := arena.Attach(name, nil)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, says)
	})
	t.Run("older declarations", func(t *testing.T) {
		compiledAgain(t)
		out := opened(program(t, "older.c", "-O0", filepath.Join("testdata", "implementation.c")), coreArena(t, 2<<20))
		require.True(t, strings.HasPrefix(out, refused), out)
		require.Contains(t, out, "compiled for layout version 1")
	})
	t.Run("32 bits", func(t *testing.T) {
		out, err := exec.Command(compiler(t), "-m32", "-E", "-I"+filepath.Join("..", "..", "include"), filepath.Join("testdata", "implementation.c")).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "a 32-bit program cannot join an arena")
	})
	for what, change := range map[string]struct {
		off, value uint64
		say        string
		errno      syscall.Errno
	}{
		"feature":           {40, 1 << 7, "needs features that this program does not know (0x80)", syscall.EPROTONOSUPPORT},
		"read-only feature": {32, 2, "does not know to write it", syscall.EPROTONOSUPPORT},
		"words of 4 bytes":  {16, 4, "made for machine words of 4 bytes", syscall.EPROTONOSUPPORT},
		"byte order":        {8, 0x04030201, "another byte order", syscall.EINVAL},
		"magic":             {0, 0, "no magic number", syscall.EINVAL},
		"size":              {48, 1 << 30, "it was made", syscall.EPROTO},
		"geometry":          {112, 4096, "do not lie where", syscall.EPROTO},
		"participants":      {80, 5000, "it claims 5000 participants", syscall.EPROTO},
	} {
		t.Run(what, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			h := make([]byte, 176)
			_, err = f.ReadAt(h, 0)
			require.NoError(t, err)
			if size := change.off; size == 16 || size == 8 || size == 80 {
				binary.LittleEndian.PutUint32(h[change.off:], uint32(change.value))
			} else {
				binary.LittleEndian.PutUint64(h[change.off:], change.value)
			}
			sum := fnv.New64a()
			sum.Write(h[:168])
			binary.LittleEndian.PutUint64(h[168:], sum.Sum64())
			_, err = f.WriteAt(h, 0)
			require.NoError(t, err)
			out := opened(program(t, "core.c"), name)
			require.Contains(t, out, change.say)
			require.True(t, strings.HasPrefix(out, fmt.Sprint(int(change.errno), " ")), out)
			_, err = arena.Attach(name, nil)
			require.Error(t, err, "Go takes it")
		})
	}
	t.Run("checksum", func(t *testing.T) {
		name := coreArena(t, 2<<20)
		f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		// The test inverts a byte. A fixed value would sometimes be right, because the checksum covers random bytes.
		sum := make([]byte, 1)
		_, err = f.ReadAt(sum, 168)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{^sum[0]}, 168)
		require.NoError(t, err)
		require.Contains(t, opened(program(t, "core.c"), name), "checksum")
	})
	t.Run("short", func(t *testing.T) {
		name := unusedName(t)
		require.NoError(t, os.WriteFile("/dev/shm/"+name, []byte("shmsync"), 0o600))
		require.Contains(t, opened(program(t, "core.c"), name), "not a multiple of the page size")
	})
}

// A peer overwrites everything after the header and the slots. Calls return errors; none faults or hangs.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		name := coreArena(t, 2<<20)
		cmd, out, stderr := core(t, program(t, "core.c"), "hostile", name, fmt.Sprint(rand.Uint64()))
		ready(t, out, stderr)
		f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		seg, err := shm.FromFile(f, nil)
		require.NoError(t, err)
		b := seg.Bytes()
		done := make(chan error, 1)
		tell(t, cmd)
		go func() { done <- cmd.Wait() }()
		const behindSlots = 4096 + 12*2048
		ticker := time.NewTicker(20 * time.Microsecond)
		defer ticker.Stop()
		limit := time.After(timeout)
		for over := false; !over; {
			select {
			case err := <-done:
				if err != nil {
					require.Contains(t, stderr.String(), "declared dead by a peer", "%d: %v", round, err)
				}
				over = true
			case <-limit:
				t.Fatalf("it hangs: %s", stderr)
			case <-ticker.C:
				off := behindSlots + rand.IntN(len(b)-behindSlots-8)&^7
				v := rand.Uint64() >> rand.IntN(64)
				binary.LittleEndian.PutUint64(b[off:], v)
			}
		}
		seg.Close()
	}
}
