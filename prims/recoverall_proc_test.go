//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// recoverall/holder holds an object of each kind that a death can make unusable, and waits to be killed.
	proctest.Register("recoverall/holder", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		must := func(err error) {
			if err != nil {
				c.Fatal(err)
			}
		}
		a, err := arena.Open(name, &arena.Options{Size: 8 << 20, MaxParticipants: 8, Label: "holder"})
		must(err)
		mutex, err := prims.OpenMutex(a, "mutex", nil)
		must(err)
		mutex.Lock()
		hopeless, err := prims.OpenMutex(a, "hopeless", nil)
		must(err)
		hopeless.Lock()
		rw, err := prims.OpenRWMutex(a, "rwmutex", nil)
		must(err)
		rw.Lock()
		cohort, err := prims.OpenCohortMutex(a, "cohort", nil)
		must(err)
		cohort.Lock()
		fair, err := prims.OpenFairMutex(a, "fair", nil)
		must(err)
		fair.Lock()
		spin, err := prims.OpenSpinLock(a, "spin", nil)
		must(err)
		spin.Lock()
		rwspin, err := prims.OpenRWSpinLock(a, "rwspin", nil)
		must(err)
		rwspin.Lock()
		multi, err := prims.OpenMultiLock(a, "multi", nil)
		must(err)
		multi.Lock(7)
		multi.Lock(9)
		group, err := prims.OpenWaitGroup(a, "group", nil)
		must(err)
		group.Add(2)
		latch, err := prims.OpenLatch(a, "latch", 2, nil)
		must(err)
		latch.Claim(1)
		barrier, err := prims.OpenBarrier(a, "barrier", 2, nil)
		must(err)
		barrier.Register(1)
		future, err := prims.OpenFuture(a, "future", nil)
		must(err)
		future.Claim()
		free, err := prims.OpenMutex(a, "free", &prims.MutexOptions{Policy: prims.PolicyRelease})
		must(err)
		free.Lock()
		healthy, err := prims.OpenMutex(a, "healthy", nil)
		must(err)
		healthy.Lock()
		healthy.Unlock()
		c.Ready()
		select {}
	})
}

// lostByHolder names the objects that the death of a holder makes unusable.
var lostByHolder = []string{
	"barrier", "cohort", "fair", "future", "group", "hopeless", "latch", "multi", "multi", "mutex", "rwmutex", "rwspin", "spin",
}

func namesOf(lost []prims.Lost) (names []string) {
	for _, l := range lost {
		names = append(names, l.Object.Name)
	}
	slices.Sort(names)
	return names
}

// TestRecoverAllInOnFirst checks that RecoverAll in OnFirst makes all objects usable that a death has made unusable. It
// reports these objects, and the process that died. An object whose repair failed is usable after the next RecoverAll.
func TestRecoverAllInOnFirst(t *testing.T) {
	name := arenaName(t)
	p := proctest.Start(t, "recoverall/holder", proctest.Params(name))
	p.Await(t)
	p.Signal(t, unix.SIGKILL)
	p.WaitSignal(t, unix.SIGKILL)
	var lost []prims.Lost
	var failed error
	hopeless := errors.New("nobody knows how")
	a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, e arena.Epoch) error {
		m, err := prims.AttachMutex(a, "mutex", nil)
		require.NoError(t, err)
		require.Panics(t, m.Lock, "the lock is owner-dead; otherwise this test would show nothing")
		require.NoError(t, m.Close())
		lost, failed = prims.RecoverAll(a, func(l prims.Lost) error {
			if l.Object.Name == "hopeless" {
				return hopeless
			}
			require.ErrorIs(t, l.Err, shmsync.ErrOwnerDead)
			require.NotNil(t, l.Who, "%v", l)
			require.Equal(t, "holder", l.Who.Label)
			return nil
		})
		return nil
	}})
	require.NoError(t, err)
	defer a.Close()
	require.ErrorIs(t, failed, shmsync.ErrNotRecoverable)
	require.ErrorContains(t, failed, hopeless.Error())
	require.Equal(t, slices.DeleteFunc(slices.Clone(lostByHolder), func(s string) bool { return s == "hopeless" }), namesOf(lost))
	var keys []uint64
	for _, l := range lost {
		if l.Key != nil {
			keys = append(keys, *l.Key)
		}
	}
	slices.Sort(keys)
	require.Equal(t, []uint64{7, 9}, keys)
	again, err := prims.RecoverAll(a, func(l prims.Lost) error {
		require.ErrorIs(t, l.Err, shmsync.ErrNotRecoverable)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"hopeless"}, namesOf(again))
	again, err = prims.RecoverAll(a, func(l prims.Lost) error { return fmt.Errorf("%v is not lost", l) })
	require.NoError(t, err)
	require.Empty(t, again)

	for _, lock := range []string{"mutex", "hopeless", "free", "healthy"} {
		m, err := prims.AttachMutex(a, lock, nil)
		require.NoError(t, err)
		m.Lock()
		m.Unlock()
	}
	multi, err := prims.AttachMultiLock(a, "multi", nil)
	require.NoError(t, err)
	multi.Lock(9).Unlock()
	group, err := prims.AttachWaitGroup(a, "group", nil)
	require.NoError(t, err)
	group.Wait()
	future, err := prims.AttachFuture(a, "future", nil)
	require.NoError(t, err)
	require.True(t, future.Claim())
	require.NoError(t, a.Check())
}

