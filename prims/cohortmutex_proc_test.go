//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
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
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// cohortDeferVar is an environment variable. It has the number of nanoseconds for which an actor
// lets others go first.
const cohortDeferVar = "SHMSYNC_TEST_COHORT_DEFER"

func init() {
	if text, ok := os.LookupEnv(cohortDeferVar); ok {
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(err)
		}
		prims.SetCohortDefer(ns)
		if ns > 0 {
			prims.SetCohortIdle(ns)
		}
	}
}

// cohortOn returns the options of an actor that runs on the given NUMA node and uses CohortMutexes.
func cohortOn(node int, env ...string) []proctest.Option {
	return []proctest.Option{proctest.Env(append(env, cohortVar+"=1", fmt.Sprintf("%s=%d", nearVar, node))...)}
}

func openCohort(t testing.TB, a *arena.Arena, name string, policy prims.Policy) *prims.CohortMutex {
	c, err := prims.OpenCohortMutex(a, name, &prims.CohortMutexOptions{Nodes: cohortNodes, Policy: policy})
	require.NoError(t, err)
	return c
}

// localLocksFree checks that no local lock is held any more.
func localLocksFree(t testing.TB, c *prims.CohortMutex) {
	t.Helper()
	eventually(t, "the local locks are free", c.String, func() bool {
		for k := range c.Nodes() {
			if c.LocalLock(k) != 0 {
				return false
			}
		}
		return true
	})
}

// TestCohortMutexHammer: processes on different NUMA nodes exclude each other.
func TestCohortMutexHammer(t *testing.T) {
	a := newArena(t, nil)
	var actors []*actor
	for node := range 3 {
		actors = append(actors, remoteActor(t, a, fmt.Sprint("node ", node), cohortOn(node)...))
	}
	each, total := 400, 0
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	for _, goroutines := range []uint64{1, 4, 20} {
		var ids []int
		for _, x := range actors {
			ids = append(ids, x.start(order{Op: "steps", Object: "m", N: each, Token: goroutines}))
		}
		for i, x := range actors {
			r := x.wait(t, ids[i])
			require.Empty(t, r.Err+r.Panic)
		}
		total += len(actors) * int(goroutines) * each
		require.EqualValues(t, total, *v)
	}
	c := openCohort(t, a, "m", 0)
	localLocksFree(t, c)
	require.False(t, c.State().Held)
	sound(t, a)
}

// TestCohortMutexLocalLocks: one waiter of each node has the local lock of its node. The holder of
// the CohortMutex has no local lock.
func TestCohortMutexLocalLocks(t *testing.T) {
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	holder := remoteActor(t, a, "holder", cohortOn(0)...)
	holder.must(t, order{Op: "lock", Object: "m"})
	require.Zero(t, c.LocalLock(0))
	one, two := remoteActor(t, a, "one", cohortOn(1)...), remoteActor(t, a, "two", cohortOn(2)...)
	ids := []int{one.blocked(t, order{Op: "lockctx", Object: "m"}), two.blocked(t, order{Op: "lockctx", Object: "m"})}
	taken := func(k int) {
		t.Helper()
		eventually(t, fmt.Sprint("local lock ", k, " is taken"), c.String, func() bool { return c.LocalLock(k) != 0 })
	}
	taken(1)
	taken(2)
	require.Zero(t, c.LocalLock(0))
	require.True(t, c.State().Waiting)
	one.must(t, order{Op: "cancel", N: ids[0]})
	require.Equal(t, []string{"ctx-canceled"}, one.wait(t, ids[0]).Is)
	require.Zero(t, c.LocalLock(1), "the waiter that gave up still has its local lock")
	holder.must(t, order{Op: "unlock", Object: "m"})
	require.Empty(t, two.wait(t, ids[1]).Err)
	require.Zero(t, c.LocalLock(2), "the holder has no local lock")
	two.must(t, order{Op: "unlock", Object: "m"})
	localLocksFree(t, c)
	sound(t, a)
}

