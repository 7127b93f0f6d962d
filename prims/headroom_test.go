//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A fullKind says how a test uses an object of one kind in a full arena.
type fullKind struct {
	name string
	make func(a *arena.Arena, name string) error // creates the object
	hold func(a *arena.Arena, name string) error // holds the object, so that a death affects it; nil if no death does
	use  func(a *arena.Arena, name string) error // uses an object that no process holds, for the first time
	wait func(a *arena.Arena, name string) error // waits for an object that is held, until its holder dies; nil if there is none
}

// lockKind returns the fullKind of a lock. A wait for it ends with the report of the death.
func lockKind[L interface {
	LockContext(context.Context) error
	Unlock()
}](name string, open func(a *arena.Arena, name string) (L, error)) fullKind {
	lock := func(a *arena.Arena, name string) (l L, err error) {
		if l, err = open(a, name); err == nil {
			err = l.LockContext(context.Background())
		}
		return l, err
	}
	return fullKind{
		name: name,
		make: func(a *arena.Arena, name string) error { _, err := open(a, name); return err },
		hold: func(a *arena.Arena, name string) error { _, err := lock(a, name); return err },
		use: func(a *arena.Arena, name string) error {
			l, err := lock(a, name)
			if err == nil {
				l.Unlock()
			}
			return err
		},
		wait: func(a *arena.Arena, name string) error {
			if _, err := lock(a, name); !errors.Is(err, shmsync.ErrOwnerDead) {
				return fmt.Errorf("not told of the death: %w", err)
			}
			return nil
		},
	}
}

// keyLock is one key of a MultiLock, as a lock.
type keyLock struct {
	x    *prims.MultiLock
	hold prims.Hold
}

func (k *keyLock) LockContext(ctx context.Context) (err error) {
	k.hold, err = k.x.LockContext(ctx, 7)
	return err
}
func (k *keyLock) Unlock() { k.hold.Unlock() }

// fullRules are the rules of a Waitable whose state is a number of free permits.
var fullRules = prims.Rules[int64, int64]{
	Claim:   func(n *int64, e int64) bool { *n -= e; return *n >= 0 },
	Release: func(n *int64, e int64) { *n += e },
}

