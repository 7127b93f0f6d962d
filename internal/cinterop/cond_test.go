//go:build linux

package cinterop

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// Offsets of words of a Cond.
const (
	condCommit = 8 * iota
	condFirst
	condLast
	condBoundary
	condFlying
)

// condValue is the value of a recorded word of a Cond.
func condValue(t *testing.T, arenaName string, off uint64, word int) uint32 {
	t.Helper()
	image, _ := body(t, arenaName, off)
	return binary.LittleEndian.Uint32(image[word+4:])
}

// condChanges returns how often a Cond has changed.
func condChanges(t *testing.T, arenaName string, off uint64) uint64 {
	t.Helper()
	image, _ := body(t, arenaName, off)
	return binary.LittleEndian.Uint64(image[condCommit:]) >> 11
}

// sleeps gives the agent an order, and returns when one more thread sleeps in the object at off.
func (x *agent) sleeps(t *testing.T, off uint64, verb, name string, args ...any) pending {
	t.Helper()
	return x.blocked(t, off, x.do(t, "waiters", "-", off)+1, verb, name, args...)
}

// condIdle waits until the Cond "c" has no queued wait, and no wait that still has to pass a wake on. Then it checks
// the arena.
func condIdle(t *testing.T, name string, off uint64) {
	t.Helper()
	a, err := arena.Attach(name, &arena.Options{Label: "checker"})
	require.NoError(t, err)
	defer a.Close()
	c, err := prims.OpenCond(a, "c", &sync.Mutex{}, nil)
	require.NoError(t, err)
	defer c.Close()
	eventually(t, "nobody waits", name, func() bool { return c.State() == prims.CondState{} })
	for _, word := range []int{condFirst, condLast, condBoundary} {
		require.Zero(t, condValue(t, name, off, word), "word at %d", word)
	}
	eventually(t, "no turn of a Broadcast is owed", name, func() bool {
		c.Signal()
		return condValue(t, name, off, condFlying) == 0
	})
	sound(t, name)
}

// TestSignalsThatManyDeadWaitsOweInC checks that a process in C passes on the Signals that thousands of waits of a dead
// participant owe. It passes them on in the order of the Signals, and visits all wait nodes of the arena only a few
// times.
func TestSignalsThatManyDeadWaitsOweInC(t *testing.T) { runC(t, "debts.c", newArena(t)) }

// TestCondFunctions checks waits that unlock and lock through functions of the program. The functions may fail, and
// waits may time out.
func TestCondFunctions(t *testing.T) {
	t.Parallel()
	quick := program(t, "cond.c")
	// Here no periodic check wakes a wait.
	rare := program(t, "cond.c", rarely)
	out, err := exec.Command(quick).Output()
	require.NoError(t, err)
	for i, scene := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		t.Run(scene, func(t *testing.T) {
			bin := rare
			if scene == "the turn is late" {
				bin = quick
			}
			name := coreArena(t, 2<<20)
			out, err := exec.Command(bin, name, fmt.Sprint(i)).CombinedOutput()
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}

// condDies kills a process at a crash point of a wait that a Signal has woken. The Signal passes on to exactly one
// other wait.
func condDies(t *testing.T, lang, other, point string) {
	name := newArena(t)
	b := newAgent(t, other, name, "b")
	off := b.do(t, "cond.open", "c")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT="+point)
	x.mortal = true
	x.sleeps(t, off, "cond.apart", "c")
	second := b.sleeps(t, off, "cond.apart", "c")
	third := b.sleeps(t, off, "cond.apart", "c")
	b.do(t, "cond.signal", "c")
	x.ends(t)
	second.must(t)
	require.EqualValues(t, 1, b.do(t, "waiters", "-", off))
	b.do(t, "cond.signal", "c")
	third.must(t)
	condIdle(t, name, off)
}

var condWoken = []string{"record.await.resolved", "cond.wait.woken", "cond.wait.relocked"}

func TestCondSignalledDies(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		for _, point := range condWoken {
			t.Run(point+"/"+other, func(t *testing.T) { condDies(t, "c", other, point) })
		}
	}
}

// A Broadcast wakes a process, and the process dies. All other waits still end.
func TestCondBroadcastDies(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		for _, point := range append(condWoken, "cond.settle.committed") {
			t.Run(point+"/"+other, func(t *testing.T) { condBroadcastDies(t, "c", other, point) })
		}
	}
}

