//go:build linux

package prims_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// nearVar is an environment variable with the number of a NUMA node. An actor with this variable behaves as if it ran
// on that NUMA node, and opens its mutexes with NearWakes.
const nearVar = "SHMSYNC_TEST_NODE"

// nearNode reports whether this process is an actor with the variable nearVar.
var nearNode = sync.OnceValue(func() bool {
	text, ok := os.LookupEnv(nearVar)
	if !ok {
		return false
	}
	node, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic(err)
	}
	park.NodeNow = func() (uint32, bool) { return uint32(node), true }
	return true
})

// onNode returns the options of an actor on a NUMA node. If node is negative, the actor opens its
// mutexes without NearWakes.
func onNode(node int) []proctest.Option {
	if node < 0 {
		return nil
	}
	return []proctest.Option{proctest.Env(fmt.Sprintf("%s=%d", nearVar, node))}
}

// TestMutexNearOrder: a process that unlocks first wakes waiters of its own NUMA node, and then
// waiters of other NUMA nodes. It wakes every waiter in the end, whichever processes take part.
func TestMutexNearOrder(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint: without it a waiter that comes back for a periodic check loses its place")
	}
	const any = -1 // an actor without NearWakes; while it waits, a wake for any NUMA node can reach it
	for _, c := range []struct {
		name    string
		holder  int
		waiters []int
		want    []int // the waiters in the order in which they get the lock
	}{
		{"of the holder's node first", 1, []int{0, 1, 0, 1}, []int{1, 3, 0, 2}},
		{"the node goes with the lock", 2, []int{0, 1, 2, 1, 2, 0}, []int{2, 4, 0, 5, 1, 3}},
		{"32 nodes apart", 33, []int{0, 1}, []int{1, 0}},
		{"nobody of its node", 7, []int{0, 1}, []int{0, 1}},
		{"a holder that does not care", any, []int{0, 1, 0, 1}, []int{0, 2, 1, 3}},
		{"waiters that do not care", 1, []int{any, any, 1}, []int{0, 1, 2}},
		{"nobody cares", any, []int{any, any, any}, []int{0, 1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// On a busy machine a waiter may go to sleep after one that came later. So the test
			// tries again; an order that is wrong because of a fault is wrong each time.
			begun := time.Now()
			got := nearOrder(t, c.holder, c.waiters)
			for !slices.Equal(c.want, got) && time.Since(begun) < timeout() {
				got = nearOrder(t, c.holder, c.waiters)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// nearOrder makes waiters queue for the lock while an actor on a NUMA node holds it. It returns the
// order in which the waiters get the lock.
func nearOrder(t *testing.T, node int, nodes []int) (got []int) {
	a := newArena(t, nil)
	noChecks := proctest.Env("SHMSYNC_CHECK_EVERY=1h")
	holder := remoteActor(t, a, "holder", append(onNode(node), noChecks)...)
	holder.must(t, order{Op: "lock", Object: "m"})
	var waiters []*actor
	for i, node := range nodes {
		waiters = append(waiters, remoteActor(t, a, strconv.Itoa(i), append(onNode(node), noChecks)...))
	}
	var ids []int
	for _, x := range waiters {
		ids = append(ids, x.blocked(t, order{Op: "lock", Object: "m"}))
		for range 3 { // while it answers three more orders, its waiting call goes to sleep
			x.op(t, "state", "m")
		}
	}
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	owner, label := holder, "holder"
	for range waiters {
		owner.must(t, order{Op: "unlock", Object: "m"})
		label = nextOwner(t, a, m, label)
		i, err := strconv.Atoi(label)
		require.NoError(t, err)
		owner = waiters[i]
		require.Empty(t, owner.wait(t, ids[i]).Panic)
		got = append(got, i)
	}
	owner.must(t, order{Op: "unlock", Object: "m"})
	require.False(t, m.State().Held)
	sound(t, a)
	return got
}

// TestMutexNear repeats tests of a Mutex with NearWakes, and with processes on several NUMA nodes.
func TestMutexNear(t *testing.T) {
	env := []string{nearVar + "=3"}
	t.Run("hammer", func(t *testing.T) {
		for _, goroutines := range []uint64{1, 4, 20} {
			nearHammer(t, goroutines, 300)
		}
	})
	t.Run("holder dies", func(t *testing.T) { holderDies(t, env) })
	t.Run("holder stopped", func(t *testing.T) { holderStopped(t, 300*time.Millisecond, env) })
	t.Run("hand-off", func(t *testing.T) { handOff(t, 6, proctest.Env(env...)) })
}

// nearHammer makes four processes increment a counter under a lock. One process is on NUMA node 0, two processes are
// on NUMA node 1, and one process has no NearWakes.
func nearHammer(t *testing.T, goroutines uint64, each int, opts ...proctest.Option) {
	a := newArena(t, nil)
	var actors []*actor
	var ids []int
	for i, node := range []int{0, 1, 1, -1} {
		actors = append(actors, remoteActor(t, a, fmt.Sprint("hammer ", i), append(onNode(node), opts...)...))
	}
	for _, x := range actors {
		ids = append(ids, x.start(order{Op: "steps", Object: "m", N: each, Token: goroutines}))
	}
	for i, x := range actors {
		r := x.wait(t, ids[i])
		require.Empty(t, r.Err+r.Panic)
	}
	v, err := arena.Value[int64](a, "counter")
	require.NoError(t, err)
	require.EqualValues(t, len(actors)*int(goroutines)*each, *v)
	sound(t, a)
}

// TestMutexNearWaiterDies checks that no other waiter loses a wake when a waiter that was woken because of its NUMA
// node dies before it takes the lock.
func TestMutexNearWaiterDies(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	a := newArena(t, nil)
	holder := remoteActor(t, a, "holder", onNode(1)...)
	holder.must(t, order{Op: "lock", Object: "m"})
	far := remoteActor(t, a, "far", onNode(0)...)
	waits := far.blocked(t, order{Op: "lock", Object: "m"})
	near := remoteActor(t, a, "near", append(onNode(1), proctest.Env("SHMSYNC_CRASHPOINT=mutex.lock.woken"))...)
	near.blocked(t, order{Op: "lock", Object: "m"})
	near.op(t, "state", "m")
	holder.must(t, order{Op: "unlock", Object: "m"})
	near.proc.WaitSignal(t, syscall.SIGKILL)
	require.Empty(t, far.wait(t, waits).Panic)
	far.must(t, order{Op: "unlock", Object: "m"})
	sound(t, a)
}

// TestMutexNearWithoutChecks checks that no wake is lost, without the periodic checks that would make up for a lost
// wake.
func TestMutexNearWithoutChecks(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	for _, goroutines := range []uint64{1, 4, 14} {
		t.Run(fmt.Sprint(goroutines), func(t *testing.T) {
			nearHammer(t, goroutines, int(2000/goroutines), proctest.Env("SHMSYNC_CHECK_EVERY=1h"))
		})
	}
}

// TestMutexMaxSpinners checks that at most MaxSpinners goroutines spin at a time. A goroutine that may not spin still
// gets the lock.
func TestMutexMaxSpinners(t *testing.T) {
	for _, most := range []int{1, 2} {
		a := newArena(t, nil)
		m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Spin: time.Millisecond, Contention: prims.Contention{MaxSpinners: most}})
		require.NoError(t, err)
		other := remoteActor(t, a, "other")
		const goroutines = 6
		worst, rounds := 0, 0
		eventually(t, "somebody spins", func() string { return words(a) }, func() bool {
			other.must(t, order{Op: "lock", Object: "m"})
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					m.Lock()
					m.Unlock()
				})
			}
			for m.Waiters() < goroutines {
				worst = max(worst, m.Spinners())
			}
			other.must(t, order{Op: "unlock", Object: "m"})
			all.Wait()
			require.Zero(t, m.Spinners())
			rounds++
			return worst > 0 && rounds > 20
		})
		require.LessOrEqual(t, worst, most)
		sound(t, a)
	}
}

func TestMutexMaxSpinnersMistake(t *testing.T) {
	a := newArena(t, nil)
	require.PanicsWithValue(t, `shmsync: mutex "m": MaxSpinners is -1, which is not within 0..2^31-1`,
		func() { prims.OpenMutex(a, "m", &prims.MutexOptions{Contention: prims.Contention{MaxSpinners: -1}}) })
}
