//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A spinActor carries out orders for spin locks, in this process or in another one.
type spinActor struct{ conversation[order] }

// spinStage has the objects that a spinActor uses. An object whose name begins with rw is an RWSpinLock, any
// other object is a SpinLock.
type spinStage struct {
	a *arena.Arena
	contexts

	mu    sync.Mutex
	spins map[string]*prims.SpinLock
	rws   map[string]*prims.RWSpinLock
}

func newSpinStage(a *arena.Arena) *spinStage {
	return &spinStage{a: a, spins: map[string]*prims.SpinLock{}, rws: map[string]*prims.RWSpinLock{}}
}

func init() {
	registerActor("spin/actor", func(a *arena.Arena) stageOf[order] { return newSpinStage(a) })
}

func localSpin(a *arena.Arena) *spinActor { return &spinActor{withLocal[order](a, newSpinStage(a))} }

func remoteSpin(t testing.TB, a *arena.Arena, label string, opts ...proctest.Option) *spinActor {
	t.Helper()
	return &spinActor{withRemote[order](t, a, "spin/actor", label, opts...)}
}

// spinEverywhere runs a test three times: with both actors in this process, with one of them in another
// process, and with both in separate processes.
func spinEverywhere(t *testing.T, test func(t *testing.T, holder, other *spinActor, a *arena.Arena)) {
	t.Run("one process", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, localSpin(a), localSpin(a), a)
	})
	t.Run("holder elsewhere", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, remoteSpin(t, a, "holder"), localSpin(a), a)
	})
	t.Run("both elsewhere", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, remoteSpin(t, a, "holder"), remoteSpin(t, a, "other"), a)
	})
}

// op carries out an order that has no arguments.
func (x *spinActor) op(t testing.TB, op, object string) answer {
	t.Helper()
	return x.do(t, order{Op: op, Object: object})
}

// must carries out an order that has to succeed.
func (x *spinActor) must(t testing.TB, op, object string) {
	t.Helper()
	a := x.op(t, op, object)
	require.Empty(t, a.Err+a.Panic, "%s of %s\n%s", op, object, x.dump())
}

// try carries out an order that tries to lock, and returns whether it did.
func (x *spinActor) try(t testing.TB, op, object string) bool {
	t.Helper()
	a := x.op(t, op, object)
	require.Empty(t, a.Err+a.Panic, "%s of %s\n%s", op, object, x.dump())
	return a.OK
}

// blocked starts an order, waits until the order blocks in its lock call, and returns the ID of the order.
func (x *spinActor) blocked(t testing.TB, o order) int {
	t.Helper()
	count := order{Op: "waiters", Object: o.Object, Policy: o.Policy}
	n := x.do(t, count).N
	id := x.start(o)
	eventually(t, fmt.Sprintf("%s of %s waits", o.Op, o.Object), x.dump, func() bool { return x.do(t, count).N >= n+1 })
	return id
}

func (s *spinStage) perform(o order, a *answer) error {
	ctx := s.contexts.begin(o.ID, o.Limit, o.Done)
	switch {
	case o.Op == "cancel":
		s.contexts.end(o.N)
	case o.Op == "leave":
		return s.a.Close()
	case o.Op == "cpu":
		a.N = cpuTime()
	case strings.HasPrefix(o.Object, "rw"):
		return s.actRW(ctx, o, a)
	default:
		return s.actSpin(ctx, o, a)
	}
	return nil
}

// cpuTime returns the CPU time of this process in nanoseconds.
func cpuTime() uint64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano())
}

func repairBy(o order, a *answer) func() error {
	return func() error {
		a.OK = true // the repair has run
		if o.N == 1 {
			return errRepair
		}
		return nil
	}
}

func (s *spinStage) actSpin(ctx context.Context, o order, a *answer) error {
	s.mu.Lock()
	l := s.spins[o.Object]
	if l == nil {
		var err error
		if l, err = prims.OpenSpinLock(s.a, o.Object, &prims.SpinLockOptions{Policy: o.Policy}); err != nil {
			s.mu.Unlock()
			return err
		}
		s.spins[o.Object] = l
	}
	s.mu.Unlock()
	switch o.Op {
	case "open":
	case "lock":
		l.Lock()
	case "lockctx":
		return l.LockContext(ctx)
	case "trylock":
		a.OK = l.TryLock()
	case "unlock":
		l.Unlock()
	case "recover":
		return l.RecoverContext(ctx, repairBy(o, a))
	case "waiters":
		a.N = uint64(l.Waiters())
	case "state":
		st := l.State()
		a.Text, a.OK, a.Who = st.Word, st.Held, st.Owner
		return st.Err
	case "steps": // starts o.Token goroutines, each of which increments a counter o.N times under the lock
		v, err := arena.Value[int64](s.a, "counter")
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for range o.Token {
			wg.Go(func() {
				for range o.N {
					l.Lock()
					*v++
					l.Unlock()
				}
			})
		}
		wg.Wait()
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

func (s *spinStage) rw(o order) (*prims.RWSpinLock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.rws[o.Object]; l != nil {
		return l, nil
	}
	l, err := prims.OpenRWSpinLock(s.a, o.Object, &prims.RWSpinLockOptions{Policy: o.Policy})
	if err == nil {
		s.rws[o.Object] = l
	}
	return l, err
}

func (s *spinStage) actRW(ctx context.Context, o order, a *answer) error {
	l, err := s.rw(o)
	if err != nil {
		return err
	}
	switch o.Op {
	case "open":
	case "lock":
		l.Lock()
	case "lockctx":
		return l.LockContext(ctx)
	case "trylock":
		a.OK = l.TryLock()
	case "unlock":
		l.Unlock()
	case "rlock":
		l.RLock()
	case "rlockctx":
		return l.RLockContext(ctx)
	case "tryrlock":
		a.OK = l.TryRLock()
	case "runlock":
		l.RUnlock()
	case "ulock":
		l.LockUpgradable()
	case "ulockctx":
		return l.LockUpgradableContext(ctx)
	case "tryulock":
		a.OK = l.TryLockUpgradable()
	case "uunlock":
		l.UnlockUpgradable()
	case "upgrade":
		l.Upgrade()
	case "upgradectx":
		return l.UpgradeContext(ctx)
	case "tryupgrade":
		a.OK = l.TryUpgrade()
	case "w2r":
		l.Downgrade()
	case "w2u":
		l.DowngradeToUpgradable()
	case "u2r":
		l.DowngradeToRead()
	case "recover":
		return l.RecoverContext(ctx, repairBy(o, a))
	case "waiters":
		a.N = uint64(l.Waiters())
	case "state":
		st := l.State()
		a.Text, a.OK, a.Who = st.Word, st.Held, st.Owner
		for _, r := range st.Readers {
			a.N += uint64(r.Holds)
		}
		return st.Err
	case "bits":
		a.N = l.Bits()
	case "pair": // writes the same value to two words, and reports whether they are equal
		return rwSpinPair(s.a, l, o.N)
	case "walk":
		return rwSpinWalk(s.a, l, o.N, int(o.Token))
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}
