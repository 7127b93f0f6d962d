//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// TestRWMutexUpgradableModes checks which holds another process can get beside each hold, and after each change
// from one hold to another.
func TestRWMutexUpgradableModes(t *testing.T) {
	type mode struct {
		take, give string
		w, r, u    bool // which holds another process can get beside it
	}
	modes := map[string]mode{
		"R": {"rlock", "runlock", false, true, true},
		"U": {"ulock", "uunlock", false, true, false},
		"W": {"lock", "unlock", false, false, false},
	}
	ways := []struct{ from, by, to string }{
		{"U", "upgrade", "W"}, {"U", "tryupgrade", "W"}, {"U", "upgradectx", "W"},
		{"W", "downgrade", "R"}, {"W", "downgradeu", "U"}, {"U", "downgrader", "R"},
	}
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		must := func(x *actor, op string) { x.must(t, order{Op: "rw" + op, Object: "m"}) }
		try := func(op string) bool { return other.op(t, "rwtry"+op, "m").OK }
		beside := func(name string) {
			was := modes[name]
			require.Equal(t, was.w, try("lock"), "W beside %s", name)
			require.Equal(t, was.r, try("rlock"), "R beside %s", name)
			if was.r {
				must(other, "runlock")
			}
			require.Equal(t, was.u, try("ulock"), "U beside %s", name)
			if was.u {
				require.False(t, try("upgrade"), "U to W beside %s", name)
				must(other, "uunlock")
			}
			require.Equal(t, name == "U", m.State().Upgradable)
			require.Equal(t, name == "W", m.State().Held)
		}
		for name, was := range modes {
			for _, op := range []string{was.take, was.take + "ctx", "try" + was.take} {
				must(holder, op)
				beside(name)
				must(holder, was.give)
				require.Empty(t, m.Left(), "after %s", op)
			}
		}
		for _, way := range ways {
			must(holder, modes[way.from].take)
			r := holder.op(t, "rw"+way.by, "m")
			require.Empty(t, r.Err+r.Panic)
			require.True(t, way.by != "tryupgrade" || r.OK)
			beside(way.to)
			must(holder, modes[way.to].give)
			require.Empty(t, m.Left(), "after %s to %s", way.from, way.to)
		}
		// A reader delays an Upgrade, whether the reader came before or after LockUpgradable. A reader delays no
		// other call of the process that has the upgradable hold.
		must(other, "rlock")
		must(holder, "ulock")
		require.False(t, holder.op(t, "rwtryupgrade", "m").OK)
		beside("U")
		up := holder.blocked(t, order{Op: "rwupgrade", Object: "m"})
		eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
		require.False(t, try("rlock"), "a reader passes an upgrade that waits")
		read := other.blocked(t, order{Op: "rwrlock", Object: "m"})
		must(other, "runlock")
		require.Empty(t, holder.wait(t, up).Err)
		beside("W")
		must(holder, "downgradeu")
		require.Empty(t, other.wait(t, read).Err, "a reader waits beside an upgradable hold")
		must(other, "runlock")
		beside("U")
		must(holder, "uunlock")
		nothingLeft(t, a, m)
	})
}

// TestRWMutexUpgradableKeepsWritersOut: writers and other callers of LockUpgradable wait until an upgradable hold is
// released or becomes a read hold. After it has become a read hold, a writer waits until this hold is released.
func TestRWMutexUpgradableKeepsWritersOut(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for give, end := range map[string]string{"rwuunlock": "", "rwdowngrader": "rwrunlock"} {
			for take, back := range map[string]string{"rwlock": "rwunlock", "rwlockctx": "rwunlock", "rwulock": "rwuunlock", "rwulockctx": "rwuunlock"} {
				holder.must(t, order{Op: "rwulock", Object: "m"})
				id := other.blocked(t, order{Op: take, Object: "m"})
				require.True(t, holder.op(t, "rwtryrlock", "m").OK)
				holder.must(t, order{Op: "rwrunlock", Object: "m"})
				_, ok := other.poll(t, id)
				require.False(t, ok, "%s passes an upgradable hold", take)
				holder.must(t, order{Op: give, Object: "m"})
				if end != "" && back == "rwunlock" {
					eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
					require.False(t, m.State().Held, "a writer is beside the reader that was an upgrader")
				}
				if end != "" {
					holder.must(t, order{Op: end, Object: "m"})
				}
				require.Empty(t, other.wait(t, id).Err)
				other.must(t, order{Op: back, Object: "m"})
			}
		}
		nothingLeft(t, a, m)
	})
}