func condBroadcastDies(t *testing.T, lang, other, point string) {
	name := newArena(t)
	b := newAgent(t, other, name, "b")
	off := b.do(t, "cond.open", "c")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT="+point)
	x.mortal = true
	x.sleeps(t, off, "cond.apart", "c")
	var waits []pending
	for range 20 { // more than a Broadcast wakes at a time
		waits = append(waits, b.start(t, "cond.apart", "c"))
	}
	eventually(t, "all wait", name, func() bool { return b.do(t, "waiters", "-", off) == 21 })
	b.do(t, "cond.broadcast", "c")
	x.ends(t)
	for _, w := range waits {
		w.must(t)
	}
	condIdle(t, name, off)
}

// Each of many Signals wakes one thread of a process, and the process dies. Every Signal passes on to another wait.
func TestCondManySignalledDie(t *testing.T) {
	const waits = 70 // more than a C program lists in one search for the waits of the dead
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) {
			name := newArena(t)
			b, x := newAgent(t, other, name, "b"), newAgent(t, "c", name, "victim")
			x.mortal = true
			off := b.do(t, "cond.open", "c")
			for range waits {
				x.start(t, "cond.wait", "c")
			}
			eventually(t, "the victim waits", name, func() bool { return b.do(t, "waiters", "-", off) == waits })
			var after []pending
			for range waits {
				after = append(after, b.start(t, "cond.apart", "c"))
			}
			eventually(t, "all wait", name, func() bool { return b.do(t, "waiters", "-", off) == 2*waits })
			b.do(t, "cond.lock", "c")
			for range waits {
				b.do(t, "cond.signal", "c")
			}
			x.kill(t)
			for _, w := range after {
				w.must(t)
			}
			condIdle(t, name, off)
		})
	}
}

// Several Signals wake waits of one process, which then dies. After each Signal, another process begins one more wait.
// A Signal passes on only to a wait that began before the Signal. If the Signals pass on in their order, each of them
// finds such a wait.
func TestCondSignalsPassOnInTheirOrder(t *testing.T) {
	const signals = 6
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) {
			name := newArena(t)
			b, x := newAgent(t, other, name, "b"), newAgent(t, "c", name, "victim")
			x.mortal = true
			off := b.do(t, "cond.open", "c")
			var first []pending
			for range signals {
				first = append(first, x.sleeps(t, off, "cond.wait", "c"))
			}
			b.do(t, "cond.broadcast", "c")
			for _, w := range first {
				w.must(t) // from now on the victim uses its wait nodes again, in another order
			}
			for range signals {
				x.sleeps(t, off, "cond.wait", "c")
			}
			waits := []pending{b.sleeps(t, off, "cond.apart", "c")}
			b.do(t, "cond.lock", "c")
			for range signals {
				b.do(t, "cond.signal", "c")
				before := condChanges(t, name, off)
				waits = append(waits, b.start(t, "cond.apart", "c"))
				eventually(t, "its wait has joined", name, func() bool { return condChanges(t, name, off) > before })
			}
			x.kill(t)
			for _, w := range waits[:signals] {
				w.must(t)
			}
			b.do(t, "cond.signal", "c")
			waits[signals].must(t)
			condIdle(t, name, off)
		})
	}
}

// A Signal has woken a process, which then dies. All processes that watch the victim are stopped. The process of the
// next waiter does not watch the victim. It still finds the death.
func TestCondDeathThatNobodyCounts(t *testing.T) {
	for _, waits := range []string{"go", "c"} {
		t.Run(waits, func(t *testing.T) {
			name := newArena(t)
			var watchers []*agent
			for n := range 3 {
				watchers = append(watchers, newAgent(t, "c", name, fmt.Sprint("watcher ", n)))
			}
			x, z := newAgent(t, "c", name, "victim"), newAgent(t, waits, name, "waits")
			x.mortal = true
			off := x.do(t, "cond.open", "c")
			x.sleeps(t, off, "cond.wait", "c")
			w := z.sleeps(t, off, "cond.apart", "c")
			watchers[0].do(t, "cond.lock", "c")
			watchers[1].do(t, "cond.signal", "c")
			for _, p := range watchers {
				p.stop(t)
			}
			x.kill(t)
			w.must(t)
			for _, p := range watchers {
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
			}
			condIdle(t, name, off)
		})
	}
}

