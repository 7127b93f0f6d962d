//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
)

// TestWaysToDie: a death is noticed after each signal and error that can end a process, whether the
// process or another one causes it.
func TestWaysToDie(t *testing.T) {
	signal := func(sig syscall.Signal) func(*testing.T, *remote) {
		return func(t *testing.T, r *remote) { r.Signal(t, sig) }
	}
	do := func(what string, n int) func(*testing.T, *remote) {
		return func(t *testing.T, r *remote) { r.die(order{Do: what, N: n}) }
	}
	for name, kill := range map[string]func(*testing.T, *remote){
		"SIGKILL":        signal(unix.SIGKILL),
		"SIGTERM":        signal(unix.SIGTERM),
		"SIGABRT":        signal(unix.SIGABRT),
		"SIGSEGV":        signal(unix.SIGSEGV),
		"own SIGKILL":    do("signal", int(unix.SIGKILL)),
		"own SIGABRT":    do("signal", int(unix.SIGABRT)),
		"os.Exit(0)":     do("exit", 0),
		"os.Exit(3)":     do("exit", 3),
		"exit_group(0)":  do("exit group", 0),
		"panic":          do("panic", 0),
		"fault":          do("fault", 0),
		"exec":           do("exec", 0),
		"tgkill of main": func(t *testing.T, r *remote) { require.NoError(t, unix.Tgkill(r.Pid(), r.Pid(), unix.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ta := newTestArena(t, 4)
			s, v := ta.join(t, "survivor"), ta.join(t, "victim")
			v.must(t, order{Do: "lock", Text: "held"})
			begin := shmsync.Monotonic()
			kill(t, v)
			d := s.deaths(t, 1)[0]
			took := requireWithin(t, bound(), begin, d.At, name)
			require.Equal(t, v.self, d.Name())
			require.Equal(t, "victim", d.Label)
			require.Equal(t, v.Pid(), d.PID)
			s.alone(t, 1)
			s.must(t, order{Do: "lock", Text: "held"})
			require.NotZero(t, s.must(t, order{Do: "woken", Text: "held"}).N)
			s.stats(t)
			if name == "exec" {
				// The process still exists, but runs another program.
				require.Equal(t, unix.SIGKILL, v.Kill(t).Signal)
			}
			v.Wait(t)
			t.Logf("told after %v", took)
		})
	}
}

// TestNoticeLatency measures how long it takes until a process that polls finds a death, and until
// a death is reported to OnDeath.
func TestNoticeLatency(t *testing.T) {
	rounds := proctest.Rounds(8, 40)
	ta := newTestArena(t, 8)
	s := ta.join(t, "survivor")
	ta.join(t, "another")
	var marked, told []time.Duration
	for i := range rounds {
		v := ta.join(t, "victim")
		v.must(t, order{Do: "fenced"})
		wall, begin := time.Now(), shmsync.Monotonic()
		v.Signal(t, unix.SIGKILL)
		d := s.deaths(t, i+1)[i]
		require.Equal(t, v.self, d.Name())
		marked = append(marked, d.Died.Sub(wall))
		told = append(told, requireWithin(t, bound(), begin, d.At, "OnDeath"))
	}
	p50, worst := median(marked)
	t.Logf("marked after %v (p50), %v (worst)", p50, worst)
	require.Less(t, worst, bound())
	p50, worst = median(told)
	t.Logf("told after %v (p50), %v (worst)", p50, worst)
}

// TestSeveralDieAtOnce: each participant watches the next participants in the ring of slots. All
// participants but one die at once, so a dead participant may also have lost its watchers. The
// survivor must notice all deaths.
func TestSeveralDieAtOnce(t *testing.T) {
	for _, size := range []int{4, 8} {
		for survivor := range size {
			t.Run(fmt.Sprintf("%d of %d but %d", size-1, size, survivor), func(t *testing.T) {
				if testing.Short() && survivor != 1 {
					t.Skip("needs a run without -short: with it, one survivor of each size is tested")
				}
				ta := newTestArena(t, size)
				var members []*remote
				for i := range size {
					members = append(members, ta.join(t, fmt.Sprint("m", i)))
				}
				s, want := members[survivor], []string{}
				begin := shmsync.Monotonic()
				for i, m := range members {
					if m != s {
						want = append(want, fmt.Sprint("m", i))
						m.Signal(t, unix.SIGKILL)
					}
				}
				dead := s.deaths(t, size-1)
				require.Equal(t, want, labelsOfDead(dead))
				for _, d := range dead {
					requireWithin(t, bound(), begin, d.At, "death of "+d.Label)
				}
				s.alone(t, 1)
				s.stats(t)
				s.must(t, order{Do: "use", Text: "x"})
			})
		}
	}
}

// TestAllDie: all participants die at once. The next joiner finds an arena without live
// participants, full or not, and reaps them all.
func TestAllDie(t *testing.T) {
	for _, slots := range []int{3, 8} {
		t.Run(fmt.Sprintf("3 of %d", slots), func(t *testing.T) {
			ta := newTestArena(t, slots)
			var members []*remote
			for i := range 3 {
				m := ta.join(t, fmt.Sprint("m", i))
				m.must(t, order{Do: "lock", Text: fmt.Sprint("lock ", i)})
				members = append(members, m)
			}
			for _, m := range members {
				m.Signal(t, unix.SIGKILL)
			}
			for _, m := range members {
				m.Wait(t)
			}
			n := ta.join(t, "newcomer")
			people := n.alone(t, 1)
			require.Equal(t, []string{"newcomer"}, labels(people))
			for i, m := range members {
				require.EqualValues(t, 1, n.must(t, order{Do: "dead", Name: m.self}).N)
				who := n.must(t, order{Do: "who", Name: m.self}).Who
				require.NotNil(t, who)
				require.Equal(t, fmt.Sprint("m", i), who.Label)
				require.Equal(t, m.Pid(), who.PID)
				n.must(t, order{Do: "lock", Text: fmt.Sprint("lock ", i)})
			}
			n.stats(t)
			n.must(t, order{Do: "use", Text: "x"})
			// All slots are available again.
			for i := range slots - 1 {
				ta.join(t, fmt.Sprint("late ", i))
			}
			n.alone(t, slots)
		})
	}
}

// TestStoppedIsAlive: a stopped process counts as alive.
func TestStoppedIsAlive(t *testing.T) {
	t.Parallel()
	ta := newTestArena(t, 4)
	s, stopped := ta.join(t, "survivor"), ta.join(t, "stopped")
	stopped.must(t, order{Do: "lock", Text: "held"})
	stopped.Stop(t)
	limit := proctest.Rounds(300*time.Millisecond, 3*time.Second)
	quiet, w, err := os.Pipe()
	require.NoError(t, err)
	defer quiet.Close()
	defer w.Close()
	require.NoError(t, quiet.SetReadDeadline(time.Now().Add(limit)))
	_, err = quiet.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.Equal(t, []string{"stopped", "survivor"}, labels(s.participants(t)))
	require.Zero(t, s.must(t, order{Do: "dead", Name: stopped.self}).N)
	require.NotEmpty(t, s.try(t, order{Do: "lock", Text: "held"}).Err)
	// A new participant checks all byte locks, and must not take the stopped process for dead
	// either.
	late := ta.join(t, "late")
	require.Equal(t, []string{"late", "stopped", "survivor"}, labels(late.alone(t, 3)))
	stopped.Cont(t)
	stopped.must(t, order{Do: "use", Text: "x"})
	// A process that is stopped and then killed is dead.
	stopped.Stop(t)
	stopped.Signal(t, unix.SIGKILL)
	require.Equal(t, stopped.self, s.deaths(t, 1)[0].Name())
	require.Equal(t, stopped.self, late.deaths(t, 1)[0].Name())
}

// TestDeathOfABigProcess: the kernel needs long to free the memory of a big process that was killed.
// It marks the death before that, after about 1/500 of the time from the kill to the exit. So a
// survivor must notice the death in less than half of that time. A busy machine delays the survivor,
// so the test repeats a death that was noticed too late.
func TestDeathOfABigProcess(t *testing.T) {
	if err := shmsync.FeatureMembarrier.Check(); err != nil {
		t.Skipf("needs membarrier, without which a reap waits until the memory is taken apart: %v", err)
	}
	size := 1 << 30
	if testing.Short() || race.Enabled {
		size = 128 << 20
	}
	begun := time.Now()
	for {
		noticed, exited := deathOfABigProcess(t, size)
		if noticed < exited/2 {
			return
		}
		require.Less(t, time.Since(begun), bound(), "not noticed before the memory was taken apart")
	}
}

// deathOfABigProcess kills a process of the given size. It returns how long after the kill the death was noticed, and
// how long after the kill the process had exited.
func deathOfABigProcess(t *testing.T, size int) (noticed, exited time.Duration) {
	ta := newTestArena(t, 2)
	s, v := ta.join(t, "survivor"), ta.join(t, "big")
	v.must(t, order{Do: "touch", N: size})
	v.must(t, order{Do: "fenced"})
	wall, begin := time.Now(), shmsync.Monotonic()
	v.Signal(t, unix.SIGKILL)
	at := s.must(t, order{Do: "gone", Name: v.self}).N
	noticed = requireWithin(t, bound(), begin, at, "no longer current")
	d := s.deaths(t, 1)[0]
	told := requireWithin(t, bound(), begin, d.At, "OnDeath")
	v.Wait(t)
	exited = time.Since(wall)
	s.alone(t, 1)
	t.Logf("%d MiB: not current after %v, told after %v, reaped by its parent after %v, slot free after %v",
		size>>20, noticed, told, exited, time.Since(wall))
	return noticed, exited
}

// TestSlotOfADyingProcess: no other process gets the slot of a dead process while its byte lock is
// held, which means that the kernel has not finished with the process. But the process counts as
// dead, and delays no other process. Here a process that has inherited the descriptor holds the
// byte lock.
func TestSlotOfADyingProcess(t *testing.T) {
	ta := newTestArena(t, 2)
	s, v := ta.join(t, "survivor"), ta.join(t, "victim")
	v.must(t, order{Do: "lock", Text: "held"})
	v.must(t, order{Do: "fenced"})
	sleeper := int(v.must(t, order{Do: "lend the byte"}).N)
	t.Cleanup(func() { unix.Kill(sleeper, unix.SIGKILL) })
	begin := shmsync.Monotonic()
	v.Signal(t, unix.SIGKILL)
	requireWithin(t, bound(), begin, s.deaths(t, 1)[0].At, "told")
	s.must(t, order{Do: "lock", Text: "held"})
	late := ta.start(t)
	a := late.try(t, order{Do: "open", Arena: ta.name})
	require.Equal(t, []string{"no space"}, a.Is, a.Err)
	people := s.participants(t)
	require.Len(t, people, 2)
	require.Equal(t, "dead", people[1].State)
	require.Len(t, s.deaths(t, 1), 1)

	require.NoError(t, unix.Kill(sleeper, unix.SIGKILL))
	pollFor(t, ta.peek(t), func() bool { return hasEnded(sleeper) }) // a joiner waits only one second for a slot
	late.open(t, ta, "late")
	require.Equal(t, makeParticipantID(2, 2), late.self)
	require.Len(t, s.deaths(t, 1), 1)
	s.alone(t, 2)
}

// TestCoreDump: the death of a process that dumps core is noticed when the dump ends.
func TestCoreDump(t *testing.T) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	require.NoError(t, err)
	if p := strings.TrimSpace(string(pattern)); strings.HasPrefix(p, "|") || strings.HasPrefix(p, "/") {
		t.Logf("cores go to %s here, so the dump itself is not looked at", p)
	}
	for name, sig := range map[string]syscall.Signal{"abort": unix.SIGABRT, "fault": unix.SIGSEGV} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ta := newTestArena(t, 4)
			s, v := ta.join(t, "survivor"), ta.join(t, "dumper")
			v.must(t, order{Do: "touch", N: 64 << 20})
			v.must(t, order{Do: "lock", Text: "held"})
			if a := v.try(t, order{Do: "dump", Text: dir}); a.Err != "" {
				t.Skipf("needs core dumps, and cannot raise their limit: %s", a.Err)
			}
			begin := shmsync.Monotonic()
			v.die(order{Do: "signal", N: int(sig)})
			d := s.deaths(t, 1)[0]
			took := time.Duration(d.At - begin)
			e := v.Wait(t)
			require.Equal(t, v.self, d.Name())
			s.alone(t, 1)
			s.must(t, order{Do: "lock", Text: "held"})
			cores, _ := filepath.Glob(filepath.Join(dir, "core*"))
			for _, core := range cores {
				if st, err := os.Stat(core); err == nil {
					t.Logf("core of %d MiB", st.Size()>>20)
				}
			}
			t.Logf("core dumped: %v; told after %v", e.CoreDumped, took)
		})
	}
}

