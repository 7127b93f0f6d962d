//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

// This is the kill matrix of the RWMutex. A victim and two survivors read and write under the same locks. The
// victim is killed at each crash point in turn. Each goroutine of the survivors has to go on, and the victim
// must leave no hold and no wait behind.

// rwGuarded is the data that one of the locks guards. A tag is a number that a process chooses anew for each write
// hold and for each upgradable hold.
type rwGuarded struct {
	Tag      atomic.Uint64 // the tag of the last write hold
	One, Two atomic.Int64  // equal, except while a writer changes them, or under PolicyRelease after a writer died
	Victims  atomic.Int64  // how many holds the victims have had
	Upgrader atomic.Uint64 // the tag of the last upgradable hold
}

type rwSite struct {
	a       *arena.Arena
	locks   [2]*prims.RWMutex // PolicyReport, PolicyRelease
	guarded *[2]rwGuarded
	stopped atomic.Bool
	fail    func(error)
	wg      sync.WaitGroup
	turns   []*atomic.Int64
	tag     atomic.Uint64
	hurry   bool // no pauses between two holds
}

func openRWSite(a *arena.Arena, fail func(error)) (*rwSite, error) {
	s := &rwSite{a: a, fail: fail}
	s.tag.Store(rand.Uint64())
	for k, p := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		m, err := prims.OpenRWMutex(a, "rw-"+p.String(), &prims.RWMutexOptions{Policy: p})
		if err != nil {
			return nil, err
		}
		s.locks[k] = m
	}
	g, err := arena.Value[[2]rwGuarded](a, "guarded")
	s.guarded = g
	return s, err
}

// reads does the work of a reader that holds lock k. It checks that no process writes meanwhile.
func (s *rwSite) reads(k int) {
	g := &s.guarded[k]
	tag := g.Tag.Load()
	for range 20 + rand.IntN(50) {
		if g.Tag.Load() != tag {
			s.fail(fmt.Errorf("lock %d: somebody writes beside a reader: %v", k, s.locks[k]))
		}
	}
	if one, two := g.One.Load(), g.Two.Load(); one != two && k == 0 {
		s.fail(fmt.Errorf("lock %d: a reader sees half a write, %d and %d: %v", k, one, two, s.locks[k]))
	}
}

// writes does the work of a writer that holds lock k. It checks that no other process has a hold.
func (s *rwSite) writes(k int) {
	g := &s.guarded[k]
	tag := s.tag.Add(1)
	g.Tag.Store(tag)
	n := g.One.Add(1)
	for range 20 + rand.IntN(50) {
		if g.Tag.Load() != tag {
			s.fail(fmt.Errorf("lock %d: two writers hold it at once: %v", k, s.locks[k]))
		}
	}
	g.Two.Store(n)
}

// upgrades changes an upgradable hold into other holds. It returns false if it gave up because ctx ended.
func (s *rwSite) upgrades(ctx context.Context, k int) bool {
	m, g := s.locks[k], &s.guarded[k]
	tag := s.tag.Add(1)
	g.Upgrader.Store(tag)
	alone := func() {
		if g.Upgrader.Load() != tag {
			s.fail(fmt.Errorf("lock %d: two processes have the upgradable hold: %v", k, m))
		}
	}
	s.reads(k)
	alone()
	way := rand.IntN(4)
	if way == 0 {
		m.UnlockUpgradable()
		return true
	}
	if way == 1 {
		m.DowngradeToRead()
		s.reads(k)
		m.RUnlock()
		return true
	}
	if !m.TryUpgrade() {
		if err := m.UpgradeContext(ctx); err != nil {
			if err != context.DeadlineExceeded {
				s.fail(err)
			}
			s.reads(k)
			alone()
			m.UnlockUpgradable()
			return false
		}
	}
	s.writes(k)
	alone()
	if way == 2 {
		m.Unlock()
		return true
	}
	m.DowngradeToUpgradable()
	s.reads(k)
	alone()
	m.UnlockUpgradable()
	return true
}

