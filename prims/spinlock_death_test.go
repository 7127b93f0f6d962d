//go:build linux

package prims_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestSpinLockHolderDies: the holder is killed while other goroutines wait in two processes, some on threads of
// their own and some behind the poller. Depending on the policy, all of them get an error, or all of them get
// the lock, one after the other.
func TestSpinLockHolderDies(t *testing.T) {
	const waiters = 15 // in each process
	for _, c := range []struct{ object, hold string }{
		{"s", "lock"}, {"rw", "lock"}, {"rw", "ulock"},
	} {
		for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
			t.Run(fmt.Sprint(c.object, " ", c.hold, " ", policy), func(t *testing.T) {
				a := newArena(t, nil)
				victim := remoteSpin(t, a, "victim")
				others := []*spinActor{localSpin(a), remoteSpin(t, a, "other")}
				r := victim.do(t, order{Op: c.hold, Object: c.object, Policy: policy})
				require.Empty(t, r.Err+r.Panic)
				type waiter struct {
					x    *spinActor
					id   int
					undo string
				}
				var all []waiter
				for _, x := range others {
					for i := range waiters {
						op, undo := []string{"lock", "lockctx"}[i%2], "unlock"
						if c.object == "rw" && i%3 == 1 {
							op, undo = []string{"rlock", "rlockctx"}[i%2], "runlock"
						} else if c.object == "rw" && i%3 == 2 {
							op, undo = []string{"ulock", "ulockctx"}[i%2], "uunlock"
						}
						all = append(all, waiter{x, x.blocked(t, order{Op: op, Object: c.object, Policy: policy}), undo})
					}
				}
				start := time.Now()
				victim.proc.Kill(t)
				if policy == prims.PolicyRelease {
					// The waiter that got the lock releases it, so that the next waiter gets it.
					left := all
					eventually(t, "all get it", others[0].dump, func() bool {
						kept := left[:0]
						for _, w := range left {
							if r, ok := w.x.poll(t, w.id); ok {
								require.Empty(t, r.Err+r.Panic)
								w.x.must(t, w.undo, c.object)
							} else {
								kept = append(kept, w)
							}
						}
						left = kept
						return len(left) == 0
					})
					t.Logf("all had it after %v", time.Since(start))
				} else {
					for i, w := range all {
						r := w.x.wait(t, w.id)
						require.Equal(t, []string{"owner-dead"}, r.Is, "%d: %v", i, r)
						require.Equal(t, victim.proc.Pid(), r.Who.PID)
						require.Equal(t, "victim", r.Who.Label)
					}
					t.Logf("all were told after %v", time.Since(start))
					for _, x := range others {
						require.False(t, x.try(t, "trylock", c.object))
						require.Equal(t, []string{"owner-dead"}, x.op(t, "state", c.object).Is)
					}
					r := others[1].do(t, order{Op: "recover", Object: c.object, N: 1})
					require.Equal(t, []string{"not-recoverable"}, r.Is)
					require.Equal(t, []string{"not-recoverable"}, others[0].op(t, "lockctx", c.object).Is)
					r = others[0].op(t, "recover", c.object)
					require.Empty(t, r.Err)
					require.True(t, r.OK, "the repair has not run")
					r = others[0].op(t, "recover", c.object)
					require.Empty(t, r.Err)
					require.False(t, r.OK, "the repair of a healthy lock has run")
				}
				for _, x := range others {
					require.True(t, x.try(t, "trylock", c.object), "%s", x.dump())
					x.must(t, "unlock", c.object)
				}
				alone(t, a, 2)
				sound(t, a)
			})
		}
	}
}

func (x *spinActor) poll(t testing.TB, id int) (answer, bool) {
	t.Helper()
	if a, ok := x.said[id]; ok {
		delete(x.said, id)
		return a, true
	}
	if x.proc != nil {
		// The actor answers this order after it has written all earlier output.
		x.do(t, order{Op: "cpu"})
	} else {
		select {
		case a := <-x.inbox:
			x.said[a.ID] = a
		default:
		}
	}
	a, ok := x.said[id]
	delete(x.said, id)
	return a, ok
}

