//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// soon is how long a death, or a stopped process, may delay others.
func soon() time.Duration { return proctest.Scale(250 * time.Millisecond) }

// delays has the operations that a death or a stopped process delayed for too long.
type delays struct{ late []time.Duration }

// since appends the time since start to d.late, unless this time is less than the parameter most.
func (d *delays) since(start time.Time, most time.Duration) {
	if took := time.Since(start); took >= most {
		d.late = append(d.late, took)
	}
}

// inTime repeats attempt until no operation of an attempt is late. On a busy machine many attempts are late by
// chance. But if the library relies on a periodic check where it should wake at once, each attempt is late.
func inTime(t *testing.T, attempt func(d *delays)) {
	t.Helper()
	var d delays
	attempts := 0
	for begun := time.Now(); attempts < 20 || time.Since(begun) < timeout(); attempts++ {
		d.late = nil
		if attempt(&d); d.late == nil {
			return
		}
		t.Logf("late: %v", d.late)
	}
	t.Fatalf("late in each of %d attempts, the last time by %v", attempts, d.late)
}

// TestMutexHolderDies: the holder dies while goroutines of several processes wait, some on threads
// and some behind the poller. With PolicyReport all of them get the error. With PolicyRelease each
// of them holds the lock in turn.
func TestMutexHolderDies(t *testing.T) { holderDies(t, nil) }

func holderDies(t *testing.T, env []string) {
	const waiters = 20 // in each of two processes; 12 of them sleep in the kernel
	opts := []proctest.Option{proctest.Env(env...)}
	for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		t.Run(policy.String(), func(t *testing.T) {
			a := newArena(t, nil)
			victim := remoteActor(t, a, "victim", opts...)
			others := []*actor{localActor(a), remoteActor(t, a, "other", opts...)}
			lock := order{Op: "lock", Object: "m", Policy: policy}
			victim.must(t, lock)
			ids := make([][]int, len(others))
			for k, x := range others {
				for i := range waiters {
					o := lock
					if i%2 == 1 {
						o.Op = "lockctx"
					}
					ids[k] = append(ids[k], x.blocked(t, o))
				}
			}
			start := time.Now()
			victim.proc.Kill(t)
			if policy == prims.PolicyReport {
				for k, x := range others {
					for i, id := range ids[k] {
						r := x.wait(t, id)
						require.Equal(t, []string{"owner-dead"}, r.Is, "%v", r)
						require.Equal(t, i%2 == 0, r.Panic != "", "Lock panics with the error that LockContext returns: %v", r)
						require.Equal(t, victim.proc.Pid(), r.Who.PID)
						require.Equal(t, "victim", r.Who.Label)
					}
				}
				t.Logf("all were told after %v", time.Since(start))
				recoverEverywhere(t, others, victim)
			} else {
				// Each waiter holds the lock once, in any order.
				type waiter struct {
					x  *actor
					id int
				}
				pending := map[waiter]bool{}
				for k, x := range others {
					for _, id := range ids[k] {
						pending[waiter{x, id}] = true
					}
				}
				for len(pending) > 0 {
					m, err := openActorMutex(a, "m", nil)
					require.NoError(t, err)
					owner := others[0]
					if nextOwner(t, a, m, "victim") == "other" {
						owner = others[1]
					}
					// Exactly one of the waiters has returned.
					found := 0
					for found == 0 {
						for w := range pending {
							if w.x != owner {
								continue
							}
							if r, ok := w.x.poll(t, w.id); ok {
								require.Empty(t, r.Err+r.Panic)
								delete(pending, w)
								found++
							}
						}
					}
					require.Equal(t, 1, found, "two waiters have the lock at once")
					owner.must(t, order{Op: "unlock", Object: "m"})
				}
				t.Logf("all had it after %v", time.Since(start))
			}
			alone(t, a, 2)
			sound(t, a)
		})
	}
}

// nextOwner waits until m has another holder than before, and returns the label of that holder.
func nextOwner(t testing.TB, a *arena.Arena, m actorMutex, before string) (label string) {
	t.Helper()
	eventually(t, "somebody gets it", func() string { return words(a) }, func() bool {
		s := m.State()
		if s.Owner != nil {
			label = s.Owner.Label
		}
		return s.Held && s.Owner != nil && label != before
	})
	return label
}