// TestCohortMutexYields: during the turn of a node, waiters of other nodes let the waiters of this node go first. After
// the turn, the waiters of this node let waiters of other nodes go first.
func TestCohortMutexYields(t *testing.T) {
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	c.Lock()
	waiter := func(node int) {
		x := remoteActor(t, a, fmt.Sprint("waiter ", node), cohortOn(node)...)
		x.blocked(t, order{Op: "lock", Object: "m"})
		eventually(t, "it is at its local lock", c.String, func() bool { return c.LocalLock(node) != 0 })
	}
	yields := func(turn uint32, want ...bool) {
		t.Helper()
		c.SetTurn(turn)
		for node, y := range want {
			require.Equal(t, y, c.Yields(node), "node %d, turn %#x", node, turn)
		}
	}
	under, over := prims.CohortTurnWord(1, 0, prims.CohortPasses-1), prims.CohortTurnWord(1, 0, prims.CohortPasses)
	yields(0, false, false, false)
	yields(under, false, false, false) // no waiter of node 1
	yields(over, false, false, false)  // no waiter of another node
	waiter(1)
	yields(under, true, false, true)
	yields(over, false, false, false)
	waiter(2)
	yields(under, true, false, true)
	yields(over, false, true, false)
	yields(prims.CohortTurnWord(cohortNodes, 0, 3), false, false, false) // no such node
	yields(^uint32(0), false, false, false)
	c.Unlock()
}

// TestCohortMutexWokenYields: during the turn of a node, a woken waiter of another node lets waiters of
// this node go first, as a new caller does.
func TestCohortMutexWokenYields(t *testing.T) {
	forEver := int64(proctest.Scale(time.Hour))
	deferred := fmt.Sprintf("%s=%d", cohortDeferVar, forEver)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	c.Lock()
	far := remoteActor(t, a, "far", cohortOn(1, deferred)...)
	id := far.blocked(t, order{Op: "lock", Object: "m"})
	// This process stands for a waiter of node 0 that has its local lock and never gets the CohortMutex.
	c.TakeLocalLock(0)
	near := remoteActor(t, a, "near", cohortOn(0)...)
	c.SetTurn(prims.CohortTurnWord(0, 0, 3))
	c.Unlock()
	eventually(t, "the far one is woken", c.String, func() bool { return !c.Announced() })
	for range 300 {
		require.True(t, near.op(t, "trylock", "m").OK, "the far waiter has the lock")
		c.SetTurn(prims.CohortTurnWord(0, 0, 3))
		near.must(t, order{Op: "unlock", Object: "m"})
	}
	c.LeaveLocalLock(0)
	require.Empty(t, far.wait(t, id).Err)
	far.must(t, order{Op: "unlock", Object: "m"})
	localLocksFree(t, c)
	sound(t, a)
}

// TestCohortMutexShut: after a timeout, a waiter at a local lock goes on to the global lock. If the
// global lock has changed hands during the timeout, later calls of the process bypass the local lock.
// Otherwise they do not.
func TestCohortMutexShut(t *testing.T) {
	onCohortNode(t, 0)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	c.Lock()
	c.TakeLocalLock(0) // keeps the local lock as a stopped waiter would
	done := make(chan struct{})
	go func() {
		c.Lock()
		close(done)
	}()
	eventually(t, "it waits for the lock itself", c.String, func() bool { return c.Announced() })
	require.False(t, c.Shut(0), "the process bypasses the local lock although the global lock has not changed hands")
	c.Unlock()
	<-done
	c.Unlock()
	far := remoteActor(t, a, "far", cohortOn(1)...)
	far.start(order{Op: "steps", Object: "m", N: math.MaxInt, Token: 2})
	var wg sync.WaitGroup
	var passed atomic.Bool
	for range 3 {
		wg.Go(func() {
			for !passed.Load() {
				c.Lock()
				c.Unlock()
			}
		})
	}
	eventually(t, "the local lock is passed by", c.String, func() bool { return c.Shut(0) })
	passed.Store(true)
	wg.Wait()
	far.proc.Kill(t)
	c.LeaveLocalLock(0)
}

