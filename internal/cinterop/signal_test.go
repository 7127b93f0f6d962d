//go:build linux

package cinterop

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// step is a call by one of the agents, and the exact result that the call must have.
type step struct {
	x *agent
	call
}

// walk makes calls of a SignalWaker one after the other, and checks their results.
func walk(t *testing.T, name string, steps []step) {
	t.Helper()
	for i, s := range steps {
		a := s.x.start(t, "sig."+s.verb, name, s.args...).wait(t)
		require.Equal(t, s.err, a.err, "step %d, %v in %s: %v\n%s", i, s.call, s.x.lang, a.err, s.x.stderr)
		if s.err == 0 {
			require.Equal(t, s.n, a.n, "step %d, %v in %s", i, s.call, s.x.lang)
		}
	}
}

// noPermits takes all permits that are left, so that the next acquire sleeps. Each schedule of a queue issues a permit,
// and the tests execute queues without taking permits. The death of a process may issue permits, too.
func (x *agent) noPermits(t *testing.T, name string) {
	t.Helper()
	for x.start(t, "sig.try", name).wait(t).err == 0 {
	}
}

// One agent schedules, and the other executes. Both see the same gates, bits and counts.
func TestSignalWakerPlain(t *testing.T) {
	const busy, perm, inval = syscall.EBUSY, syscall.EPERM, syscall.EINVAL
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "sig.open", "w", 2, 1)
		require.Equal(t, off, s.b.do(t, "sig.open", "w"))
		s.b.start(t, "sig.open", "w", 3).fails(t, inval)
		s.b.start(t, "sig.open", "w", 65).fails(t, inval)
		s.b.start(t, "mutex.open", "w").fails(t, inval)
		s.a.do(t, "sig.open", "uncounted", 1)
		s.b.do(t, "sig.open", "uncounted", 0, 1)
		a, b := s.a, s.b
		walk(t, "w", []step{
			{b, gives(128, "at", off)},
			{b, refuses(inval, "at", off+64)},
			{b, refuses(busy, "next", 0)},
			{a, gives(1, "schedule", 5)},
			{b, do("schedule", 5)},
			{b, gives(1, "state", 5)},
			{b, gives(5, "next", 0)},
			{a, gives(2|1<<2, "state", 5)},
			{a, gives(uint64(b.cmd.Process.Pid), "executor", 5)},
			{a, refuses(busy, "begin", 5)},
			{a, refuses(busy, "inline", 5)},
			{a, refuses(perm, "finish", 5)},
			{a, do("schedule", 5)},
			{b, gives(1, "finish", 5)},
			{b, refuses(perm, "finish", 5)},
			{a, do("begin", 5)},
			{b, refuses(busy, "next", 5)},
			{a, do("fschedule", 5)},
			{b, gives(5, "next", 127)},
			{b, do("finish", 5)},
			{a, do("inline", 5)},
			{b, do("schedule", 5)},
			{a, gives(1, "finish", 5)},
			{b, do("begin", 5)},
			{b, do("finish", 5)},
			{b, do("executor", 5)},
			{a, gives(5<<2, "state", 5)},
			{b, refuses(inval, "schedule", 128)},
			{b, refuses(inval, "next", -1)},
			// Next finds queue 64 first, and then queue 3.
			{a, gives(1, "schedule", 3)},
			{a, gives(1, "schedule", 64)},
			{b, gives(64, "next", 70)},
			{b, gives(3, "next", 70)},
			{b, do("finish", 3)},
			{b, do("finish", 64)},
		})
		b.noPermits(t, "w")
		w := b.asleep(t, off, 1, "sig.acquire", "w")
		walk(t, "w", []step{{a, gives(1, "sleepers")}, {a, do("sleeper", 1)}, {a, gives(2, "sleepers")}, {a, do("sleeper", -1)}, {a, gives(1, "schedule", 70)}})
		w.must(t)
		walk(t, "w", []step{
			{b, gives(70, "next", 0)}, {b, do("finish", 70)},
			{b, do("sleepers")}, {b, refuses(perm, "sleeper", -1)},
			{b, refuses(syscall.ETIMEDOUT, "acquire", 20)},
			{a, do("release", 3)}, {b, gives(3, "permits")}, {b, do("acquire")}, {b, do("acquire", 0)}, {b, do("try")}, {b, refuses(busy, "try")},
			{a, do("release", 0)}, {a, refuses(inval, "release", -1)}, {b, do("permits")},
		})
		w = b.asleep(t, off, 1, "sig.acquire", "w")
		x := s.c.asleep(t, off, 2, "sig.acquire", "w")
		a.do(t, "sig.release", "w", 2)
		w.must(t)
		x.must(t)
		walk(t, "w", []step{
			// A worker that finds a scheduled queue does not sleep, even if there is no permit.
			{a, gives(1, "schedule", 9)}, {a, do("try")}, {b, do("acquire")}, {b, gives(9, "next", 0)}, {b, do("finish", 9)},
			{a, do("worker", 1)}, {a, do("worker", 1)}, {b, do("worker", 1)}, {b, gives(3, "workers")}, {b, do("worker", -1)}, {b, refuses(perm, "worker", -1)}, {a, gives(2, "workers")},
			// Count 0 is the number of executions begun. Counts 1 and 2 are the executions that left the gate idle, and
			// those that left it scheduled again. Count 9 belongs to the user.
			{b, gives(9, "stat", 0)}, {b, gives(6, "stat", 1)}, {b, gives(1, "stat", 2)}, {b, gives(5, "stat", 3)}, {b, do("count", 9, 7)}, {a, do("count", 9, 2)}, {a, gives(9, "stat", 9)}, {a, refuses(inval, "count", 16, 1)},
			{a, gives(200000, "health")},
		})
	})
}

