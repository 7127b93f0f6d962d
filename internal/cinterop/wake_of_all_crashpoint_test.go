//go:build linux && crashpoint

package cinterop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A wakeOfAll is a scene in which a victim dies after it has made a change that ends all waits of an object, and before
// it has woken all waiters. The steps are orders for processes: x has the waiters, v is the victim, and h is a process
// that dies earlier. A process joins the arena at its first step. In an order, N is the number of waiters. Besides
// orders there are these steps:
//
//	v& ORDER          the step does not wait for the result
//	h kill            h dies, and another process reaps it
//	h reaped by v     h dies, only v runs, and v dies, too
//	v stops           v stops itself at the point rwspinlock.drain.announced
//	v goes on         v continues after the stop
type wakeOfAll struct {
	point string        // where the victim dies
	woken string        // the crash point just after the wake of a waiter; empty if no such waiter can delay others
	open  string        // the first order of each process
	setup []string      // done before there are waiters
	waits string        // the order of each waiter
	want  syscall.Errno // the result of that order
	dies  []string      // done when all waiters sleep
}

func (s wakeOfAll) name() string { return s.point + "/" + s.waits }

// spoilt returns a scene in which the repair of a lock fails while there are waiters.
func spoilt(point, woken, kind, key, waits string) wakeOfAll {
	return wakeOfAll{point, woken, kind + ".open x 0",
		[]string{"h " + kind + ".lock x" + key, "h kill", "v& " + kind + ".hang x" + key, "x event.wait spoiling"},
		waits, syscall.ENOTRECOVERABLE, []string{"x event.set spoil"}}
}

// marked returns a scene in which a reaper marks a lock as owner-dead. x has all waiters and is stopped meanwhile, so
// only v can reap.
func marked(point, kind, key, waits string) wakeOfAll {
	return wakeOfAll{point, "", kind + ".open x 0", []string{"h " + kind + ".lock x" + key}, waits, syscall.EOWNERDEAD,
		[]string{"h reaped by v"}}
}

