//go:build linux

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestRWMutexWriterDies: a writer dies while goroutines of several processes wait to read and to write. Some
// waiters sleep on threads, others are woken by the poller. Depending on the policy, each of them gets an
// error, or each of them gets the lock.
func TestRWMutexWriterDies(t *testing.T) {
	const waiters = 16 // of each kind in each process; 12 of them sleep in the kernel
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			victim := remoteActor(t, a, "victim")
			others := []*actor{localActor(a), remoteActor(t, a, "other")}
			victim.must(t, order{Op: "rwlock", Object: "m", Policy: policy})
			m := ofRW(t, a)
			verbs := []string{"rwrlock", "rwlock", "rwrlockctx", "rwlockctx"}
			ids := make([][]int, len(others))
			for k, x := range others {
				for i := range waiters {
					ids[k] = append(ids[k], x.blocked(t, order{Op: verbs[i%4], Object: "m"}))
				}
			}
			victim.proc.Kill(t)
			if policy == prims.PolicyReport {
				for k, x := range others {
					for i, id := range ids[k] {
						r := x.wait(t, id)
						require.Equal(t, []string{"owner-dead"}, r.Is, "%v", r)
						require.Equal(t, i%4 < 2, r.Panic != "", "the forms without an error panic with it: %v", r)
						require.Equal(t, victim.proc.Pid(), r.Who.PID)
						require.Equal(t, "victim", r.Who.Label)
					}
				}
				rwRecoverEverywhere(t, others, victim)
			} else {
				// Each reader and each writer gets the lock, and releases it.
				pending := map[*actor]map[int]string{}
				left := 0
				for k, x := range others {
					pending[x] = map[int]string{}
					for i, id := range ids[k] {
						pending[x][id] = "rwrunlock"
						if i%2 == 1 {
							pending[x][id] = "rwunlock"
						}
						left++
					}
				}
				for left > 0 {
					for x, ids := range pending {
						for id, unlock := range ids {
							if r, ok := x.poll(t, id); ok {
								require.Empty(t, r.Err+r.Panic)
								x.must(t, order{Op: unlock, Object: "m"})
								delete(ids, id)
								left--
							}
						}
					}
				}
			}
			alone(t, a, 2)
			nothingLeft(t, a, m)
		})
	}
}

// rwRecoverEverywhere requires that an owner-dead lock refuses all processes until it is recovered. It first
// calls Recover with a repair that fails, and with a repair that panics.
func rwRecoverEverywhere(t testing.TB, others []*actor, victim *actor) {
	t.Helper()
	refuse := func(is string) {
		for _, x := range others {
			for _, op := range []string{"rwtrylock", "rwtryrlock"} {
				require.False(t, x.op(t, op, "m").OK)
			}
			for _, op := range []string{"rwlock", "rwlockctx", "rwrlock", "rwrlockctx", "rwstate"} {
				require.Equal(t, []string{is}, x.op(t, op, "m").Is)
			}
			for _, op := range []string{"rwunlock", "rwrunlock", "rwdowngrade"} {
				require.Contains(t, x.op(t, op, "m").Panic, "does not hold")
			}
		}
	}
	refuse("owner-dead")
	r := others[0].do(t, order{Op: "rwrecover", Object: "m", N: 1})
	require.Equal(t, []string{"not-recoverable"}, r.Is)
	require.Equal(t, victim.proc.Pid(), r.Who.PID)
	refuse("not-recoverable")
	require.Contains(t, others[1].do(t, order{Op: "rwrecover", Object: "m", N: 2}).Panic, "the repair panics")
	refuse("not-recoverable")

	// Readers and writers wait while the lock is being repaired. If the repair fails, they get an error.
	repair := others[0].start(order{Op: "rwrecover", Object: "m", N: 3})
	eventually(t, "the repair runs", others[1].dump, func() bool {
		return others[1].op(t, "rwstate", "m").OK
	})
	read := others[1].blocked(t, order{Op: "rwrlockctx", Object: "m"})
	write := others[1].blocked(t, order{Op: "rwlockctx", Object: "m"})
	again := others[1].blocked(t, order{Op: "rwrecover", Object: "m"})
	others[0].must(t, order{Op: "cancel", N: repair})
	require.Equal(t, []string{"not-recoverable"}, others[0].wait(t, repair).Is)
	r = others[1].wait(t, again)
	require.Empty(t, r.Err+r.Panic)
	require.True(t, r.OK, "the repair has not run")
	// The reader either got the error of the death or got the lock.
	if r := others[1].wait(t, read); r.Err == "" {
		others[1].must(t, order{Op: "rwrunlock", Object: "m"})
	} else {
		require.Equal(t, []string{"not-recoverable"}, r.Is)
	}
	if r := others[1].wait(t, write); r.Err == "" {
		others[1].must(t, order{Op: "rwunlock", Object: "m"})
	} else {
		require.Equal(t, []string{"not-recoverable"}, r.Is)
	}
	for _, x := range others {
		require.True(t, x.op(t, "rwtrylock", "m").OK)
		x.must(t, order{Op: "rwunlock", Object: "m"})
		require.False(t, x.must(t, order{Op: "rwrecover", Object: "m"}).OK)
	}
}