// TestRWSpinLockReaderDies: when a reader dies, its own holds are released and no others. A waiting writer gets
// the lock when the living readers have left, however many readers died. The next participant in the slot of a
// dead reader has none of its holds.
func TestRWSpinLockReaderDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			writer, reader := localSpin(a), remoteSpin(t, a, "reader")
			writer.do(t, order{Op: "open", Object: "rw", Policy: policy})
			reader.must(t, "rlock", "rw")
			for range 3 {
				victims := []*spinActor{remoteSpin(t, a, "victim"), remoteSpin(t, a, "victim")}
				for i, v := range victims {
					for range 3 * (i + 1) {
						v.must(t, "rlock", "rw")
					}
				}
				require.EqualValues(t, 10, reader.op(t, "state", "rw").N)
				id := writer.blocked(t, order{Op: "lock", Object: "rw"})
				for _, v := range victims {
					v.proc.Kill(t)
				}
				alone(t, a, 2)
				require.EqualValues(t, 1, reader.op(t, "state", "rw").N, "%s", words(a))
				require.EqualValues(t, 1, writer.op(t, "waiters", "rw").N)
				reader.must(t, "runlock", "rw")
				require.Empty(t, writer.wait(t, id).Err)
				writer.must(t, "w2r", "rw")
				reader.must(t, "rlock", "rw")
				writer.must(t, "runlock", "rw")
			}
			reader.must(t, "runlock", "rw")
			require.Zero(t, writer.op(t, "bits", "rw").N)
			sound(t, a)
		})
	}
}

// TestRWSpinLockLastReaderDies: the last reader is killed while a writer waits. The writer gets the lock soon.
func TestRWSpinLockLastReaderDies(t *testing.T) {
	a := newArena(t, nil)
	writer := remoteSpin(t, a, "writer")
	for range 5 {
		victim := remoteSpin(t, a, "victim")
		victim.must(t, "rlock", "rw")
		id := writer.blocked(t, order{Op: "lock", Object: "rw"})
		start := time.Now()
		victim.proc.Kill(t)
		require.Empty(t, writer.wait(t, id).Err)
		t.Logf("after %v", time.Since(start))
		writer.must(t, "unlock", "rw")
	}
	require.Zero(t, writer.op(t, "bits", "rw").N)
}

// TestRWSpinLockDrainerDies: a writer dies while it waits for readers to leave. Its death is not reported,
// because the writer did not hold the lock yet, and readers get the lock at once. In contrast, a process that
// dies while it waits in an upgrade has an upgradable hold. So the policy decides what happens.
func TestRWSpinLockDrainerDies(t *testing.T) {
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			reader, other := remoteSpin(t, a, "reader"), localSpin(a)
			other.do(t, order{Op: "open", Object: "rw", Policy: policy})
			reader.must(t, "rlock", "rw")

			victim := remoteSpin(t, a, "victim")
			victim.blocked(t, order{Op: "lock", Object: "rw"})
			eventually(t, "it waits for readers", other.dump, func() bool { return other.op(t, "state", "rw").Text != "free" })
			id := other.blocked(t, order{Op: "rlock", Object: "rw"})
			victim.proc.Kill(t)
			require.Empty(t, other.wait(t, id).Err+other.wait(t, other.start(order{Op: "runlock", Object: "rw"})).Err)

			victim = remoteSpin(t, a, "victim")
			victim.must(t, "ulock", "rw")
			victim.blocked(t, order{Op: "upgrade", Object: "rw"})
			eventually(t, "it waits for readers", other.dump, func() bool {
				return other.op(t, "state", "rw").Text[:5] == "being"
			})
			id = other.blocked(t, order{Op: "rlock", Object: "rw"})
			victim.proc.Kill(t)
			r := other.wait(t, id)
			if policy == prims.PolicyRelease {
				require.Empty(t, r.Err+r.Panic)
				other.must(t, "runlock", "rw")
			} else {
				require.Equal(t, []string{"owner-dead"}, r.Is)
				// A recovery waits for the reader that holds the lock.
				r = other.do(t, order{Op: "recover", Object: "rw", Limit: 20 * time.Millisecond})
				require.Equal(t, []string{"ctx-deadline"}, r.Is)
				require.False(t, r.OK, "the repair has run beside a reader")
				r = other.op(t, "state", "rw")
				require.Equal(t, []string{"owner-dead"}, r.Is)
				require.Equal(t, victim.proc.Pid(), r.Who.PID)
				// The recovery gave up, and the state word names no participant now. While the recovery waited for
				// readers, no word named the dead holder, so another participant could have got its ID.
				require.Equal(t, "owner-dead", r.Text)
				rec := other.blocked(t, order{Op: "recover", Object: "rw"})
				reader.must(t, "runlock", "rw")
				r = other.wait(t, rec)
				require.Empty(t, r.Err)
				require.True(t, r.OK)
				reader.must(t, "rlock", "rw")
			}
			reader.must(t, "runlock", "rw")
			require.Zero(t, other.op(t, "bits", "rw").N)
			alone(t, a, 2)
			sound(t, a)
		})
	}
}

