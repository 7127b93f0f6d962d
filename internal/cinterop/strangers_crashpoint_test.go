//go:build linux && crashpoint

package cinterop

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// In these tests, only a stranger reaps: a process that has never opened the object. No process makes periodic checks.

// A keep is something that a process keeps in an object after it has closed its handles.
type keep struct {
	open  string        // the first order of each process
	setup []string      // orders of the waiting process before the holder holds anything
	holds string        // the order by which the holder gets what it keeps
	waits string        // the order of the waiter
	want  syscall.Errno // the result of that order after the death of the holder
	only  string        // the only language that has the kind; empty for both languages
	point string        // where a waiter is about to sleep, if not at the point of aboutToSleep
}

func keeps() []keep {
	const dead = syscall.EOWNERDEAD
	return []keep{
		{open: "mutex.open x 0", holds: "mutex.lock x", waits: "mutex.lock x", want: dead},
		{open: "mutex.open x 2", holds: "mutex.lock x", waits: "mutex.lock x"},
		{open: "cohort.open x 0", holds: "cohort.lock x", waits: "cohort.lock x", want: dead, only: "go"},
		{open: "rw.open x 0", holds: "rw.lock x", waits: "rw.rlock x", want: dead},
		{open: "rw.open x 0", holds: "rw.rlock x", waits: "rw.lock x", point: "rwmutex.lock.announced"},
		{open: "rw.open x 0", holds: "rw.ulock x", waits: "rw.lock x"},
		{open: "spin.open x 0", holds: "spin.lock x", waits: "spin.lock x", want: dead},
		{open: "rwspin.open x 0", holds: "rwspin.lock x", waits: "rwspin.rlock x", want: dead},
		{open: "rwspin.open x 0", holds: "rwspin.rlock x", waits: "rwspin.lock x", point: "rwspinlock.drain.announced"},
		{open: "fair.open x 0", holds: "fair.lock x", waits: "fair.lock x", want: dead},
		{open: "fair.open x 2", holds: "fair.lock x", waits: "fair.lock x"},
		{open: "multi.open x 0", holds: "multi.lock x 7", waits: "multi.lock x 7", want: dead},
		{open: "multi.open x 2", holds: "multi.lock x 7", waits: "multi.lock x 7"},
		{open: "sem.open x 2", holds: "sem.acquire x 1", waits: "sem.acquire x 2"},
		{open: "wg.open x", holds: "wg.add x 1", waits: "wg.wait x", want: dead},
		{open: "latch.open x 1", holds: "latch.claim x 1", waits: "latch.wait x", want: dead},
		{open: "barrier.open x 2", holds: "barrier.join x 1", waits: "barrier.aw x", want: dead},
		{open: "queue.open x 4", setup: []string{"queue.put x 1"}, holds: "queue.lease x", waits: "queue.get x"},
		{open: "future.open x", holds: "future.claim x", waits: "future.wait x", want: dead},
		{open: "sig.open x 64", setup: []string{"sig.release x 1"}, holds: "sig.acquire x", waits: "sig.acquire x"},
		{open: "waitable.open x 1", holds: "waitable.wait x 1", waits: "waitable.wait x 1", only: "go"},
	}
}

// TestHoldOutlivesItsHandle: a process closes its handles on an object, and keeps something there. Then it dies, or
// leaves the arena. The wait of another process ends, also if the waiter is just about to sleep.
func TestHoldOutlivesItsHandle(t *testing.T) {
	for _, k := range keeps() {
		t.Run(k.open+"/"+k.holds+"/"+k.waits, func(t *testing.T) {
			n := 0
			for _, holder := range []string{"go", "c"} {
				for _, waits := range []string{"go", "c"} {
					for _, reaper := range []string{"go", "c"} {
						for _, way := range []string{"asleep", "about to sleep", "leaves"} {
							if k.only != "" && (holder != k.only || waits != k.only) {
								continue
							}
							n++
							if proctest.Quick() && n%5 != 1 && reaper+way != "c"+"leaves" && k.only == "" {
								continue
							}
							t.Run(fmt.Sprintf("%s holds, %s waits, %s reaps, %s", holder, waits, reaper, way), func(t *testing.T) {
								k.run(t, holder, waits, reaper, way)
							})
						}
					}
				}
			}
		})
	}
}