// recoverEverywhere checks that the lock "m" is owner-dead because of the death of victim. Then it
// checks that the lock can be recovered.
func recoverEverywhere(t *testing.T, others []*actor, victim *actor) {
	t.Helper()
	x, y := others[0], others[1]
	dead := func(x *actor) {
		t.Helper()
		r := x.op(t, "lockctx", "m")
		require.Equal(t, []string{"owner-dead"}, r.Is)
		require.Equal(t, victim.proc.Pid(), r.Who.PID)
		require.False(t, x.op(t, "trylock", "m").OK)
		r = x.op(t, "state", "m")
		require.Equal(t, []string{"owner-dead"}, r.Is)
		require.False(t, r.OK, "nobody holds it")
		require.Equal(t, victim.proc.Pid(), r.Who.PID)
		require.Contains(t, x.op(t, "string", "m").Text, "owner-dead")
		require.Contains(t, x.op(t, "unlock", "m").Panic, "does not hold")
	}
	dead(x)
	dead(y)
	// Now a repair fails.
	r := x.do(t, order{Op: "recover", Object: "m", N: 1})
	require.True(t, r.OK)
	require.Equal(t, []string{"not-recoverable"}, r.Is)
	require.Contains(t, r.Err, errRepair.Error())
	for _, z := range others {
		require.Equal(t, []string{"not-recoverable"}, z.op(t, "lockctx", "m").Is)
		require.Equal(t, []string{"not-recoverable"}, z.op(t, "lock", "m").Is)
		require.False(t, z.op(t, "trylock", "m").OK)
		require.Equal(t, []string{"not-recoverable"}, z.op(t, "state", "m").Is)
	}
	// Now a repair panics.
	r = y.do(t, order{Op: "recover", Object: "m", N: 2})
	require.True(t, r.OK)
	require.Equal(t, "the repair panics", r.Panic)
	require.Equal(t, []string{"not-recoverable"}, x.op(t, "state", "m").Is)
	// Now a repair succeeds.
	require.True(t, x.must(t, order{Op: "recover", Object: "m"}).OK)
	y.must(t, order{Op: "lock", Object: "m"})
	y.must(t, order{Op: "unlock", Object: "m"})
	require.False(t, x.must(t, order{Op: "recover", Object: "m"}).OK, "the repair of a healthy lock has run")
}

// poll returns the answer to an order, if the answer has arrived.
func (x *actor) poll(t testing.TB, id int) (r answer, ok bool) {
	t.Helper()
	if x.proc != nil {
		// The actor answers in order. So after this answer, all earlier answers have arrived.
		x.must(t, order{Op: "pid"})
	}
	for x.proc == nil {
		select {
		case a := <-x.inbox:
			x.said[a.ID] = a
			continue
		default:
		}
		break
	}
	r, ok = x.said[id]
	delete(x.said, id)
	return r, ok
}

// TestMutexReaped: the hold of a dead process is taken back even if no process waits or makes a
// call.
func TestMutexReaped(t *testing.T) {
	a := newArena(t, nil)
	for policy, word := range map[prims.Policy]string{prims.PolicyReport: "owner-dead", prims.PolicyRelease: "free"} {
		m, err := openActorMutex(a, policy.String(), &prims.MutexOptions{Policy: policy})
		require.NoError(t, err)
		victim := remoteActor(t, a, "victim")
		victim.must(t, order{Op: "lock", Object: policy.String()})
		require.Contains(t, m.State().Word, "held by")
		victim.proc.Kill(t)
		alone(t, a, 1)
		require.Contains(t, m.State().Word, word)
	}
}