// TestRWMutexUpgradeGivesUp: if the context of an Upgrade ends, the process keeps its upgradable hold. The
// readers that the Upgrade has kept out get in, whether they sleep on threads or are woken by the poller.
func TestRWMutexUpgradeGivesUp(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for _, readers := range []int{0, 1, 15} {
			other.must(t, order{Op: "rwrlock", Object: "m"})
			holder.must(t, order{Op: "rwulock", Object: "m"})
			require.Equal(t, []string{"ctx-canceled"}, holder.do(t, order{Op: "rwupgradectx", Object: "m", Done: true}).Is)
			up := holder.blocked(t, order{Op: "rwupgradectx", Object: "m"})
			eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
			var ids []int
			for range readers {
				ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
			}
			holder.must(t, order{Op: "cancel", N: up})
			require.Equal(t, []string{"ctx-canceled"}, holder.wait(t, up).Is)
			require.True(t, m.State().Upgradable)
			for _, id := range ids {
				require.Empty(t, other.wait(t, id).Err)
			}
			require.False(t, other.op(t, "rwtrylock", "m").OK)
			require.False(t, other.op(t, "rwtryulock", "m").OK)
			for range readers + 1 {
				other.must(t, order{Op: "rwrunlock", Object: "m"})
			}
			// A free lock takes precedence over a context that has ended.
			holder.must(t, order{Op: "rwupgradectx", Object: "m", Done: true})
			holder.must(t, order{Op: "rwunlock", Object: "m"})
			nothingLeft(t, a, m)
		}
	})
}

func TestRWMutexLockUpgradableContext(t *testing.T) {
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		other.must(t, order{Op: "rwulockctx", Object: "m", Done: true}) // a free lock beats a context that has ended
		other.must(t, order{Op: "rwuunlock", Object: "m"})
		for hold, give := range map[string]string{"rwlock": "rwunlock", "rwulock": "rwuunlock"} {
			holder.must(t, order{Op: hold, Object: "m"})
			require.Equal(t, []string{"ctx-canceled"}, other.do(t, order{Op: "rwulockctx", Object: "m", Done: true}).Is)
			require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: "rwulockctx", Object: "m", Limit: 20 * time.Millisecond}).Is)
			id := other.blocked(t, order{Op: "rwulockctx", Object: "m"})
			other.must(t, order{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, other.wait(t, id).Is)
			id = other.blocked(t, order{Op: "rwulockctx", Object: "m"})
			holder.must(t, order{Op: give, Object: "m"})
			require.Empty(t, other.wait(t, id).Err)
			other.must(t, order{Op: "rwuunlock", Object: "m"})
		}
		nothingLeft(t, a, m)
	})
}

// TestRWMutexUpgradableMistakes checks that a call panics and changes nothing if it needs a hold and this process does
// not have that hold.
func TestRWMutexUpgradableMistakes(t *testing.T) {
	gives := map[string]string{
		"unlock": "W", "downgrade": "W", "downgradeu": "W", "runlock": "R",
		"uunlock": "U", "upgrade": "U", "upgradectx": "U", "tryupgrade": "U", "downgrader": "U",
	}
	takes := map[string][2]string{"none": {}, "W": {"rwlock", "rwunlock"}, "R": {"rwrlock", "rwrunlock"}, "U": {"rwulock", "rwuunlock"}}
	everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
		m := ofRW(t, a)
		for mode, take := range takes {
			if mode != "none" {
				holder.must(t, order{Op: take[0], Object: "m"})
			}
			was := m.State()
			for op, needs := range gives {
				for _, x := range []*actor{holder, other} {
					if needs == mode && (x == holder || holder.proc == nil) {
						continue // within a process any goroutine may release it
					}
					p := x.op(t, "rw"+op, "m").Panic
					require.Contains(t, p, "rwmutex m", "%s beside %s", op, mode)
					require.Contains(t, p, "does not hold", "%s beside %s", op, mode)
				}
			}
			require.Equal(t, was, m.State())
			if mode != "none" {
				holder.must(t, order{Op: take[1], Object: "m"})
			}
		}
		nothingLeft(t, a, m)
	})
}