// Users can work with the index themselves: signals, summary, status, partitions and reservations.
func TestSignalWakerIndex(t *testing.T) {
	const busy, perm, inval = syscall.EBUSY, syscall.EPERM, syscall.EINVAL
	forPairs(t, func(t *testing.T, s scene) {
		s.a.do(t, "sig.open", "w", 4)
		s.b.do(t, "sig.open", "tree", 6)
		a, b := s.a, s.b
		walk(t, "w", []step{
			{a, gives(3, "bitset", 1, 5)}, {b, do("bitset", 1, 5)}, {b, gives(2, "bitset", 1, 63)}, {a, gives(12<<1, "bitsetmask", 1, 12|32)},
			{a, gives(1<<63|44, "bits", 1)}, {b, gives(5, "nearest", 1, 34)}, {b, gives(63, "nearest", 1, 35)}, {b, gives(64, "nearest", 1, 64)}, {b, gives(64, "nearest", 0, 1)},
			{b, gives(1<<63|44, "bittake", 1, 5)}, {a, refuses(busy, "bittake", 1, 5)}, {a, gives(1<<63|12, "bittake", 1, 63)}, {a, gives(12, "bits", 1)},
			{a, refuses(inval, "bitset", 4, 0)}, {a, refuses(inval, "bitset", 0, 64)}, {b, refuses(inval, "bittake", 0, -1)},
			{b, do("summary")}, {b, gives(1, "mark", 1)}, {a, do("mark", 1)}, {a, gives(2, "summary")}, {a, gives(12, "markmask", 14)}, {b, gives(3, "permits")},
			{b, refuses(inval, "markmask", 16)}, {b, refuses(inval, "mark", 4)}, {b, refuses(busy, "unmarkempty", 1)}, {b, do("unmarkempty", 2)}, {a, refuses(busy, "unmarkempty", 2)},
			{a, do("unmark", 1)}, {b, refuses(busy, "unmark", 1)}, {b, gives(8, "summary")}, {a, gives(1, "mark", 1)},
			// Next clears bits of queues that are not scheduled.
			{b, refuses(busy, "next", 0)}, {a, do("summary")}, {a, do("bits", 1)}, {a, gives(4, "permits")},
			{a, gives(1, "yield")}, {b, do("yield")}, {b, gives(1, "status")}, {b, gives(1, "tasks")}, {a, do("tasks")}, {a, gives(3, "status")}, {a, gives(6, "permits")},
			{b, do("unyield")}, {a, refuses(busy, "unyield")}, {a, gives(2, "status")}, {a, do("untasks")}, {b, refuses(busy, "untasks")}, {b, do("status")},
			{b, gives(1, "leaf", 2)}, {a, do("leaf", 7)}, {a, gives(2, "status")}, {a, gives(1<<2|1<<7, "partition")}, {a, gives(1, "haswork", 7)}, {b, do("haswork", 6)},
			{b, refuses(busy, "untasks")}, {b, gives(2, "status")}, {a, do("clearleaf", 2)}, {a, gives(2, "status")}, {b, do("clearleaf", 7)}, {b, do("status")},
			{a, refuses(inval, "leaf", 64)}, {a, refuses(inval, "clearleaf", -1)},
		})
		a.do(t, "sig.bitset", "tree", 3, 1)
		b.do(t, "sig.bitset", "tree", 5, 0)
		walk(t, "w", []step{
			{b, gives(1, "sync", 2, 6)}, {a, gives(1<<1|1<<3, "partition")}, {a, gives(2, "status")},
			{a, gives(1, "sync", 3, 4)}, {b, gives(1, "partition")},
			{b, do("sync", 0, 0)}, {a, do("partition")}, {a, do("status")},
			{a, refuses(inval, "sync", 3, 2)}, {b, refuses(inval, "sync", 0, 7)}, {a, do("sync", 0, 4, 1)},
		})
		q := a.do(t, "sig.reserve", "w", 2, 3)
		require.Equal(t, uint64(2), q/64)
		walk(t, "w", []step{
			{b, gives(1, "reserved")}, {b, refuses(perm, "unreserve", q)}, {b, gives(63, "reserveall", 2, 3)}, {a, refuses(busy, "reserve", 2, 3)}, {a, refuses(busy, "reserve", 3, 3)},
			{b, gives(64, "reserved")}, {a, do("unreserve", q)}, {a, refuses(perm, "unreserve", q)}, {b, gives(q, "reserve", 2, 3)},
			{b, gives(192, "reserveall", 0, 4)}, {a, refuses(busy, "reserve", 0, 4)}, {a, refuses(inval, "reserve", 0, 5)}, {b, gives(256, "reserved")}, {a, gives(256000+900000000, "health")},
		})
	})
}

