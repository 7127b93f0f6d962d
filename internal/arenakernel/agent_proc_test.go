//go:build linux

package arenakernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// An agent is a participant in a separate process. It carries out the orders of its parent one
// after the other.

// inherited is the name that an order uses for the arena whose file the agent inherited when it was
// started.
const inherited = "inherited"

// An order tells an agent what to do.
type order struct {
	Do    string
	Arena string // a name, or inherited
	Opts  *Options
	Name  ParticipantID
	Text  string
	N     int
}

// An answer is what the agent returns for an order.
type answer struct {
	Err    string
	Is     []string // the sentinel errors that Err matches
	Self   ParticipantID
	Pid    int
	Text   string
	N      int64
	People []Participant
	Deaths []death
	Stats  AllocStats
	Who    *shmsync.Identity
}

// A death is one call of a function that was registered by OnDeath.
type death struct {
	Participant
	At int64 // CLOCK_MONOTONIC
}

// agent is the state of an agent, in its own process.
type agent struct {
	child *proctest.Child
	arena *Arena
	mu    sync.Mutex
	cond  *sync.Cond
	dead  []death // guarded by: mu
	kept  []byte  // memory that the process was ordered to allocate
}

func init() {
	proctest.Register("arena/agent", func(c *proctest.Child) {
		s := &agent{child: c}
		s.cond = sync.NewCond(&s.mu)
		for {
			var o order
			c.Recv(&o)
			f, ok := agentOrders[o.Do]
			if !ok {
				c.Fatalf("no agent can %q", o.Do)
			}
			var a answer
			if err := f(s, o, &a); err != nil {
				a.Err, a.Is = err.Error(), sentinels(err)
			}
			if s.arena != nil {
				a.Self = s.arena.self
			}
			a.Pid = os.Getpid()
			c.Say(a)
		}
	})
}

var sentinelNames = map[string]error{
	"incompatible": shmsync.ErrIncompatible,
	"corrupt":      shmsync.ErrCorrupt,
	"no space":     shmsync.ErrNoSpace,
	"unsupported":  shmsync.ErrNotSupported,
	"closed":       shmsync.ErrClosed,
	"exists":       fs.ErrExist,
	"not there":    fs.ErrNotExist,
	"permission":   fs.ErrPermission,
	"EINVAL":       syscall.EINVAL,
}

func sentinels(err error) (is []string) {
	for name, deathWatcher := range sentinelNames {
		if errors.Is(err, deathWatcher) {
			is = append(is, name)
		}
	}
	slices.Sort(is)
	return is
}