// TestEventBeatsDeadline: the event that a waiter waits for happens and the waiter's context ends,
// both before the waiter runs again. The event takes precedence.
func TestEventBeatsDeadline(t *testing.T) {
	a := newArena(t, nil)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	f, err := prims.OpenFutex(a, "f", nil)
	require.NoError(t, err)
	limit := 60 * time.Millisecond
	for n := uint64(1); n <= 5; {
		m.Lock()
		x := remoteActor(t, a, "sleeper")
		start := time.Now()
		lock := x.start(order{Op: "lockctx", Object: "m", Limit: limit})
		wait := x.start(order{Op: "fwaitctx", Object: "f", Token: n, Limit: limit})
		asleep := waitUntil(limit, func() bool {
			return x.op(t, "waiters", "m").N == 1 && x.op(t, "fwaiters", "f").N == 1
		})
		x.proc.Stop(t)
		if asleep != nil || time.Since(start) >= limit {
			// On a busy machine the waits may have ended before the process was stopped. Then the
			// test tries again with a longer limit.
			x.proc.Kill(t)
			m.Unlock()
			limit *= 2
			require.Less(t, limit, timeout())
			continue
		}
		f.Post()
		m.Unlock()
		<-after(2 * limit)
		x.proc.Cont(t)
		require.Empty(t, x.wait(t, wait).Err)
		require.Empty(t, x.wait(t, lock).Err)
		x.must(t, order{Op: "unlock", Object: "m"})
		n++
	}
}

// TestMutexRecovererDies: if a process dies while it recovers a lock, the lock is owner-dead again,
// whatever its policy. The next caller gets an error that names the process that recovered.
func TestMutexRecovererDies(t *testing.T) {
	a := newArena(t, nil)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	victim := remoteActor(t, a, "first")
	victim.must(t, order{Op: "lock", Object: "m"})
	victim.proc.Kill(t)
	second := proctest.Start(t, "mutex/recover", proctest.Params(nameOf(a)), asCohortHere())
	second.Await(t)
	require.Contains(t, m.String(), "being recovered")
	require.True(t, m.State().Held)
	require.False(t, m.TryLock())
	// Meanwhile other calls block, including Recover.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	require.Equal(t, context.DeadlineExceeded, m.LockContext(ctx))
	require.Equal(t, context.DeadlineExceeded, m.RecoverContext(ctx, func() error { return nil }))
	cancel()
	here := localActor(a)
	id := here.blocked(t, order{Op: "lock", Object: "m"})
	second.Kill(t)
	r := here.wait(t, id)
	require.Equal(t, []string{"owner-dead"}, r.Is)
	require.Equal(t, second.Pid(), r.Who.PID)
	runs := 0
	require.NoError(t, m.RecoverContext(t.Context(), func() error {
		runs++
		require.True(t, m.HeldByUs())
		return nil
	}))
	require.Equal(t, 1, runs)
	m.Lock()
	m.Unlock()
}

func init() {
	proctest.Register("mutex/recover", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "second"})
		if err != nil {
			c.Fatal(err)
		}
		m, err := openActorMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		if err := m.LockContext(context.Background()); !errors.Is(err, shmsync.ErrOwnerDead) {
			c.Fatal(err)
		}
		c.Fatal(m.RecoverContext(context.Background(), func() error {
			c.Ready()
			c.Await()
			return nil
		}))
	})
}