// TestOutOfMemory: when memory runs out, the kernel kills a process and takes its private memory
// away before the process has ended.
func TestOutOfMemory(t *testing.T) {
	group := newMemoryGroup(t, 64<<20)
	ta := newTestArena(t, 4)
	s, v := ta.join(t, "survivor"), ta.join(t, "eater")
	v.must(t, order{Do: "lock", Text: "held"})
	require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(v.Pid())), 0))
	begin := shmsync.Monotonic()
	v.die(order{Do: "touch", N: 512 << 20})
	d := s.deaths(t, 1)[0]
	took := time.Duration(d.At - begin)
	v.WaitSignal(t, unix.SIGKILL)
	require.Equal(t, v.self, d.Name())
	s.alone(t, 1)
	s.must(t, order{Do: "lock", Text: "held"})
	s.stats(t)
	t.Logf("told %v after it began to eat", took)
}

// newMemoryGroup makes a control group whose processes may use limit bytes of memory, and no swap space.
func newMemoryGroup(t *testing.T, limit int) string {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a control group")
	}
	file, swapFile, swap := "memory.max", "memory.swap.max", 0
	parent := "/sys/fs/cgroup"
	controllers, _ := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if !strings.Contains(string(controllers), "memory") {
		parent, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		swapFile, swap = "memory.memsw.limit_in_bytes", limit // of memory and swap space together
		if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
			t.Skipf("needs the memory controller of control groups of version 2 or 1: %v", err)
		}
	}
	group := filepath.Join(parent, fmt.Sprintf("shmsync-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("needs a control group, and cannot make one: %v", err)
	}
	t.Cleanup(func() {
		var err error
		for end := time.Now().Add(bound()); time.Now().Before(end); {
			if err = os.Remove(group); err == nil {
				return
			}
		}
		t.Errorf("remove the control group: %v", err)
	})
	if err := os.WriteFile(filepath.Join(group, file), []byte(fmt.Sprint(limit)), 0); err != nil {
		t.Skipf("needs a control group with limited memory, and cannot limit it: %v", err)
	}
	// A kernel that does not count swap space has no such file.
	if err := os.WriteFile(filepath.Join(group, swapFile), []byte(fmt.Sprint(swap)), 0); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return group
}

