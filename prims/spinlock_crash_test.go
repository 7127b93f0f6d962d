//go:build linux

package prims_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// These tests kill a process at each crash point of the spin locks. The victim dies beside two processes that
// stay: the test and its partner. Each goroutine of these two processes goes on, and nothing is left behind.

// spinKills are the crash points that a process passes while it uses a spin lock beside others. The remaining
// points are passed only by a process that reaps or recovers after a death.
var spinKills = []string{
	"spinlock.lock.acquired", "spinlock.lock.announced", "spinlock.lock.woken", "spinlock.lock.leaving",
	"spinlock.unlock.before_release", "spinlock.unlock.before_wake",
	"rwspinlock.rlock.counted", "rwspinlock.rlock.acquired", "rwspinlock.runlock.before_release", "rwspinlock.runlock.before_wake",
	"rwspinlock.drain.claimed", "rwspinlock.drain.announced", "rwspinlock.drain.given_up", "rwspinlock.downgrade.counted",
}

var spinReaps = []string{
	"spinlock.owner_dead.marked", "spinlock.recover.taken", "spinlock.recover.repaired", "spinlock.recover.before_wake",
}

// spinCanary has words that a holder sets while it holds the lock. An exclusive holder sets W. A holder for
// writing or for upgrade sets U.
type spinCanary struct {
	W, U atomic.Uint64
	_    [112]byte
}

const spinSiteLocks = 4 // a SpinLock and an RWSpinLock for each policy

type spinSite struct {
	a       *arena.Arena
	spins   [2]*prims.SpinLock
	rws     [2]*prims.RWSpinLock
	board   *[spinSiteLocks]spinCanary
	me      atomic.Uint64
	fail    func(error)
	stopped atomic.Bool
	wg      sync.WaitGroup
	turns   [spinSiteLocks]atomic.Int64
}

func openSpinSite(a *arena.Arena, fail func(error)) (s *spinSite, err error) {
	s = &spinSite{a: a, fail: fail}
	s.me.Store(uint64(os.Getpid()) << 32)
	for i, p := range []prims.Policy{prims.PolicyReport, prims.PolicyRelease} {
		var e1, e2 error
		s.spins[i], e1 = prims.OpenSpinLock(a, "s-"+p.String(), &prims.SpinLockOptions{Policy: p})
		s.rws[i], e2 = prims.OpenRWSpinLock(a, "rw-"+p.String(), &prims.RWSpinLockOptions{Policy: p})
		err = cmp.Or(err, e1, e2)
	}
	board, e := arena.Value[[spinSiteLocks]spinCanary](a, "board")
	s.board = board
	return s, cmp.Or(err, e)
}

// stays fails unless a word keeps its value for a while.
func (s *spinSite) stays(what string, w *atomic.Uint64, is uint64) {
	for range rand.IntN(60) {
		if v := w.Load(); v != is {
			s.fail(fmt.Errorf("%s: the tag was %#x and is %#x", what, is, v))
		}
	}
}

func (s *spinSite) writes(k int) {
	me := s.me.Add(1)
	s.board[k].W.Store(me)
	s.board[k].U.Store(me)
	s.stays("writing", &s.board[k].W, me)
	s.stays("writing", &s.board[k].U, me)
}

func (s *spinSite) reads(k int) { s.stays("reading", &s.board[k].W, s.board[k].W.Load()) }

func (s *spinSite) upgrades(k int) {
	me := s.me.Add(1)
	s.board[k].U.Store(me)
	s.stays("in upgrade", &s.board[k].U, me)
	s.reads(k)
}