// TestMutexRecoverRace: if many goroutines try to recover at once, exactly one runs its repair.
func TestMutexRecoverRace(t *testing.T) {
	a := newArena(t, nil)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	for range 20 {
		victim := remoteActor(t, a, "victim")
		victim.must(t, order{Op: "lock", Object: "m"})
		victim.proc.Kill(t)
		var repairs atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := m.LockContext(context.Background()); err == nil {
					m.Unlock()
				} else if !errors.Is(err, shmsync.ErrOwnerDead) {
					t.Error(err)
				} else if err := m.RecoverContext(context.Background(), func() error { repairs.Add(1); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, repairs.Load())
	}
}

// TestMutexHolderExits: the exit of a process without Close counts as a death.
func TestMutexHolderExits(t *testing.T) {
	a := newArena(t, nil)
	x := remoteActor(t, a, "exits")
	x.must(t, order{Op: "lock", Object: "m"})
	here := localActor(a)
	id := here.blocked(t, order{Op: "lockctx", Object: "m"})
	x.start(order{Op: "exit"})
	r := here.wait(t, id)
	require.Equal(t, []string{"owner-dead"}, r.Is)
	require.Equal(t, "exits", r.Who.Label)
	x.proc.WaitExit(t)
}

// TestMutexWaiterDies: a waiter dies while it sleeps, or just after it was woken. The other waiters
// lose no wake.
func TestMutexWaiterDies(t *testing.T) {
	a := newArena(t, nil)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	rounds := proctest.Rounds(6, 30)
	here := localActor(a)
	for round := range rounds {
		m.Lock()
		x := remoteActor(t, a, "waiter")
		for range 1 + round%3*7 {
			x.blocked(t, order{Op: "lock", Object: "m"})
		}
		var ids []int
		for range 3 {
			ids = append(ids, here.blocked(t, order{Op: "lockctx", Object: "m"}))
		}
		if round%2 == 0 {
			x.proc.Signal(t, syscall.SIGKILL)
			m.Unlock()
		} else {
			m.Unlock()
			x.proc.Signal(t, syscall.SIGKILL)
		}
		// The waiters get the lock in any order. The victim may also have got it before it died.
		for len(ids) > 0 {
			var r answer
			eventually(t, "somebody is told", func() string { return words(a) }, func() bool {
				for i, id := range ids {
					if got, ok := here.poll(t, id); ok {
						r, ids = got, slices.Delete(ids, i, i+1)
						return true
					}
				}
				return false
			})
			if r.Err == "" {
				m.Unlock()
				continue
			}
			require.Equal(t, []string{"owner-dead"}, r.Is, "%v", r)
			if m.State().Err != nil {
				require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
			}
		}
		x.proc.WaitSignal(t, syscall.SIGKILL)
		if err := m.LockContext(t.Context()); err != nil {
			require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
		} else {
			m.Unlock()
		}
	}
	alone(t, a, 1)
	sound(t, a)
}

// TestMutexHolderStopped: a holder that is stopped is alive. No process takes the lock from it, and
// contexts end on time. When it continues, it is still the holder.
func TestMutexHolderStopped(t *testing.T) { holderStopped(t, 3*time.Second, nil) }

func holderStopped(t *testing.T, how time.Duration, env []string) {
	how = proctest.Rounds(min(how, 400*time.Millisecond), how)
	a := newArena(t, nil)
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	x := remoteActor(t, a, "stopped", proctest.Env(env...))
	x.must(t, order{Op: "lock", Object: "m"})
	x.proc.Stop(t)
	here := localActor(a)
	stays := here.blocked(t, order{Op: "lock", Object: "m"})
	var polled []int
	for range 15 {
		polled = append(polled, here.blocked(t, order{Op: "lockctx", Object: "m"}))
	}
	for end := time.Now().Add(how); time.Now().Before(end); {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		require.Equal(t, context.DeadlineExceeded, m.LockContext(ctx))
		took := time.Since(start)
		cancel()
		require.GreaterOrEqual(t, took, 100*time.Millisecond)
		require.Less(t, took, timeout(), "while the holder is stopped, which lasts until the end of these waits")
		require.False(t, m.TryLock())
		require.Equal(t, x.proc.Pid(), m.State().Owner.PID)
	}
	x.proc.Cont(t)
	require.True(t, x.op(t, "state", "m").OK)
	for _, id := range polled {
		here.must(t, order{Op: "cancel", N: id})
		require.Equal(t, []string{"ctx-canceled"}, here.wait(t, id).Is)
	}
	x.must(t, order{Op: "unlock", Object: "m"})
	require.Empty(t, here.wait(t, stays).Panic)
	m.Unlock()
	x.must(t, order{Op: "lock", Object: "m"})
	x.must(t, order{Op: "unlock", Object: "m"})
}

// TestMutexPIDNamespaces: two processes have pid 1, each in its own pid namespace. They exclude
// each other, and each notices the death of the other.
func TestMutexPIDNamespaces(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	proctest.NeedAttr(t, attr, "a pid namespace")
	a := newArena(t, nil)
	x := remoteActor(t, a, "one", proctest.Attr(attr))
	y := remoteActor(t, a, "another", proctest.Attr(attr))
	require.EqualValues(t, 1, x.must(t, order{Op: "pid"}).N)
	require.EqualValues(t, 1, y.must(t, order{Op: "pid"}).N)
	x.must(t, order{Op: "lock", Object: "m"})
	require.False(t, y.op(t, "trylock", "m").OK)
	require.Contains(t, y.op(t, "unlock", "m").Panic, "does not hold")
	id := y.blocked(t, order{Op: "lockctx", Object: "m"})
	x.must(t, order{Op: "unlock", Object: "m"})
	require.Empty(t, y.wait(t, id).Err)
	id = x.blocked(t, order{Op: "lockctx", Object: "m"})
	y.proc.Signal(t, syscall.SIGKILL)
	r := x.wait(t, id)
	require.Equal(t, []string{"owner-dead"}, r.Is)
	require.Equal(t, "another", r.Who.Label)
	require.Equal(t, 1, r.Who.PID, "Who has the pid of the holder in its own pid namespace")
	require.Less(t, r.Took, timeout())
	x.must(t, order{Op: "recover", Object: "m"})
	y.proc.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 2)

	// Several processes in pid namespaces also count correctly under the lock.
	z := remoteActor(t, a, "third", proctest.Attr(attr))
	ids := []int{x.start(order{Op: "steps", Object: "m", N: 2000, Token: 4}), z.start(order{Op: "steps", Object: "m", N: 2000, Token: 4})}
	require.Empty(t, x.wait(t, ids[0]).Err)
	require.Empty(t, z.wait(t, ids[1]).Err)
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	require.EqualValues(t, 16000, *v)
}

