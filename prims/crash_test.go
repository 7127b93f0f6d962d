//go:build linux

package prims_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
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

// The kill matrix. A victim works together with two processes that survive: the partner and the
// test itself. In each round the victim dies at another crash point. The goroutines of the
// survivors must go on with their work, and the victim must leave nothing behind.

// ours are the prefixes of the crash points that the matrix covers.
var ours = []string{"mutex.", "futex.", "park.", "arena.poller.", "arena.ready.", "arena.node.", "arena.reap.", "arena.finish."}

// notOurs are crash points with these prefixes that no process in the matrix passes. The comments
// name the test that covers them.
var notOurs = []string{
	"arena.node.freeing", "arena.node.reset", // freeNode; package arenakernel
	"arena.node.inherited", "arena.node.reclaimed", // queues; TestWorkerGroupCrash
	"mutex.recover.lost",                           // a repair that fails; TestDeathBeforeTheWakeOfAll of package cinterop
	"park.waitnode.asleep", "park.waitnode.parked", // queues; TestWorkerGroupCrash
}

const (
	crowded = 16 // goroutines that wait for the crowded lock: more than can sleep in the kernel
	walkers = 14 // waiters on the futex: more than can sleep in the kernel
)

// site has the objects that the processes of the matrix share.
type site struct {
	a       *arena.Arena
	plain   *prims.Mutex // PolicyReport
	free    *prims.Mutex // PolicyRelease
	crowd   *prims.Mutex // PolicyReport; many goroutines wait for it
	steps   *prims.Futex // posted by victims; waiters of all processes wait for each step
	clock   *prims.Futex // posted by the partner
	board   *[3]canary   // one for each of the three locks
	me      uint64
	stopped atomic.Bool
	fail    func(error)
	wg      sync.WaitGroup

	turns [3]atomic.Int64 // how many times the lockers of this process have had each lock
	at    [walkers]atomic.Uint64
}

func openSite(a *arena.Arena, fail func(error)) (s *site, err error) {
	s = &site{a: a, me: uint64(os.Getpid()), fail: fail}
	open := func(name string, p prims.Policy) *prims.Mutex {
		m, e := prims.OpenMutex(a, name, &prims.MutexOptions{Policy: p})
		err = cmp.Or(err, e)
		return m
	}
	s.plain, s.free, s.crowd = open("plain", prims.PolicyReport), open("free", prims.PolicyRelease), open("crowd", prims.PolicyReport)
	openFutex := func(name string) *prims.Futex {
		f, e := prims.OpenFutex(a, name, nil)
		err = cmp.Or(err, e)
		return f
	}
	s.steps, s.clock = openFutex("steps"), openFutex("clock")
	board, e := arena.Value[[3]canary](a, "board")
	s.board = board
	return s, cmp.Or(err, e)
}

func (s *site) locks() []*prims.Mutex { return []*prims.Mutex{s.plain, s.free, s.crowd} }

// inside is what a goroutine does while it holds lock k: it checks that no other goroutine is
// inside.
func (s *site) inside(k int, pauses int) error {
	c := &s.board[k]
	c.Tag.Store(s.me)
	for range pauses {
		if tag := c.Tag.Load(); tag != s.me {
			return fmt.Errorf("lock %d: the tag is %d, not ours (%d)", k, tag, s.me)
		}
	}
	return nil
}

// turn locks and unlocks lock k once, whatever state the lock is in. It reports false if it has not
// got the lock within limit.
func (s *site) turn(k int, limit time.Duration) bool {
	m := s.locks()[k]
	ctx, cancel := context.Background(), func() {}
	if limit != 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	switch err := m.LockContext(ctx); {
	case err == nil:
		err := s.inside(k, rand.IntN(100))
		m.Unlock()
		if err != nil {
			s.fail(err)
		}
		return true
	case errors.Is(err, shmsync.ErrOwnerDead):
		if err := m.Recover(func() error { return s.inside(k, 100) }); err != nil {
			s.fail(err)
		}
		return true
	case limit != 0 && err == context.DeadlineExceeded:
		return false
	default:
		s.fail(err)
		return false
	}
}

// hold holds lock k for the duration d.
func (s *site) hold(k int, d time.Duration) {
	m := s.locks()[k]
	switch err := m.LockContext(context.Background()); {
	case err == nil:
		for end := time.Now().Add(d); time.Now().Before(end); {
		}
		m.Unlock()
	case !errors.Is(err, shmsync.ErrOwnerDead):
		s.fail(err)
	}
}

