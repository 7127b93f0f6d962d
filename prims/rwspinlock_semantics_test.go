//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
)

// This is folly's test WriterWaitReaders: a writer gets the lock when the last reader has left, and not sooner.
// No new reader gets the lock before the writer.
func TestRWSpinLockWriterWaitsForReaders(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		const readers = 8
		for range readers {
			holder.must(t, "rlock", "rw")
		}
		require.False(t, other.try(t, "trylock", "rw"))
		require.True(t, holder.try(t, "tryrlock", "rw"), "a try that failed is in the way")
		holder.must(t, "runlock", "rw")
		w := other.blocked(t, order{Op: "lock", Object: "rw"})
		eventually(t, "it has claimed the lock", holder.dump, func() bool { return !holder.try(t, "tryrlock", "rw") || !undone(t, holder) })
		late := holder.blocked(t, order{Op: "rlock", Object: "rw"})
		for range readers - 1 {
			holder.must(t, "runlock", "rw")
			require.Contains(t, other.op(t, "state", "rw").Text, "which waits for readers")
		}
		holder.must(t, "runlock", "rw")
		require.Empty(t, other.wait(t, w).Err)
		require.Zero(t, other.op(t, "state", "rw").N, "a reader is in")
		other.must(t, "unlock", "rw")
		require.Empty(t, holder.wait(t, late).Err)
		holder.must(t, "runlock", "rw")
		require.Zero(t, other.op(t, "bits", "rw").N)
	})
}

// undone releases the hold for reading that a successful try has got, and returns true.
func undone(t *testing.T, x *spinActor) bool {
	x.must(t, "runlock", "rw")
	return true
}

// This is folly's test ReadersWaitWriter: all readers get the lock when the writer has left.
func TestRWSpinLockReadersWaitForWriter(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		for _, give := range []string{"unlock", "w2r", "uunlock", "u2r"} {
			take := "lock"
			if give[0] == 'u' && give != "unlock" {
				take = "ulock"
			}
			holder.must(t, take, "rw")
			var ids []int
			for range 20 { // more goroutines than may sleep in the kernel; see park.DirectMax
				ids = append(ids, other.blocked(t, order{Op: "rlock", Object: "rw"}))
			}
			require.False(t, other.try(t, "tryrlock", "rw"))
			holder.must(t, give, "rw")
			for _, id := range ids {
				require.Empty(t, other.wait(t, id).Err)
			}
			if give == "w2r" || give == "u2r" {
				require.EqualValues(t, 21, holder.op(t, "state", "rw").N)
				require.False(t, other.try(t, "trylock", "rw"))
				holder.must(t, "runlock", "rw")
			}
			for range ids {
				other.must(t, "runlock", "rw")
			}
			require.Zero(t, other.op(t, "bits", "rw").N, "after %s", give)
		}
	})
}

// This is folly's test WriterWaitWriter: a writer waits for another writer.
func TestRWSpinLockWriterWaitsForWriter(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		holder.must(t, "lock", "rw")
		require.False(t, other.try(t, "trylock", "rw"))
		require.False(t, holder.try(t, "trylock", "rw"), "it is not recursive")
		id := other.blocked(t, order{Op: "lock", Object: "rw"})
		holder.must(t, "unlock", "rw")
		require.Empty(t, other.wait(t, id).Err)
		require.False(t, holder.try(t, "trylock", "rw"))
		other.must(t, "unlock", "rw")
		require.Zero(t, other.op(t, "bits", "rw").N)
	})
}