// keepContinuing sends SIGCONT to a process again and again until the function that it returns is called.
func keepContinuing(pid int) (end func()) {
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			syscall.Kill(pid, syscall.SIGCONT)
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(ended)
		<-over
	}
}

// TestMutexFirstWatcherStopped: a holder dies. The waiter that is the first to learn of this death is stopped before it
// can act. The stopped process delays no other process.
func TestMutexFirstWatcherStopped(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, point := range []string{
		"mutex.lock.woken", "arena.reap.seen", "arena.reap.fenced", "arena.reap.marked", "arena.reap.repaired",
		"arena.reap.woken", "arena.finish.taken", "arena.finish.reclaimed", "mutex.owner_dead.marked",
	} {
		for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
			t.Run(point+" "+policy.String(), func(t *testing.T) {
				inTime(t, func(late *delays) {
					a := newArena(t, nil)
					lock := order{Op: "lockctx", Object: "m", Policy: policy}
					holder := remoteActor(t, a, "holder")
					holder.must(t, lock)
					// The watcher is next to the holder in the ring of slots, and is the first
					// waiter in the queue.
					watcher := remoteActor(t, a, "watcher", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point))
					watcher.blocked(t, lock)
					here := localActor(a)
					ids := []int{here.blocked(t, lock), here.blocked(t, lock)}
					third := remoteActor(t, a, "third")
					ids = append(ids, third.blocked(t, lock))
					start := time.Now()
					holder.proc.Signal(t, syscall.SIGKILL)
					if policy == prims.PolicyReport {
						require.Equal(t, []string{"owner-dead"}, here.wait(t, ids[0]).Is)
						require.Equal(t, []string{"owner-dead"}, here.wait(t, ids[1]).Is)
						require.Equal(t, []string{"owner-dead"}, third.wait(t, ids[2]).Is)
						late.since(start, soon())
						here.must(t, order{Op: "recover", Object: "m"})
					} else {
						// Each waiter gets the lock, and so does the watcher if it is not stopped.
						m, err := openActorMutex(a, "m", nil)
						require.NoError(t, err)
						for pending := 3; pending > 0; {
							start := time.Now()
							switch who := nextOwner(t, a, m, "holder"); who {
							case "watcher":
								// If the watcher is stopped while it is the owner, it stays the owner. Its death
								// watcher may also pass the crash point later, after the unlock. So the test sends
								// SIGCONT again and again until the watcher has answered.
								id := watcher.start(order{Op: "unlock", Object: "m"})
								func() {
									defer keepContinuing(watcher.proc.Pid())()
									require.Empty(t, watcher.wait(t, id).Panic)
								}()
								continue
							case "third":
								third.must(t, order{Op: "unlock", Object: "m"})
							default:
								here.must(t, order{Op: "unlock", Object: "m"})
							}
							pending--
							late.since(start, soon())
						}
					}
					late.since(start, 4*soon())
					watcher.proc.Kill(t)
					holder.proc.WaitSignal(t, syscall.SIGKILL)
					// The stopped process has been killed, and other processes finish what it had
					// begun.
					eventually(t, "two are left", func() string { return words(a) }, func() bool {
						n := 0
						for range a.Participants() {
							n++
						}
						return n == 2
					})
					m, err := openActorMutex(a, "m", nil)
					require.NoError(t, err)
					if err := m.LockContext(t.Context()); err != nil {
						require.ErrorIs(t, err, shmsync.ErrOwnerDead)
						require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
					} else {
						m.Unlock()
					}
					sound(t, a)
				})
			})
		}
	}
}