// TestRWMutexReaderDies checks that the holds of a dead reader end, and that the holds of other processes stay. A
// writer that waits only for the dead reader gets the lock.
func TestRWMutexReaderDies(t *testing.T) {
	for _, poller := range []bool{false, true} {
		inTime(t, func(d *delays) { readerDies(t, poller, d) })
	}
}

func readerDies(t *testing.T, poller bool, d *delays) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	if poller {
		fillThreads(t, a)
	}
	victim, other := remoteActor(t, a, "victim"), remoteActor(t, a, "other")
	for range 3 {
		victim.must(t, order{Op: "rwrlock", Object: "m"})
	}
	other.must(t, order{Op: "rwrlock", Object: "m"})
	local := localActor(a)
	lock := local.blocked(t, order{Op: "rwlockctx", Object: "m"})
	read := other.blocked(t, order{Op: "rwrlock", Object: "m"})
	start := time.Now()
	victim.proc.Kill(t)
	alone(t, a, 2)
	eventually(t, "the dead one's holds are gone", m.String, func() bool { return m.State().Readers == 1 })
	_, ok := local.poll(t, lock)
	require.False(t, ok, "a hold of the living is gone too")
	other.must(t, order{Op: "rwrunlock", Object: "m"})
	require.Empty(t, local.wait(t, lock).Err)
	d.since(start, soon()*8)
	local.must(t, order{Op: "rwunlock", Object: "m"})
	require.Empty(t, other.wait(t, read).Err)
	other.must(t, order{Op: "rwrunlock", Object: "m"})
	nothingLeft(t, a, m)

	// The only reader dies, and the writer gets the lock at once.
	victim = remoteActor(t, a, "victim")
	victim.must(t, order{Op: "rwrlock", Object: "m"})
	lock = other.blocked(t, order{Op: "rwlock", Object: "m"})
	victim.proc.Kill(t)
	require.Empty(t, other.wait(t, lock).Err)
	other.must(t, order{Op: "rwunlock", Object: "m"})
	alone(t, a, 2)
	nothingLeft(t, a, m)
}

// TestRWMutexWaitingReaderDies: a reader dies while it waits for a writer. That writer, and all other readers and
// writers, go on as if the dead reader had never called RLock.
func TestRWMutexWaitingReaderDies(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	holder, other, victim := remoteActor(t, a, "holder"), remoteActor(t, a, "other"), remoteActor(t, a, "victim")
	holder.must(t, order{Op: "rwlock", Object: "m"})
	for range 15 {
		victim.blocked(t, order{Op: "rwrlock", Object: "m"})
	}
	read := other.blocked(t, order{Op: "rwrlock", Object: "m"})
	lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
	victim.proc.Kill(t)
	alone(t, a, 3)
	require.True(t, m.State().Held)
	require.Equal(t, 1, m.State().Waiting)
	holder.must(t, order{Op: "rwunlock", Object: "m"})
	require.Empty(t, other.wait(t, read).Err)
	other.must(t, order{Op: "rwrunlock", Object: "m"})
	require.Empty(t, other.wait(t, lock).Err)
	other.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}

// TestRWMutexWaitingWriterDies: a writer dies while it waits for readers to leave. Under both policies, the
// readers that it kept out get in, and no process gets an error. The next writer takes the place of the dead
// writer.
func TestRWMutexWaitingWriterDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		a := newArena(t, nil)
		holder, other, victim := remoteActor(t, a, "holder"), remoteActor(t, a, "other"), remoteActor(t, a, "victim")
		holder.must(t, order{Op: "rwrlock", Object: "m", Policy: policy})
		m := ofRW(t, a)
		victim.blocked(t, order{Op: "rwlock", Object: "m"})
		eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
		var ids []int
		for range 15 {
			ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
		}
		victim.proc.Kill(t)
		for _, id := range ids {
			require.Empty(t, other.wait(t, id).Err)
			other.must(t, order{Op: "rwrunlock", Object: "m"})
		}
		alone(t, a, 3)

		victim = remoteActor(t, a, "victim")
		victim.blocked(t, order{Op: "rwlock", Object: "m"})
		eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
		lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
		victim.proc.Kill(t)
		holder.must(t, order{Op: "rwrunlock", Object: "m"})
		require.Empty(t, other.wait(t, lock).Err)
		other.must(t, order{Op: "rwunlock", Object: "m"})
		alone(t, a, 3)
		nothingLeft(t, a, m)
	}
}