// work starts the goroutines of a survivor.
func (s *site) work(post bool) {
	locker := func(k int, limit time.Duration) {
		s.wg.Go(func() {
			for !s.stopped.Load() {
				if s.turn(k, limit) {
					s.turns[k].Add(1)
				}
			}
		})
	}
	locker(0, 0)
	locker(0, 0)
	locker(1, 0)
	locker(1, 300*time.Microsecond)
	for range crowded {
		locker(2, 0)
	}
	for i := range walkers {
		s.wg.Go(func() {
			for !s.stopped.Load() {
				token := s.at[i].Load() + 1
				if err := s.steps.Wait(token); err != nil {
					s.fail(err)
				}
				s.at[i].Store(token)
			}
		})
	}
	if post {
		s.wg.Go(func() {
			tick := time.NewTicker(500 * time.Microsecond)
			defer tick.Stop()
			for !s.stopped.Load() {
				<-tick.C
				s.clock.Post()
			}
		})
	}
}

// behind lists the walkers of this process that have not reached the last step.
func (s *site) behind() (late []string) {
	end := s.steps.Get()
	for i := range s.at {
		if at := s.at[i].Load(); at != end {
			late = append(late, fmt.Sprintf("walker %d is at %d of %d", i, at, end))
		}
	}
	return late
}

// goesOn waits until each goroutine of this process has made progress.
func (s *site) goesOn() error {
	var from [3]int64
	for k := range from {
		from[k] = s.turns[k].Load()
	}
	err := waitUntil(timeout(), func() bool {
		for k := range from {
			if s.turns[k].Load() < from[k]+crowded+2 {
				return false
			}
		}
		return len(s.behind()) == 0
	})
	if err != nil {
		err = fmt.Errorf("%w: turns went from %v to %v, %v", err, from,
			[]int64{s.turns[0].Load(), s.turns[1].Load(), s.turns[2].Load()}, s.behind())
	}
	return err
}

// stop ends the work and waits for the goroutines. Meanwhile it posts steps, because a walker of this process may still
// wait for one.
func (s *site) stop() error {
	s.stopped.Store(true)
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := after(timeout()); ; {
		select {
		case <-done:
			return nil
		case <-tick.C:
			s.steps.Post()
		case <-limit:
			return errors.New("goroutines do not stop")
		}
	}
}

type crashParams struct {
	Arena string
	Round int
	Point string
}

// joinAt makes a helper process join the arena of a kill matrix, and open its site there.
func joinAt[S any](c *proctest.Child, label string, open func(a *arena.Arena, fail func(error)) (S, error)) (S, crashParams) {
	var p crashParams
	c.Params(&p)
	a, err := arena.Attach(p.Arena, &arena.Options{Label: label})
	if err != nil {
		c.Fatal(err)
	}
	s, err := open(a, func(err error) { c.Fatalf("%s: %v\n%s", label, err, words(a)) })
	if err != nil {
		c.Fatal(err)
	}
	return s, p
}

func joinSite(c *proctest.Child, label string) (*site, crashParams) {
	return joinAt(c, label, openSite)
}

// working is the interface of a site at which the goroutines of a survivor work until its method stop is called.
type working interface {
	arena() *arena.Arena
	goesOn() error // called after the death of another process; fails if the work does not go on
	stop() error
}