// TestCohortMutexBound: one node can get the lock only a bounded number of times in a row while a
// waiter of another node is ready to take it.
func TestCohortMutexBound(t *testing.T) {
	old := prims.SetCohortDefer(int64(proctest.Scale(20 * time.Second)))
	t.Cleanup(func() { prims.SetCohortDefer(old) })
	onCohortNode(t, 0)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	far := remoteActor(t, a, "far", cohortOn(1, cohortDeferVar+"=0")...)
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	enough := proctest.Rounds(20, 100)
	far.start(order{Op: "steps", Object: "m", N: math.MaxInt, Token: 2})
	run, most, ends := 0, 0, 0
	var seen int64
	begun := time.Now()
	for ends < enough && (ends == 0 || time.Since(begun) < timeout()/2) {
		if time.Since(begun) > timeout() {
			t.Fatalf("node 0 got the lock at most %d times in a row, so there was no long run\n%s", most, words(a))
		}
		c.Lock()
		if *v != seen || c.LocalLock(1) == 0 || c.Turn() == 0 { // the far actor has had the lock, or does not sleep
			if run > prims.CohortPasses/2 {
				ends++
			}
			seen, run = *v, 0
		} else {
			run++
		}
		most = max(most, run)
		c.Unlock()
	}
	far.proc.Kill(t)
	t.Logf("node 0 got the lock at most %d times in a row; %d long runs", most, ends)
	// A run can have two holds that do not count as passes: the first hold, and a hold that began before the far actor
	// waited.
	require.LessOrEqual(t, most, prims.CohortPasses+2)
}

// TestCohortMutexStoppedWaiter: a waiter that is stopped while it holds its local lock delays its
// own node only for a moment, and other nodes not at all. When it is continued, it gets the lock. A
// waiter that is killed leaves nothing behind.
func TestCohortMutexStoppedWaiter(t *testing.T) {
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", kill), func(t *testing.T) {
			onCohortNode(t, 1)
			c.Lock()
			x := remoteActor(t, a, "stopped", cohortOn(1)...)
			id := x.blocked(t, order{Op: "lock", Object: "m"})
			eventually(t, "it has its local lock", c.String, func() bool { return c.LocalLock(1) != 0 })
			x.proc.Stop(t)
			// 20 goroutines of this process wait on node 1, more than can sleep in the kernel. 4 goroutines of
			// another process wait on node 2.
			here := localActor(a)
			here.local.(*stage).mutexes["m"] = cohortActor{c}
			far := remoteActor(t, a, "far", cohortOn(2)...)
			var ids, fars []int
			for i := range 20 {
				o := order{Op: "once", Object: "m"}
				ids = append(ids, here.blocked(t, o))
				if i < 4 {
					fars = append(fars, far.blocked(t, o))
				}
			}
			eventually(t, "they have gone to the lock itself", c.String, func() bool { return c.LocalLockWaiters(1) == 0 })
			start := time.Now()
			c.Unlock()
			for _, id := range ids {
				require.Empty(t, here.wait(t, id).Err)
			}
			for _, id := range fars {
				require.Empty(t, far.wait(t, id).Err)
			}
			require.Less(t, time.Since(start), timeout())
			require.NotZero(t, c.LocalLock(1), "the stopped waiter no longer has its local lock")
			// This process bypasses the local lock of the stopped waiter. So these calls need not wait for a
			// timeout at the local lock.
			for range 200 {
				c.Lock()
				c.Unlock()
			}
			if kill {
				x.proc.Kill(t)
			} else {
				x.proc.Cont(t)
				require.Empty(t, x.wait(t, id).Panic)
				x.must(t, order{Op: "unlock", Object: "m"})
			}
			localLocksFree(t, c)
			far.proc.Kill(t)
			require.NoError(t, c.LockContext(t.Context()))
			c.Unlock()
			sound(t, a)
		})
	}
}