// Both sides put items into the same queues and execute them. No item is lost, no queue has two
// executors at a time, and no worker sleeps while a queue is scheduled.
func TestSignalWakerStress(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		s.a.do(t, "sig.open", "w", 2, 1)
		s.a.do(t, "event.open", "w-stop")
		var work, pushes []pending
		for _, x := range []*agent{s.a, s.b, s.c} {
			work = append(work, x.start(t, "sig.serve", "w"), x.start(t, "sig.serve", "w"))
		}
		for range 5 { // then a quiet time, in which all workers sleep
			for _, x := range []*agent{s.a, s.b} {
				pushes = append(pushes, x.start(t, "sig.push", "w", 300), x.start(t, "sig.push", "w", 100))
			}
			for _, p := range pushes {
				p.must(t)
			}
			pushes = nil
			eventually(t, "all items are executed, and all workers sleep", s.arena, func() bool {
				return s.a.do(t, "sig.left", "w") == 0 && s.b.do(t, "sig.sleepers", "w") == 6
			})
		}
		s.a.do(t, "event.set", "w-stop")
		s.b.do(t, "sig.release", "w", 6)
		executed := uint64(0)
		for _, p := range work {
			executed += p.must(t)
		}
		require.Equal(t, executed, s.c.do(t, "sig.stat", "w", 0))
		require.Positive(t, s.c.do(t, "sig.stat", "w", 2))
		sound(t, s.arena)
	})
}

