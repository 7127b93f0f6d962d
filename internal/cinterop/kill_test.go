//go:build linux

package cinterop

import (
	"fmt"
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

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// points returns the crash points of the core of the C header.
func points(t *testing.T) (names []string) {
	parts, err := filepath.Glob(filepath.Join("..", "..", "include", "parts", "[2-5]*.h"))
	require.NoError(t, err)
	for _, p := range parts {
		src, err := os.ReadFile(p)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`SHMSYNC_CRASHPOINT\("([a-z._]+)"\)`).FindAllStringSubmatch(string(src), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// elsewhere has the prefixes of crash points that the worker group does not pass. It maps each prefix to the test that
// passes the points.
var elsewhere = map[string]string{
	"arena.enter.":                "TestKillEntering",
	"arena.close.":                "TestKillEntering",
	"arena.gate.":                 "TestKillEntering",
	"arena.remove.":               "TestKillRemoving",
	"arena.inherit.":              "TestKillInheriting",
	"arena.renew.":                "TestKillRenewing",
	"futex.":                      "TestKillFutex",
	"mutex.recover.":              "TestKillRecovering",
	"tx.":                         "TestTxKilledAt",
	"arena.sweep.":                "TestKillAlone",
	"arena.object.before_publish": "TestKillAlone",
	"park.waitnode.":              "the queues",
	"arena.node.":                 "the queues",
	"arena.slotrecord.":           "TestKillRecord",
}

func isElsewhere(point string) bool { return prefixOf(point) != "" }

// prefixOf returns the prefix in elsewhere that the point has, or "" if it has none.
func prefixOf(point string) string {
	for prefix := range elsewhere {
		if strings.HasPrefix(point, prefix) {
			return prefix
		}
	}
	return ""
}

// teamWork starts the work of one agent in a round. Some of its threads lock a Mutex, without and with deadlines.
// Others create and delete names, and post. The parameter crowd is the number of threads that lock without a deadline.
func teamWork(t *testing.T, x *agent, rounds, crowd int) (all []pending) {
	for range crowd {
		all = append(all, x.start(t, "mutex.team", "m", rounds))
	}
	return append(all,
		x.start(t, "mutex.timedteam", "m", rounds),
		x.start(t, "churn", "c", rounds/3),
		x.start(t, "futex.posts", "f", rounds))
}

// killAt makes a victim work together with a Go program, a C program, and holders of the lock that die. The victim dies
// at the crash point. The remaining programs go on, and nothing is left behind. killAt returns false if the victim
// never passes the point.
func killAt(t *testing.T, lang, point string) bool {
	name := newArena(t)
	g, c := newAgent(t, "go", name, "go"), newAgent(t, "c", name, "c")
	g.do(t, "mutex.open", "m", 1)
	off := g.do(t, "futex.open", "f")
	victim := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT="+point+":2")
	walk := []pending{g.start(t, "futex.walk", "f", 1, 100), c.start(t, "futex.walk", "f", 1, 100)}
	victim.starts("mutex.team m 1000000000", "mutex.team m 1000000000", "mutex.timedteam m 1000000000",
		"churn c 1000000000", "futex.walk f 1 1000000000", "futex.posts f 1000000000")
	dead := func() bool {
		select {
		case <-victim.ended:
			return true
		default:
			return false
		}
	}
	// The function alone kills a holder while only the victim can find the death, because the other processes are
	// stopped.
	alone := func() {
		holder := newAgent(t, "c", name, "holder")
		holder.do(t, "mutex.open", "m", 1)
		holder.start(t, "mutex.lock", "m").wait(t) // may fail, because the victim may not have recovered the lock yet
		for _, p := range []*agent{g, c} {
			p.stop(t)
			defer p.cmd.Process.Signal(syscall.SIGCONT)
		}
		holder.kill(t)
		select {
		case <-victim.ended:
		case <-time.After(100 * time.Millisecond): // the victim dies only when it passes the point a second time
		}
	}
	round := func() {
		fodder := newAgent(t, "c", name, "fodder")
		all := append(teamWork(t, g, 60, 16), teamWork(t, c, 60, 3)...)
		fodder.starts("mutex.team m 1000000000", "futex.walk f 1 1000000000")
		fodder.do(t, "sleepers", "-", off)
		fodder.kill(t)
		for _, p := range all {
			p.must(t)
		}
	}
	// On a busy machine a round may take a minute.
	rounds, limit := 20, timeout
	if seldom[point] && !proctest.Long() {
		rounds, limit = 2, 2*time.Second
	}
	if strings.HasPrefix(point, "mutex.owner_dead.") {
		for n := 0; n < rounds && !dead(); n++ {
			alone()
		}
	}
	for n, end := 0, time.Now().Add(limit); !dead() && (n < rounds || time.Now().Before(end)); n++ {
		round()
	}
	passed := dead()
	if !passed {
		victim.kill(t)
	}
	round()
	c.do(t, "futex.posts", "f", 100)
	for _, w := range walk {
		w.must(t)
	}
	sound(t, name)
	leftovers(t, name, g, c)
	return passed
}

// starts gives orders to a program that may die before it reads all of them.
func (x *agent) starts(orders ...string) {
	for i, o := range orders {
		fmt.Fprintf(x.in, "%d %s\n", 1000+i, o)
	}
}

// leftovers requires that no block is still claimed by a dead process. A living process may keep a block for a peer
// that reads it. So each living process creates and deletes a name, which frees such a block.
func leftovers(t *testing.T, name string, living ...*agent) {
	t.Helper()
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	eventually(t, "nothing is claimed", name, func() bool {
		for _, x := range living {
			x.do(t, "churn", "leftovers", 1)
		}
		return a.Stats().Claimed == 0
	})
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	if m.State().Err != nil {
		require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
	}
	require.NoError(t, m.LockContext(t.Context()))
	m.Unlock()
}

// A C program is killed at each crash point of the core of the header. Programs of both languages work beside it.
func TestKillC(t *testing.T) {
	t.Parallel()
	cAgent(t)
	only := os.Getenv("SHMSYNC_TEST_POINT")
	all := slices.DeleteFunc(points(t), func(point string) bool { return !strings.HasPrefix(point, only) || isElsewhere(point) })
	if only == "" {
		all = proctest.Sample(all, 20)
	}
	for _, point := range all {
		t.Run(point, func(t *testing.T) {
			if !killAt(t, "c", point) && !seldom[point] {
				t.Error("the victim never passed it")
			}
		})
	}
}

// seldom lists crash points that the group may fail to pass in the time it has.
var seldom = map[string]bool{
	"arena.object.cancelling":  true, // one process opens the object that another is about to delete
	"arena.object.withdrawing": true, // two processes create one name
}

// A C program is killed while it joins and while it leaves.
func TestKillEntering(t *testing.T) {
	core := program(t, "core.c")
	for _, point := range points(t) {
		if elsewhere[prefixOf(point)] != "TestKillEntering" {
			continue
		}
		t.Run(point, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			var in *agent
			if point == "arena.gate.admitted" { // passed only while another participant is in
				in = newAgent(t, "go", name, "in")
			}
			for range 3 {
				killCore(t, point, core, "open", name)
				killCore(t, point, core, "open", name)
				out, err := exec.Command(core, "open", name).CombinedOutput()
				require.NoError(t, err, string(out))
				require.True(t, strings.HasPrefix(string(out), "0 "), string(out))
			}
			if in != nil {
				in.in.Close()
				in.ends(t)
			}
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			eventually(t, "they are reaped", name, func() bool {
				n := 0
				for range a.Participants() {
					n++
				}
				return n == 1
			})
			require.NoError(t, a.Check())
		})
	}
}

func killCore(t *testing.T, point, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "SHMSYNC_CRASHPOINT="+point)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "it never passed %s: %s", point, out)
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%v: %s", err, out)
}