// TestRecoverOfAnEndedContext checks that a Recover whose context has ended does not wait for a lock that is held, but
// still repairs an object that is lost. A nil context never ends.
func TestRecoverOfAnEndedContext(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for title, ctx := range map[string]context.Context{"ended": over, "none": nil} {
		t.Run(title, func(t *testing.T) {
			name := arenaName(t)
			p := proctest.Start(t, "recoverall/holder", proctest.Params(name))
			p.Await(t)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			defer a.Close()
			repairs := map[string]int{}
			recovers := func(ctx context.Context, o arena.Object) error {
				return prims.RecoverAtContext(ctx, a, o, 7, func() error { repairs[o.Name]++; return nil })
			}
			var objects []arena.Object
			for o := range a.Objects() {
				if slices.Contains(lostByHolder, o.Name) {
					objects = append(objects, o)
				}
			}
			for _, o := range objects {
				if err := recovers(over, o); !slices.Contains([]string{"barrier", "future", "group", "latch"}, o.Name) {
					require.Equal(t, context.Canceled, err, "%s is held", o.Name)
				}
			}
			require.Empty(t, repairs)
			p.Signal(t, unix.SIGKILL)
			p.WaitSignal(t, unix.SIGKILL)
			for _, o := range objects {
				eventually(t, o.Name+" is recovered", func() string { return words(a) }, func() bool {
					if err := recovers(ctx, o); err != context.Canceled {
						require.NoError(t, err, o.Name)
					}
					return repairs[o.Name] > 0
				})
				require.Equal(t, 1, repairs[o.Name], o.Name)
			}
			_, err = prims.RecoverAllContext(ctx, a, func(prims.Lost) error { return nil }) // key 9 is still lost
			require.Equal(t, ctx == nil, err == nil, err)
		})
	}
}

