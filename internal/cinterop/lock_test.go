//go:build linux

package cinterop

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// eachWay runs a test with the first agent in one language and the second in the other, both ways round, and then
// with both in C.
func eachWay(t *testing.T, test func(t *testing.T, first, second string)) {
	for _, way := range [][2]string{{"go", "c"}, {"c", "go"}, {"c", "c"}} {
		t.Run(way[0]+"→"+way[1], func(t *testing.T) { test(t, way[0], way[1]) })
	}
}

// pair starts two agents, in the given languages, in a new arena. No other process is in the arena.
func pair(t *testing.T, first, second string) (name string, a, b *agent) {
	cAgent(t)
	name = newArena(t)
	return name, newAgent(t, first, name, "first"), newAgent(t, second, name, "second")
}

// asleep starts an order and returns when n threads sleep in the object at off.
func (x *agent) asleep(t *testing.T, off, n uint64, verb, name string, args ...any) pending {
	t.Helper()
	p := x.start(t, verb, name, args...)
	eventually(t, fmt.Sprintf("%d sleep in %s", n, name), x.arena, func() bool { return x.do(t, "sleepers", "-", off) == n })
	return p
}

// sound checks the arena when no agent uses it. Some agents may still be participants, and reap.
func sound(t *testing.T, name string) {
	t.Helper()
	a, err := arena.Attach(name, &arena.Options{Label: "checker"})
	require.NoError(t, err)
	defer a.Close()
	// The reaping may take a moment.
	eventually(t, "the dead are reaped", name, func() bool {
		for p := range a.Participants() {
			if p.State == "dead" || p.State == "joining" || p.State == "leaving" {
				return false
			}
		}
		return true
	})
	// A check may see a state that a death watcher is about to change.
	eventually(t, "the arena is sound", name, func() bool {
		err = a.Check()
		return err == nil
	})
}

// One agent locks. The trylock of the other agent fails, and its lock with a deadline times out. After an unlock, the
// other agent gets the lock.
func TestMutexPlain(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		off := a.do(t, "mutex.open", "m", 0)
		require.Equal(t, off, b.do(t, "mutex.open", "m", 0))
		for range 20 {
			a.do(t, "mutex.lock", "m")
			b.start(t, "mutex.trylock", "m").fails(t, syscall.EBUSY)
			b.start(t, "mutex.lock", "m", 3).fails(t, syscall.ETIMEDOUT)
			b.start(t, "mutex.unlock", "m").fails(t, syscall.EPERM)
			waits := b.asleep(t, off, 1, "mutex.lock", "m")
			a.do(t, "mutex.unlock", "m")
			waits.must(t)
			a.start(t, "mutex.trylock", "m").fails(t, syscall.EBUSY)
			b.do(t, "mutex.unlock", "m")
			a.do(t, "mutex.trylock", "m")
			a.do(t, "mutex.unlock", "m")
		}
		b.start(t, "mutex.open", "m", 2).fails(t, syscall.EINVAL)
		b.start(t, "futex.open", "m").fails(t, syscall.EINVAL)
		sound(t, name)
	})
}

// The first agent is killed while it holds the lock. The call of the second agent reports the death and does not lock.
// The second agent can lock after it has recovered the lock.
func TestMutexKilledHolder(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		off := a.do(t, "mutex.open", "m", 1)
		b.do(t, "mutex.open", "m", 0)
		a.do(t, "mutex.lock", "m")
		waits := b.asleep(t, off, 1, "mutex.lock", "m")
		pid := a.cmd.Process.Pid
		start := time.Now()
		a.kill(t)
		got := waits.wait(t)
		t.Logf("told after %v", time.Since(start))
		require.Equal(t, syscall.EOWNERDEAD, got.err)
		require.EqualValues(t, pid, got.n)
		b.start(t, "mutex.unlock", "m").fails(t, syscall.EPERM)
		b.start(t, "mutex.trylock", "m").fails(t, syscall.EOWNERDEAD)
		b.start(t, "mutex.badrecover", "m").fails(t, syscall.ENOTRECOVERABLE)
		b.start(t, "mutex.lock", "m").fails(t, syscall.ENOTRECOVERABLE)
		require.EqualValues(t, 1, b.do(t, "mutex.recover", "m"))
		b.do(t, "mutex.lock", "m")
		b.do(t, "mutex.unlock", "m")
		require.Zero(t, b.do(t, "mutex.recover", "m"), "healthy")
		c := newAgent(t, first, name, "third")
		c.do(t, "mutex.lock", "m")
		c.do(t, "mutex.unlock", "m")
		sound(t, name)
	})
}