// turn locks and unlocks lock k once, in one of several ways. If that is not possible, it returns the error.
func (s *spinSite) turn(k int, ctx context.Context) error {
	if k%2 == 0 {
		l := s.spins[k/2]
		err := l.LockContext(ctx)
		if err == nil {
			s.writes(k)
			l.Unlock()
		}
		return err
	}
	l := s.rws[k/2]
	switch rand.IntN(8) {
	case 0, 1, 2:
		err := l.RLockContext(ctx)
		if err == nil {
			s.reads(k)
			l.RUnlock()
		}
		return err
	case 3:
		err := l.LockUpgradableContext(ctx)
		if err != nil {
			return err
		}
		s.upgrades(k)
		if err := l.UpgradeContext(ctx); err != nil {
			l.DowngradeToRead()
			s.reads(k)
			l.RUnlock()
			return err
		}
		s.writes(k)
		l.DowngradeToUpgradable()
		s.upgrades(k)
		l.UnlockUpgradable()
	case 4:
		err := l.LockContext(ctx)
		if err == nil {
			s.writes(k)
			l.Downgrade()
			s.reads(k)
			l.RUnlock()
		}
		return err
	case 5:
		if l.TryLock() {
			s.writes(k)
			l.Unlock()
		} else if l.TryRLock() {
			s.reads(k)
			l.RUnlock()
		}
	default:
		err := l.LockContext(ctx)
		if err == nil {
			s.writes(k)
			l.Unlock()
		}
		return err
	}
	return nil
}

// use calls turn, and recovers the lock if necessary. It returns false if it gave up.
func (s *spinSite) use(k int, limit time.Duration) bool {
	ctx, cancel := context.Background(), func() {}
	if limit != 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	err := s.turn(k, ctx)
	switch {
	case err == nil:
		return true
	case errors.Is(err, shmsync.ErrOwnerDead):
		repair := func() error { s.writes(k); return nil }
		if k%2 == 0 {
			err = s.spins[k/2].Recover(repair)
		} else {
			err = s.rws[k/2].Recover(repair)
		}
		if err != nil {
			s.fail(err)
		}
		return true
	case limit != 0 && err == context.DeadlineExceeded:
		return false
	}
	s.fail(err)
	return false
}

// work starts the goroutines of a survivor. They use the locks all the time.
func (s *spinSite) work() {
	for k := range spinSiteLocks {
		for i := range 6 {
			limit := time.Duration(0)
			if i == 0 {
				limit = 300 * time.Microsecond
			}
			s.wg.Go(func() {
				for !s.stopped.Load() {
					if s.use(k, limit) {
						s.turns[k].Add(1)
					}
				}
			})
		}
	}
}

func (s *spinSite) goesOn() error {
	var from [spinSiteLocks]int64
	for k := range from {
		from[k] = s.turns[k].Load()
	}
	err := waitUntil(timeout(), func() bool {
		for k := range from {
			if s.turns[k].Load() < from[k]+20 {
				return false
			}
		}
		return true
	})
	if err != nil {
		err = fmt.Errorf("%w: turns went from %v to %d %d %d %d", err, from,
			s.turns[0].Load(), s.turns[1].Load(), s.turns[2].Load(), s.turns[3].Load())
	}
	return err
}