func wakesOfAll() (all []wakeOfAll) {
	for _, l := range []struct{ kind, points, verb, woken string }{
		{"mutex", "mutex", "lock", "mutex.lock.woken"}, {"spin", "spinlock", "lock", "spinlock.lock.woken"},
		{"rwspin", "spinlock", "lock", "spinlock.lock.woken"}, {"rwspin", "spinlock", "rlock", "spinlock.lock.woken"},
		{"rwspin", "spinlock", "ulock", "spinlock.lock.woken"}, {"rw", "rwmutex", "rlock", "rwmutex.rlock.woken"},
		{"rw", "rwmutex", "lock", ""}, {"rw", "rwmutex", "ulock", ""},
	} {
		waits := l.kind + "." + l.verb + " x"
		all = append(all, spoilt(l.points+".recover.lost", l.woken, l.kind, "", waits), marked(l.points+".owner_dead.marked", l.kind, "", waits))
		if l.kind == "rwspin" {
			all = append(all, wakeOfAll{"rwspinlock.drain.given_up", l.woken, "",
				[]string{"x rwspin.open x 0", "x rwspin.rlock x", "h rwspin.ulock x", "h kill", "v& rwspin.mend x 100", "v stops"},
				waits, syscall.EOWNERDEAD, []string{"v goes on"}})
		}
	}
	for _, l := range []struct{ kind, key string }{{"fair", ""}, {"multi", " 7"}} {
		waits := l.kind + ".lock x" + l.key
		for _, point := range []string{"record.commit.named:2", "record.commit.completed:2", "record.tell.resolved", "record.wake.before"} {
			all = append(all, spoilt(point, "", l.kind, l.key, waits))
		}
		for _, point := range []string{"record.commit.named", "record.commit.completed", "record.tell.resolved", "record.wake.before"} {
			all = append(all, marked(point, l.kind, l.key, waits))
		}
	}
	add := func(points string, s wakeOfAll) {
		for p := range strings.FieldsSeq(points) {
			s.point = p
			all = append(all, s)
		}
	}
	reaped := []string{"h reaped by v"}
	add("record.tell.resolved semaphore.give.committed record.wake.before", wakeOfAll{
		open: "sem.open x N", setup: []string{"v sem.acquire x N 9999999"}, waits: "sem.acquire x 1 9999999", dies: []string{"v& sem.release x N"}})
	add("record.tell.resolved record.wake.before", wakeOfAll{
		open: "sem.open x N", setup: []string{"h sem.acquire x N 9999999"}, waits: "sem.acquire x 1 9999999", dies: reaped})
	add("record.commit.named record.tell.resolved record.wake.before cond.broadcast.committed", wakeOfAll{
		open: "cond.open x", waits: "cond.apart x", dies: []string{"v& cond.broadcast x"}})
	add("event.turn.before_wake", wakeOfAll{open: "event.open x 0", waits: "event.wait x", dies: []string{"v& event.set x"}})
	add("event.turn.before_wake", wakeOfAll{
		open: "event.open x 2", setup: []string{"v event.set x"}, waits: "event.waitreset x", dies: []string{"v& event.reset x"}})
	add("future.set.decided future.end.before_wake", wakeOfAll{
		open: "future.open x", setup: []string{"v future.claim x"}, waits: "future.wait x", dies: []string{"v& future.set x 5"}})
	add("future.reap.decided future.end.before_wake", wakeOfAll{
		open: "future.open x", setup: []string{"h future.claim x"}, waits: "future.wait x", want: syscall.EOWNERDEAD, dies: reaped})
	add("once.run.done", wakeOfAll{
		open: "once.open x", setup: []string{"x event.open x-go", "v& once.do x", "x seq.wait x-ran 1"}, waits: "once.nothing x", dies: []string{"x event.set x-go"}})
	add("once.run.returned", wakeOfAll{
		open: "once.open x", setup: []string{"x event.open x-go", "v& once.do x", "x seq.wait x-ran 1"}, waits: "once.nothing x", dies: []string{"x event.set x-go"}})
	add("once.reap.left", wakeOfAll{
		open: "once.open x", setup: []string{"h& once.do x", "x seq.wait x-ran 1"}, waits: "once.nothing x", dies: reaped})
	add("counter.zero.untold counter.zero.told counter.zero.before_wake", wakeOfAll{
		open: "wg.open x", setup: []string{"v wg.add x 1"}, waits: "wg.wait x", dies: []string{"v& wg.done x"}})
	add("counter.zero.untold counter.zero.told counter.zero.before_wake", wakeOfAll{
		open: "latch.open x 1", waits: "latch.wait x", dies: []string{"v& latch.down x 1"}})
	add("counter.reap.lost", wakeOfAll{
		open: "wg.open x", setup: []string{"h wg.add x 1"}, waits: "wg.wait x", want: syscall.EOWNERDEAD, dies: reaped})
	add("barrier.arrive.counted barrier.tell.before_wake", wakeOfAll{
		open: "barrier.open x N+1", waits: "barrier.aw x", dies: []string{"v& barrier.arrive x 1"}})
	add("barrier.complete.taken", wakeOfAll{
		setup: []string{"x barrier.open x N+1"}, waits: "barrier.aw x", want: syscall.EOWNERDEAD, dies: []string{"v& barrier.hang x 1"}})
	add("barrier.reap.lost barrier.tell.before_wake", wakeOfAll{
		open: "barrier.open x N+1", setup: []string{"h barrier.join x 1"}, waits: "barrier.aw x", want: syscall.EOWNERDEAD, dies: reaped})
	add("queue.shutdown.marked", wakeOfAll{
		woken: "queue.wait.woken", open: "queue.open x 1", waits: "queue.get x", want: syscall.ECANCELED, dies: []string{"v& queue.shutdown x"}})
	add("queue.shutdown.marked", wakeOfAll{
		woken: "queue.wait.woken", open: "queue.open x 1", setup: []string{"x queue.put x 1"}, waits: "queue.put x 2", want: syscall.ECANCELED, dies: []string{"v& queue.shutdown x"}})
	add("queue.add.committed:N", wakeOfAll{
		open: "queue.open x 16", waits: "queue.get x", dies: []string{"v& queue.putbatch x 10 N"}})
	add("sequencer.count.counted sequencer.count.before_wake", wakeOfAll{open: "seq.open x", waits: "seq.wait x 1", dies: []string{"v& seq.inc x"}})
	add("sequencer.cancel.marked", wakeOfAll{open: "seq.open x", waits: "seq.wait x 1", want: syscall.ECANCELED, dies: []string{"v& seq.cancel x"}})
	add("sequencer.stop.marked", wakeOfAll{open: "seq.open x", waits: "seq.wait x 1", want: syscall.ECANCELED, dies: []string{"v& seq.stop x"}})
	add("sequencer.reset.stored", wakeOfAll{open: "seq.open x", waits: "seq.wait x 1", want: syscall.ECANCELED, dies: []string{"v& seq.reset x 0"}})
	add("futex.post.before_wake", wakeOfAll{open: "futex.open x", waits: "futex.wait x 1", dies: []string{"v& futex.post x"}})
	add("futex.stop.before_wake", wakeOfAll{open: "futex.open x", waits: "futex.wait x 1", want: syscall.ECANCELED, dies: []string{"v& futex.stop x"}})
	add("signal.release.permitted", wakeOfAll{woken: "signal.acquire.woken", open: "sig.open x 64", waits: "sig.acquire x", dies: []string{"v& sig.release x N"}})
	return all
}