// scenes is how often a test repeats a scene, at most. In the scene, the death watcher of a process marks a lock
// owner-dead, and a signal stops the process. A thread of this process that waits for the lock may still run for a
// moment, and return ErrOwnerDead. This is correct, but then the test has to repeat the scene.
const scenes = 20

// A process, the finder, waits for a lock. It marks the lock owner-dead because of a dead holder, and is stopped. In
// another process, a repair of the lock fails, and a lock call then still reports the dead holder. A second repair
// succeeds. When the finder runs again, it gets the lock. Go programs have crash points only with the build tag
// crashpoint.
func TestMutexRecoveredBesideItsFinder(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		if first == "go" && !crashpoint.Enabled {
			t.Skip("needs the build tag crashpoint")
		}
		for range scenes {
			name := newArena(t)
			x := newAgent(t, second, name, "other")
			off := x.do(t, "mutex.open", "m", 1)
			finder := newAgent(t, first, name, "finder", "SHMSYNC_CRASHPOINT_STOP=mutex.owner_dead.marked")
			victim := newAgent(t, second, name, "victim")
			victim.do(t, "mutex.lock", "m")
			waits := finder.asleep(t, off, 1, "mutex.lock", "m")
			x.stop(t)
			pid := victim.cmd.Process.Pid
			victim.kill(t)
			finder.awaitStop(t)
			require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
			x.start(t, "mutex.badrecover", "m").fails(t, syscall.ENOTRECOVERABLE)
			got := x.start(t, "mutex.lock", "m").wait(t)
			require.Equal(t, syscall.ENOTRECOVERABLE, got.err)
			require.EqualValues(t, pid, got.n)
			require.EqualValues(t, 1, x.do(t, "mutex.recover", "m"))
			require.NoError(t, finder.cmd.Process.Signal(syscall.SIGCONT))
			got = waits.wait(t)
			if got.err == syscall.EOWNERDEAD {
				require.EqualValues(t, pid, got.n)
				continue
			}
			require.Zero(t, got.err)
			finder.do(t, "mutex.unlock", "m")
			sound(t, name)
			return
		}
		t.Error("in no scene did the waiter sleep until the lock was recovered")
	})
}

// TestLockRecoveredBesideItsFinder is like TestMutexRecoveredBesideItsFinder, for other locks in C. The test for Go is
// TestRecoverBesideTheFinderOfADeath of package prims.
func TestLockRecoveredBesideItsFinder(t *testing.T) {
	for _, c := range []struct{ kind, wait, unlock, point string }{
		{"rw", "rw.rlock", "rw.runlock", "rwmutex.owner_dead.marked"}, // a finder that writes would keep the writers' mutex
		{"spin", "spin.lock", "spin.unlock", "spinlock.owner_dead.marked"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			for range scenes {
				name := newArena(t)
				x := newAgent(t, "c", name, "other")
				off := x.do(t, c.kind+".open", "l", 1)
				finder := newAgent(t, "c", name, "finder", "SHMSYNC_CRASHPOINT_STOP="+c.point)
				victim := newAgent(t, "c", name, "victim")
				victim.do(t, c.kind+".lock", "l")
				waits := finder.asleep(t, off, 1, c.wait, "l")
				x.stop(t)
				pid := victim.cmd.Process.Pid
				victim.kill(t)
				finder.awaitStop(t)
				require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
				got := x.start(t, c.kind+".spoil", "l").wait(t)
				require.Equal(t, syscall.ENOTRECOVERABLE, got.err)
				require.EqualValues(t, pid, got.n)
				require.EqualValues(t, 1, x.do(t, c.kind+".recover", "l"))
				require.NoError(t, finder.cmd.Process.Signal(syscall.SIGCONT))
				got = waits.wait(t)
				if got.err == syscall.EOWNERDEAD {
					continue
				}
				require.Zero(t, got.err)
				finder.do(t, c.unlock, "l")
				sound(t, name)
				return
			}
			t.Error("in no scene did the waiter sleep until the lock was recovered")
		})
	}
}