// TestPIDNamespaces: processes in separate pid namespaces are told apart, although each of them has
// pid 1 and the same thread IDs.
func TestPIDNamespaces(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	proctest.NeedAttr(t, attr, "a pid namespace")
	apart := func() proctest.Option { return proctest.Attr(attr) }
	ta := newTestArena(t, 8)
	one, two := ta.join(t, "one", apart()), ta.join(t, "two", apart())
	require.Equal(t, 1, one.pid)
	require.Equal(t, 1, two.pid)
	require.NotEqual(t, one.self, two.self)
	outside := ta.join(t, "outside")
	people := outside.must(t, order{Do: "identified"}).People
	require.Len(t, people, 3)
	require.Equal(t, 1, people[0].PID)
	require.Equal(t, 1, people[1].PID)
	for _, p := range people[:2] {
		require.NotEqual(t, people[2].PIDNS, p.PIDNS)
		require.Equal(t, "robust", p.Notice)
	}
	require.NotEqual(t, people[0].PIDNS, people[1].PIDNS)

	begin := shmsync.Monotonic()
	one.Signal(t, unix.SIGKILL)
	for _, s := range []*remote{two, outside} {
		d := s.deaths(t, 1)[0]
		requireWithin(t, bound(), begin, d.At, "death of one")
		require.Equal(t, one.self, d.Name())
		require.Equal(t, "one", d.Label)
		require.Equal(t, 1, d.PID)
		require.Equal(t, []string{"outside", "two"}, labels(s.alone(t, 2)))
		require.Zero(t, s.must(t, order{Do: "dead", Name: two.self}).N)
	}
	// Another process with pid 1 takes the slot. It must not be mistaken for the dead process, which also had pid 1.
	three := ta.join(t, "three", apart())
	require.Equal(t, 1, three.pid)
	require.Equal(t, makeParticipantID(one.self.Slot(), 2), three.self)
	three.must(t, order{Do: "use", Text: "x"})
	two.Kill(t)
	require.Equal(t, []string{"one", "two"}, labelsOfDead(outside.deaths(t, 2)))
	require.Equal(t, []string{"two"}, labelsOfDead(three.deaths(t, 1)))
	require.Equal(t, []string{"outside", "three"}, labels(outside.alone(t, 2)))
}