var agentOrders = map[string]func(s *agent, o order, a *answer) error{
	"open": func(s *agent, o order, a *answer) (err error) {
		if o.Arena == inherited {
			var seg *shm.Segment
			if seg, err = shm.FromFile(s.child.File(0), nil); err == nil {
				s.arena, err = FromSegment(seg, o.Opts)
			}
		} else {
			s.arena, err = Open(o.Arena, o.Opts)
		}
		if err != nil {
			return err
		}
		s.arena.OnDeath(func(p Participant) {
			at := shmsync.Monotonic()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dead = append(s.dead, death{p, at})
			s.cond.Broadcast()
		})
		return nil
	},
	"close": func(s *agent, o order, a *answer) error {
		err := s.arena.Close()
		s.arena = nil
		return err
	},
	"participants": func(s *agent, o order, a *answer) error {
		a.People = slices.Collect(s.arena.Participants())
		return nil
	},
	// deaths waits until at least N deaths were reported.
	"deaths": func(s *agent, o order, a *answer) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.dead) < o.N {
			s.cond.Wait()
		}
		a.Deaths = slices.Clone(s.dead)
		return nil
	},
	// alone waits until the arena has exactly N live participants and no dead ones.
	"alone": func(s *agent, o order, a *answer) error {
		pollUntil(func() bool {
			a.People = slices.Collect(s.arena.Participants())
			return len(a.People) == o.N && !slices.ContainsFunc(a.People, func(p Participant) bool { return p.State != "live" })
		})
		return nil
	},
	// identified waits until all participants have recorded when they were started.
	"identified": func(s *agent, o order, a *answer) error {
		pollUntil(func() bool {
			a.People = slices.Collect(s.arena.Participants())
			return !slices.ContainsFunc(a.People, func(p Participant) bool { return p.StartTime == 0 })
		})
		return nil
	},
	// gone waits until the participant o.Name is not current. It polls without system calls. The N of
	// its answer is the time at which it found this.
	"gone": func(s *agent, o order, a *answer) error {
		for s.arena.Current(o.Name) {
			runtime.Gosched()
		}
		a.N = shmsync.Monotonic()
		return nil
	},
	// fenced waits until the fences of other processes reach this process.
	"fenced": func(s *agent, o order, a *answer) error {
		pollUntil(s.arena.Fenced)
		return nil
	},
	"who": func(s *agent, o order, a *answer) error {
		a.Who = s.arena.Who(o.Name)
		return nil
	},
	"dead": func(s *agent, o order, a *answer) error {
		if s.arena.Dead(o.Name) {
			a.N = 1
		}
		return nil
	},
	"stats": func(s *agent, o order, a *answer) error {
		a.Stats = s.arena.Stats()
		s.arena.eachBlock(func(off Offset, size uint64, w blockWord) bool {
			if w.kind() != blockRaw && w.kind() != blockObject && w.kind() != blockNode {
				a.Text += fmt.Sprintf("%v: %d bytes, %v\n", off, size, w)
			}
			return true
		})
		return s.arena.Check()
	},
	// woken returns how many times reaps have woken the waiters of the lock called Text.
	"woken": func(s *agent, o order, a *answer) error {
		l, err := openTestLock(s.arena, o.Text)
		if err == nil {
			a.N = int64(l.woken.Load())
		}
		return err
	},
	"lock": func(s *agent, o order, a *answer) error {
		if l, err := openTestLock(s.arena, o.Text); err != nil || !l.tryLock() {
			return fmt.Errorf("not locked: %v", err)
		}
		return nil
	},
	// use calls most of the operations that a healthy participant can call.
	"use": func(s *agent, o order, a *answer) error { return useArena(s.arena, o.Text) },
	"arm": func(s *agent, o order, a *answer) error {
		crashpoint.Arm(o.Text, max(o.N, 1))
		return nil
	},
	"arm to stop": func(s *agent, o order, a *answer) error {
		crashpoint.ArmStop(o.Text, max(o.N, 1))
		return nil
	},
	"touch": func(s *agent, o order, a *answer) error {
		mem, err := unix.Mmap(-1, 0, o.N, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(mem); i += 4096 {
			mem[i] = byte(i>>12) | 1
		}
		s.kept = mem
		return nil
	},
	// "lend the byte" passes this participant's byte lock to a child process, which then holds it,
	// too.
	"lend the byte": func(s *agent, o order, a *answer) error {
		cmd := exec.Command("/bin/sleep", "600")
		cmd.ExtraFiles = []*os.File{s.arena.lock}
		err := cmd.Start()
		if err == nil {
			a.N = int64(cmd.Process.Pid)
		}
		return err
	},
	"exit":   func(s *agent, o order, a *answer) error { os.Exit(o.N); return nil },
	"panic":  func(s *agent, o order, a *answer) error { panic("told to") },
	"signal": func(s *agent, o order, a *answer) error { return raise(syscall.Signal(o.N)) },
	"exec": func(s *agent, o order, a *answer) error {
		return syscall.Exec("/bin/sleep", []string{"sleep", "600"}, os.Environ())
	},
	"exit group": func(s *agent, o order, a *answer) error {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(o.N), 0, 0)
		return errors.New("still here")
	},
	"fault": func(s *agent, o order, a *answer) error {
		// Access to this page is a fault that Go cannot turn into a panic of one goroutine.
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		_ = mem[0] + 1
		a.N = int64(mem[0])
		return errors.New("still here")
	},
	// dump ends the process by a signal that writes a core dump into directory Text.
	"dump": func(s *agent, o order, a *answer) error {
		if err := os.Chdir(o.Text); err != nil {
			return err
		}
		limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
			return err
		}
		debug.SetTraceback("crash")
		return nil
	},
}

// raise sends a signal to this process and waits until the signal has taken effect.
func raise(sig syscall.Signal) error {
	if err := unix.Kill(os.Getpid(), sig); err != nil {
		return err
	}
	select {}
}

// pollUntil checks done every millisecond.
func pollUntil(done func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		<-tick.C
	}
}

// A remote is an agent as seen by its parent.
type remote struct {
	*proctest.Proc
	arena string
	self  ParticipantID
	pid   int // as seen in the agent's own pid namespace
}

// A testArena is the name of an arena that does not exist yet, and the options with which agents
// open it. The arena is removed after the test.
type testArena struct {
	name string
	opts Options
}

func newTestArena(t testing.TB, slots int) *testArena {
	name := fmt.Sprintf("shmsync-arena-test.%d.%x", os.Getpid(), rand.Uint64())
	t.Cleanup(func() {
		if err := shm.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cleanup: %v", err)
		}
	})
	return &testArena{name, Options{Size: 2 << 20, MaxParticipants: slots}}
}

func (ta *testArena) path() string { return filepath.Join(shm.Dir, ta.name) }

// start starts an agent that has not joined yet.
func (ta *testArena) start(t testing.TB, opts ...proctest.Option) *remote {
	t.Helper()
	opts = append([]proctest.Option{proctest.Dump(func() string { return dumpWords(ta.path()) })}, opts...)
	return &remote{Proc: proctest.Start(t, "arena/agent", opts...), arena: ta.name}
}

// join starts an agent and makes it join.
func (ta *testArena) join(t testing.TB, label string, opts ...proctest.Option) *remote {
	t.Helper()
	r := ta.start(t, opts...)
	r.open(t, ta, label)
	return r
}