// With PolicyRelease the lock becomes free.
func TestMutexKilledHolderReleases(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		off := a.do(t, "mutex.open", "m", 2)
		b.do(t, "mutex.open", "m", 2)
		a.do(t, "mutex.lock", "m")
		waits := b.asleep(t, off, 1, "mutex.lock", "m")
		a.kill(t)
		waits.must(t)
		b.do(t, "mutex.unlock", "m")
		sound(t, name)
	})
}

// A waiter is killed: the other waiter gets the lock.
func TestMutexKilledWaiter(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		c := newAgent(t, first, name, "third")
		off := a.do(t, "mutex.open", "m", 0)
		for range 3 {
			a.do(t, "mutex.lock", "m")
			b.asleep(t, off, 1, "mutex.lock", "m")
			waits := c.asleep(t, off, 2, "mutex.lock", "m")
			b.kill(t)
			a.do(t, "mutex.unlock", "m")
			waits.must(t)
			c.do(t, "mutex.unlock", "m")
			b = newAgent(t, second, name, "again")
		}
		sound(t, name)
	})
}

// A waiter is killed while more threads wait than there are announce records.
func TestMutexCrowd(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		a.do(t, "mutex.open", "m", 0)
		a.do(t, "mutex.lock", "m")
		var all []pending
		for range 50 {
			all = append(all, b.start(t, "mutex.team", "m", 3), a.start(t, "mutex.team", "m", 3))
		}
		eventually(t, "many sleep", name, func() bool { return b.do(t, "sleepers", "-", a.do(t, "mutex.open", "m", 0)) >= 12 })
		a.do(t, "mutex.unlock", "m")
		for _, p := range all {
			require.EqualValues(t, 3, p.must(t))
		}
		sound(t, name)
	})
}

func TestFutexPlain(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		off := a.do(t, "futex.open", "f")
		require.Equal(t, off, b.do(t, "futex.open", "f"))
		for token := range uint64(20) {
			b.start(t, "futex.wait", "f", token+1, 3).fails(t, syscall.ETIMEDOUT)
			waits := b.asleep(t, off, 1, "futex.wait", "f", token+1)
			a.do(t, "futex.post", "f")
			waits.must(t)
			require.Equal(t, token+1, b.do(t, "futex.get", "f"))
			b.do(t, "futex.wait", "f", token)
		}
		waits := b.asleep(t, off, 1, "futex.wait", "f", 1000)
		require.Zero(t, b.do(t, "futex.stopped", "f"))
		a.do(t, "futex.stop", "f")
		waits.fails(t, syscall.ECANCELED)
		require.EqualValues(t, 1, b.do(t, "futex.stopped", "f"))
		b.do(t, "futex.wait", "f", 20)
		sound(t, name)
	})
}

// A Futex has no holder. If a process that posts is killed, another process can post.
func TestFutexKilledPoster(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		off := a.do(t, "futex.open", "f")
		a.do(t, "futex.post", "f")
		waits := b.asleep(t, off, 1, "futex.wait", "f", 2)
		a.kill(t)
		c := newAgent(t, first, name, "third")
		c.do(t, "futex.post", "f")
		waits.must(t)
		sound(t, name)
	})
}

func TestFutexKilledWaiter(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		c := newAgent(t, first, name, "third")
		off := a.do(t, "futex.open", "f")
		b.asleep(t, off, 1, "futex.wait", "f", 1)
		waits := c.asleep(t, off, 2, "futex.wait", "f", 1)
		b.kill(t)
		a.do(t, "futex.post", "f")
		waits.must(t)
		sound(t, name)
	})
}

// Two agents post to a Futex. A thread of each agent waits until the number of posts is 1, then 2, and so on.
func TestFutexStress(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		const posts = 20000
		walks := []pending{a.start(t, "futex.walk", "f", 1, posts), b.start(t, "futex.walk", "f", 1, posts)}
		a.start(t, "futex.posts", "f", posts/2).must(t)
		b.start(t, "futex.posts", "f", posts/2).must(t)
		for _, w := range walks {
			w.must(t)
		}
		sound(t, name)
	})
}