// These are folly's lockUnlockTests as a complete matrix. The test checks which holds another process can get
// beside each hold, and after each change from one hold to another. At the end no hold is left.
func TestRWSpinLockModes(t *testing.T) {
	type mode struct {
		take, give string
		w, r, u    bool // which tries of another process succeed
	}
	modes := map[string]mode{
		"R": {"rlock", "runlock", false, true, true},
		"W": {"lock", "unlock", false, false, false},
		"U": {"ulock", "uunlock", false, false, false},
	}
	ways := []struct{ from, by, to string }{
		{"U", "upgrade", "W"}, {"U", "tryupgrade", "W"}, {"U", "upgradectx", "W"},
		{"W", "w2r", "R"}, {"W", "w2u", "U"}, {"U", "u2r", "R"},
	}
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		beside := func(name string) {
			m := modes[name]
			require.Equal(t, m.w, other.try(t, "trylock", "rw"), "W beside %s", name)
			if other.try(t, "tryrlock", "rw") {
				require.True(t, m.r, "R beside %s", name)
				other.must(t, "runlock", "rw")
			} else {
				require.False(t, m.r, "R beside %s", name)
			}
			if other.try(t, "tryulock", "rw") {
				require.True(t, m.u, "U beside %s", name)
				require.Equal(t, name != "R", other.try(t, "tryupgrade", "rw"), "U to W beside %s", name)
				other.must(t, "uunlock", "rw")
			} else {
				require.False(t, m.u, "U beside %s", name)
			}
		}
		for name, m := range modes {
			for _, op := range []string{m.take, "try" + m.take, m.take + "ctx"} {
				r := holder.op(t, op, "rw")
				require.Empty(t, r.Err+r.Panic)
				beside(name)
				holder.must(t, m.give, "rw")
				require.Zero(t, other.op(t, "bits", "rw").N, "after %s", op)
			}
		}
		for _, way := range ways {
			holder.must(t, modes[way.from].take, "rw")
			r := holder.op(t, way.by, "rw")
			require.Empty(t, r.Err+r.Panic)
			require.True(t, way.by != "tryupgrade" || r.OK)
			beside(way.to)
			holder.must(t, modes[way.to].give, "rw")
			require.Zero(t, other.op(t, "bits", "rw").N, "after %s to %s", way.from, way.to)
		}
		// A reader does not delay a LockUpgradable, but it delays an upgrade.
		other.must(t, "rlock", "rw")
		holder.must(t, "ulock", "rw")
		require.False(t, holder.try(t, "tryupgrade", "rw"))
		beside("U")
		up := holder.blocked(t, order{Op: "upgrade", Object: "rw"})
		require.Contains(t, other.op(t, "state", "rw").Text, "being upgraded")
		other.must(t, "runlock", "rw")
		require.Empty(t, holder.wait(t, up).Err)
		beside("W")
		holder.must(t, "unlock", "rw")
		require.Zero(t, other.op(t, "bits", "rw").N)
	})
}

// TestRWSpinLockGivesUpDraining: if the context of an upgrade ends, the process still has its upgradable hold.
// If the context of a Lock ends, the readers that the Lock has kept out get in.
func TestRWSpinLockGivesUpDraining(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		holder.must(t, "rlock", "rw")
		other.must(t, "ulock", "rw")
		r := other.do(t, order{Op: "upgradectx", Object: "rw", Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.Contains(t, holder.op(t, "state", "rw").Text, "held for upgrade")
		other.must(t, "uunlock", "rw")

		for _, o := range []string{"rlock", "ulock"} {
			id := other.blocked(t, order{Op: "lockctx", Object: "rw"})
			eventually(t, "it waits for readers", other.dump, func() bool {
				return other.op(t, "state", "rw").Text != "free"
			})
			late := holder.blocked(t, order{Op: o, Object: "rw"})
			other.do(t, order{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, other.wait(t, id).Is)
			require.Empty(t, holder.wait(t, late).Err)
			holder.must(t, map[string]string{"rlock": "runlock", "ulock": "uunlock"}[o], "rw")
		}
		holder.must(t, "runlock", "rw")
		require.Zero(t, other.op(t, "bits", "rw").N)
	})
}

// TestRWSpinLockMistakes: a call that needs a hold panics if the process does not have it. The message has the
// name of the object.
func TestRWSpinLockMistakes(t *testing.T) {
	gives := map[string]string{"unlock": "W", "runlock": "R", "uunlock": "U", "upgrade": "U", "upgradectx": "U", "tryupgrade": "U", "w2r": "W", "w2u": "W", "u2r": "U"}
	takes := map[string][2]string{"none": {}, "W": {"lock", "unlock"}, "R": {"rlock", "runlock"}, "U": {"ulock", "uunlock"}}
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		for mode, take := range takes {
			if mode != "none" {
				holder.must(t, take[0], "rw-ledger")
			}
			was := holder.op(t, "bits", "rw-ledger").N
			for op, needs := range gives {
				for _, x := range []*spinActor{holder, other} {
					if needs == mode && (x == holder || holder.proc == nil) {
						continue // within a process any goroutine may release it
					}
					p := x.op(t, op, "rw-ledger").Panic
					require.Contains(t, p, "rw-ledger", "%s beside %s", op, mode)
					require.Contains(t, p, "does not hold", "%s beside %s", op, mode)
				}
			}
			require.Equal(t, was, holder.op(t, "bits", "rw-ledger").N)
			if mode != "none" {
				holder.must(t, take[1], "rw-ledger")
			}
		}
	})
}