var fullKinds = []fullKind{
	lockKind("mutex", func(a *arena.Arena, name string) (*prims.Mutex, error) { return prims.OpenMutex(a, name, nil) }),
	lockKind("cohort", func(a *arena.Arena, name string) (*prims.CohortMutex, error) {
		return prims.OpenCohortMutex(a, name, nil)
	}),
	lockKind("rwmutex", func(a *arena.Arena, name string) (*prims.RWMutex, error) { return prims.OpenRWMutex(a, name, nil) }),
	lockKind("fair", func(a *arena.Arena, name string) (*prims.FairMutex, error) { return prims.OpenFairMutex(a, name, nil) }),
	lockKind("spin", func(a *arena.Arena, name string) (*prims.SpinLock, error) { return prims.OpenSpinLock(a, name, nil) }),
	lockKind("rwspin", func(a *arena.Arena, name string) (*prims.RWSpinLock, error) {
		return prims.OpenRWSpinLock(a, name, nil)
	}),
	lockKind("multi", func(a *arena.Arena, name string) (*keyLock, error) {
		x, err := prims.OpenMultiLock(a, name, nil)
		return &keyLock{x: x}, err
	}),
	{
		name: "semaphore",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenSemaphore(a, name, 2, nil); return err },
		hold: acquireTwo,
		use:  acquireTwo,
		wait: acquireTwo,
	},
	{
		name: "waitable",
		make: func(a *arena.Arena, name string) error {
			_, err := prims.OpenWaitable(a, name, 2, fullRules, nil)
			return err
		},
		hold: claimTwo,
		use:  claimTwo,
		wait: claimTwo,
	},
	{
		name: "group",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenWaitGroup(a, name, nil); return err },
		hold: func(a *arena.Arena, name string) error {
			g, err := prims.AttachWaitGroup(a, name, nil)
			if err == nil {
				g.Add(1)
			}
			return err
		},
		use: func(a *arena.Arena, name string) error {
			g, err := prims.AttachWaitGroup(a, name, nil)
			if err == nil {
				g.Add(2)
				g.Add(-2)
				err = g.WaitContext(context.Background())
			}
			return err
		},
	},
	{
		name: "latch",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenLatch(a, name, 2, nil); return err },
		hold: func(a *arena.Arena, name string) error {
			l, err := prims.AttachLatch(a, name, nil)
			if err == nil {
				l.Claim(2)
			}
			return err
		},
		use: func(a *arena.Arena, name string) error {
			l, err := prims.AttachLatch(a, name, nil)
			if err == nil {
				if l.State().Count > 0 { // after a recovery the counter is 0 already
					l.Claim(1)
					l.CountDown(2)
				}
				err = l.WaitContext(context.Background())
			}
			return err
		},
	},
	{
		name: "barrier",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenBarrier(a, name, 1, nil); return err },
		hold: func(a *arena.Arena, name string) error {
			x, err := prims.AttachBarrier(a, name, nil)
			if err == nil {
				x.Register(1)
			}
			return err
		},
		use: func(a *arena.Arena, name string) error {
			x, err := prims.AttachBarrier(a, name, nil)
			if err == nil {
				err = x.ArriveAndWaitContext(context.Background())
			}
			return err
		},
	},
	{
		name: "event",
		make: func(a *arena.Arena, name string) error {
			_, err := prims.OpenEvent(a, name, &prims.EventOptions{Mode: prims.EventAutoReset})
			return err
		},
		use: func(a *arena.Arena, name string) error {
			e, err := prims.AttachEvent(a, name, nil)
			if err == nil {
				e.Set()
				err = e.WaitContext(context.Background())
			}
			return err
		},
	},
	{
		name: "cond",
		make: func(a *arena.Arena, name string) error { _, err := condIn(a, name); return err },
		use: func(a *arena.Arena, name string) error {
			k, err := condIn(a, name)
			if err != nil {
				return err
			}
			k.L.Lock()
			defer k.L.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
			defer cancel()
			if err := k.WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a wait that nobody ends: %w", err)
			}
			k.Signal()
			return nil
		},
	},
	{
		name: "future",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenFuture(a, name, nil); return err },
		hold: func(a *arena.Arena, name string) error {
			f, err := prims.AttachFuture(a, name, nil)
			if err == nil && !f.Claim() {
				err = errors.New("it is claimed")
			}
			return err
		},
		use: func(a *arena.Arena, name string) error {
			f, err := prims.AttachFuture(a, name, nil)
			if err == nil && !f.Set(1) {
				err = errors.New("it is set")
			}
			return err
		},
	},
	{
		name: "sequencer",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenSequencer(a, name, nil); return err },
		use: func(a *arena.Arena, name string) error {
			s, err := prims.AttachSequencer(a, name, nil)
			if err == nil {
				err = s.Wait(s.Increment())
			}
			return err
		},
	},
	{
		name: "once",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenOnce(a, name, nil); return err },
		use: func(a *arena.Arena, name string) error {
			o, err := prims.AttachOnce(a, name, nil)
			if err == nil {
				err = o.DoContext(context.Background(), func() {})
			}
			return err
		},
	},
	{
		name: "queue",
		make: func(a *arena.Arena, name string) error { _, err := prims.OpenQueue[int64](a, name, 4, nil); return err },
		use: func(a *arena.Arena, name string) error {
			q, err := prims.AttachQueue[int64](a, name, nil)
			if err == nil {
				if err = q.Put(7); err == nil {
					_, err = q.Get()
				}
			}
			return err
		},
	},
}

func acquireTwo(a *arena.Arena, name string) error {
	s, err := prims.AttachSemaphore(a, name, nil)
	if err == nil {
		err = s.AcquireContext(context.Background(), 2)
	}
	return err
}

func claimTwo(a *arena.Arena, name string) error {
	x, err := prims.OpenWaitable(a, name, 0, fullRules, nil)
	if err == nil {
		err = x.Wait(2)
	}
	return err
}

func condIn(a *arena.Arena, name string) (*prims.Cond, error) {
	m, err := prims.OpenMutex(a, name+"-lock", nil)
	if err != nil {
		return nil, err
	}
	return prims.OpenCond(a, name, m, nil)
}

// fullLost are the kinds of objects that the death of a holder makes unusable.
var fullLost = []string{"barrier", "cohort", "fair", "future", "group", "latch", "multi", "mutex", "rwmutex", "rwspin", "spin"}

// free returns the name of the second object of this kind, which no process holds.
func (k *fullKind) free() string { return k.name + "-free" }