// registerPartner makes a helper process that works at a site together with victims. The helper
// receives a number for each victim, and then checks that its own work goes on. A negative number ends
// the helper.
func registerPartner[S working](process string, start func(c *proctest.Child) S, during func(c *proctest.Child, s S, round int)) {
	proctest.Register(process, func(c *proctest.Child) {
		s := start(c)
		orFail := func(err error) {
			if err != nil {
				c.Fatalf("partner: %v\n%s", err, words(s.arena()))
			}
		}
		c.Ready()
		for {
			var round int
			c.Recv(&round)
			if round < 0 {
				break
			}
			if during != nil {
				during(c, s, round)
			}
			orFail(s.goesOn())
			c.Ready()
		}
		orFail(s.stop())
		if err := s.arena().Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// lastWords ends a victim that has not died at a crash point. The victim reports the points that it
// has passed, and leaves the arena.
func lastWords(c *proctest.Child, a *arena.Arena) {
	c.Say(hits())
	// The victim has passed all its points, so no point has to kill it any more.
	crashpoint.Disarm()
	if err := a.Close(); err != nil {
		c.Fatal(err)
	}
}

func (s *site) arena() *arena.Arena { return s.a }

func init() {
	registerPartner("crash/partner", func(c *proctest.Child) *site {
		s, _ := joinSite(c, "partner")
		s.work(true)
		return s
	}, func(c *proctest.Child, s *site, round int) {
		// Some goroutines sleep in the kernel until the Stop of the futex, and others are parked.
		stop, err := prims.OpenFutex(s.a, fmt.Sprint("stop-", round), nil)
		if err != nil {
			c.Fatal(err)
		}
		var wg sync.WaitGroup
		for range walkers {
			wg.Go(func() {
				if err := stop.Wait(1); !errors.Is(err, shmsync.ErrCanceled) {
					c.Fatalf("a wait that was stopped: %v", err)
				}
			})
		}
		if err := waitUntil(timeout(), func() bool { return stop.Waiters() == walkers }); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await() // until the victim is gone and the futex has been stopped
		wg.Wait()
		stop.Close()
	})

	proctest.Register("crash/victim", func(c *proctest.Child) {
		s, p := joinSite(c, "victim")
		victimLocks(s)
		victimPoller(s, p.Round)
		victimFutex(s, p.Round)
		lastWords(c, s.a)
	})
}

// hits returns how many times this process has passed each point.
func hits() map[string]int {
	h := map[string]int{}
	for _, name := range crashpoint.All() {
		if n := crashpoint.HitCount(name); n > 0 {
			h[name] = n
		}
	}
	return h
}

// until repeats f until this process has passed all the given points.
func until(points []string, f func()) {
	for range 400 {
		f()
		missing := false
		for _, p := range points {
			missing = missing || crashpoint.HitCount(p) == 0
		}
		if !missing {
			return
		}
	}
}

func victimLocks(s *site) {
	until([]string{
		"mutex.lock.acquired", "mutex.lock.announced", "mutex.lock.woken", "mutex.lock.starving", "mutex.lock.leaving",
		"mutex.unlock.before_release", "mutex.unlock.before_wake", "mutex.unlock.reserved",
		"park.wake.before_bump", "park.wake.bumped", "park.wake.done",
	}, func() {
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for range 20 {
					limit := time.Duration(0)
					if g == 5 {
						limit = 100 * time.Microsecond
					}
					s.turn(g%2, limit)
				}
			})
		}
		// The holds are long and follow each other at once. So the other goroutines starve, and the
		// lock is handed to one of them.
		for range 10 {
			s.hold(0, 300*time.Microsecond)
		}
		wg.Wait()
	})
}

func victimPoller(s *site, round int) {
	until([]string{
		"arena.ready.marked", "arena.ready.pushed", "arena.node.claimed", "arena.node.owned",
		"arena.poller.before_push", "arena.poller.pushed", "arena.poller.retired", "arena.poller.taken",
	}, func() {
		// The mutex was made for this round, so no participant has left a node on it that another participant
		// could take.
		fresh, err := prims.OpenMutex(s.a, fmt.Sprint("fresh-", round), nil)
		if err != nil {
			s.fail(err)
		}
		fresh.Lock()
		var wg sync.WaitGroup
		for range crowded + 8 {
			wg.Go(func() {
				fresh.Lock()
				fresh.Unlock()
				for range 2 {
					s.turn(2, 0)
				}
			})
		}
		if err := waitUntil(timeout(), func() bool { return fresh.Waiters() == crowded+8 }); err != nil {
			s.fail(err)
		}
		fresh.Unlock()
		wg.Wait()
		// This process has no other handle on these two objects, so each Close gives back the poller node.
		if err := errors.Join(fresh.Close(), s.crowd.Close()); err != nil {
			s.fail(err)
		}
		if s.crowd, err = prims.OpenMutex(s.a, "crowd", nil); err != nil {
			s.fail(err)
		}
	})
}

func victimFutex(s *site, round int) {
	until([]string{"futex.post.before_wake", "futex.wait.announced", "futex.wait.woken"}, func() {
		var wg sync.WaitGroup
		for range walkers {
			wg.Go(func() {
				for range 3 {
					if err := s.clock.Wait(s.clock.Get() + 1); err != nil {
						s.fail(err)
					}
				}
			})
		}
		for range 20 {
			s.steps.Post()
		}
		wg.Wait()
	})
	stop, err := prims.OpenFutex(s.a, fmt.Sprint("stop-", round), nil)
	if err != nil {
		s.fail(err)
	}
	stop.Stop()
}

// matters reports whether the matrix covers a point.
func matters(point string) bool {
	if slices.Contains(notOurs, point) {
		return false
	}
	return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(point, prefix) })
}