// TestRWSpinLockOverflow: an RLock panics if the count of holds would overflow its field.
func TestRWSpinLockOverflow(t *testing.T) {
	a := newArena(t, nil)
	l := newRWSpin(t, a, nil)
	l.SetHolds(1<<30 - 2)
	l.RLock()
	require.PanicsWithValue(t, fmt.Sprintf("shmsync: RLock of reader/writer spin lock %v: this process holds it 1073741823 of %v, and cannot more often",
		l.Offset(), a.Self()), l.RLock)
	require.Panics(t, func() { l.TryRLock() })
	require.False(t, l.TryLock())
	l.RUnlock()
	require.EqualValues(t, 1<<30-2, l.State().Readers[0].Holds)
	l.SetHolds(1)
	l.RUnlock()
	require.Zero(t, l.Bits())
	rl := l.RLocker()
	rl.Lock()
	require.False(t, l.TryLock())
	rl.Unlock()
	require.True(t, l.TryLock())
	l.Unlock()
}

// rwSpinBoard is where the goroutines of rwSpinWalk record the holds that they have at the moment.
type rwSpinBoard struct {
	W, U, R atomic.Int64
	Turns   atomic.Int64
}

// rwSpinTest has the methods of a lock that the walk needs.
type rwSpinTest interface {
	Lock()
	TryLock() bool
	LockContext(context.Context) error
	Unlock()
	RLock()
	TryRLock() bool
	RLockContext(context.Context) error
	RUnlock()
	LockUpgradable()
	TryLockUpgradable() bool
	LockUpgradableContext(context.Context) error
	UnlockUpgradable()
	Upgrade()
	TryUpgrade() bool
	UpgradeContext(context.Context) error
	Downgrade()
	DowngradeToUpgradable()
	DowngradeToRead()
}