// A dead program, which held a Mutex, has the only slot. Two C programs, one after the other, are killed while they
// take the slot over.
func TestKillInheriting(t *testing.T) {
	core := program(t, "core.c")
	for _, point := range points(t) {
		if !strings.HasPrefix(point, "arena.inherit.") {
			continue
		}
		for _, lang := range []string{"go", "c"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := unusedName(t)
				a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
				require.NoError(t, err)
				require.NoError(t, a.Close())
				x := newAgent(t, lang, name, "dead")
				x.do(t, "mutex.open", "m", 1)
				x.do(t, "mutex.lock", "m")
				x.kill(t)
				killCore(t, point, core, "open", name)
				killCore(t, point, core, "open", name)
				y := newAgent(t, "c", name, "successor")
				y.start(t, "mutex.lock", "m").fails(t, syscall.EOWNERDEAD)
				y.do(t, "mutex.recover", "m")
				y.do(t, "mutex.lock", "m")
				y.kill(t)
				sound(t, name)
			})
		}
	}
}

// A C program is killed before it publishes a new object, or while its allocator merges small free blocks.
func TestKillAlone(t *testing.T) {
	core := program(t, "core.c")
	for _, point := range points(t) {
		verb := "misuse"
		switch {
		case strings.HasPrefix(point, "arena.sweep."):
			verb = "sweep"
		case point != "arena.object.before_publish":
			continue
		}
		t.Run(point, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			for range 2 {
				killCore(t, point, core, verb, name)
				x := newAgent(t, "c", name, "successor")
				leftovers(t, name, x)
			}
			sound(t, name)
		})
	}
}