// TestMutexStoppedAnywhere: a process is stopped at each crash point of an Unlock or of a wait.
// Other processes soon go on, because of their own periodic checks. When the stopped process
// continues, it goes on, too.
func TestMutexStoppedAnywhere(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, point := range []string{
		"mutex.unlock.before_wake", "park.wake.before_bump", "park.wake.bumped", "park.wake.done",
		"arena.ready.marked", "arena.ready.pushed", "mutex.lock.woken",
	} {
		for _, polled := range []int{0, 14} {
			t.Run(fmt.Sprintf("%s %d behind the poller", point, polled), func(t *testing.T) {
				inTime(t, func(late *delays) {
					if point == "mutex.lock.woken" {
						untilReached(t, point, func() bool { return mutexStoppedWaiting(t, point, polled, late) })
					} else {
						mutexStoppedUnlocking(t, point, polled, late)
					}
				})
			})
		}
	}
}

// stoppedScene starts two processes. The process x has locked m, and stops when it passes the given crash point. In
// this process, as many goroutines as the parameter polled says wait for another lock. If they are 14, no more
// goroutines of this process may sleep in the kernel, so its other waiters park behind the poller.
func stoppedScene(t *testing.T, point string, polled int) (a *arena.Arena, x, here, third *actor) {
	a = newArena(t, nil)
	x = remoteActor(t, a, "stopped", proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point))
	x.must(t, order{Op: "lock", Object: "m"})
	here, third = localActor(a), remoteActor(t, a, "third")
	third.must(t, order{Op: "lock", Object: "other"})
	for range polled {
		here.blocked(t, order{Op: "lock", Object: "other"})
	}
	return a, x, here, third
}

// mutexStoppedWaiting stops the first waiter when it wakes. It returns false if that waiter has locked without having
// slept.
func mutexStoppedWaiting(t *testing.T, point string, polled int, late *delays) bool {
	_, x, here, third := stoppedScene(t, point, polled)
	id := here.blocked(t, order{Op: "lockctx", Object: "m"})
	x.must(t, order{Op: "unlock", Object: "m"})
	require.Empty(t, here.wait(t, id).Err)
	mine := x.blocked(t, order{Op: "lock", Object: "m"})
	id = third.blocked(t, order{Op: "lockctx", Object: "m"})
	here.must(t, order{Op: "unlock", Object: "m"})
	if !x.reaches(t, mine, func() bool { return isStopped(x.proc) }) {
		return false
	}
	start := time.Now()
	require.Empty(t, third.wait(t, id).Err)
	late.since(start, 2*soon())
	third.must(t, order{Op: "unlock", Object: "m"})
	x.proc.Cont(t)
	require.Empty(t, x.wait(t, mine).Err)
	x.must(t, order{Op: "unlock", Object: "m"})
	return true
}

func mutexStoppedUnlocking(t *testing.T, point string, polled int, late *delays) {
	a, x, here, third := stoppedScene(t, point, polled)
	first := here.blocked(t, order{Op: "lockctx", Object: "m"})
	second := third.blocked(t, order{Op: "lockctx", Object: "m"})
	release := x.start(order{Op: "unlock", Object: "m"})
	start := time.Now()
	m, err := openActorMutex(a, "m", nil)
	require.NoError(t, err)
	for range 2 {
		if nextOwner(t, a, m, "stopped") == "third" {
			require.Empty(t, third.wait(t, second).Err)
			third.must(t, order{Op: "unlock", Object: "m"})
		} else {
			require.Empty(t, here.wait(t, first).Err)
			here.must(t, order{Op: "unlock", Object: "m"})
		}
	}
	late.since(start, 3*soon())
	x.proc.Signal(t, syscall.SIGCONT)
	require.Empty(t, x.wait(t, release).Err)
}