// A process is killed while it executes a queue, has reserved a queue, is registered as a worker, or has taken a
// permit. The queue that it executed is scheduled again, and a sleeping worker is woken.
func TestSignalWakerKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "sig.open", "w", 2)
		a, b := s.a, s.b
		q := a.do(t, "sig.reserve", "w", 0, 2)
		walk(t, "w", []step{
			{a, gives(1, "schedule", 5)}, {a, do("begin", 5)}, {a, do("inline", 100)}, {b, do("schedule", 100)}, {a, do("worker", 1)}, {a, do("sleeper", 1)},
			{b, gives(1, "workers")}, {b, gives(1, "reserved")},
		})
		b.noPermits(t, "w")
		w := b.asleep(t, off, 1, "sig.acquire", "w")
		a.kill(t)
		w.must(t)
		// A reaper changes the word of a gate first, and makes the queue visible for Next after that.
		eventually(t, "both are scheduled", s.arena, func() bool {
			return b.do(t, "sig.state", "w", 5)&3 == 1 && b.do(t, "sig.state", "w", 100)&3 == 1 && b.do(t, "sig.summary", "w") == 3
		})
		walk(t, "w", []step{{b, gives(5, "next", 0)}, {b, gives(100, "next", 0)}, {b, gives(2|3<<2, "state", 5)}, {b, do("finish", 5)}, {b, do("finish", 100)}, {b, refuses(syscall.EBUSY, "next", 0)}})
		eventually(t, "what it had is given back", s.arena, func() bool {
			return b.do(t, "sig.reserved", "w")+b.do(t, "sig.workers", "w")+b.do(t, "sig.sleepers", "w") == 0
		})
		walk(t, "w", []step{{b, gives(128, "reserveall", 0, 2)}, {s.c, refuses(syscall.EPERM, "unreserve", q)}})
		sound(t, s.arena)
	})
}

// A worker is killed while it sleeps. A second worker is killed after it was woken and was stopped before it could act.
// A third worker gets the permit.
func TestSignalWakerKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "sig.open", "w", 1)
		s.a.asleep(t, off, 1, "sig.acquire", "w")
		w := s.c.asleep(t, off, 2, "sig.acquire", "w")
		s.a.kill(t)
		s.b.do(t, "sig.release", "w", 1)
		w.must(t)
		sound(t, s.arena)
		s.b.noPermits(t, "w") // the death has issued a permit as well, because the dead process might have taken one
		a := newAgent(t, s.a.lang, s.arena, "stopped")
		a.asleep(t, off, 1, "sig.acquire", "w")
		w = s.c.asleep(t, off, 2, "sig.acquire", "w")
		a.stop(t)
		s.b.do(t, "sig.schedule", "w", 7)
		a.kill(t)
		w.must(t)
		walk(t, "w", []step{{s.c, gives(7, "next", 0)}, {s.c, do("finish", 7)}})
		eventually(t, "nobody sleeps", s.arena, func() bool { return s.b.do(t, "sig.sleepers", "w") == 0 })
		sound(t, s.arena)
	})
}

// A C program is stopped within a Schedule. The periodic check of a sleeping worker finds what the program has not
// announced yet.
func TestSignalWakerStoppedProducer(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"signal.schedule.gated", "signal.publish.bit_set", "signal.mark.marked", "signal.release.permitted"} {
		for _, lang := range []string{"go", "c"} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				name := newArena(t)
				b := newAgent(t, lang, name, "sleeps")
				off := b.do(t, "sig.open", "w", 1)
				a := newAgent(t, "c", name, "stops", "SHMSYNC_CRASHPOINT_STOP="+point)
				w := b.asleep(t, off, 1, "sig.acquire", "w")
				a.starts("sig.schedule w 5")
				w.must(t)
				walk(t, "w", []step{{b, gives(5, "next", 0)}, {b, do("finish", 5)}})
			})
		}
	}
}