func TestKillMatrix(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint",
			"crash/partner", "crash/victim", "crash/sacrifice", "crash/reaper")
	}
	reached := map[string]int{}
	t.Run("beside others", func(t *testing.T) { killBesideOthers(t, reached) })
	t.Run("reaper", func(t *testing.T) { killReaper(t, reached) })
	if t.Failed() {
		return
	}
	var missed []string
	for _, p := range crashpoint.All() {
		if matters(p) && reached[p] == 0 {
			missed = append(missed, p)
		}
	}
	require.Empty(t, missed, "points that no victim died at")
	t.Logf("%d victims died at %d points", func() (n int) {
		for _, k := range reached {
			n += k
		}
		return n
	}(), len(reached))
}

func killBesideOthers(t *testing.T, reached map[string]int) {
	a := newArena(t, &arena.Options{Label: "test"})
	dump := func() string { return words(a) }
	s, err := openSite(a, func(err error) { panic(fmt.Sprintf("%v\n%s", err, words(a))) })
	require.NoError(t, err)
	partner := proctest.Start(t, "crash/partner", proctest.Params(crashParams{Arena: nameOf(a)}), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
	partner.Await(t)
	s.work(false)
	t.Cleanup(func() {
		if t.Failed() {
			s.fail = func(error) {}
			s.stop()
		}
	})

	round := 0
	// play starts a victim, which dies at a point or stays alive, and then checks the survivors.
	play := func(t *testing.T, env ...string) map[string]int {
		round++
		// Make an object that can be deleted although its maker may die.
		fresh, err := prims.OpenMutex(a, fmt.Sprint("fresh-", round), nil)
		require.NoError(t, err)
		require.NoError(t, fresh.Close())
		partner.Send(round)
		partner.Await(t)
		v := proctest.Start(t, "crash/victim", proctest.Params(crashParams{Arena: nameOf(a), Round: round}),
			proctest.Env(env...), proctest.Dump(dump), proctest.Limit(2*proctest.DefaultTimeout))
		e := v.Wait(t)
		var passed map[string]int
		switch {
		case e.Signal == syscall.SIGKILL:
		case e.OK():
			v.Recv(t, &passed)
		default:
			t.Fatalf("the victim: %v\nwords:\n%s", e, words(a))
		}
		alone(t, a, 2)
		stop, err := prims.OpenFutex(a, fmt.Sprint("stop-", round), nil)
		require.NoError(t, err)
		if !stop.Stopped() {
			stop.Stop()
		}
		partner.Send("gone")
		partner.Await(t)
		require.NoError(t, s.goesOn(), "%s", words(a))
		require.NoError(t, stop.Close())
		require.NoError(t, a.Delete(fmt.Sprint("stop-", round)))
		require.NoError(t, a.Delete(fmt.Sprint("fresh-", round)))
		sound(t, a)
		return passed
	}

	passed := play(t)
	require.NotNil(t, passed)
	points := slices.DeleteFunc(slices.Sorted(maps.Keys(passed)), func(p string) bool { return !matters(p) })
	for _, p := range points {
		t.Run(p, func(t *testing.T) {
			require.Nil(t, play(t, "SHMSYNC_CRASHPOINT="+p), "the victim survived the point")
			reached[p]++
			if n := passed[p] / 2; n > 1 && !testing.Short() {
				if play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, 1+rand.IntN(n))) == nil {
					reached[p]++
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
	// The victims have left no blocks and no nodes.
	for i, name := range []string{"plain", "free", "crowd"} {
		m := s.locks()[i]
		require.True(t, m.TryLock(), "%v", m)
		m.Unlock()
		require.NoError(t, m.Close())
		require.NoError(t, a.Delete(name))
	}
	for _, f := range []*prims.Futex{s.steps, s.clock} {
		require.NoError(t, f.Close())
	}
	require.NoError(t, a.Delete("steps"))
	require.NoError(t, a.Delete("clock"))
	sound(t, a)
	st := a.Stats()
	require.EqualValues(t, 1, st.Objects, "only the board is left: %+v", st)
	require.Zero(t, st.Nodes, "%+v", st)
	require.Zero(t, st.Claimed, "%+v", st)
	require.Zero(t, st.Raw, "%+v", st)
}

const orphans = 6 // locks that the sacrifice holds when it dies

func orphanName(i int) string { return fmt.Sprint("orphan-", i) }

func init() {
	// sacrifice creates the arena and dies while it holds some locks.
	proctest.Register("crash/sacrifice", func(c *proctest.Child) {
		var p crashParams
		c.Params(&p)
		a, err := arena.Create(p.Arena, &arena.Options{Label: "sacrifice"})
		if err != nil {
			c.Fatal(err)
		}
		for i := range orphans {
			m, err := prims.OpenMutex(a, orphanName(i), &prims.MutexOptions{Policy: tightPolicy(i)})
			if err != nil {
				c.Fatal(err)
			}
			m.Lock()
		}
		c.Ready()
		c.Await()
	})

	// reaper is the only process that is left. It reaps the dead process and recovers the locks.
	proctest.Register("crash/reaper", func(c *proctest.Child) {
		var p crashParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "reaper"})
		if err != nil {
			c.Fatal(err)
		}
		var wg sync.WaitGroup
		var locks []*prims.Mutex
		for i := range orphans {
			m, err := prims.OpenMutex(a, orphanName(i), nil)
			if err != nil {
				c.Fatal(err)
			}
			locks = append(locks, m)
		}
		ready := sync.WaitGroup{}
		for i, m := range locks {
			for range 3 {
				ready.Add(1)
				wg.Go(func() {
					ready.Done()
					err := m.LockContext(context.Background())
					switch {
					case err == nil:
						m.Unlock()
					case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
						// Half of the repairs fail, and are repeated by another call.
						failed := errors.New("too bad")
						for err = failed; err != nil; {
							err = m.Recover(func() error {
								if i >= orphans/2 && rand.IntN(2) == 0 {
									return failed
								}
								return nil
							})
						}
					default:
						c.Fatal(err)
					}
				})
			}
		}
		ready.Wait()
		if err := waitUntil(timeout(), func() bool {
			for _, m := range locks {
				if m.Waiters() != 3 {
					return false
				}
			}
			return true
		}); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		wg.Wait()
		if err := waitUntil(timeout(), func() bool { return crashpoint.HitCount("arena.finish.freed") > 0 }); err != nil {
			c.Fatal(err)
		}
		lastWords(c, a)
	})
}

// killReaper kills a process that holds locks, and then kills its reaper while the reaper recovers these locks. The
// next process must find all objects usable.
func killReaper(t *testing.T, reached map[string]int) {
	play := func(t *testing.T, env ...string) map[string]int {
		p := crashParams{Arena: arenaName(t)}
		sacrifice := proctest.Start(t, "crash/sacrifice", proctest.Params(p))
		sacrifice.Await(t)
		u := proctest.Start(t, "crash/reaper", proctest.Params(p), proctest.Env(env...))
		u.Await(t)
		sacrifice.Kill(t)
		e := u.Wait(t)
		var passed map[string]int
		switch {
		case e.Signal == syscall.SIGKILL:
		case e.OK():
			u.Recv(t, &passed)
		default:
			t.Fatalf("the reaper: %v", e)
		}
		a, err := arena.Attach(p.Arena, nil)
		require.NoError(t, err)
		defer a.Close()
		for i := range orphans {
			m, err := prims.OpenMutex(a, orphanName(i), nil)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), timeout())
			switch err := m.LockContext(ctx); {
			case err == nil:
				m.Unlock()
			case errors.Is(err, shmsync.ErrOwnerDead), errors.Is(err, shmsync.ErrNotRecoverable):
				if i&1 == 1 && errors.Is(err, shmsync.ErrOwnerDead) {
					require.Equal(t, "reaper", m.State().Owner.Label, "only a recoverer leaves it so: %v", err)
				}
				require.NoError(t, m.RecoverContext(ctx, func() error { return nil }))
			default:
				t.Fatalf("%v\n%s", err, words(a))
			}
			require.True(t, m.TryLock())
			m.Unlock()
			require.NoError(t, m.Close())
			cancel()
		}
		alone(t, a, 1)
		sound(t, a)
		for i := range orphans {
			require.NoError(t, a.Delete(orphanName(i)))
		}
		st := a.Stats()
		require.Zero(t, st.Objects+st.Nodes+st.Claimed+st.Raw, "%+v", st)
		return passed
	}
	passed := play(t)
	require.NotNil(t, passed)
	for _, p := range crashpoint.All() {
		if !matters(p) || !strings.HasPrefix(p, "arena.reap.") && !strings.HasPrefix(p, "arena.finish.") &&
			!strings.HasPrefix(p, "mutex.recover.") && !strings.HasPrefix(p, "mutex.owner_dead.") {
			continue
		}
		t.Run(p, func(t *testing.T) {
			n := proctest.Rounds(1, 2)
			for k := range n {
				if play(t, fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", p, k+1)) == nil {
					reached[p]++
				} else if k == 0 {
					t.Errorf("the reaper survived the point")
				}
			}
		})
	}
}