func (k keep) run(t *testing.T, holder, waits, reaper, way string) {
	name := newArena(t)
	env := []string{"GOMAXPROCS=16"} // goroutines sleep in the kernel, as threads in C do
	if way == "about to sleep" {
		verb, _, _ := strings.Cut(k.waits, " ")
		env = append(env, "SHMSYNC_CRASHPOINT_STOP="+cmp.Or(k.point, aboutToSleep[verb]))
	}
	// Each process is watched by the three processes before it. So only strangers watch the holder.
	w := newAgent(t, waits+withoutChecks, name, "w", env...)
	for i := range 3 {
		newAgent(t, reaper+withoutChecks, name, fmt.Sprint("stranger", i))
	}
	h := newAgent(t, holder+withoutChecks, name, "h")
	w.order(t, k.open).must(t)
	for _, o := range k.setup {
		w.order(t, o).must(t)
	}
	off := offsetOf(t, name, "x")
	if holder == "go" {
		h.order(t, "closing."+k.holds).must(t)
	} else {
		h.order(t, k.holds).must(t)
		require.NotZero(t, h.do(t, "shut", "-", off))
	}
	require.Equal(t, 1, openersOf(t, name, off), "the holder has closed its handles")
	wait := w.order(t, k.waits)
	if way == "about to sleep" {
		w.awaitStop(t)
	} else {
		eventually(t, "it sleeps", name, func() bool {
			return max(w.do(t, "sleepers", "-", off), w.do(t, "waiters", "-", off)) > 0 && w.idle(t)
		})
	}
	before := present(t, name)
	if way == "leaves" {
		h.order(t, "close - -").must(t)
	} else {
		h.kill(t)
	}
	if way == "about to sleep" {
		eventually(t, "it is reaped", name, func() bool { return present(t, name) < before })
		require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
	}
	require.Equal(t, k.want, wait.wait(t).err)
}

// openersOf returns how many participants have an object open.
func openersOf(t testing.TB, arenaName string, off uint64) (n int) {
	t.Helper()
	i, err := arenakernel.Inspect(arenaName)
	require.NoError(t, err)
	defer i.Close()
	for _, o := range i.Objects() {
		if uint64(o.Offset) == off {
			n = len(o.OpenBy)
		}
	}
	return n
}

// reapedByStrangers kills h and returns when only strangers have reaped it. All other processes are stopped.
func reapedByStrangers(t *testing.T, arenaName string, h *agent) {
	t.Helper()
	before := present(t, arenaName)
	h.kill(t)
	eventually(t, "it is reaped", arenaName, func() bool { return present(t, arenaName) < before })
}

// takeRoom takes all room of the arena, so that a reaper can make no slot record. The function that it returns gives
// the room back.
func takeRoom(t *testing.T, arenaName string) (giveBack func()) {
	x := newAgent(t, "c"+withoutChecks, arenaName, "takes room")
	x.do(t, "room.take", "-")
	return func() { x.do(t, "room.give", "-") }
}

// TestStrangerReapsAHolder: a stranger reaps a process that has an object open and holds it. A waiter that joins the
// queue, or is just about to sleep, gets what the dead process held.
func TestStrangerReapsAHolder(t *testing.T) {
	const dead = syscall.EOWNERDEAD
	for _, c := range []struct {
		open, holds, waits string
		want               syscall.Errno
		points             string
	}{
		{"sem.open x 1", "sem.acquire x 1", "sem.acquire x 1", 0, "park.waitnode.asleep record.wait.prepared record.commit.completed:2"},
		{"fair.open x 0", "fair.lock x", "fair.lock x", dead, "park.waitnode.asleep record.wait.prepared record.commit.completed"},
		{"multi.open x 0", "multi.lock x 7", "multi.lock x 7", dead, "park.waitnode.asleep record.wait.prepared record.commit.completed"},
		{"barrier.open x 2", "barrier.join x 1", "barrier.aw x", dead, "eventcount.wait.announced"},
	} {
		for _, reaper := range []string{"go", "c"} {
			for _, waits := range []string{"go", "c"} {
				for point := range strings.FieldsSeq(c.points) {
					if proctest.Quick() && reaper == waits && point != "park.waitnode.asleep" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s reaps, %s waits/%s", c.waits, reaper, waits, point), func(t *testing.T) {
						name := newArena(t)
						h := newAgent(t, reaper+withoutChecks, name, "h")
						w := newAgent(t, waits+withoutChecks, name, "w", "GOMAXPROCS=16", "SHMSYNC_CRASHPOINT_STOP="+point)
						h.order(t, c.open).must(t)
						h.order(t, c.holds).must(t)
						w.order(t, c.open).must(t)
						wait := w.order(t, c.waits)
						w.awaitStop(t)
						newAgent(t, reaper+withoutChecks, name, "stranger")
						reapedByStrangers(t, name, h)
						require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
						require.Equal(t, c.want, wait.wait(t).err)
					})
				}
			}
		}
	}
}