// TestRWMutexDowngraderDies: after a Downgrade, the death of the process is treated as the death of a reader.
func TestRWMutexDowngraderDies(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	other, victim := remoteActor(t, a, "other"), remoteActor(t, a, "victim")
	victim.must(t, order{Op: "rwlock", Object: "m"})
	victim.must(t, order{Op: "rwdowngrade", Object: "m"})
	require.Equal(t, 1, m.State().Readers)
	lock := other.blocked(t, order{Op: "rwlock", Object: "m"})
	victim.proc.Kill(t)
	require.Empty(t, other.wait(t, lock).Err)
	other.must(t, order{Op: "rwunlock", Object: "m"})
	alone(t, a, 2)
	nothingLeft(t, a, m)
}

// TestRWMutexRecovererDies: if a process dies during a repair, the next process finds the lock owner-dead.
func TestRWMutexRecovererDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		a := newArena(t, nil)
		other, victim, second := remoteActor(t, a, "other"), remoteActor(t, a, "victim"), remoteActor(t, a, "second")
		victim.must(t, order{Op: "rwlock", Object: "m", Policy: policy})
		m := ofRW(t, a)
		victim.proc.Kill(t)
		alone(t, a, 3)
		if policy == prims.PolicyRelease {
			require.NoError(t, m.State().Err)
			nothingLeft(t, a, m)
			continue
		}
		second.start(order{Op: "rwrecover", Object: "m", N: 3})
		eventually(t, "the repair runs", m.String, func() bool { return m.State().Held })
		read := other.blocked(t, order{Op: "rwrlockctx", Object: "m"})
		write := other.blocked(t, order{Op: "rwlockctx", Object: "m"})
		second.proc.Kill(t)
		for _, id := range []int{read, write} {
			r := other.wait(t, id)
			require.Equal(t, []string{"owner-dead"}, r.Is)
			require.Equal(t, "second", r.Who.Label)
		}
		require.True(t, other.must(t, order{Op: "rwrecover", Object: "m"}).OK)
		alone(t, a, 2)
		nothingLeft(t, a, m)
	}
}

// TestRWMutexRepairOption: with a Repair in the options, the first reader or writer that finds the lock
// owner-dead runs Repair, and then gets its hold.
func TestRWMutexRepairOption(t *testing.T) {
	for _, verbs := range [][2]string{{"rwlock", "rwunlock"}, {"rwrlock", "rwrunlock"}} {
		a := newArena(t, nil)
		m := ofRW(t, a)
		victim, x, y := remoteActor(t, a, "victim"), remoteActor(t, a, "x"), remoteActor(t, a, "y")
		x.must(t, order{Op: "rwopen", Object: "m", N: 1})
		y.must(t, order{Op: "rwopen", Object: "m", N: 1})
		victim.must(t, order{Op: "rwlock", Object: "m"})
		ids := []int{x.blocked(t, order{Op: verbs[0], Object: "m"}), y.blocked(t, order{Op: verbs[0], Object: "m"})}
		victim.proc.Kill(t)
		for done := map[int]bool{}; len(done) < 2; {
			for i, z := range []*actor{x, y} {
				if r, ok := z.poll(t, ids[i]); ok {
					require.Empty(t, r.Err+r.Panic)
					z.must(t, order{Op: verbs[1], Object: "m"})
					done[i] = true
				}
			}
		}
		require.EqualValues(t, 1, x.op(t, "rwrepairs", "m").N+y.op(t, "rwrepairs", "m").N)
		alone(t, a, 3)
		nothingLeft(t, a, m)
	}
}

// TestRWMutexHolderLeaves: a process that leaves the arena loses its holds, as after a death.
func TestRWMutexHolderLeaves(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	x := remoteActor(t, a, "x")
	x.must(t, order{Op: "rwrlock", Object: "m"})
	x.must(t, order{Op: "close-arena"})
	alone(t, a, 1)
	nothingLeft(t, a, m)
	y := remoteActor(t, a, "y")
	y.must(t, order{Op: "rwlock", Object: "m"})
	y.must(t, order{Op: "close-arena"})
	alone(t, a, 1)
	require.Error(t, m.State().Err)
	require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
	nothingLeft(t, a, m)
}