// TestCohortMutexUnresponsive: a waiter of node 1 is stopped while it holds its local lock. A caller on node 0 lets
// node 1 go first, but nobody takes the lock. For a while, callers on node 0 then no longer let node 1 go first. When
// no other process wants the lock any more, the fast path works again.
func TestCohortMutexUnresponsive(t *testing.T) {
	onCohortNode(t, 0)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	c.Lock()
	x := remoteActor(t, a, "stopped", cohortOn(1)...)
	id := x.blocked(t, order{Op: "lock", Object: "m"})
	eventually(t, "it has its local lock", c.String, func() bool { return c.LocalLock(1) != 0 })
	x.proc.Stop(t)
	c.SetTurn(prims.CohortTurnWord(0, 0, prims.CohortPasses))
	c.Unlock()
	require.True(t, c.Yields(0))
	was := prims.SetCohortUnresponsive(int64(proctest.Scale(time.Hour)))
	t.Cleanup(func() { prims.SetCohortUnresponsive(was) })
	c.Lock() // lets the other node go first
	c.Unlock()
	for _, passes := range []int{prims.CohortPasses, 1 << 15, 3} {
		c.SetTurn(prims.CohortTurnWord(0, 0, passes))
		require.False(t, c.Yields(0), "waiters let the unresponsive node go first once more")
		for range prims.CohortQuiet + 1 { // plus 1: the first hold may still see a competitor
			c.Lock()
			c.Unlock()
		}
		require.Zero(t, c.Turn())
	}
	// After a while waiters let the node go first again.
	prims.SetCohortUnresponsive(1)
	c.MakeResponsive()
	c.SetTurn(prims.CohortTurnWord(0, 0, prims.CohortPasses))
	require.True(t, c.Yields(0))
	x.proc.Cont(t)
	require.Empty(t, x.wait(t, id).Panic)
	x.must(t, order{Op: "unlock", Object: "m"})
	localLocksFree(t, c)
	sound(t, a)
}

// TestCohortMutexWithoutLocalLock: a waiter without a local lock sleeps if other waiters sleep,
// even if it has to let others go first.
func TestCohortMutexWithoutLocalLock(t *testing.T) {
	old := prims.SetCohortDefer(int64(2 * timeout()))
	t.Cleanup(func() { prims.SetCohortDefer(old) })
	onCohortNode(t, 1)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	c.Lock()
	c.TakeLocalLock(0) // a waiter of the node whose turn it is
	c.TakeLocalLock(1) // keeps the local lock as a stopped waiter would
	c.SetTurn(prims.CohortTurnWord(0, 0, 3))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			c.Lock()
			c.Unlock()
		})
	}
	x := remoteActor(t, a, "asleep", cohortOn(1, cohortDeferVar+"=0")...)
	id := x.blocked(t, order{Op: "once", Object: "m"})
	buf := make([]byte, 1<<20)
	eventually(t, "all sleep at the lock", c.String, func() bool {
		stacks := string(buf[:runtime.Stack(buf, true)])
		return c.LocalLockWaiters(1) == 0 && c.Announced() &&
			strings.Count(stacks, "(*waiter).sleep") == 3 && !strings.Contains(stacks, "giveWay")
	})
	c.LeaveLocalLock(0)
	c.LeaveLocalLock(1)
	c.Unlock()
	all.Wait()
	require.Empty(t, x.wait(t, id).Err)
	localLocksFree(t, c)
	sound(t, a)
}

// TestCohortMutexClosedAtLocalLock: a goroutine waits at a local lock and its process closes the
// arena. The goroutine does not take the CohortMutex.
func TestCohortMutexClosedAtLocalLock(t *testing.T) {
	old := prims.SetCohortStarves(int64(timeout())) // so that the goroutine stays at the local lock
	t.Cleanup(func() { prims.SetCohortStarves(old) })
	onCohortNode(t, 1)
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	x := remoteActor(t, a, "other", cohortOn(0)...)
	x.must(t, order{Op: "lock", Object: "m"})
	c.TakeLocalLock(1)
	errs := make(chan error)
	go func() { errs <- c.LockContext(t.Context()) }()
	eventually(t, "it is at the local lock", c.String, func() bool { return c.LocalLockWaiters(1) == 1 })
	x.must(t, order{Op: "unlock", Object: "m"})
	require.NoError(t, a.Close())
	require.ErrorIs(t, <-errs, shmsync.ErrClosed)
	require.Empty(t, x.op(t, "lock", "m").Err, "no process has died with the lock")
}