func (r *remote) open(t testing.TB, ta *testArena, label string) {
	t.Helper()
	o := ta.opts
	o.Label = label
	a := r.must(t, order{Do: "open", Arena: ta.name, Opts: &o})
	r.self, r.pid = a.Self, a.Pid
}

// try sends an order and returns the answer, which may contain an error.
func (r *remote) try(t testing.TB, o order) (a answer) {
	t.Helper()
	r.Send(o)
	r.Recv(t, &a)
	return a
}

// must sends an order, and fails the test unless the order succeeds.
func (r *remote) must(t testing.TB, o order) answer {
	t.Helper()
	a := r.try(t, o)
	require.Empty(t, a.Err, "%s: %s\n%s", r, o.Do, dumpWords(r.arena))
	return a
}

func (r *remote) participants(t testing.TB) []Participant {
	t.Helper()
	return r.must(t, order{Do: "participants"}).People
}

// deaths waits until the agent has been told of n deaths, and returns them.
func (r *remote) deaths(t testing.TB, n int) []death {
	t.Helper()
	return r.must(t, order{Do: "deaths", N: n}).Deaths
}

// alone waits until the arena has exactly n live participants, and returns them.
func (r *remote) alone(t testing.TB, n int) []Participant {
	t.Helper()
	return r.must(t, order{Do: "alone", N: n}).People
}

func (r *remote) close(t testing.TB) {
	t.Helper()
	r.must(t, order{Do: "close"})
}

// stats makes the agent check the whole arena and returns the statistics of its heap.
func (r *remote) stats(t testing.TB) AllocStats {
	t.Helper()
	return r.must(t, order{Do: "stats"}).Stats
}

// die sends an order that ends the process or replaces its program.
func (r *remote) die(o order) { r.Send(o) }

// bound is the longest time until a death is noticed in a test. It is far longer than necessary,
// because the machine may be busy.
func bound() time.Duration { return proctest.Scale(proctest.DefaultTimeout) }

// requireWithin checks that at is within the limit after begin. Both are times of CLOCK_MONOTONIC.
func requireWithin(t testing.TB, limit time.Duration, begin, at int64, what string) time.Duration {
	t.Helper()
	d := time.Duration(at - begin)
	require.Less(t, d, limit, what)
	return d
}

// labels returns the labels of some participants, sorted.
func labels(people []Participant) []string {
	names := []string{}
	for _, p := range people {
		names = append(names, p.Label)
	}
	slices.Sort(names)
	return names
}

func labelsOfDead(dead []death) []string {
	names := []string{}
	for _, d := range dead {
		names = append(names, d.Label)
	}
	slices.Sort(names)
	return names
}

// median returns the median and the maximum of some durations.
func median(d []time.Duration) (p50, worst time.Duration) {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2], d[len(d)-1]
}

// peek maps the file of an arena without joining. A test uses it to print the state of an arena
// when no process answers.
func peek(path string) (*Arena, error) {
	if !strings.HasPrefix(path, "/") {
		path = filepath.Join(shm.Dir, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := make([]byte, headerSize)
	st, err := f.Stat()
	if err == nil {
		_, err = f.ReadAt(h, 0)
	}
	if err != nil {
		return nil, err
	}
	geo := plan(uint64(st.Size()), int(h[hdrSlots])|int(h[hdrSlots+1])<<8)
	b := make([]byte, geo.fixedEnd()+8)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	a := &Arena{membership: &membership{seg: &shm.Segment{}}}
	a.memory, a.geo, a.label = newMemory(b), geo, path
	return a, nil
}

// dumpWords renders the slots and death records of an arena's file.
func dumpWords(path string) string {
	a, err := peek(path)
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		if w == 0 {
			continue
		}
		s := a.slot(i)
		fmt.Fprintf(&b, "slot %d: %v, reaper %v, caps %#x, pid %d, label %q, alive", i, w,
			ParticipantID(a.u32(s+slotReaper).Load()), a.u32(s+slotCaps).Load(), a.u32(s+slotPID).Load(), a.slice(s+slotLabel+1, 20))
		for k := range aliveWords {
			fmt.Fprintf(&b, " %#x", a.u32(a.aliveWord(i, k)).Load())
		}
		fmt.Fprintf(&b, ", watch doorbell %d, doorbell %d\n", a.u32(s+slotWatchDoorbell).Load(), a.u32(s+slotDoorbell).Load())
	}
	total := a.u64(hdrDeathRecordsTotal).Load()
	fmt.Fprintf(&b, "death records %d, reaps %d\n", total, a.u32(hdrDeaths).Load())
	for n := total - min(total, 8); n < total; n++ {
		o := a.deathRecord(deathRecordsOfDead, n)
		fmt.Fprintf(&b, "death record %d: seq %d, %v, flags %d, pid %d\n", n, a.u64(o+deathRecordSeq).Load(),
			ParticipantID(a.u32(o+deathRecordID).Load()), a.u32(o+deathRecordFlags).Load(), a.u32(o+deathRecordPID).Load())
	}
	return b.String()
}