// A post clears the announcement of all waiters. A waiter for a later value announces itself again, so the next post
// wakes it.
func TestFutexWaitsForALaterValue(t *testing.T) {
	name := newArena(t)
	posts, waits := newAgent(t, "c", name, "posts"), newAgent(t, "c", name, "waits", "SHMSYNC_CRASHPOINT_STOP=futex.wait.woken")
	off := posts.do(t, "futex.open", "f")
	w := waits.start(t, "futex.wait", "f", 2)
	eventually(t, "it sleeps", name, func() bool { return posts.do(t, "sleepers", "-", off) == 1 })
	posts.do(t, "futex.post", "f")
	waits.awaitStop(t)
	require.Zero(t, posts.do(t, "sleepers", "-", off))
	require.NoError(t, waits.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "it sleeps again", name, func() bool { return posts.do(t, "sleepers", "-", off) == 1 })
	posts.do(t, "futex.post", "f")
	w.must(t)
}

// Both languages lock, wait with deadlines, and create and delete names at the same time.
func TestMutexStress(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		a.do(t, "mutex.open", "m", 0)
		var all []pending
		for _, x := range []*agent{a, b} {
			for range 3 {
				all = append(all, x.start(t, "mutex.team", "m", 20000))
			}
			all = append(all, x.start(t, "mutex.timedteam", "m", 3000), x.start(t, "churn", "c", 1000))
		}
		for _, p := range all {
			p.must(t)
		}
		require.EqualValues(t, 6*20000, count(t, name, "m"))
		sound(t, name)
	})
}

// count returns the value of the counter that the group has incremented.
func count(t *testing.T, name, team string) uint64 {
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	b, err := teamBoard(a, team)
	require.NoError(t, err)
	return b.Count
}

// Without a third process, each of the two agents reaps the other, and reports its death by name.
func TestReapEachOther(t *testing.T) {
	eachWay(t, func(t *testing.T, first, second string) {
		name, a, b := pair(t, first, second)
		b.do(t, "arena.watch", "-")
		slot := a.do(t, "arena.slot", "-")
		a.do(t, "mutex.open", "m", 0)
		a.do(t, "mutex.lock", "m")
		a.do(t, "futex.open", "f")
		pid := a.cmd.Process.Pid
		a.kill(t)
		eventually(t, "the death is told", name, func() bool { return b.do(t, "arena.deaths", "-") == 1 })
		require.EqualValues(t, pid, b.do(t, "arena.lastdead", "-"))
		// The slot is free again, so another participant can get it.
		eventually(t, "the slot is free", name, func() bool {
			c := newAgent(t, first, name, "next")
			got := c.do(t, "arena.slot", "-")
			c.do(t, "close", "-")
			return got == slot
		})
		b.start(t, "mutex.lock", "m").fails(t, syscall.EOWNERDEAD)
		require.EqualValues(t, 1, b.do(t, "arena.deaths", "-"), "who closes does not die")
		sound(t, name)
	})
}

// A recover without a repair function fails, and changes nothing. An open with an invalid policy fails, too.
func TestLocksRefuseNoRepairAndInvalidPolicies(t *testing.T) {
	cAgent(t)
	name := newArena(t)
	dies, c := newAgent(t, "c", name, "dies"), newAgent(t, "c", name, "second")
	for verb, key := range map[string]string{"mutex": "", "fair": "", "rw": "", "spin": "", "rwspin": "", "multi": "7"} {
		t.Run(verb, func(t *testing.T) {
			for _, policy := range []int{-1, 4, 7} {
				c.start(t, verb+".open", verb, policy).fails(t, syscall.EINVAL)
			}
			dies.do(t, verb+".lock", verb, keyed(key)...)
		})
	}
	dies.kill(t)
	for verb, key := range map[string]string{"mutex": "", "fair": "", "rw": "", "spin": "", "rwspin": "", "multi": "7"} {
		t.Run(verb, func(t *testing.T) {
			c.start(t, verb+".lock", verb, keyed(key)...).fails(t, syscall.EOWNERDEAD)
			c.start(t, verb+".nullrecover", verb, keyed(key)...).fails(t, syscall.EINVAL)
			c.start(t, verb+".state", verb, keyed(key)...).fails(t, syscall.EOWNERDEAD)
			require.EqualValues(t, 1, c.do(t, verb+".recover", verb, keyed(key)...))
		})
	}
	sound(t, name)
}

// keyed returns the arguments of a verb of a lock: its key, or none if the lock has no keys.
func keyed(key string) []any {
	if key == "" {
		return nil
	}
	return []any{key}
}