// A C program is stopped within a Schedule. In another process, a worker waits briefly again and again, or always has
// other work. This worker finds the queue that the stopped program has not announced yet.
func TestSignalWakerStoppedBusily(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for _, lang := range []string{"go", "c"} {
			t.Run(fmt.Sprintf("%v/%s", busy, lang), func(t *testing.T) {
				name := newArena(t)
				b := newAgent(t, lang, name, "works")
				b.do(t, "sig.open", "w", 1)
				a := newAgent(t, "c", name, "stops", "SHMSYNC_CRASHPOINT_STOP=signal.schedule.gated")
				a.starts("sig.schedule w 5")
				eventually(t, "it has stopped", name, func() bool { return b.do(t, "sig.state", "w", 5)&1 != 0 })
				for end := time.Now().Add(timeout); ; {
					limit := 50
					if busy {
						limit = 10_000
					}
					w := b.start(t, "sig.acquire", "w", limit)
					if busy {
						<-time.After(40 * time.Millisecond) // the worker sleeps most of this time
						b.do(t, "sig.schedule", "w", 6)
					}
					if w.wait(t).err == 0 {
						q := b.do(t, "sig.next", "w", 0)
						b.do(t, "sig.finish", "w", int(q))
						if q == 5 {
							break
						}
					}
					if time.Now().After(end) { // the loop starts and kills no process, because that would also repair a lost wake
						t.Fatalf("no worker finds the queue\n%s", describe(name))
					}
				}
			})
		}
	}
}

// A C program is killed while it reaps a dead program. The next program completes the reaping.
func TestKillSignalReap(t *testing.T) {
	for _, point := range groupPoints(t) {
		if !strings.HasPrefix(point, "signal.reap.") {
			continue
		}
		t.Run(point, func(t *testing.T) {
			for _, lang := range []string{"go", "c"} {
				t.Run(lang, func(t *testing.T) {
					name := newArena(t)
					x := newAgent(t, lang, name, "dies")
					x.do(t, "sig.open", "w", 1)
					victim := newAgent(t, "c", name, "victim", "SHMSYNC_CRASHPOINT="+point)
					victim.do(t, "sig.open", "w")
					walk(t, "w", []step{{x, gives(1, "schedule", 5)}, {x, do("begin", 5)}, {x, gives(64, "reserveall", 0, 1)}})
					x.kill(t)
					select {
					case <-victim.ended:
					case <-time.After(timeout):
						t.Fatalf("the victim does not come to the crash point\n%s", describe(name))
					}
					successor := newAgent(t, lang, name, "successor")
					eventually(t, "the queue is scheduled, and no queue is reserved", name, func() bool {
						return successor.do(t, "sig.state", "w", 5)&1 != 0 && successor.do(t, "sig.reserved", "w") == 0
					})
					walk(t, "w", []step{{successor, gives(5, "next", 0)}, {successor, do("finish", 5)}, {successor, gives(64, "reserveall", 0, 1)}})
					sound(t, name)
				})
			}
		})
	}
}

// A release of more permits than a SignalWaker can count changes nothing. A signal keeps its permit, too, if the number of
// permits is the largest one.
func TestSignalPermitsDoNotOverflow(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		for _, x := range []*agent{s.a, s.b} {
			x.do(t, "sig.open", "w")
			x.do(t, "sig.release", "w", int64(math.MaxInt64))
		}
		require.EqualValues(t, uint64(math.MaxUint64-1), s.a.do(t, "sig.permits", "w"))
		s.a.start(t, "sig.release", "w", 2).fails(t, syscall.EINVAL)
		s.b.start(t, "sig.release", "w", int64(math.MaxInt64)).fails(t, syscall.EINVAL)
		require.EqualValues(t, uint64(math.MaxUint64-1), s.b.do(t, "sig.permits", "w"))
		s.a.do(t, "sig.release", "w", 1)
		s.b.start(t, "sig.release", "w", 1).fails(t, syscall.EINVAL)
		s.b.do(t, "sig.schedule", "w", 5)
		require.EqualValues(t, uint64(math.MaxUint64), s.a.do(t, "sig.permits", "w"))
		s.a.do(t, "sig.try", "w")
		require.EqualValues(t, uint64(math.MaxUint64-1), s.b.do(t, "sig.permits", "w"))
	})
}