// TestRWMutexUnlockUpgradableBesideUpgrade: while one goroutine waits in Upgrade, another goroutine of its
// process can neither release nor downgrade the hold.
func TestRWMutexUnlockUpgradableBesideUpgrade(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	x := localActor(a)
	m.RLock()
	m.LockUpgradable()
	up := x.blocked(t, order{Op: "rwupgrade", Object: "m"})
	for _, f := range []func(){m.UnlockUpgradable, m.DowngradeToRead, m.Upgrade, func() { m.TryUpgrade() }} {
		require.Panics(t, f)
	}
	m.RUnlock()
	require.Empty(t, x.wait(t, up).Err)
	m.Unlock()
	nothingLeft(t, a, m)
}

// TestRWMutexUpgradableOutlivesItsHandle: an upgradable hold stays when all handles are closed. It can be
// released through another handle.
func TestRWMutexUpgradableOutlivesItsHandle(t *testing.T) {
	for _, give := range []func(m *prims.RWMutex){
		(*prims.RWMutex).UnlockUpgradable,
		func(m *prims.RWMutex) { m.Upgrade(); m.Unlock() },
		func(m *prims.RWMutex) { m.DowngradeToRead(); m.RUnlock() },
	} {
		a := newArena(t, nil)
		m := ofRW(t, a)
		again := ofRW(t, a)
		m.LockUpgradable()
		require.NoError(t, m.Close())
		require.Panics(t, m.UnlockUpgradable)
		again.UnlockUpgradable() // a handle that was open before can release the hold
		again.LockUpgradable()
		require.NoError(t, again.Close())
		require.ErrorContains(t, a.Delete("m"), "holds it (upgradable)")
		m = ofRW(t, a)
		require.True(t, m.State().Upgradable)
		require.False(t, m.TryLock())
		give(m)
		nothingLeft(t, a, m)
		m.Lock()
		require.NoError(t, m.Close())
		m = ofRW(t, a)
		require.Panics(t, m.UnlockUpgradable, "a write hold that an earlier handle left")
		m.Unlock()
		nothingLeft(t, a, m)
	}
}

// TestRWMutexUpgradableClose: closing the handle or the arena ends waits in LockUpgradable and Upgrade. After a
// failed Upgrade the process still has its upgradable hold.
func TestRWMutexUpgradableClose(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	other := remoteActor(t, a, "other")
	other.must(t, order{Op: "rwrlock", Object: "m"})
	x := localActor(a)
	x.must(t, order{Op: "rwulock", Object: "m"})
	up := x.blocked(t, order{Op: "rwupgradectx", Object: "m"})
	late := x.blocked(t, order{Op: "rwulockctx", Object: "m"})
	x.must(t, order{Op: "rwclose", Object: "m"})
	require.Equal(t, []string{"closed"}, x.wait(t, up).Is)
	require.Equal(t, []string{"closed"}, x.wait(t, late).Is)
	other.must(t, order{Op: "rwtryrlock", Object: "m"})
	other.must(t, order{Op: "rwrunlock", Object: "m"})
	other.must(t, order{Op: "rwrunlock", Object: "m"})
	m.Upgrade()
	m.Unlock()
	nothingLeft(t, a, m)

	y := remoteActor(t, a, "y")
	m.LockUpgradable()
	var ids []int
	for range 15 {
		ids = append(ids, y.blocked(t, order{Op: "rwulockctx", Object: "m"}))
	}
	y.must(t, order{Op: "close-arena"})
	for _, id := range ids {
		require.Equal(t, []string{"closed"}, y.wait(t, id).Is)
	}
	m.UnlockUpgradable()
	nothingLeft(t, a, m)
}