// TestRWMutexHolderStopped: a stopped process keeps its holds for reading or writing. Waiters can only give up
// when their contexts end. When the process continues and releases its hold, all waiters go on.
func TestRWMutexHolderStopped(t *testing.T) {
	for lock, unlock := range map[string]string{"rwlock": "rwunlock", "rwrlock": "rwrunlock"} {
		a := newArena(t, nil)
		m := ofRW(t, a)
		holder, other := remoteActor(t, a, "holder"), remoteActor(t, a, "other")
		holder.must(t, order{Op: lock, Object: "m"})
		holder.proc.Stop(t)
		for range 3 { // wait for several periodic checks
			require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: "rwlockctx", Object: "m", Limit: 120 * time.Millisecond}).Is)
			if lock == "rwlock" {
				require.Equal(t, []string{"ctx-deadline"}, other.do(t, order{Op: "rwrlockctx", Object: "m", Limit: 120 * time.Millisecond}).Is)
			} else {
				require.True(t, other.op(t, "rwtryrlock", "m").OK)
				other.must(t, order{Op: "rwrunlock", Object: "m"})
			}
		}
		write := other.blocked(t, order{Op: "rwlock", Object: "m"})
		holder.proc.Cont(t)
		holder.must(t, order{Op: unlock, Object: "m"})
		require.Empty(t, other.wait(t, write).Err)
		other.must(t, order{Op: "rwunlock", Object: "m"})
		nothingLeft(t, a, m)
	}
}

// TestRWMutexWaitingWriterStopped: a writer is stopped while it waits for readers. When the last reader has
// left, the stopped writer cannot take the lock, so new readers get in after a while. When the writer is
// continued, it goes on waiting.
func TestRWMutexWaitingWriterStopped(t *testing.T) {
	a := newArena(t, nil)
	m := ofRW(t, a)
	holder, other, writer := remoteActor(t, a, "holder"), remoteActor(t, a, "other"), remoteActor(t, a, "writer")
	holder.must(t, order{Op: "rwrlock", Object: "m"})
	lock := writer.blocked(t, order{Op: "rwlock", Object: "m"})
	eventually(t, "the gate is closed", m.String, func() bool { return m.State().Closed })
	writer.proc.Stop(t)
	var ids []int
	for range 14 {
		ids = append(ids, other.blocked(t, order{Op: "rwrlock", Object: "m"}))
	}
	holder.must(t, order{Op: "rwrunlock", Object: "m"})
	for _, id := range ids {
		require.Empty(t, other.wait(t, id).Err)
	}
	require.Equal(t, 14, m.State().Readers)
	writer.proc.Cont(t)
	eventually(t, "the gate is closed again", m.String, func() bool { return m.State().Closed })
	require.False(t, m.TryRLock())
	for range ids {
		require.False(t, m.State().Held)
		other.must(t, order{Op: "rwrunlock", Object: "m"})
	}
	require.Empty(t, writer.wait(t, lock).Err)
	writer.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}

// TestRWMutexKilledAnywhere: a process that uses all holds is killed at a random moment, again and again. No
// process ever has a hold beside a writer, and the other processes go on.
func TestRWMutexKilledAnywhere(t *testing.T) {
	rounds := proctest.Rounds(8, 30)
	if crashpoint.Enabled {
		rounds = 5
	}
	a := newArena(t, &arena.Options{Label: "survivor"})
	s, err := openRWSite(a, func(err error) { panic(err.Error() + "\n" + words(a)) })
	require.NoError(t, err)
	s.work()
	t.Cleanup(func() {
		if t.Failed() {
			s.fail = func(error) {}
			s.stop()
		}
	})
	for range rounds {
		s.guarded[1].Victims.Store(0)
		v := remoteRWVictim(t, a)
		eventually(t, "the victim works", func() string { return words(a) }, func() bool { return s.guarded[1].Victims.Load() > 0 })
		v.Kill(t)
		alone(t, a, 1)
		require.NoError(t, s.goesOn(), "%s", words(a))
	}
	require.NoError(t, s.stop(), "%s", words(a))
	for _, m := range s.locks {
		if m.State().Err != nil {
			require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
		}
		nothingLeft(t, a, m)
	}
}