// TestRecoverAllKeepsWhatRepairHasSet: if repair sets a Future whose producer has died, RecoverAll keeps that
// result.
func TestRecoverAllKeepsWhatRepairHasSet(t *testing.T) {
	name := arenaName(t)
	p := proctest.Start(t, "recoverall/holder", proctest.Params(name))
	p.Await(t)
	p.Kill(t)
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	defer a.Close()
	lost, err := prims.RecoverAll(a, func(l prims.Lost) error {
		if l.Object.Name == "future" {
			f, err := prims.AttachFuture(a, "future", nil)
			require.NoError(t, err)
			require.True(t, f.Reset())
			require.True(t, f.Set(7))
			require.NoError(t, f.Close())
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, lostByHolder, namesOf(lost))
	f, err := prims.AttachFuture(a, "future", nil)
	require.NoError(t, err)
	require.True(t, f.State().Set, "the result that repair has set")
	errno, err := f.WaitContext(canceled(t))
	require.NoError(t, err)
	require.EqualValues(t, 7, errno)
}

// TestRecoverAllReportsDamage: RecoverAll reports an object whose header a peer has overwritten, and a Mutex
// without its undo log. It recovers the other objects.
func TestRecoverAllReportsDamage(t *testing.T) {
	for what, spoil := range map[string]func(a *arenakernel.Arena, o arenakernel.Object){
		"the size of an object": func(a *arenakernel.Arena, o arenakernel.Object) {
			arenakernel.At[atomic.Uint64](a, o.Offset+16).Store(1 << 40)
		},
		"the policy of a mutex": func(a *arenakernel.Arena, o arenakernel.Object) {
			arenakernel.At[atomic.Uint32](a, o.Body+76).Store(2)
		},
		"the owner word of a mutex": func(a *arenakernel.Arena, o arenakernel.Object) {
			arenakernel.At[atomic.Uint32](a, o.Body).Store(7 << 29)
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := arenaName(t)
			p := proctest.Start(t, "recoverall/holder", proctest.Params(name))
			p.Await(t)
			p.Kill(t)
			a, err := arena.Open(name, nil)
			require.NoError(t, err)
			defer a.Close()
			o, err := objectNamed(a, "healthy")
			require.NoError(t, err)
			spoil((*arenakernel.Arena)(a), o)
			lost, err := prims.RecoverAll(a, func(prims.Lost) error { return nil })
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			require.Equal(t, lostByHolder, namesOf(lost))
		})
	}
}

// TestRecoverAllOfAWaitable: only the function repair can recover a Waitable, because only the program knows the types
// of the Waitable. If repair does not recover it, the Waitable stays lost.
func TestRecoverAllOfAWaitable(t *testing.T) {
	a := newArena(t, nil)
	panics := true
	rules := prims.Rules[int, int]{Claim: func(*int, int) bool {
		if panics {
			panic("told to")
		}
		return true
	}}
	x, err := prims.OpenWaitable(a, "stock", 3, rules, nil)
	require.NoError(t, err)
	require.Panics(t, func() { x.Wait(1) })
	panics = false
	require.ErrorIs(t, x.Err(), shmsync.ErrNotRecoverable)
	lost, err := prims.RecoverAll(a, func(prims.Lost) error { return nil })
	require.ErrorIs(t, err, shmsync.ErrNotRecoverable)
	require.Empty(t, lost)
	why := errors.New("no reason")
	_, err = prims.RecoverAll(a, func(prims.Lost) error { return why })
	require.ErrorContains(t, err, "no reason")
	lost, err = prims.RecoverAll(a, func(l prims.Lost) error {
		y, err := prims.AttachWaitable(a, l.Object.Name, rules, nil)
		require.NoError(t, err)
		defer y.Close()
		return y.Recover(func(*int) error { return nil })
	})
	require.NoError(t, err)
	require.Equal(t, []string{"stock"}, namesOf(lost))
	require.NoError(t, x.Wait(1))
}

func init() {
	// recoverall/keys holds as many keys of a MultiLock as the parameter Keys says, and waits to be killed.
	proctest.Register("recoverall/keys", func(c *proctest.Child) {
		var p struct {
			Name string
			Keys uint64
		}
		c.Params(&p)
		a, err := arena.Open(p.Name, &arena.Options{Size: 8 << 20, MaxParticipants: 8, Label: "holder"})
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenMultiLock(a, "multi", nil)
		if err != nil {
			c.Fatal(err)
		}
		for key := range p.Keys {
			m.Lock(key)
		}
		c.Ready()
		c.Await()
	})
}

// TestRecoverAllUsesOneHandleForAllKeys: the work for a key does not grow with the number of keys.
func TestRecoverAllUsesOneHandleForAllKeys(t *testing.T) {
	var costs []uint64
	for _, n := range []uint64{250, 2000} {
		name := arenaName(t)
		p := proctest.Start(t, "recoverall/keys", proctest.Params(struct {
			Name string
			Keys uint64
		}{name, n}))
		p.Await(t)
		p.Signal(t, unix.SIGKILL)
		p.WaitSignal(t, unix.SIGKILL)
		a, err := arena.Open(name, nil)
		require.NoError(t, err)
		defer a.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		lost, err := prims.RecoverAll(a, func(prims.Lost) error { return nil })
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Len(t, lost, int(n))
		costs = append(costs, after.TotalAlloc-before.TotalAlloc)
	}
	require.Less(t, costs[1]-costs[0], uint64(1750*10_000), "less for each key than a handle of the MultiLock takes")
}

// TestRecoverAllWhileObjectsGo: repair may delete objects, and RecoverAll ends when its context ends.
func TestRecoverAllWhileObjectsGo(t *testing.T) {
	name := arenaName(t)
	p := proctest.Start(t, "recoverall/holder", proctest.Params(name))
	p.Await(t)
	p.Signal(t, unix.SIGKILL)
	p.WaitSignal(t, unix.SIGKILL)
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	lost, err := prims.RecoverAllContext(ctx, a, func(l prims.Lost) error {
		if calls++; calls == 1 {
			for _, other := range lostByHolder {
				if other != l.Object.Name && other != "multi" {
					require.NoError(t, a.Delete(other))
				}
			}
		}
		if l.Object.Name == "multi" {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, len(lost), 2)
	require.Contains(t, namesOf(lost), "multi")
	lost, err = prims.RecoverAll(a, func(prims.Lost) error { return nil })
	require.NoError(t, err)
	require.Equal(t, []string{"multi"}, namesOf(lost))
	require.NoError(t, a.Check())
}