// TestMutexFallbacks runs the essential tests above where the kernel, or a sandbox, lacks some
// feature, for all or some of the processes.
func TestMutexFallbacks(t *testing.T) {
	combos := []string{"robust", "waitv", "membarrier", "ofd", "threads", "robust,waitv", "waitv,membarrier", "robust,membarrier", "robust,waitv,membarrier", "ofd,waitv,membarrier"}
	if !proctest.Long() {
		combos = []string{"robust", "waitv", "membarrier", "robust,waitv,membarrier"}
	}
	for _, disable := range proctest.Sample(combos, 1) {
		t.Run(disable, func(t *testing.T) {
			env := []string{"SHMSYNC_DISABLE=" + disable}
			opt := proctest.Env(env...)
			t.Run("hammer", func(t *testing.T) { hammerElsewhere(t, 3, 4, 300, opt) })
			t.Run("hammer mixed", func(t *testing.T) { hammerMixed(t, env) })
			t.Run("holder dies", func(t *testing.T) { holderDies(t, env) })
			t.Run("holder stopped", func(t *testing.T) { holderStopped(t, 300*time.Millisecond, env) })
			t.Run("hand-off", func(t *testing.T) { handOff(t, 3, opt) })
			t.Run("never two owners", func(t *testing.T) { neverTwoOwners(t, 25, env...) })
			t.Run("context", func(t *testing.T) {
				everywhere(t, func(t *testing.T, holder, other *actor, a *arena.Arena) {
					holder.must(t, order{Op: "lock", Object: "m"})
					for range 14 {
						id := other.blocked(t, order{Op: "lockctx", Object: "m"})
						defer func() { other.wait(t, id) }()
						defer other.must(t, order{Op: "cancel", N: id})
					}
					r := other.do(t, order{Op: "lockctx", Object: "m", Limit: 30 * time.Millisecond})
					require.Equal(t, []string{"ctx-deadline"}, r.Is)
					require.Less(t, r.Took, timeout())
				}, opt)
			})
		})
	}
}