// TestRWMutexUpgraderDies: a process that dies with an upgradable hold has written nothing. So under both
// policies no call reports its death, and the next writer or upgrader goes on. The same happens if a process
// dies at a step at which it gets or changes an upgradable hold.
func TestRWMutexUpgraderDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		for _, way := range [][]string{
			{"rwulock"}, {"rwlock", "rwdowngradeu"}, {"rwulock", "rwdowngrader"},
			{"rwulock", "rwupgrade", "rwdowngradeu"}, {"rwulock", "rwupgrade", "rwdowngrade"},
		} {
			a := newArena(t, nil)
			other, victim := remoteActor(t, a, "other"), remoteActor(t, a, "victim")
			for _, op := range way {
				victim.must(t, order{Op: op, Object: "m", Policy: policy})
			}
			m := ofRW(t, a)
			lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
			var late []int
			if !m.State().Closed { // the victim still has the upgradable hold
				late = append(late, other.blocked(t, order{Op: "rwulock", Object: "m"}))
				require.True(t, m.TryRLock())
				m.RUnlock()
			}
			victim.proc.Kill(t)
			for done := false; !done; {
				for _, id := range late {
					if r, ok := other.poll(t, id); ok {
						require.Empty(t, r.Err+r.Panic)
						other.must(t, order{Op: "rwuunlock", Object: "m"})
						late = nil
					}
				}
				var r answer
				if r, done = other.poll(t, lock); done {
					require.Empty(t, r.Err+r.Panic, "%v %v", policy, way)
				}
			}
			other.must(t, order{Op: "rwunlock", Object: "m"})
			for _, id := range late {
				require.Empty(t, other.wait(t, id).Err)
				other.must(t, order{Op: "rwuunlock", Object: "m"})
			}
			alone(t, a, 2)
			nothingLeft(t, a, m)
		}
	}
}

// TestRWMutexUpgraderDiesWaiting checks the death of a process that waits for readers in Upgrade. The readers that it
// kept out get in, and no call reports its death.
func TestRWMutexUpgraderDiesWaiting(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		a := newArena(t, nil)
		holder, other, victim := remoteActor(t, a, "holder"), remoteActor(t, a, "other"), remoteActor(t, a, "victim")
		holder.must(t, order{Op: "rwrlock", Object: "m", Policy: policy})
		m := ofRW(t, a)
		victim.must(t, order{Op: "rwulock", Object: "m"})
		victim.blocked(t, order{Op: "rwupgrade", Object: "m"})
		eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
		var ids []int
		for range 15 {
			ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
		}
		next := other.blocked(t, order{Op: "rwulock", Object: "m"})
		victim.proc.Kill(t)
		for _, id := range ids {
			require.Empty(t, other.wait(t, id).Err)
			other.must(t, order{Op: "rwrunlock", Object: "m"})
		}
		require.Empty(t, other.wait(t, next).Err)
		other.must(t, order{Op: "rwuunlock", Object: "m"})
		holder.must(t, order{Op: "rwrunlock", Object: "m"})
		alone(t, a, 3)
		nothingLeft(t, a, m)
	}
}

// TestRWMutexUpgradedWriterDies: after an Upgrade the process has a write hold, so if it dies, the policy
// decides. Either the death is reported, also to callers of LockUpgradable, or the lock becomes free.
func TestRWMutexUpgradedWriterDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		a := newArena(t, nil)
		other, victim := remoteActor(t, a, "other"), remoteActor(t, a, "victim")
		victim.must(t, order{Op: "rwulock", Object: "m", Policy: policy})
		victim.must(t, order{Op: "rwupgrade", Object: "m"})
		m := ofRW(t, a)
		waits := other.blocked(t, order{Op: "rwulockctx", Object: "m"})
		victim.proc.Kill(t)
		r := other.wait(t, waits)
		if policy == prims.PolicyRelease {
			require.Empty(t, r.Err+r.Panic)
			other.must(t, order{Op: "rwuunlock", Object: "m"})
			alone(t, a, 2)
			nothingLeft(t, a, m)
			continue
		}
		refuse := func(is string) {
			require.False(t, other.op(t, "rwtryulock", "m").OK)
			r := other.op(t, "rwulock", "m")
			require.Equal(t, []string{is}, r.Is)
			require.Equal(t, victim.proc.Pid(), r.Who.PID)
			require.Contains(t, other.op(t, "rwuunlock", "m").Panic, "does not hold")
		}
		require.Equal(t, []string{"owner-dead"}, r.Is)
		refuse("owner-dead")
		require.Equal(t, []string{"not-recoverable"}, other.do(t, order{Op: "rwrecover", Object: "m", N: 1}).Is)
		refuse("not-recoverable")
		other.must(t, order{Op: "rwrecover", Object: "m"})
		other.must(t, order{Op: "rwulock", Object: "m"})
		other.must(t, order{Op: "rwuunlock", Object: "m"})
		alone(t, a, 2)
		nothingLeft(t, a, m)
	}
}