// TestDeathBeforeTheWakeOfAll: a process dies after a change that ends all waits of an object, and before it has woken
// all waiters. No process makes periodic checks. All waits end. They end, too, if the first waiters that are woken are
// stopped before they do anything.
func TestDeathBeforeTheWakeOfAll(t *testing.T) {
	t.Parallel()
	for _, s := range wakesOfAll() {
		t.Run(s.name(), func(t *testing.T) {
			for _, victim := range []string{"go", "c"} {
				for _, waits := range []string{"go", "c"} {
					for _, disable := range []string{"", "waitv"} {
						for _, slow := range []int{0, 2} { // a reaper may make two wakes
							if slow != 0 && s.woken == "" || proctest.Quick() && (victim == waits || (disable == "") == (s.woken != "" && slow > 0)) {
								continue
							}
							name := fmt.Sprintf("%s dies, %s waits", victim, waits)
							if disable != "" {
								name += ", without " + disable
							}
							if slow > 0 {
								name += ", woken waiters are stopped"
							}
							t.Run(name, func(t *testing.T) { s.run(t, victim, waits, disable, slow) })
						}
					}
				}
			}
		})
	}
}

// aboutToSleep maps the order of a waiter to the crash point at which the waiter has decided to sleep and does not
// sleep yet.
var aboutToSleep = map[string]string{
	"mutex.lock": "mutex.lock.announced", "spin.lock": "spinlock.lock.announced", "rwspin.lock": "spinlock.lock.announced",
	"rwspin.rlock": "spinlock.lock.announced", "rwspin.ulock": "spinlock.lock.announced",
	"rw.rlock": "rwmutex.rlock.announced", "rw.lock": "mutex.lock.announced", "rw.ulock": "mutex.lock.announced",
	"fair.lock": "park.waitnode.asleep", "multi.lock": "park.waitnode.asleep", "sem.acquire": "park.waitnode.asleep",
	"cond.apart": "park.waitnode.asleep", "event.wait": "eventcount.wait.announced", "event.waitreset": "eventcount.wait.announced",
	"future.wait": "eventcount.wait.announced", "once.nothing": "once.wait.announced", "wg.wait": "counter.wait.watched",
	"latch.wait": "counter.wait.watched", "barrier.aw": "eventcount.wait.announced", "queue.get": "queue.wait.announced",
	"queue.put": "queue.wait.announced", "seq.wait": "sequencer.wait.announced", "futex.wait": "futex.wait.announced",
	"sig.acquire": "signal.acquire.announced", "cohort.lock": "mutex.lock.announced", "waitable.wait": "park.waitnode.asleep",
}

// TestDeathBeforeTheWakeOfOneAboutToSleep is like TestDeathBeforeTheWakeOfAll. One waiter stops just before it sleeps. It
// goes on when another process has reaped the victim and has woken the waiters that slept.
func TestDeathBeforeTheWakeOfOneAboutToSleep(t *testing.T) {
	t.Parallel()
	for _, s := range wakesOfAll() {
		t.Run(s.name(), func(t *testing.T) {
			for i, victim := range []string{"go", "c"} {
				for j, waits := range []string{"go", "c"} {
					if proctest.Quick() && i == j {
						continue
					}
					t.Run(fmt.Sprintf("%s dies, %s waits", victim, waits), func(t *testing.T) { s.run(t, victim, waits, "", oneStops) })
				}
			}
		})
	}
}

// oneStops is the argument slow of the method run for one waiter that stops just before it sleeps.
const oneStops = -1