// TestStrangerWithoutRoomReapsAHolder: the arena has no room for the slot record of the stranger, so the stranger cannot
// change the object. A goroutine that has just joined the queue learns of the death.
func TestStrangerWithoutRoomReapsAHolder(t *testing.T) {
	for _, c := range []struct {
		open, holds, waits string
		want               syscall.Errno
		point              string // where the wait has just joined the queue
	}{
		{"sem.open x 1", "sem.acquire x 1", "sem.acquire x 1", 0, "record.commit.completed:2"},
		{"fair.open x 0", "fair.lock x", "fair.lock x", syscall.EOWNERDEAD, "record.commit.completed"},
		{"multi.open x 0", "multi.lock x 7", "multi.lock x 7", syscall.EOWNERDEAD, "record.commit.completed"},
	} {
		for _, reaper := range []string{"go", "c"} {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s reaps, closed handle %v", c.waits, reaper, closed), func(t *testing.T) {
					name := newArena(t)
					h := newAgent(t, "go"+withoutChecks, name, "h")
					w := newAgent(t, "go"+withoutChecks, name, "w", "GOMAXPROCS=16", "SHMSYNC_CRASHPOINT_STOP="+c.point)
					w.order(t, c.open).must(t)
					if closed {
						h.order(t, "closing."+c.holds).must(t)
					} else {
						h.order(t, c.holds).must(t)
					}
					wait := w.order(t, c.waits)
					w.awaitStop(t)
					newAgent(t, reaper+withoutChecks, name, "stranger")
					defer takeRoom(t, name)()
					reapedByStrangers(t, name, h)
					require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
					require.Equal(t, c.want, wait.wait(t).err)
				})
			}
		}
	}
}

// TestStrangerReapsTheFirstWaits: the dead process holds a permit, and has the first four waits of the queue. The wait
// behind them gets the permit, even if the stranger can only wake waiters.
func TestStrangerReapsTheFirstWaits(t *testing.T) {
	for _, reaper := range []string{"go", "c"} {
		for _, waits := range []string{"go", "c"} {
			for _, room := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s reaps, %s waits, room %v", reaper, waits, room), func(t *testing.T) {
					name := newArena(t)
					w := newAgent(t, waits+withoutChecks, name, "w", "GOMAXPROCS=16")
					for i := range 3 {
						newAgent(t, reaper+withoutChecks, name, fmt.Sprint("stranger", i))
					}
					h := newAgent(t, "c"+withoutChecks, name, "h")
					h.order(t, "sem.open x 1").must(t)
					h.order(t, "sem.acquire x 1").must(t)
					off := offsetOf(t, name, "x")
					for n := range 5 {
						x := h
						if n == 4 {
							x = w
						}
						p := x.order(t, "sem.acquire x 1")
						eventually(t, "it sleeps", name, func() bool { return int(h.do(t, "sleepers", "-", off)) > n && x.idle(t) })
						if n == 4 {
							if !room {
								defer takeRoom(t, name)()
							}
							h.kill(t)
							require.Zero(t, p.wait(t).err)
						}
					}
				})
			}
		}
	}
}

// TestStrangerReapsAGiver: a process dies after it has made permits free, and before it has granted all of them. A
// stranger grants the permit that is left to the waiter.
func TestStrangerReapsAGiver(t *testing.T) {
	for _, reaper := range []string{"go", "c"} {
		for _, waits := range []string{"go", "c"} {
			t.Run(fmt.Sprintf("%s reaps, %s waits", reaper, waits), func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, waits+withoutChecks, name, "x", "GOMAXPROCS=16")
				w := newAgent(t, waits+withoutChecks, name, "w", "GOMAXPROCS=16", "SHMSYNC_CRASHPOINT_STOP=park.waitnode.asleep")
				for i := range 3 {
					newAgent(t, reaper+withoutChecks, name, fmt.Sprint("stranger", i))
				}
				v := newAgent(t, reaper+withoutChecks, name, "v", "SHMSYNC_CRASHPOINT=semaphore.give.committed")
				v.mortal = true
				v.order(t, "sem.open x 2").must(t)
				v.order(t, "sem.acquire x 2").must(t)
				off := offsetOf(t, name, "x")
				first := x.order(t, "sem.acquire x 1")
				eventually(t, "it sleeps", name, func() bool { return x.do(t, "sleepers", "-", off) > 0 && x.idle(t) })
				wait := w.order(t, "sem.acquire x 1")
				w.awaitStop(t)
				before := present(t, name)
				v.order(t, "sem.release x 2")
				v.ends(t)
				require.True(t, v.killed(), "%s", v.stderr)
				first.must(t)
				eventually(t, "it is reaped", name, func() bool { return present(t, name) < before })
				require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
				wait.must(t)
			})
		}
	}
}