// TestRWMutexLockUpgradableRepairs: with a Repair in the options, LockUpgradable repairs an owner-dead lock and
// then locks it.
func TestRWMutexLockUpgradableRepairs(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	victim, x := remoteActor(t, a, "victim"), remoteActor(t, a, "x")
	x.must(t, order{Op: "rwopen", Object: "m", N: 1})
	victim.must(t, order{Op: "rwlock", Object: "m"})
	id := x.blocked(t, order{Op: "rwulock", Object: "m"})
	victim.proc.Kill(t)
	require.Empty(t, x.wait(t, id).Err)
	require.EqualValues(t, 1, x.op(t, "rwrepairs", "m").N)
	x.must(t, order{Op: "rwupgrade", Object: "m"})
	x.must(t, order{Op: "rwunlock", Object: "m"})
	alone(t, a, 2)
	nothingLeft(t, a, m)
}

// TestRWMutexUpgraderStopped: a stopped process that has the upgradable hold keeps out writers and other
// upgraders, but no reader.
func TestRWMutexUpgraderStopped(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	holder, other := remoteActor(t, a, "holder"), remoteActor(t, a, "other")
	holder.must(t, order{Op: "rwulock", Object: "m"})
	holder.proc.Stop(t)
	for range 3 { // wait for several periodic checks
		for _, op := range []string{"rwlockctx", "rwulockctx"} {
			require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: op, Object: "m", Limit: 120 * time.Millisecond}).Is)
		}
		other.must(t, order{Op: "rwrlock", Object: "m"})
		other.must(t, order{Op: "rwrunlock", Object: "m"})
	}
	write := other.blocked(t, order{Op: "rwlock", Object: "m"})
	holder.proc.Cont(t)
	holder.must(t, order{Op: "rwuunlock", Object: "m"})
	require.Empty(t, other.wait(t, write).Err)
	other.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}

// TestRWMutexUpgraderStoppedWaiting: a process is stopped while it waits in Upgrade. When the last reader has
// left, the stopped process cannot take the lock, so new readers get in after a while. The process keeps its
// upgradable hold, and goes on waiting when it is continued.
func TestRWMutexUpgraderStoppedWaiting(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	holder, other, upgrader := remoteActor(t, a, "holder"), remoteActor(t, a, "other"), remoteActor(t, a, "upgrader")
	holder.must(t, order{Op: "rwrlock", Object: "m"})
	upgrader.must(t, order{Op: "rwulock", Object: "m"})
	up := upgrader.blocked(t, order{Op: "rwupgrade", Object: "m"})
	eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
	upgrader.proc.Stop(t)
	var ids []int
	for range 14 {
		ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
	}
	holder.must(t, order{Op: "rwrunlock", Object: "m"})
	for _, id := range ids {
		require.Empty(t, other.wait(t, id).Err)
	}
	require.Equal(t, 14, m.State().Readers)
	require.True(t, m.State().Upgradable)
	require.False(t, m.TryLock(), "a writer passes a stopped upgrader")
	upgrader.proc.Cont(t)
	eventually(t, "the gate is closed again", m.String, func() bool { return m.State().Closed })
	for range ids {
		require.False(t, m.State().Held)
		other.must(t, order{Op: "rwrunlock", Object: "m"})
	}
	require.Empty(t, upgrader.wait(t, up).Err)
	upgrader.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}

// TestRWMutexUpgradableInspection: State, String and Inspection name the process that has the upgradable hold.
func TestRWMutexUpgradableInspection(t *testing.T) {
	a := newArena(t, &arena.Options{Label: "test"})
	m := ofRW(t, a)
	holder := remoteActor(t, a, "holder")
	holder.must(t, order{Op: "rwulock", Object: "m"})
	s := m.State()
	require.True(t, s.Upgradable)
	require.False(t, s.Held)
	require.Equal(t, "holder", s.Owner.Label)
	require.Regexp(t, `^rwmutex m: open, held upgradable by 2\.\d+, 0 reading, 0 waiting$`, m.String())
	i := a.Inspect(arena.Object(m.Object()))
	require.Contains(t, i.State, "held upgradable by 2.")
	require.Len(t, i.Holds, 1)
	require.Equal(t, arenakernel.HoldUpgradable, i.Holds[0].Mode)
	require.Equal(t, 2, i.Holds[0].Owner.Slot())
	holder.must(t, order{Op: "rwrlock", Object: "m"})
	holder.start(order{Op: "rwupgrade", Object: "m"})
	eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
	require.False(t, m.State().Upgradable)
	require.Equal(t, arenakernel.HoldClosing, a.Inspect(arena.Object(m.Object())).Holds[0].Mode)
}