// turn takes and releases a hold once. If the lock is owner-dead, it recovers the lock first. It returns false
// if it gave up after limit.
func (s *rwSite) turn(k int, write, down bool, limit time.Duration) bool {
	m := s.locks[k]
	ctx, cancel := context.Background(), func() {}
	if limit != 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	verb, upgrade := m.RLockContext, write && rand.IntN(3) == 0
	if write {
		verb = m.LockContext
	}
	if upgrade {
		verb = m.LockUpgradableContext
	}
	switch err := verb(ctx); {
	case err == nil && upgrade:
		return s.upgrades(ctx, k)
	case err == nil && !write:
		s.reads(k)
		m.RUnlock()
	case err == nil:
		s.writes(k)
		if down {
			m.Downgrade()
			s.reads(k)
			m.RUnlock()
		} else {
			m.Unlock()
		}
	case errors.Is(err, shmsync.ErrOwnerDead) && k == 0:
		err := m.Recover(func() error {
			g := &s.guarded[k]
			g.Two.Store(g.One.Load())
			s.writes(k)
			return nil
		})
		if err != nil {
			s.fail(err)
		}
	case limit != 0 && err == context.DeadlineExceeded:
		return false
	default:
		s.fail(err)
	}
	return true
}

func (s *rwSite) work() {
	for k := range s.locks {
		for i := range 6 {
			turns := new(atomic.Int64)
			s.turns = append(s.turns, turns)
			s.wg.Go(func() {
				for !s.stopped.Load() {
					limit := time.Duration(0)
					if i >= 4 {
						limit = 300 * time.Microsecond
					}
					if s.turn(k, i%2 == 1, i == 3, limit) || limit != 0 {
						turns.Add(1)
					}
					if s.hurry {
						continue
					}
					<-after(time.Duration(rand.IntN(int(400 * time.Microsecond))))
				}
			})
		}
	}
}

// goesOn waits until each goroutine of this process has made progress.
func (s *rwSite) goesOn() error {
	var from []int64
	for _, t := range s.turns {
		from = append(from, t.Load())
	}
	return waitUntil(timeout(), func() bool {
		for i, t := range s.turns {
			if t.Load() < from[i]+3 {
				return false
			}
		}
		return true
	})
}

func (s *rwSite) stop() error {
	s.stopped.Store(true)
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-after(timeout()):
		return errors.New("goroutines do not stop")
	}
}

func (s *rwSite) arena() *arena.Arena { return s.a }

func joinRWSite(c *proctest.Child, label string) *rwSite {
	s, _ := joinAt(c, label, openRWSite)
	return s
}

// rwPoints returns the crash points that a victim passes in its own work.
func rwPoints() []string {
	return slices.DeleteFunc(crashpoint.All(), func(p string) bool {
		return !strings.HasPrefix(p, "rwmutex.") || rwOwnerDead(p) || rwRollback(p) || rwLost(p)
	})
}

// rwOwnerDead reports whether crash point p is passed only after a death.
func rwOwnerDead(p string) bool {
	return strings.HasPrefix(p, "rwmutex.owner_dead.") || strings.HasPrefix(p, "rwmutex.recover.") && !rwLost(p)
}

// rwLost reports whether p is the point of a repair that fails. TestDeathBeforeTheWakeOfAll of package cinterop passes
// it.
func rwLost(p string) bool { return p == "rwmutex.recover.lost" }

// rwRollback reports whether crash point p is passed only with PolicyRollback; see
// TestRWMutexUpdateAtEveryPoint.
func rwRollback(p string) bool { return strings.HasPrefix(p, "rwmutex.rollback.") }