func (s *spinSite) stop() error {
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

func (s *spinSite) arena() *arena.Arena { return s.a }

func joinSpinSite(c *proctest.Child, label string) *spinSite {
	s, _ := joinAt(c, label, openSpinSite)
	return s
}

func init() {
	registerPartner("spin/partner", func(c *proctest.Child) *spinSite {
		s := joinSpinSite(c, "partner")
		s.work()
		return s
	}, nil)

	proctest.Register("spin/victim", func(c *proctest.Child) {
		s := joinSpinSite(c, "victim")
		until(spinKills, func() {
			var wg sync.WaitGroup
			for k := range spinSiteLocks {
				for i := range 5 {
					wg.Go(func() {
						for range 30 {
							limit := time.Duration(0)
							if i > 2 {
								limit = time.Duration(rand.IntN(100)) * time.Microsecond
							}
							s.use(k, limit)
						}
					})
				}
				// A goroutine that holds the lock for reading for long makes writers wait and give up.
				if l := s.rws[k/2]; k%2 == 1 {
					wg.Go(func() {
						for range 5 {
							if l.TryRLock() {
								for end := time.Now().Add(300 * time.Microsecond); time.Now().Before(end); {
								}
								l.RUnlock()
							}
						}
					})
				}
			}
			wg.Wait()
		})
		lastWords(c, s.a)
	})

	// The process spin/sacrifice creates the arena, and dies with one hold of each kind.
	proctest.Register("spin/sacrifice", func(c *proctest.Child) {
		var p crashParams
		c.Params(&p)
		a, err := arena.Create(p.Arena, &arena.Options{Label: "sacrifice"})
		if err != nil {
			c.Fatal(err)
		}
		s, err := openSpinSite(a, func(err error) { c.Fatal(err) })
		if err != nil {
			c.Fatal(err)
		}
		for i := range s.spins {
			s.spins[i].Lock()
			s.rws[i].Lock()
			if p.Round%2 == 1 {
				s.rws[i].DowngradeToUpgradable()
			}
		}
		c.Ready()
		c.Await()
	})

	// The process spin/reaper is the only one left in the arena. It reaps, and recovers the locks.
	proctest.Register("spin/reaper", func(c *proctest.Child) {
		s := joinSpinSite(c, "reaper")
		var wg sync.WaitGroup
		for k := range spinSiteLocks {
			for range 3 {
				wg.Go(func() { s.use(k, 0) })
			}
		}
		if err := waitUntil(timeout(), func() bool {
			n := 0
			for i := range s.spins {
				n += s.spins[i].Waiters() + s.rws[i].Waiters()
			}
			return n >= 3*spinSiteLocks-6 // some calls may try the lock and not wait
		}); err != nil {
			c.Fatalf("%v\n%s", err, words(s.a))
		}
		c.Ready()
		wg.Wait()
		lastWords(c, s.a)
	})
}

func TestSpinLockKillMatrix(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint", "spin/partner", "spin/victim", "spin/sacrifice", "spin/reaper")
	}
	// Together the lists spinKills and spinReaps must have all points except that of a repair that fails, which
	// TestDeathBeforeTheWakeOfAll of package cinterop passes.
	listed := map[string]bool{"spinlock.recover.lost": true}
	for _, p := range append(spinKills[:len(spinKills):len(spinKills)], spinReaps...) {
		listed[p] = true
	}
	for _, p := range crashpoint.All() {
		if strings.HasPrefix(p, "spinlock.") || strings.HasPrefix(p, "rwspinlock.") {
			require.True(t, listed[p], "no victim dies at %s", p)
		}
	}
	t.Run("beside others", spinKillBesideOthers)
	t.Run("reaper", spinKillReaper)
}