// TestSpinLockHolderLeaves: a process leaves the arena by Close while it holds locks. It loses its holds as if
// it had died. Its own waiters get an error.
func TestSpinLockHolderLeaves(t *testing.T) {
	a := newArena(t, nil)
	victim, other := remoteSpin(t, a, "victim"), localSpin(a)
	for _, c := range [][2]string{{"lock", "s"}, {"rlock", "rw"}, {"ulock", "rw-u"}} {
		victim.must(t, c[0], c[1])
	}
	other.must(t, "lock", "rw-w")
	ids := []int{
		other.blocked(t, order{Op: "lock", Object: "s"}), other.blocked(t, order{Op: "lock", Object: "rw"}),
		other.blocked(t, order{Op: "rlock", Object: "rw-u"}),
	}
	away := []int{victim.blocked(t, order{Op: "rlockctx", Object: "rw-w"}), victim.blocked(t, order{Op: "lock", Object: "rw-w"})}
	// This Lock waits for a reader of its own process.
	victim.must(t, "rlock", "rw-own")
	away = append(away, victim.blocked(t, order{Op: "lockctx", Object: "rw-own"}))
	require.Empty(t, victim.op(t, "leave", "").Err)
	for _, id := range away {
		require.Equal(t, []string{"closed"}, victim.wait(t, id).Is)
	}
	require.Equal(t, []string{"owner-dead"}, other.wait(t, ids[0]).Is)
	require.Empty(t, other.wait(t, ids[1]).Err)
	require.Equal(t, []string{"owner-dead"}, other.wait(t, ids[2]).Is)
	other.must(t, "unlock", "rw")
	other.must(t, "unlock", "rw-w")
	other.must(t, "lock", "rw-own")
	alone(t, a, 1)
	sound(t, a)
}

// TestSpinLockRepairOption: the option Repair is set. Callers that find the lock owner-dead repair it and go
// on.
func TestSpinLockRepairOption(t *testing.T) {
	a := newArena(t, nil)
	repairs := 0
	repair := func() error { repairs++; return nil }
	s, err := prims.OpenSpinLock(a, "s", &prims.SpinLockOptions{Repair: repair})
	require.NoError(t, err)
	rw, err := prims.OpenRWSpinLock(a, "rw", &prims.RWSpinLockOptions{Repair: repair})
	require.NoError(t, err)
	for i, use := range []func(){
		func() { s.Lock(); s.Unlock() },
		func() { rw.Lock(); rw.Unlock() },
		func() { rw.RLock(); rw.RUnlock() },
		func() { rw.LockUpgradable(); rw.UnlockUpgradable() },
	} {
		victim := remoteSpin(t, a, "victim")
		victim.must(t, "lock", "s")
		victim.must(t, []string{"lock", "ulock"}[i%2], "rw")
		victim.proc.Kill(t)
		alone(t, a, 1)
		use()
		require.Equal(t, i+1, repairs)
		repairs--
		s.Lock()
		s.Unlock()
		rw.Lock()
		rw.Unlock()
		repairs = i + 1
	}
}

// TestSpinLockWithoutChecks checks that each call makes all the wakes that it has to make. The processes run without
// periodic checks, which would make up for a missing wake. No waiter stays asleep.
func TestSpinLockWithoutChecks(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint")
	}
	a := newArena(t, nil)
	env := proctest.Env("SHMSYNC_CHECK_EVERY=1h")
	x, y := remoteSpin(t, a, "x", env), remoteSpin(t, a, "y", env)
	for _, c := range [][4]string{ // take the lock, release it, wait for it, release it
		{"lock", "unlock", "lock", "unlock"},
		{"lock", "unlock", "rlock", "runlock"},
		{"lock", "unlock", "ulock", "uunlock"},
		{"lock", "w2r", "rlock", "runlock"},
		{"ulock", "u2r", "rlock", "runlock"},
		{"ulock", "uunlock", "lock", "unlock"},
		{"rlock", "runlock", "lock", "unlock"},
	} {
		for _, object := range []string{"rw", "s"} {
			if object == "s" && c[0]+c[1]+c[2] != "lockunlocklock" {
				continue
			}
			for _, waiters := range []int{1, 3, 16} {
				x.must(t, c[0], object)
				var ids []int
				for range waiters {
					ids = append(ids, y.blocked(t, order{Op: c[2], Object: object}))
				}
				x.must(t, c[1], object)
				for len(ids) > 0 {
					kept := ids[:0]
					for _, id := range ids {
						if r, ok := y.poll(t, id); ok {
							require.Empty(t, r.Err+r.Panic)
							y.must(t, c[3], object)
						} else {
							kept = append(kept, id)
						}
					}
					ids = kept
				}
				if c[1] == "w2r" || c[1] == "u2r" {
					x.must(t, "runlock", object)
				}
			}
		}
	}
	require.Zero(t, y.op(t, "bits", "rw").N)
}