// A wait that begins after a Signal does not get the Signal, even if the process that the Signal has woken dies.
func TestCondSignalPassesToNoLaterWait(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) { condNoLaterWait(t, "c", other) })
	}
}

func condNoLaterWait(t *testing.T, lang, other string) {
	name := newArena(t)
	b := newAgent(t, other, name, "b")
	off := b.do(t, "cond.open", "c")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT_STOP=cond.wait.woken")
	x.mortal = true
	x.sleeps(t, off, "cond.apart", "c")
	b.do(t, "cond.signal", "c")
	x.awaitStop(t)
	late := b.sleeps(t, off, "cond.apart", "c")
	x.kill(t)
	sound(t, name) // the death has been reaped
	b.start(t, "cond.wait", "c", 250).fails(t, syscall.ETIMEDOUT)
	require.EqualValues(t, 1, b.do(t, "waiters", "-", off))
	b.do(t, "cond.signal", "c")
	late.must(t)
	condIdle(t, name, off)
}

// condCannotLock checks a wait of the victim that a Signal has woken. The wait cannot lock again, because the holder of
// the lock has died. The Signal passes on to a wait of process b. If point is not empty, the victim dies at that crash
// point. If b wakes its own wait first, the victim does not pass the point, and condCannotLock repeats the scene.
func condCannotLock(t *testing.T, lang, other, point string) {
	for tries := 0; !condDiesWithoutLock(t, lang, other, point); tries++ {
		require.Less(t, tries, 20, "the process never comes to %s", point)
	}
}

func condDiesWithoutLock(t *testing.T, lang, other, point string) (died bool) {
	name := newArena(t)
	b, holder := newAgent(t, other, name, "b"), newAgent(t, "c", name, "holder")
	holder.mortal = true
	off := b.do(t, "cond.open", "c")
	var env []string
	if point != "" {
		env = []string{"SHMSYNC_CRASHPOINT=" + point}
	}
	x := newAgent(t, lang, name, "victim", env...)
	x.mortal = true
	first := x.sleeps(t, off, "cond.wait", "c")
	second := b.sleeps(t, off, "cond.apart", "c")
	third := b.sleeps(t, off, "cond.apart", "c")
	holder.do(t, "cond.lock", "c")
	holder.do(t, "cond.signal", "c")
	holder.kill(t)
	select {
	case a := <-first.c:
		require.Equal(t, syscall.EOWNERDEAD, a.err)
		if point != "" {
			x.kill(t)
		}
	case <-x.ended:
		died = true
	case <-time.After(timeout):
		t.Fatalf("the process neither dies nor gets an error\n%s", describe(name))
	}
	second.must(t)
	require.EqualValues(t, 1, b.do(t, "waiters", "-", off))
	b.do(t, "cond.signal", "c")
	third.must(t)
	condIdle(t, name, off)
	return died || point == ""
}

// condPassing lists the crash points of a process that passes a Signal on. The process has passed these points before,
// when a record queued its wait and changed four words. The numbers leave those passes out.
var condPassing = []string{
	"record.commit.written:2", "record.commit.named:2", "record.complete.begun:5", "record.complete.begun:6", "record.complete.begun:8",
	"record.tell.resolved:1", "record.commit.completed:2", "cond.settle.committed:1", "record.wake.before:1",
}

func TestCondCannotLock(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run("lives/"+other, func(t *testing.T) { condCannotLock(t, "c", other, "") })
		for _, point := range condPassing {
			t.Run(point+"/"+other, func(t *testing.T) { condCannotLock(t, "c", other, point) })
		}
	}
}