func init() {
	registerPartner("rwcrash/partner", func(c *proctest.Child) *rwSite {
		s := joinRWSite(c, "partner")
		s.work()
		return s
	}, nil)

	proctest.Register("rwcrash/victim", func(c *proctest.Child) {
		s := joinRWSite(c, "victim")
		until(rwPoints(), func() {
			var wg sync.WaitGroup
			for i := range 16 { // more goroutines than may sleep in the kernel; see park.DirectMax
				wg.Go(func() {
					for n := range 3 {
						limit := time.Duration(0)
						if i >= 12 {
							limit = 100 * time.Microsecond
						}
						s.turn(i%2, i%4 == 1 || i%8 == 0, n%3 == 0, limit)
					}
				})
			}
			wg.Wait()
			// One goroutine reads for a long time while others wait to write and to read.
			if m := s.locks[1]; m.RLockContext(context.Background()) == nil {
				for i := range 16 {
					wg.Go(func() { s.turn(1, i%2 == 0, i%4 == 0, time.Duration(i/8)*200*time.Microsecond) })
				}
				<-after(time.Millisecond)
				m.RUnlock()
				wg.Wait()
			}
		})
		lastWords(c, s.a)
	})

	// rwcrash/forever works until it is killed.
	proctest.Register("rwcrash/forever", func(c *proctest.Child) {
		s := joinRWSite(c, "victim")
		s.hurry = true
		s.work()
		for {
			if err := s.goesOn(); err != nil {
				c.Fatal(err)
			}
			s.guarded[1].Victims.Add(1)
		}
	})

	// rwcrash/sacrifice creates the arena, and dies while it writes.
	proctest.Register("rwcrash/sacrifice", func(c *proctest.Child) {
		var p crashParams
		c.Params(&p)
		a, err := arena.Create(p.Arena, &arena.Options{Label: "sacrifice"})
		if err != nil {
			c.Fatal(err)
		}
		s, err := openRWSite(a, func(err error) { c.Fatal(err) })
		if err != nil {
			c.Fatal(err)
		}
		for _, m := range s.locks {
			m.Lock()
		}
		c.Ready()
		c.Await()
	})

	// rwcrash/reaper is the only process that is left. It reaps, and recovers the locks.
	proctest.Register("rwcrash/reaper", func(c *proctest.Child) {
		s := joinRWSite(c, "reaper")
		for k := range s.locks {
			for i := range 3 {
				s.wg.Go(func() { s.turn(k, i == 0, i == 0, 0) })
			}
		}
		if err := waitUntil(timeout(), func() bool { return s.locks[0].Waiters() == 3 && s.locks[1].Waiters() == 3 }); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		s.wg.Wait()
		lastWords(c, s.a)
	})
}

func remoteRWVictim(t testing.TB, a *arena.Arena) *proctest.Proc {
	t.Helper()
	return proctest.Start(t, "rwcrash/forever", proctest.Params(crashParams{Arena: nameOf(a)}), proctest.Dump(func() string { return words(a) }))
}

func TestRWMutexKillMatrix(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint",
			"rwcrash/partner", "rwcrash/victim", "rwcrash/sacrifice", "rwcrash/reaper")
	}
	reached := map[string]int{}
	t.Run("beside others", func(t *testing.T) { rwKillBesideOthers(t, reached) })
	t.Run("reaper", func(t *testing.T) { rwKillReaper(t, reached) })
	if t.Failed() {
		return
	}
	var missed []string
	for _, p := range crashpoint.All() {
		if strings.HasPrefix(p, "rwmutex.") && !rwRollback(p) && !rwLost(p) && reached[p] == 0 {
			missed = append(missed, p)
		}
	}
	require.Empty(t, missed, "points that no victim died at")
	t.Log(reached)
}