// TestCohortMutexWithoutNodes: if no caller can learn its NUMA node, or if there is only one node,
// a CohortMutex works as a Mutex, whatever a peer writes.
func TestCohortMutexWithoutNodes(t *testing.T) {
	old := prims.SetKnowsNodes(func() bool { return false })
	t.Cleanup(func() { prims.SetKnowsNodes(old) })
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	require.False(t, c.Prefers())
	require.Equal(t, cohortNodes, c.Nodes())
	for _, turn := range []uint32{0, prims.CohortTurnWord(1, 0, 3), ^uint32(0)} {
		c.SetTurn(turn)
		c.Lock()
		require.False(t, c.TryLock())
		c.Unlock()
		require.Equal(t, turn, c.Turn(), "the CohortMutex has changed the word turn")
		require.Zero(t, c.SeenTurn(), "the fast path sees a turn")
	}
	c.SetSpin(20 * time.Microsecond) // stores the bound in the arena, so other processes use it, too
	require.Equal(t, 20*time.Microsecond, c.LocalLockSpin(1))
	require.False(t, c.State().Waiting)
	c.TakeLocalLock(1)
	require.True(t, c.State().Waiting, "others wait at local locks")
	c.LeaveLocalLock(1)
	sound(t, a)
}

// TestCohortMutexCrash: a process dies at a local lock, or between any two steps on the way to the
// global lock. It leaves the same state as a waiter or a holder of a Mutex that dies.
func TestCohortMutexCrash(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for point, holds := range map[string]bool{
		"cohortmutex.lock.local": false, "cohortmutex.lock.global": true, "cohortmutex.lock.turn": true, "cohortmutex.lock.left": true,
	} {
		for _, policy := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
			for _, polled := range []int{0, 14} {
				t.Run(fmt.Sprintf("%s %v %d behind the poller", point, policy, polled), func(t *testing.T) {
					onCohortNode(t, 1)
					a := newArena(t, nil)
					c := openCohort(t, a, "m", policy)
					lock := order{Op: "lock", Object: "m", Policy: policy}
					holder := remoteActor(t, a, "holder", cohortOn(0)...)
					holder.must(t, lock)
					victim := remoteActor(t, a, "victim", cohortOn(1, "SHMSYNC_CRASHPOINT="+point)...)
					if holds {
						victim.blocked(t, lock)
						eventually(t, "it has its local lock", c.String, func() bool { return c.LocalLock(1) != 0 })
					} else {
						victim.start(lock)
						victim.proc.WaitSignal(t, syscall.SIGKILL)
					}
					here := localActor(a)
					here.local.(*stage).mutexes["m"] = cohortActor{c}
					var ids []int
					for range 2 + polled {
						o := lock
						o.Op = "once"
						ids = append(ids, here.blocked(t, o))
					}
					holder.must(t, order{Op: "unlock", Object: "m"})
					told := 0
					for _, id := range ids {
						r := here.wait(t, id)
						if r.Err != "" {
							require.Equal(t, []string{"owner-dead"}, r.Is, "%v", r)
							require.Equal(t, "victim", r.Who.Label)
							told++
							if c.State().Err != nil {
								require.NoError(t, c.RecoverContext(t.Context(), func() error { return nil }))
							}
						}
					}
					if holds {
						victim.proc.WaitSignal(t, syscall.SIGKILL)
					}
					if !holds || policy == prims.PolicyRelease {
						require.Zero(t, told, "a death was reported although the victim was not the holder, or under PolicyRelease")
					}
					alone(t, a, 2)
					if c.State().Err != nil {
						require.True(t, holds && policy == prims.PolicyReport)
						require.NoError(t, c.RecoverContext(t.Context(), func() error { return nil }))
					}
					localLocksFree(t, c)
					require.NoError(t, c.LockContext(t.Context()))
					c.Unlock()
					sound(t, a)
				})
			}
		}
	}
}