// A process that a Signal has woken dies, and the next waiter is stopped. Only a stranger, a process that has not
// opened the Cond, notices the death. The stranger passes the Signal on.
func TestCondSignalledDiesBesideStrangers(t *testing.T) {
	for _, stranger := range []string{"go", "c"} {
		for _, waits := range []string{"go", "c"} {
			t.Run(stranger+"/"+waits, func(t *testing.T) {
				name := newArena(t)
				newAgent(t, stranger, name, "stranger")
				b := newAgent(t, waits, name, "b")
				off := b.do(t, "cond.open", "c")
				x := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT_STOP=cond.wait.woken")
				x.mortal = true
				x.sleeps(t, off, "cond.apart", "c")
				w := b.sleeps(t, off, "cond.apart", "c")
				b.do(t, "cond.signal", "c")
				x.awaitStop(t)
				b.stop(t)
				require.NotZero(t, condValue(t, name, off, condFirst))
				x.kill(t)
				eventually(t, "the Signal has passed on", name, func() bool { return condValue(t, name, off, condFirst) == 0 })
				require.NoError(t, b.cmd.Process.Signal(syscall.SIGCONT))
				w.must(t)
				condIdle(t, name, off)
			})
		}
	}
}

// This test is like TestCondSignalledDiesBesideStrangers, but the arena has no room for a record of the stranger. The
// stranger reaps the dead process, and keeps the wait node that owes the Signal. The next waiter passes the Signal on
// when it runs again. If there is no waiter, the next call on the Cond clears the node.
func TestCondSignalledDiesWithoutRoom(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/another waits %v", other, waits), func(t *testing.T) { condWithoutRoom(t, other, waits) })
		}
	}
}

func condWithoutRoom(t *testing.T, other string, waits bool) {
	name := newArena(t)
	stranger, b := newAgent(t, "c", name, "stranger"), newAgent(t, other, name, "b")
	off := b.do(t, "cond.open", "c")
	b.do(t, "cond.signal", "c") // the first call of b on the Cond, which searches for dead waits
	x := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT_STOP=cond.wait.woken")
	x.mortal = true
	const slot, phaseLive, phaseFree = 3, 2, 0 // the slot of the victim, and phases of a slot
	x.sleeps(t, off, "cond.apart", "c")
	var w pending
	if waits {
		w = b.sleeps(t, off, "cond.apart", "c")
	}
	b.do(t, "cond.signal", "c")
	x.awaitStop(t)
	b.stop(t)
	stranger.do(t, "room.take", "-")
	require.EqualValues(t, phaseLive, stranger.do(t, "gone.slot", "-", slot))
	x.kill(t)
	eventually(t, "the stranger has reaped", name, func() bool { return stranger.do(t, "gone.slot", "-", slot) == phaseFree })
	require.Equal(t, waits, condValue(t, name, off, condFirst) != 0, "the wait is still queued")
	require.NoError(t, b.cmd.Process.Signal(syscall.SIGCONT))
	if waits {
		w.must(t)
	} else {
		b.do(t, "cond.signal", "c")
	}
	stranger.do(t, "room.give", "-")
	condIdle(t, name, off)
}

// A process is stopped when the record that queues its wait is committed, but not yet carried out. The wait still gets
// the next Signal.
func TestCondSignalSeesAnUnfinishedWait(t *testing.T) {
	for _, other := range []string{"go", "c"} {
		t.Run(other, func(t *testing.T) { condUnfinished(t, "c", other) })
	}
}

func condUnfinished(t *testing.T, lang, other string) {
	name := newArena(t)
	b := newAgent(t, other, name, "b")
	off := b.do(t, "cond.open", "c")
	b.start(t, "cond.apart", "c", 1).fails(t, syscall.ETIMEDOUT)
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT_STOP=record.commit.named")
	w := x.start(t, "cond.apart", "c")
	x.awaitStop(t)
	require.Zero(t, condValue(t, name, off, condBoundary))
	b.do(t, "cond.signal", "c")
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
	w.must(t)
	condIdle(t, name, off)
}

// condStops lists calls, and the crash points at which the process of a call is stopped. If a call first waits, the
// field wakes has the verb that ends this wait.
var condStops = []struct {
	verb   string
	args   []any
	wakes  string
	points []string
}{
	{"cond.apart", nil, "", []string{
		"record.wait.prepared", "record.commit.written", "record.commit.named", "record.complete.begun:1", "record.complete.begun:2",
		"record.complete.begun:3", "record.commit.completed", "cond.wait.queued", "cond.wait.unlocked", "park.waitnode.asleep",
	}},
	{"cond.apart", []any{20}, "", []string{"record.commit.written:2", "record.commit.named:2", "record.complete.begun:6", "record.await.withdrawn"}},
	{"cond.apart", nil, "cond.signal", condWoken},
	{"cond.apart", nil, "cond.broadcast", append([]string{
		"record.commit.written:2", "record.commit.named:2", "record.complete.begun:5", "record.commit.completed:2", "cond.settle.committed",
	}, condWoken...)},
	{"cond.signal", nil, "", []string{
		"record.commit.written", "record.commit.named", "record.complete.begun:1", "record.complete.begun:2", "record.complete.begun:3",
		"record.tell.resolved", "record.commit.completed", "record.wake.before",
	}},
	{"cond.broadcast", nil, "", []string{
		"record.commit.written", "record.commit.named", "record.complete.begun:1", "record.complete.begun:2", "record.complete.begun:5",
		"record.tell.resolved:1", "record.tell.resolved:2", "record.commit.completed", "cond.broadcast.committed", "record.commit.named:2", "record.wake.before",
	}},
}