func rwKillBesideOthers(t *testing.T, reached map[string]int) {
	a := newArena(t, &arena.Options{Label: "test"})
	dump := func() string { return words(a) }
	s, err := openRWSite(a, func(err error) { panic(fmt.Sprintf("%v\n%s", err, words(a))) })
	require.NoError(t, err)
	partner := proctest.Start(t, "rwcrash/partner", proctest.Params(crashParams{Arena: nameOf(a)}), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
	partner.Await(t)
	s.work()
	t.Cleanup(func() {
		if t.Failed() {
			s.fail = func(error) {}
			s.stop()
		}
	})
	play := func(t *testing.T, env ...string) (passed map[string]int) {
		v := proctest.Start(t, "rwcrash/victim", proctest.Params(crashParams{Arena: nameOf(a)}),
			proctest.Env(env...), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
		switch e := v.Wait(t); {
		case e.Signal == syscall.SIGKILL:
		case e.OK():
			v.Recv(t, &passed)
		default:
			t.Fatalf("the victim: %v\nwords:\n%s", e, words(a))
		}
		alone(t, a, 2)
		partner.Send(0)
		partner.Await(t)
		require.NoError(t, s.goesOn(), "%s", words(a))
		sound(t, a)
		return passed
	}
	passed := play(t)
	require.NotNil(t, passed)
	for _, p := range slices.Sorted(maps.Keys(passed)) {
		if !strings.HasPrefix(p, "rwmutex.") || rwOwnerDead(p) || rwRollback(p) || rwLost(p) {
			continue
		}
		t.Run(p, func(t *testing.T) {
			require.Nil(t, play(t, "SHMSYNC_CRASHPOINT="+p), "the victim survived the point")
			reached[p]++
			for range 2 {
				if n := passed[p] / 2; n > 1 && !testing.Short() {
					if play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, 1+rand.IntN(n))) == nil {
						reached[p]++
					}
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	partner.Send(-1)
	partner.WaitExit(t)
	require.NoError(t, s.stop(), "%s", words(a))
	alone(t, a, 1)
	for k, m := range s.locks {
		if m.State().Err != nil { // the lock may still be owner-dead: perhaps no goroutine called after the last death
			require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
		}
		require.Empty(t, m.Left())
		require.True(t, m.TryLock(), "%v", m)
		m.Unlock()
		require.NoError(t, m.Close())
		require.NoError(t, a.Delete([]string{"rw-report", "rw-release"}[k]))
	}
	sound(t, a)
	st := a.Stats()
	require.EqualValues(t, 1, st.Objects, "what is guarded: %+v", st)
	require.Zero(t, st.Nodes+st.Claimed+st.Raw, "%+v", st)
}

// rwKillReaper kills a process that writes, and then the process that reaps it. The next process has to find all locks
// of the arena usable.
func rwKillReaper(t *testing.T, reached map[string]int) {
	play := func(t *testing.T, env ...string) (passed map[string]int) {
		p := crashParams{Arena: arenaName(t)}
		sacrifice := proctest.Start(t, "rwcrash/sacrifice", proctest.Params(p))
		sacrifice.Await(t)
		u := proctest.Start(t, "rwcrash/reaper", proctest.Params(p), proctest.Env(env...))
		u.Await(t)
		sacrifice.Kill(t)
		switch e := u.Wait(t); {
		case e.Signal == syscall.SIGKILL:
		case e.OK():
			u.Recv(t, &passed)
		default:
			t.Fatalf("the reaper: %v", e)
		}
		a, err := arena.Attach(p.Arena, nil)
		require.NoError(t, err)
		defer a.Close()
		s, err := openRWSite(a, func(err error) { t.Error(err) })
		require.NoError(t, err)
		for k, m := range s.locks {
			for _, write := range []bool{false, true, false} {
				require.True(t, s.turn(k, write, write, timeout()), "%v", m)
			}
		}
		// A writer may ignore the holds of dead readers. So their reader words may stay until a process reaps them.
		alone(t, a, 1)
		for _, m := range s.locks {
			require.Empty(t, m.Left())
			require.NoError(t, m.Close())
		}
		sound(t, a)
		return passed
	}
	passed := play(t)
	require.NotNil(t, passed)
	for _, p := range crashpoint.All() {
		if !rwOwnerDead(p) {
			continue
		}
		t.Run(p, func(t *testing.T) {
			require.Nil(t, play(t, "SHMSYNC_CRASHPOINT="+p), "the reaper survived the point")
			reached[p]++
		})
	}
}

// TestRWMutexTryLockBesideClose checks that a TryLock neither panics nor takes the lock if a reader closes the handle
// meanwhile. The TryLock has closed the gate, finds a first reader, and opens the gate again. A second reader has
// waited at the gate; it goes in and closes the handle.
func TestRWMutexTryLockBesideClose(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	a := newArena(t, nil)
	m, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	other, err := prims.OpenRWMutex(a, "x", nil)
	require.NoError(t, err)
	defer crashpoint.Disarm()
	closed := make(chan error, 1)
	crashpoint.ArmFunc("rwmutex.lock.closed", 1, func() {
		crashpoint.Disarm()
		tried, goOn := make(chan bool), make(chan bool)
		crashpoint.ArmFunc("rwmutex.rlock.tried", 1, func() { close(tried); <-goOn })
		go func() { other.RLock(); other.RUnlock() }()
		<-tried // the first reader has added its hold, so the TryLock fails
		crashpoint.Disarm()
		go func() {
			m.RLock()
			m.RUnlock()
			closed <- m.Close()
		}()
		waiting(t, a, "x", 1)
		crashpoint.ArmFunc("rwmutex.unlock.woken", 1, func() {
			close(goOn)
			eventually(t, "it is being closed", func() string { return words(a) }, m.Closing)
		})
	})
	require.False(t, m.TryLock())
	require.NoError(t, <-closed)
}