func spinKillBesideOthers(t *testing.T) {
	a := newArena(t, &arena.Options{Label: "test"})
	dump := func() string { return words(a) }
	s, err := openSpinSite(a, func(err error) { panic(fmt.Sprintf("%v\n%s", err, words(a))) })
	require.NoError(t, err)
	partner := proctest.Start(t, "spin/partner", proctest.Params(crashParams{Arena: nameOf(a)}), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
	partner.Await(t)
	s.work()
	t.Cleanup(func() {
		if t.Failed() {
			s.fail = func(error) {}
			s.stop()
		}
	})
	round := 0
	play := func(t *testing.T, env ...string) (died bool) {
		round++
		v := proctest.Start(t, "spin/victim", proctest.Params(crashParams{Arena: nameOf(a)}),
			proctest.Env(env...), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
		e := v.Wait(t)
		if e.Signal != syscall.SIGKILL && !e.OK() {
			t.Fatalf("the victim: %v\nwords:\n%s", e, words(a))
		}
		if e.OK() {
			var passed map[string]int
			v.Recv(t, &passed)
			for _, p := range spinKills {
				require.Positive(t, passed[p], "%s is not passed", p)
			}
		}
		alone(t, a, 2)
		partner.Send(round)
		partner.Await(t)
		require.NoError(t, s.goesOn(), "%s", words(a))
		sound(t, a)
		return e.Signal == syscall.SIGKILL
	}
	require.False(t, play(t))
	for _, p := range spinKills {
		t.Run(p, func(t *testing.T) {
			require.True(t, play(t, "SHMSYNC_CRASHPOINT="+p), "the victim survived the point")
			if !testing.Short() {
				play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, 2+rand.IntN(20)))
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
	for i := range s.spins {
		require.True(t, s.spins[i].TryLock(), "%v", s.spins[i])
		s.spins[i].Unlock()
		require.Zero(t, s.rws[i].Bits(), "%v", s.rws[i])
		require.NoError(t, s.spins[i].Close())
		require.NoError(t, s.rws[i].Close())
		for _, kind := range []string{"s-", "rw-"} {
			require.NoError(t, a.Delete(kind+[]string{"report", "release"}[i]))
		}
	}
	sound(t, a)
	st := a.Stats()
	require.EqualValues(t, 1, st.Objects, "the board: %+v", st)
	require.Zero(t, st.Nodes+st.Claimed+st.Raw, "%+v", st)
}

// spinKillReaper kills a process, and then the reaper that recovers the locks of that process. The next process
// can use all locks.
func spinKillReaper(t *testing.T) {
	round := 0
	play := func(t *testing.T, env ...string) (died bool) {
		round++
		p := crashParams{Arena: arenaName(t), Round: round}
		sacrifice := proctest.Start(t, "spin/sacrifice", proctest.Params(p))
		sacrifice.Await(t)
		u := proctest.Start(t, "spin/reaper", proctest.Params(p), proctest.Env(env...))
		u.Await(t)
		sacrifice.Kill(t)
		e := u.Wait(t)
		if e.Signal != syscall.SIGKILL && !e.OK() {
			t.Fatalf("the reaper: %v", e)
		}
		a, err := arena.Attach(p.Arena, nil)
		require.NoError(t, err)
		defer a.Close()
		s, err := openSpinSite(a, func(err error) { t.Errorf("%v\n%s", err, words(a)) })
		require.NoError(t, err)
		for k := range spinSiteLocks {
			for range 20 {
				require.True(t, s.use(k, timeout()), "%s", words(a))
			}
		}
		alone(t, a, 1)
		for i := range s.spins {
			require.Zero(t, s.spins[i].Bits()|s.rws[i].Bits(), "%s", words(a))
		}
		sound(t, a)
		return e.Signal == syscall.SIGKILL
	}
	require.False(t, play(t))
	for _, p := range spinReaps {
		t.Run(p, func(t *testing.T) {
			for k := range 4 {
				died := play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, 1+k/2))
				require.True(t, died || k > 1, "the reaper survived the point")
			}
		})
	}
}

// TestRWSpinLockCountThatKeepsChanging: this process takes back the holds of a dead reader. Before each attempt, a peer
// stores the holds of another dead participant in the word of the reader. TryLock and LockContext still return.
func TestRWSpinLockCountThatKeepsChanging(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	a := newArena(t, nil)
	l := newRWSpin(t, a, nil)
	word, ofDead := l.Readers()
	changes := 0
	var change func()
	change = func() {
		if changes++; changes > 1000 {
			panic("the call does not end")
		}
		word.Store(ofDead(uint32(changes) + 1))
		crashpoint.ArmFunc("arena.act.verified", 1, change)
	}
	defer crashpoint.Disarm()
	word.Store(ofDead(1))
	crashpoint.ArmFunc("arena.act.verified", 1, change)
	require.False(t, l.TryLock())
	require.ErrorIs(t, l.LockContext(t.Context()), shmsync.ErrCorrupt)
	crashpoint.Disarm()
	require.NoError(t, l.LockContext(t.Context()))
	l.Unlock()
}