func (s wakeOfAll) run(t *testing.T, victim, waits, disable string, slow int) {
	const waiters = 3
	n := waiters + max(slow, -slow)
	number := strings.NewReplacer("N+1", fmt.Sprint(n+1), "N", fmt.Sprint(n))
	name := newArena(t)
	by := map[string]*agent{}
	process := func(who string) *agent {
		if by[who] != nil {
			return by[who]
		}
		lang, env := victim, []string(nil)
		switch who[0] {
		case 'x', 's', 'r':
			// With this number of CPUs, goroutines that wait sleep in the kernel, as threads in C do.
			lang, env = waits, []string{"GOMAXPROCS=16", "SHMSYNC_DISABLE=" + disable}
			if who[0] == 'r' { // in the language of the victim, so that each language wakes waiters of the other
				lang = victim
				verb, _, _ := strings.Cut(s.waits, " ")
				env = append(env, "SHMSYNC_CRASHPOINT_STOP="+aboutToSleep[verb])
			} else if who != "x" { // in Go, because a thread in C also wakes by itself for a moment
				lang, env = "go", append(env, "SHMSYNC_CRASHPOINT_STOP="+s.woken)
			}
		case 'v':
			env = []string{"SHMSYNC_CRASHPOINT=" + number.Replace(s.point), "SHMSYNC_CRASHPOINT_STOP=rwspinlock.drain.announced"}
		}
		x := newAgent(t, lang+withoutChecks, name, who, env...)
		x.mortal = who == "v"
		by[who] = x
		if s.open != "" {
			x.order(t, number.Replace(s.open)).must(t)
		}
		return x
	}
	step := func(o string) {
		who, o, _ := strings.Cut(number.Replace(o), " ")
		x := process(who[:1])
		switch {
		case o == "kill":
			before := present(t, name)
			x.kill(t)
			eventually(t, "it is reaped", name, func() bool { return present(t, name) < before })
		case o == "reaped by v":
			by["x"].stop(t)
			x.kill(t)
			process("v").ends(t)
			require.NoError(t, by["x"].cmd.Process.Signal(syscall.SIGCONT))
		case o == "stops":
			x.awaitStop(t)
		case o == "goes on":
			require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
		case strings.HasSuffix(who, "&"):
			x.order(t, o)
		default:
			x.order(t, o).must(t)
		}
	}
	x := process("x")
	for _, o := range s.setup {
		step(o)
	}
	v := process("v")
	off := offsetOf(t, name, "x")
	asleep := func() int { return int(max(x.do(t, "sleepers", "-", off), x.do(t, "waiters", "-", off))) }
	for k := range slow {
		s1 := process(fmt.Sprint("s", k))
		s1.order(t, s.waits)
		eventually(t, "a waiter sleeps that will be stopped", name, func() bool { return asleep() > k && s1.idle(t) })
	}
	var all []pending
	for range waiters {
		all = append(all, x.order(t, s.waits))
	}
	eventually(t, "all waiters sleep", name, func() bool { return asleep() > slow && x.idle(t) })
	if slow == oneStops {
		r := process("r")
		all = append(all, r.order(t, s.waits))
		r.awaitStop(t)
	}
	die := 1
	if slices.Contains(s.dies, "h reaped by v") {
		die = 2
	}
	left := present(t, name) - die
	for _, o := range s.dies {
		step(o)
	}
	v.ends(t)
	require.True(t, v.killed(), "%s", v.stderr)
	if slow == oneStops {
		eventually(t, "all that died are reaped", name, func() bool { return present(t, name) == left })
		require.NoError(t, by["r"].cmd.Process.Signal(syscall.SIGCONT))
	}
	for _, p := range all {
		require.Equal(t, s.want, p.wait(t).err, p.what)
	}
}

// offsetOf returns the offset of an object.
func offsetOf(t testing.TB, arenaName, object string) (off uint64) {
	t.Helper()
	i, err := arenakernel.Inspect(arenaName)
	require.NoError(t, err)
	defer i.Close()
	for _, o := range i.Objects() {
		if o.Name == object {
			off = uint64(o.Offset)
		}
	}
	require.NotZero(t, off)
	return off
}

// present returns how many participants an arena has.
func present(t testing.TB, arenaName string) int {
	t.Helper()
	i, err := arenakernel.Inspect(arenaName)
	require.NoError(t, err)
	defer i.Close()
	return len(i.Participants())
}

// order starts the order o, with its object and its arguments.
func (x *agent) order(t testing.TB, o string) pending {
	t.Helper()
	f := strings.Fields(o)
	var args []any
	for _, arg := range f[2:] {
		args = append(args, arg)
	}
	return x.start(t, f[0], f[1], args...)
}

// idle reports whether all threads of the process sleep in the kernel.
func (x *agent) idle(t testing.TB) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", x.cmd.Process.Pid))
	require.NoError(t, err)
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "S") {
			return false
		}
	}
	return len(threads) > 0
}