func fullArena(c *proctest.Child) *arena.Arena {
	var name string
	c.Params(&name)
	a, err := arena.Attach(name, nil)
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func init() {
	// full/owner creates two objects of each kind, and holds the first of the two.
	proctest.Register("full/owner", func(c *proctest.Child) {
		a := fullArena(c)
		for _, k := range fullKinds {
			err := k.make(a, k.name)
			if err == nil && k.hold != nil {
				err = k.hold(a, k.name)
			}
			if err == nil {
				err = k.make(a, k.free())
			}
			if err != nil {
				c.Fatal(k.name, ": ", err)
			}
		}
		c.Ready()
		select {}
	})
	// full/user uses, for the first time, the object of each kind that no process holds. Then it waits for the objects
	// that full/owner holds, and says so when all waits have ended.
	proctest.Register("full/user", func(c *proctest.Child) {
		a := fullArena(c)
		for _, k := range fullKinds {
			if err := k.use(a, k.free()); err != nil {
				c.Fatal(k.name, ": ", err)
			}
		}
		ended := make(chan error)
		waits := 0
		for _, k := range fullKinds {
			if k.wait == nil {
				continue
			}
			waits++
			go func() {
				err := k.wait(a, k.name)
				if err != nil {
					err = fmt.Errorf("%s: %w", k.name, err)
				}
				ended <- err
			}()
		}
		c.Ready()
		for range waits {
			if err := <-ended; err != nil {
				c.Fatal(err)
			}
		}
		c.Say(waits)
		c.Await()
	})
}

// TestFullArenaLosesNothing: users have filled an arena with their data. Process full/user uses objects of all kinds
// for the first time, and waits for objects that process full/owner holds. Then full/owner dies. A third process, which
// has used no object before, recovers what the death has made unusable.
func TestFullArenaLosesNothing(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprintf("RecoverAll %v", all), func(t *testing.T) {
			a := newArena(t, &arena.Options{Size: 4 << 20, MaxParticipants: 8})
			owner := proctest.Start(t, "full/owner", proctest.Params(nameOf(a)))
			owner.Await(t)
			fillData(t, a)
			full := a.Stats()
			require.NotZero(t, full.Headroom)
			require.Equal(t, full.Headroom, full.FreeHeadroom, "the data has left the headroom alone")
			_, err := prims.OpenMutex(a, "another", nil)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)

			user := proctest.Start(t, "full/user", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
			user.Await(t)
			for _, name := range []string{"fair", "multi", "semaphore", "waitable"} {
				o, err := objectNamed(a, name)
				require.NoError(t, err)
				eventually(t, name+" is waited for", func() string { return words(a) }, func() bool { return prims.Queued(a, o.Offset) > 0 })
			}
			owner.Kill(t)
			waits := 0
			user.Recv(t, &waits)
			require.Equal(t, 9, waits)

			repair := func(prims.Lost) error { return nil }
			var names []string
			if !all {
				for _, name := range fullLost {
					o, err := objectNamed(a, name)
					require.NoError(t, err)
					switch name {
					case "barrier", "future", "group", "latch":
						continue
					}
					require.NoError(t, prims.RecoverAt(a, arena.Object(o), 7, func() error {
						names = append(names, name)
						return nil
					}), name)
				}
			}
			lost, err := prims.RecoverAll(a, repair)
			require.NoError(t, err)
			names = append(names, namesOf(lost)...)
			slices.Sort(names)
			require.Equal(t, fullLost, names)
			for _, k := range fullKinds {
				if slices.Contains(fullLost, k.name) {
					require.NoError(t, k.use(a, k.name), k.name)
				}
			}
			after := a.Stats()
			require.Less(t, after.FreeHeadroom, full.FreeHeadroom)
			require.Greater(t, after.SlotRecords, full.SlotRecords)
			_, err = a.Alloc(64, 0)
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			user.Kill(t)
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// largeWaitable opens a Waitable whose slot records have more than 256 bytes.
func largeWaitable(a *arena.Arena) error {
	_, err := prims.OpenWaitable(a, "large", [4]int64{}, prims.Rules[[4]int64, int64]{
		Claim:   func(*[4]int64, int64) bool { return true },
		Release: func(*[4]int64, int64) {},
	}, nil)
	return err
}

func init() {
	// full/large-owner creates a Waitable with large slot records, and holds a FairMutex.
	proctest.Register("full/large-owner", func(c *proctest.Child) {
		a := fullArena(c)
		if err := largeWaitable(a); err != nil {
			c.Fatal(err)
		}
		f, err := prims.OpenFairMutex(a, "fair", nil)
		if err == nil {
			err = f.LockContext(context.Background())
		}
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		select {}
	})
	// full/large-user opens the Waitable, and says whether it could.
	proctest.Register("full/large-user", func(c *proctest.Child) {
		err := largeWaitable(fullArena(c))
		if err != nil && !errors.Is(err, shmsync.ErrNoSpace) {
			c.Fatal(err)
		}
		c.Say(err == nil)
		c.Await()
	})
}

// TestLargeSlotRecordsPreventNoRecovery: in a full arena, a process opens a Waitable with large slot records. If the
// headroom has only one chunk for slot records, the headroom does not accept such large records, so small records
// still fit in. A reaper needs a small record to recover the lock of a process that dies.
func TestLargeSlotRecordsPreventNoRecovery(t *testing.T) {
	for _, c := range []struct {
		size  int64
		large bool
	}{{1 << 20, false}, {4 << 20, true}} {
		t.Run(fmt.Sprint(c.size>>20, " MiB"), func(t *testing.T) {
			a := newArena(t, &arena.Options{Size: c.size, MaxParticipants: 8})
			owner := proctest.Start(t, "full/large-owner", proctest.Params(nameOf(a)))
			owner.Await(t)
			fillData(t, a)
			user := proctest.Start(t, "full/large-user", proctest.Params(nameOf(a)))
			opened := false
			user.Recv(t, &opened)
			owner.Kill(t)
			alone(t, a, 2)
			lost, err := prims.RecoverAll(a, func(prims.Lost) error { return nil })
			require.NoError(t, err)
			require.Equal(t, []string{"fair"}, namesOf(lost))
			require.Equal(t, c.large, opened)
			user.Kill(t)
			alone(t, a, 1)
			sound(t, a)
		})
	}
}

// lockFull opens the two locks of TestFullHeadroomHidesNoLostLock and calls lock with them.
func lockFull(a *arena.Arena, lock func(f *prims.FairMutex, m *prims.MultiLock)) error {
	f, err := prims.OpenFairMutex(a, "fair", nil)
	if err != nil {
		return err
	}
	m, err := prims.OpenMultiLock(a, "multi", nil)
	if err == nil {
		lock(f, m)
	}
	return err
}

func init() {
	// full/locker holds a FairMutex and a key of a MultiLock. full/waiter waits for both.
	for name, lock := range map[string]func(f *prims.FairMutex, m *prims.MultiLock){
		"full/locker": func(f *prims.FairMutex, m *prims.MultiLock) {
			f.Lock()
			m.Lock(7)
		},
		"full/waiter": func(f *prims.FairMutex, m *prims.MultiLock) {
			go f.Lock()
			go m.Lock(7)
		},
	} {
		proctest.Register(name, func(c *proctest.Child) {
			if err := lockFull(fullArena(c), lock); err != nil {
				c.Fatal(err)
			}
			c.Ready()
			select {}
		})
	}
}

// TestFullHeadroomHidesNoLostLock: an arena has no room for a slot record, not even in the headroom. The holder of a
// FairMutex and of a key, and the process that waits for both, die at the same time. The reaper would need a slot
// record of each lock to mark it owner-dead. RecoverAll says that there is no room. When there is room, it recovers
// both locks.
func TestFullHeadroomHidesNoLostLock(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 8})
	k := (*arenakernel.Arena)(a)
	locker := proctest.Start(t, "full/locker", proctest.Params(nameOf(a)))
	locker.Await(t)
	waiter := proctest.Start(t, "full/waiter", proctest.Params(nameOf(a)))
	waiter.Await(t)
	for _, name := range []string{"fair", "multi"} {
		o, err := objectNamed(a, name)
		require.NoError(t, err)
		eventually(t, name+" is waited for", func() string { return words(a) }, func() bool { return prims.Queued(a, o.Offset) > 0 })
	}
	var room []arena.Offset
	for range 2 { // for the slot records that a recovery needs
		off, err := k.ClaimHeadroom(192)
		require.NoError(t, err)
		room = append(room, off)
	}
	fill(t, a)
	waiter.Stop(t) // a stopped process reaps nobody
	locker.Kill(t)
	waiter.Kill(t)
	alone(t, a, 1)
	repair := func(l prims.Lost) error {
		require.ErrorIs(t, l.Err, shmsync.ErrOwnerDead)
		require.NotNil(t, l.Who)
		return nil
	}
	lost, err := prims.RecoverAll(a, repair)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Empty(t, lost)
	for _, off := range room {
		k.UnclaimBlock(off)
	}
	lost, err = prims.RecoverAll(a, repair)
	require.NoError(t, err)
	require.Equal(t, []string{"fair", "multi"}, namesOf(lost))
	lost, err = prims.RecoverAll(a, repair)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NoError(t, lockFull(a, func(f *prims.FairMutex, m *prims.MultiLock) {
		f.Lock()
		f.Unlock()
		m.Lock(7).Unlock()
	}))
	sound(t, a)
}