// TestStrangerReapsARecoverer: a process finds that it cannot recover a lock, and dies before it has ended the waits. A
// stranger ends them.
func TestStrangerReapsARecoverer(t *testing.T) {
	for _, l := range []struct{ kind, key string }{{"fair", ""}, {"multi", " 7"}} {
		for _, reaper := range []string{"go", "c"} {
			for _, waits := range []string{"go", "c"} {
				for _, point := range []string{"park.waitnode.asleep", "record.commit.completed"} {
					t.Run(fmt.Sprintf("%s/%s reaps, %s waits/%s", l.kind, reaper, waits, point), func(t *testing.T) {
						name := newArena(t)
						s := newAgent(t, reaper+withoutChecks, name, "stranger")
						h := newAgent(t, "c"+withoutChecks, name, "h")
						h.order(t, l.kind+".open x 0").must(t)
						h.order(t, l.kind+".lock x"+l.key).must(t)
						reapedByStrangers(t, name, h)
						v := newAgent(t, reaper+withoutChecks, name, "v", "SHMSYNC_CRASHPOINT=record.commit.completed:2")
						v.mortal = true
						v.order(t, l.kind+".open x 0").must(t)
						v.order(t, l.kind+".hang x"+l.key)
						s.order(t, "event.wait spoiling").must(t)
						w := newAgent(t, waits+withoutChecks, name, "w", "GOMAXPROCS=16", "SHMSYNC_CRASHPOINT_STOP="+point)
						w.order(t, l.kind+".open x 0").must(t)
						wait := w.order(t, l.kind+".lock x"+l.key)
						w.awaitStop(t)
						before := present(t, name)
						s.order(t, "event.set spoil").must(t)
						v.ends(t)
						require.True(t, v.killed(), "%s", v.stderr)
						eventually(t, "it is reaped", name, func() bool { return present(t, name) < before })
						require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
						require.Equal(t, syscall.ENOTRECOVERABLE, wait.wait(t).err)
					})
				}
			}
		}
	}
}

// TestStrangerReapsTheSuccessorOfAParty: a party of a Barrier dies. A joiner takes over its slot and dies before it has
// reaped the party. A stranger that reaps the joiner breaks the phase for the party, too.
func TestStrangerReapsTheSuccessorOfAParty(t *testing.T) {
	for _, reaper := range []string{"go", "c"} {
		for _, waits := range []string{"go", "c"} {
			t.Run(fmt.Sprintf("%s reaps, %s waits", reaper, waits), func(t *testing.T) {
				name := newArena(t)
				require.NoError(t, shm.Remove(name))
				a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 3})
				require.NoError(t, err)
				require.NoError(t, a.Close())
				w := newAgent(t, waits+withoutChecks, name, "w", "GOMAXPROCS=16", "SHMSYNC_CRASHPOINT_STOP=eventcount.wait.announced")
				h := newAgent(t, "go"+withoutChecks, name, "h")
				s := newAgent(t, reaper+withoutChecks, name, "stranger")
				h.order(t, "barrier.open x 2").must(t)
				h.order(t, "barrier.join x 1").must(t)
				w.order(t, "barrier.open x 2").must(t)
				wait := w.order(t, "barrier.aw x")
				w.awaitStop(t)
				s.stop(t)
				before := present(t, name)
				h.kill(t)
				exe, err := os.Executable()
				require.NoError(t, err)
				joiner := exec.Command(exe) // it can join only in the slot of h
				joiner.Env = append(os.Environ(), agentEnv+"="+name, labelEnv+"=joiner", "SHMSYNC_CRASHPOINT=arena.inherit.taken")
				out, err := joiner.CombinedOutput()
				require.Error(t, err)
				require.True(t, joiner.ProcessState.Sys().(syscall.WaitStatus).Signaled(), "%s", out)
				require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
				eventually(t, "it is reaped", name, func() bool { return present(t, name) < before })
				require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
				require.Equal(t, syscall.EOWNERDEAD, wait.wait(t).err)
			})
		}
	}
}