// rwSpinWalk is folly's concurrentHolderTest. Each goroutine makes n random changes from one hold to another.
// After each change it checks on the board that no other goroutine has a hold that its own hold excludes.
func rwSpinWalk(a *arena.Arena, l rwSpinTest, n, goroutines int) error {
	board, err := arena.Value[rwSpinBoard](a, "walk")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, goroutines)
	for g := range goroutines {
		wg.Go(func() { errs[g] = rwSpinWalker{board, l}.walk(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

type rwSpinWalker struct {
	b *rwSpinBoard
	l rwSpinTest
}

func (x rwSpinWalker) walk(n int) error {
	mode := byte('-')
	for range n {
		next, err := x.step(mode)
		if err != nil {
			return fmt.Errorf("from %c: %w", mode, err)
		}
		mode = next
		if err := x.alone(mode); err != nil {
			return err
		}
		x.b.Turns.Add(1)
	}
	switch mode {
	case 'R':
		x.leave(&x.b.R, x.l.RUnlock)
	case 'U':
		x.leave(&x.b.U, x.l.UnlockUpgradable)
	case 'W':
		x.leave(&x.b.W, x.l.Unlock)
	}
	return nil
}

func (x rwSpinWalker) leave(from *atomic.Int64, give func()) {
	from.Add(-1)
	give()
}

// alone returns an error if the board shows a hold that must not exist beside the hold of this walker. The parameter
// mode is the kind of that hold.
func (x rwSpinWalker) alone(mode byte) error {
	w, u, r := x.b.W.Load(), x.b.U.Load(), x.b.R.Load()
	ok := true
	switch mode {
	case 'W':
		ok = w == 1 && u == 0 && r == 0
	case 'U':
		ok = w == 0 && u == 1
	case 'R':
		ok = w == 0 && r > 0
	}
	if !ok {
		return fmt.Errorf("holding %c: %d write, %d are to upgrade, %d read", mode, w, u, r)
	}
	return nil
}

func (x rwSpinWalker) step(mode byte) (byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
	defer cancel()
	took := func(count *atomic.Int64, got bool, is byte) (byte, error) {
		if !got {
			return mode, nil
		}
		count.Add(1)
		return is, nil
	}
	by := func(err error) bool { return err == nil }
	switch k := rand.IntN(9); mode {
	case '-':
		switch k {
		case 0, 6:
			x.l.RLock()
			return took(&x.b.R, true, 'R')
		case 1:
			return took(&x.b.R, x.l.TryRLock(), 'R')
		case 2:
			return took(&x.b.R, by(x.l.RLockContext(ctx)), 'R')
		case 3:
			x.l.Lock()
			return took(&x.b.W, true, 'W')
		case 4:
			return took(&x.b.W, x.l.TryLock(), 'W')
		case 5:
			return took(&x.b.W, by(x.l.LockContext(ctx)), 'W')
		case 7:
			x.l.LockUpgradable()
			return took(&x.b.U, true, 'U')
		default:
			if rand.IntN(2) == 0 {
				return took(&x.b.U, by(x.l.LockUpgradableContext(ctx)), 'U')
			}
			return took(&x.b.U, x.l.TryLockUpgradable(), 'U')
		}
	case 'R':
		x.leave(&x.b.R, x.l.RUnlock)
		return '-', nil
	case 'W':
		switch k % 3 {
		case 0:
			x.b.R.Add(1)
			x.leave(&x.b.W, x.l.Downgrade)
			return 'R', nil
		case 1:
			x.b.U.Add(1)
			x.leave(&x.b.W, x.l.DowngradeToUpgradable)
			return 'U', nil
		}
		x.leave(&x.b.W, x.l.Unlock)
		return '-', nil
	default:
		up := true
		switch k % 5 {
		case 0:
			x.b.R.Add(1)
			x.leave(&x.b.U, x.l.DowngradeToRead)
			return 'R', nil
		case 1:
			x.leave(&x.b.U, x.l.UnlockUpgradable)
			return '-', nil
		case 2:
			x.l.Upgrade()
		case 3:
			up = x.l.TryUpgrade()
		case 4:
			up = by(x.l.UpgradeContext(ctx))
		}
		if up {
			x.b.U.Add(-1)
			x.b.W.Add(1)
			return 'W', nil
		}
		return 'U', nil
	}
}

// This is folly's concurrentHolderTest with two processes.
func TestRWSpinLockWalk(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		n := proctest.Rounds(3000/5, 3000)
		for _, goroutines := range []int{2, 16} {
			start := time.Now()
			o := order{Op: "walk", Object: "rw", N: n, Token: uint64(goroutines)}
			ids := []int{holder.start(o), other.start(o)}
			require.Empty(t, holder.wait(t, ids[0]).Err)
			require.Empty(t, other.wait(t, ids[1]).Err)
			require.Zero(t, holder.op(t, "bits", "rw").N)
			t.Logf("%d goroutines: %v a step", 2*goroutines, time.Since(start)/time.Duration(2*goroutines*n))
		}
		board, err := arena.Value[rwSpinBoard](a, "walk")
		require.NoError(t, err)
		require.Zero(t, board.W.Load()|board.U.Load()|board.R.Load())
		sound(t, a)
	})
}

// rwSpinPair runs four goroutines with n iterations each. In every eighth iteration a goroutine adds 1 to each
// of two words as a writer. In every iteration it checks as a reader that the two words are equal.
func rwSpinPair(a *arena.Arena, l rwSpinTest, n int) error {
	v, err := arena.Value[[2]int64](a, "pair")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for g := range errs {
		wg.Go(func() {
			for i := range n {
				if i%8 == g {
					l.Lock()
					v[0]++
					v[1]++
					l.Unlock()
				}
				l.RLock()
				if x, y := v[1], v[0]; x != y {
					errs[g] = fmt.Errorf("a reader sees %d and %d", x, y)
				}
				l.RUnlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestRWSpinLockExcludes: readers of two processes never see an incomplete write, and no write is lost.
func TestRWSpinLockExcludes(t *testing.T) {
	spinEverywhere(t, func(t *testing.T, holder, other *spinActor, a *arena.Arena) {
		const n = 80_000
		o := order{Op: "pair", Object: "rw", N: n}
		ids := []int{holder.start(o), other.start(o)}
		require.Empty(t, holder.wait(t, ids[0]).Err)
		require.Empty(t, other.wait(t, ids[1]).Err)
		v, err := arena.Value[[2]int64](a, "pair")
		require.NoError(t, err)
		require.EqualValues(t, 2*4*n/8, v[0])
		require.Zero(t, other.op(t, "bits", "rw").N)
	})
}