// TestCohortMutexCancelRaces: waiters that give up, at a local lock or at the global lock, leave no
// local lock held.
func TestCohortMutexCancelRaces(t *testing.T) {
	a := newArena(t, nil)
	c := openCohort(t, a, "m", 0)
	rounds := proctest.Rounds(60, 300)
	x := remoteActor(t, a, "other", cohortOn(1)...)
	x.must(t, order{Op: "open", Object: "m"})
	for range rounds {
		id := x.start(order{Op: "steps", Object: "m", N: 20, Token: 3})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(1500))*time.Microsecond)
				defer cancel()
				switch err := c.LockContext(ctx); err {
				case nil:
					runtime.Gosched()
					c.Unlock()
				case context.DeadlineExceeded:
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Empty(t, x.wait(t, id).Err)
	}
	localLocksFree(t, c)
	sound(t, a)
}

// TestHostileCohortMutex: a peer overwrites any words of a CohortMutex, such as the turn word or the number of local
// locks. The worst result is an error.
func TestHostileCohortMutex(t *testing.T) {
	hostileLock(t, hostileRounds(), func(a *arena.Arena, s *scribbler, try func(string, func(context.Context))) {
		c, err := prims.OpenCohortMutex(a, "", &prims.CohortMutexOptions{Nodes: 3})
		require.NoError(t, err)
		s.body, s.size = c.Body()
		c.Lock()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { c.LockContext(ctx) })
		}
		try("LockContext", func(ctx context.Context) { c.LockContext(ctx) })
		try("TryLock", func(context.Context) { c.TryLock() })
		try("Unlock", func(context.Context) { c.Unlock() })
		try("LockContext again", func(ctx context.Context) { c.LockContext(ctx) })
		try("Recover", func(ctx context.Context) { c.RecoverContext(ctx, func() error { return nil }) })
		try("Recover fails", func(ctx context.Context) { c.RecoverContext(ctx, func() error { return errRepair }) })
		try("State", func(context.Context) { _, _, _, _ = c.State(), c.String(), words(a), a.Check() })
		try("open", func(context.Context) {
			if d, err := prims.CohortMutexAt(a, c.Offset()); err == nil {
				d.Close()
			}
		})
		cancel()
		require.NoError(t, guarded("the end of waits", c.String, wg.Wait))
		c.Close()
		// A process that opens the object now builds its handle from the overwritten words.
		try("built anew", func(ctx context.Context) {
			d, err := prims.CohortMutexAt(a, c.Offset())
			if err != nil {
				return
			}
			defer d.Close()
			d.LockContext(ctx)
			_, _ = d.State(), d.Nodes()
		})
	})
}

// TestCohortMutexAllocations: a wait at a local lock allocates nothing once the pools are filled.
func TestCohortMutexAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	onCohortNode(t, 1)
	a := newArena(t, nil)
	c, err := prims.OpenCohortMutex(a, "", &prims.CohortMutexOptions{Nodes: cohortNodes, Spin: -1})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, f := range map[string]func(){
		"Lock":        func() { c.Lock(); c.Unlock() },
		"LockContext": func() { c.LockContext(ctx); c.Unlock() },
		"TryLock":     func() { c.TryLock(); c.TryLock(); c.Unlock() },
		"a turn":      func() { c.SetTurn(prims.CohortTurnWord(1, 0, 3)); c.Lock(); c.Unlock() },
		"no turn":     func() { c.SetTurn(prims.CohortTurnWord(2, 0, 3)); c.Lock(); c.Unlock() },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
	for _, poller := range []bool{false, true} {
		if poller {
			fillThreads(t, a)
		}
		waited := 0
		hammer := func(turns int) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range turns {
						c.Lock()
						waited += min(c.Waiters(), 1)
						runtime.Gosched()
						c.Unlock()
					}
				})
			}
			wg.Wait()
		}
		hammer(300)
		const turns = 3000
		waitsAllocateNothing(t, 8*turns, 0.01, c.String, func() int {
			waited = 0
			hammer(turns)
			return waited
		})
	}
}