// A process that is stopped at a crash point does not delay other processes: they wait, signal and broadcast.
func TestCondStoppedAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, s := range condStops {
		for _, point := range s.points {
			t.Run(strings.TrimPrefix(s.verb+" "+s.wakes, "cond.")+fmt.Sprint(s.args)+"/"+point, func(t *testing.T) {
				condStopped(t, "c", "go", s.verb, s.args, s.wakes, point)
			})
		}
	}
}

func condStopped(t *testing.T, lang, other, verb string, args []any, wakes, point string) {
	name := newArena(t)
	y, z := newAgent(t, other, name, "y"), newAgent(t, "c", name, "z")
	off := y.do(t, "cond.open", "c")
	z.do(t, "cond.open", "c")
	x := newAgent(t, lang, name, "victim", "SHMSYNC_CRASHPOINT_STOP="+point)
	x.mortal = true
	var before []pending
	if verb != "cond.apart" {
		for range 2 { // four waits, which are more than one record can wake
			before = append(before, y.sleeps(t, off, "cond.apart", "c"), z.sleeps(t, off, "cond.apart", "c"))
		}
	}
	if wakes != "" {
		x.sleeps(t, off, verb, "c", args...)
		y.do(t, wakes, "c")
	} else {
		x.start(t, verb, "c", args...)
	}
	x.awaitStop(t)
	if len(before) > 0 {
		z.do(t, "cond.broadcast", "c")
		for _, w := range before {
			w.must(t)
		}
	}
	// The wait of the stopped process takes at most one of these three Signals.
	v, w := y.sleeps(t, off, "cond.apart", "c"), z.sleeps(t, off, "cond.apart", "c")
	y.do(t, "cond.signal", "c")
	z.do(t, "cond.signal", "c")
	y.do(t, "cond.signal", "c")
	v.must(t)
	w.must(t)
	v, w = y.sleeps(t, off, "cond.apart", "c"), z.sleeps(t, off, "cond.apart", "c")
	z.do(t, "cond.broadcast", "c")
	v.must(t)
	w.must(t)
	z.start(t, "cond.apart", "c", 5).fails(t, syscall.ETIMEDOUT)
	x.kill(t)
	condIdle(t, name, off)
}

// All calls in C return, with whatever result, after a peer has overwritten words of a Cond.
func TestCondOverwritten(t *testing.T) {
	t.Parallel()
	for _, word := range []int{condCommit, condFirst, condLast, condBoundary, condFlying} {
		for _, value := range []uint64{1 << 32, 5<<32 | 7, 0x3000 << 32, 1<<63 | 1, 2048, 1<<64 - 1} {
			t.Run(fmt.Sprintf("%d/%#x", word, value), func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, "c", name, "x")
				off := x.do(t, "cond.open", "c")
				w := x.sleeps(t, off, "cond.apart", "c", 200)
				image, write := body(t, name, off)
				binary.LittleEndian.PutUint64(image[word:], value)
				write(image)
				for _, verb := range []string{"cond.signal", "cond.broadcast"} {
					require.Contains(t, []syscall.Errno{0, syscall.EPROTO}, x.start(t, verb, "c").wait(t).err)
				}
				require.Contains(t, []syscall.Errno{0, syscall.EPROTO, syscall.ETIMEDOUT}, x.start(t, "cond.apart", "c", 5).wait(t).err)
				require.Contains(t, []syscall.Errno{0, syscall.EPROTO, syscall.ETIMEDOUT}, w.wait(t).err)
			})
		}
	}
}