// A C program is killed while it waits for posts of a Futex. Another C program is killed while it posts, or while it
// stops the Futex.
func TestKillFutex(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		for _, point := range []string{"futex.wait.announced", "futex.wait.woken"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x, poster := newAgent(t, lang, name, "stays"), newAgent(t, lang, name, "posts")
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point+":3")
				off := x.do(t, "futex.open", "f")
				victim.starts("futex.walk f 1 1000000")
				for posts := uint64(1); ; posts++ {
					waits := x.start(t, "futex.wait", "f", posts)
					select {
					case <-victim.ended:
						poster.do(t, "futex.post", "f")
						waits.must(t)
						sound(t, name)
						return
					default:
					}
					poster.do(t, "sleepers", "-", off)
					poster.do(t, "futex.post", "f")
					waits.must(t)
				}
			})
		}
		t.Run("futex.post.before_wake/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "waits")
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=futex.post.before_wake")
			off := x.do(t, "futex.open", "f")
			waits := x.asleep(t, off, 1, "futex.wait", "f", 1)
			victim.starts("futex.post f")
			waits.must(t)
			victim.ends(t)
			sound(t, name)
		})
		t.Run("futex.stop.before_wake/"+lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "waits")
			victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT=futex.stop.before_wake")
			off := x.do(t, "futex.open", "f")
			waits := x.asleep(t, off, 1, "futex.wait", "f", 1)
			victim.starts("futex.stop f")
			waits.fails(t, syscall.ECANCELED)
			victim.ends(t)
			sound(t, name)
		})
	}
}

// A C program is killed while it recovers what another program left.
func TestKillRecovering(t *testing.T) {
	for _, point := range points(t) {
		if !strings.HasPrefix(point, "mutex.recover.") {
			continue
		}
		for _, lang := range []string{"go", "c"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				x, y := newAgent(t, lang, name, "dies"), newAgent(t, lang, name, "stays")
				victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
				x.do(t, "mutex.open", "m", 1)
				x.do(t, "mutex.lock", "m")
				x.kill(t)
				dead := syscall.EOWNERDEAD
				if point == "mutex.recover.lost" {
					victim.starts("mutex.badrecover m")
					dead = syscall.ENOTRECOVERABLE
				} else {
					victim.starts("mutex.recover m")
				}
				victim.ends(t)
				if point == "mutex.recover.before_wake" {
					y.do(t, "mutex.lock", "m")
					y.do(t, "mutex.unlock", "m")
				} else {
					y.start(t, "mutex.lock", "m").fails(t, dead)
					require.EqualValues(t, 1, y.do(t, "mutex.recover", "m"))
				}
				sound(t, name)
			})
		}
	}
}