// TestWithoutChecks: periodic checks make the wakes that a stopped process did not make. In this
// test there are no periodic checks, so a process hangs if a wake is lost for any other reason.
func TestWithoutChecks(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	opt := proctest.Env("SHMSYNC_CHECK_EVERY=1h")
	for name, test := range map[string]func(t *testing.T, x, y *actor, a *arena.Arena){
		"hammer": func(t *testing.T, x, y *actor, a *arena.Arena) {
			for _, goroutines := range []uint64{1, 4, 14, 40} {
				each := int(4000 / goroutines)
				ids := []int{x.start(order{Op: "steps", Object: "m", N: each, Token: goroutines}), y.start(order{Op: "steps", Object: "m", N: each, Token: goroutines})}
				require.Empty(t, x.wait(t, ids[0]).Err)
				require.Empty(t, y.wait(t, ids[1]).Err)
			}
		},
		"cancel": func(t *testing.T, x, y *actor, a *arena.Arena) {
			for _, waiters := range []int{3, 20} {
				for range 20 {
					cancelPassesOn(t, x, y, waiters)
				}
			}
		},
		"hand-off": func(t *testing.T, x, y *actor, a *arena.Arena) {
			x.start(order{Op: "barge", Object: "m", N: 1 << 30})
			var ids []int
			for range 16 {
				ids = append(ids, y.start(order{Op: "overtake", Object: "m", N: 15}))
			}
			for _, id := range ids {
				require.Empty(t, y.wait(t, id).Err)
			}
			x.proc.Kill(t)
		},
		"recover": func(t *testing.T, x, y *actor, a *arena.Arena) {
			// After a failed repair all waiters get an error. After a successful repair the next
			// waiter gets the lock.
			for _, how := range []int{1, 2, 0} {
				victim := remoteActor(t, a, "victim", opt)
				victim.must(t, order{Op: "lock", Object: "m"})
				var ids []int
				for range 16 {
					ids = append(ids, y.blocked(t, order{Op: "lockctx", Object: "m"}))
				}
				victim.proc.Kill(t)
				for _, id := range ids {
					require.Equal(t, []string{"owner-dead"}, y.wait(t, id).Is)
				}
				x.do(t, order{Op: "recover", Object: "m", N: how})
				x.do(t, order{Op: "recover", Object: "m"})
				y.must(t, order{Op: "lock", Object: "m"})
				y.must(t, order{Op: "unlock", Object: "m"})
			}
		},
		"release": func(t *testing.T, x, y *actor, a *arena.Arena) {
			// Each process gets the lock in turn, even though the holder and some waiters die.
			for range 5 {
				lock := order{Op: "lock", Object: "r", Policy: prims.PolicyRelease}
				victim := remoteActor(t, a, "victim", opt)
				victim.must(t, lock)
				other := remoteActor(t, a, "waiter", opt)
				var ids []int
				for i := range 16 {
					ids = append(ids, y.start(order{Op: "once", Object: "r", Policy: prims.PolicyRelease}))
					if i%4 == 0 {
						other.start(order{Op: "once", Object: "r", Policy: prims.PolicyRelease})
					}
				}
				eventually(t, "they wait", func() string { return words(a) }, func() bool {
					return y.must(t, order{Op: "waiters", Object: "r", Policy: prims.PolicyRelease}).N == 16
				})
				victim.proc.Kill(t)
				other.proc.Kill(t)
				for _, id := range ids {
					require.Empty(t, y.wait(t, id).Err)
				}
			}
		},
		"failed repair": func(t *testing.T, x, y *actor, a *arena.Arena) {
			// Waiters that wait while another process recovers the lock get an error when the
			// repair fails.
			victim := remoteActor(t, a, "victim", opt)
			victim.must(t, order{Op: "lock", Object: "m"})
			victim.proc.Kill(t)
			require.Equal(t, []string{"owner-dead"}, y.op(t, "lockctx", "m").Is)
			repair := x.start(order{Op: "recover", Object: "m", N: 3})
			eventually(t, "it repairs", func() string { return words(a) }, func() bool {
				return strings.Contains(y.op(t, "string", "m").Text, "recovered by")
			})
			var ids []int
			for range 16 {
				ids = append(ids, y.blocked(t, order{Op: "lockctx", Object: "m"}))
			}
			x.must(t, order{Op: "cancel", N: repair})
			require.Equal(t, []string{"not-recoverable"}, x.wait(t, repair).Is)
			for _, id := range ids {
				require.Equal(t, []string{"not-recoverable"}, y.wait(t, id).Is)
			}
		},
		"stop": func(t *testing.T, x, y *actor, a *arena.Arena) {
			var ids []int
			for range 16 {
				ids = append(ids, y.blocked(t, order{Op: "fwait", Object: "f", Token: 1}))
			}
			x.must(t, order{Op: "fstop", Object: "f"})
			for _, id := range ids {
				require.Equal(t, []string{"canceled"}, y.wait(t, id).Is)
			}
		},
		"futex": func(t *testing.T, x, y *actor, a *arena.Arena) {
			var ids []int
			for i := range 20 {
				ids = append(ids, y.start(order{Op: []string{"fwalk", "fwait"}[i%2], Object: "f", Token: 2000}))
			}
			for range 4 {
				ids2 := x.start(order{Op: "fpost", Object: "f", N: 500})
				x.wait(t, ids2)
			}
			for _, id := range ids {
				require.Empty(t, y.wait(t, id).Err)
			}
			// One process waits at a time, so that no other call makes up for a lost wake.
			for token := uint64(2001); token < 2100; token++ {
				id := y.start(order{Op: "fwait", Object: "f", Token: token})
				x.must(t, order{Op: "fpost", Object: "f"})
				require.Empty(t, y.wait(t, id).Err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			test(t, remoteActor(t, a, "one", opt), remoteActor(t, a, "two", opt), a)
			sound(t, a)
		})
	}
}

// hammerMixed makes processes share a lock. One of them gets the environment env, which disables kernel features.
func hammerMixed(t *testing.T, env []string) {
	a := newArena(t, nil)
	actors := []*actor{localActor(a), remoteActor(t, a, "without", proctest.Env(env...)), remoteActor(t, a, "with")}
	var ids []int
	for _, x := range actors {
		ids = append(ids, x.start(order{Op: "steps", Object: "m", N: 500, Token: 15}))
	}
	start := time.Now()
	for i, x := range actors {
		r := x.wait(t, ids[i])
		require.Empty(t, r.Err+r.Panic)
	}
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	require.EqualValues(t, 3*500*15, *v)
	t.Logf("%v", time.Since(start))
	runtime.KeepAlive(a)
}
