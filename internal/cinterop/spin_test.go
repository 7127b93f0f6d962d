//go:build linux

package cinterop

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_spin.h.

func init() {
	verbs["spin"] = (*goAgent).spin
	verbs["rwspin"] = (*goAgent).rwSpin
	groupTurns["group.spin"] = (*goAgent).groupSpin
	groupTurns["group.rwspin"] = (*goAgent).groupRWSpin
}

// tried returns the result of a Try verb. The parameter ok is what the Try returned, and state is the error in the
// state of the lock.
func tried(ok bool, state error) error {
	if !ok && state != nil {
		return state
	}
	return try(ok)
}

func (x *goAgent) spin(o order) (n uint64, err error) {
	var opts prims.SpinLockOptions
	if o.verb == "spin.open" {
		opts.Policy = prims.Policy(o.arg(0))
	}
	l, err := prims.OpenSpinLock(x.a, o.name, &opts)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "spin.open":
		return uint64(l.Offset()), nil
	case "spin.try":
		return 0, tried(l.TryLock(), l.State().Err)
	case "spin.unlock":
		l.Unlock()
	case "spin.hang":
		return 0, l.Recover(x.hangs)
	case "spin.recover":
		err = l.Recover(func() error {
			n++
			return nil
		})
		return n, err
	case "spin.spoil":
		return 0, l.Recover(func() error { return errors.New("spoilt") })
	case "spin.lock":
		return 0, l.LockContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) rwSpin(o order) (n uint64, err error) {
	var opts prims.RWSpinLockOptions
	if o.verb == "rwspin.open" {
		opts.Policy = prims.Policy(o.arg(0))
	}
	l, err := prims.OpenRWSpinLock(x.a, o.name, &opts)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "rwspin.open":
		return uint64(l.Offset()), nil
	case "rwspin.try":
		return 0, tried(l.TryLock(), l.State().Err)
	case "rwspin.rtry":
		return 0, tried(l.TryRLock(), l.State().Err)
	case "rwspin.utry":
		return 0, tried(l.TryLockUpgradable(), l.State().Err)
	case "rwspin.unlock":
		l.Unlock()
	case "rwspin.runlock":
		l.RUnlock()
	case "rwspin.uunlock":
		l.UnlockUpgradable()
	case "rwspin.tryup":
		return 0, try(l.TryUpgrade())
	case "rwspin.down":
		l.Downgrade()
	case "rwspin.udown":
		l.DowngradeToRead()
	case "rwspin.downtou":
		l.DowngradeToUpgradable()
	case "rwspin.hang":
		return 0, l.Recover(x.hangs)
	case "rwspin.recover":
		err = l.Recover(func() error {
			n++
			return nil
		})
		return n, err
	case "rwspin.mend":
		return 0, l.RecoverContext(o.ctx(0), func() error { return nil })
	case "rwspin.lock":
		return 0, l.LockContext(o.ctx(0))
	case "rwspin.rlock":
		return 0, l.RLockContext(o.ctx(0))
	case "rwspin.ulock":
		return 0, l.LockUpgradableContext(o.ctx(0))
	case "rwspin.up":
		return 0, l.UpgradeContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) groupSpin(name string, turn int) error {
	l, err := prims.OpenSpinLock(x.a, name, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx := context.Background()
	if turn%4 == 3 {
		c, cancel := inMs(1)
		defer cancel()
		ctx = c
	}
	switch err = l.LockContext(ctx); {
	case err == nil:
		if err = x.alone(name); err == nil {
			l.Unlock()
		}
	case errors.Is(err, shmsync.ErrOwnerDead):
		err = l.Recover(func() error { return nil })
	}
	return but(err, context.DeadlineExceeded)
}

func (x *goAgent) groupRWSpin(name string, turn int) error {
	l, err := prims.OpenRWSpinLock(x.a, name, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := inMs(2)
	defer cancel()
	switch turn % 4 {
	case 0:
		if turn%8 == 0 {
			ctx = context.Background()
		}
		if err = l.LockContext(ctx); err == nil {
			if err = x.alone(name); err != nil {
				return err
			}
			if turn%16 == 0 {
				l.Downgrade()
				l.RUnlock()
			} else {
				l.Unlock()
			}
		}
	case 1:
		if err = l.LockUpgradableContext(context.Background()); err == nil {
			if err = l.UpgradeContext(ctx); err != nil {
				l.UnlockUpgradable()
			} else if err = x.alone(name); err == nil {
				l.Unlock()
			}
		}
	default:
		if turn%3 != 0 {
			ctx = context.Background()
		}
		if err = l.RLockContext(ctx); err == nil {
			runtime.Gosched()
			l.RUnlock()
		}
	}
	if errors.Is(err, shmsync.ErrOwnerDead) {
		err = l.Recover(func() error { return nil })
	}
	return but(err, context.DeadlineExceeded)
}

func TestSpinLockPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "spin.open", "l")
		s.b.start(t, "spin.open", "l", release).fails(t, syscall.EINVAL)
		s.a.do(t, "spin.lock", "l")
		s.b.start(t, "spin.try", "l").fails(t, syscall.EBUSY)
		s.b.start(t, "spin.lock", "l", 20).fails(t, syscall.ETIMEDOUT)
		s.b.start(t, "spin.unlock", "l").fails(t, syscall.EPERM)
		w := s.b.asleep(t, off, 1, "spin.lock", "l")
		s.a.do(t, "spin.unlock", "l")
		w.must(t)
		s.b.do(t, "spin.unlock", "l")
		s.c.do(t, "spin.try", "l")
	})
}

func TestSpinLockKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "spin.open", "l")
		s.a.do(t, "spin.lock", "l")
		w := s.b.asleep(t, off, 1, "spin.lock", "l")
		s.a.kill(t)
		w.fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "spin.spoil", "l").fails(t, syscall.ENOTRECOVERABLE)
		s.c.start(t, "spin.lock", "l").fails(t, syscall.ENOTRECOVERABLE)
		if n := s.c.do(t, "spin.recover", "l"); n != 1 {
			t.Fatalf("%d repairs", n)
		}
		s.b.do(t, "spin.lock", "l")

		a := newAgent(t, s.a.lang, s.arena, "releases")
		off = s.b.do(t, "spin.open", "r", release)
		a.do(t, "spin.lock", "r")
		w = s.b.asleep(t, off, 1, "spin.lock", "r")
		a.kill(t)
		w.must(t)
	})
}

func TestSpinLockKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "spin.open", "l")
		s.b.do(t, "spin.lock", "l")
		s.a.asleep(t, off, 1, "spin.lock", "l")
		w := s.c.asleep(t, off, 2, "spin.lock", "l")
		s.a.kill(t)
		s.b.do(t, "spin.unlock", "l")
		w.must(t)
	})
}

func TestRWSpinLockPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "rwspin.open", "l")
		s.a.do(t, "rwspin.rlock", "l")
		s.b.do(t, "rwspin.rlock", "l")
		s.b.start(t, "rwspin.try", "l").fails(t, syscall.EBUSY)
		s.b.start(t, "rwspin.lock", "l", 20).fails(t, syscall.ETIMEDOUT)
		s.c.do(t, "rwspin.ulock", "l")
		s.b.start(t, "rwspin.rtry", "l").fails(t, syscall.EBUSY)
		s.b.start(t, "rwspin.utry", "l").fails(t, syscall.EBUSY)
		s.c.start(t, "rwspin.tryup", "l").fails(t, syscall.EBUSY)
		s.c.start(t, "rwspin.up", "l", 20).fails(t, syscall.ETIMEDOUT)
		up := s.c.asleep(t, off, 1, "rwspin.up", "l")
		s.a.do(t, "rwspin.runlock", "l")
		s.b.do(t, "rwspin.runlock", "l")
		up.must(t)
		r := s.b.asleep(t, off, 1, "rwspin.rlock", "l")
		s.c.do(t, "rwspin.downtou", "l")
		s.c.do(t, "rwspin.udown", "l")
		r.must(t)
		s.b.do(t, "rwspin.runlock", "l")
		s.c.do(t, "rwspin.runlock", "l")
		s.c.start(t, "rwspin.runlock", "l").fails(t, unlockRefused)
		s.a.do(t, "rwspin.lock", "l")
		s.a.do(t, "rwspin.down", "l")
		s.b.do(t, "rwspin.rlock", "l")
	})
}

func TestRWSpinLockKilledHolder(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rwspin.open", "l")
		s.a.do(t, "rwspin.rlock", "l")
		w := s.b.asleep(t, off, 1, "rwspin.lock", "l")
		s.a.kill(t) // a reader
		w.must(t)
		s.b.do(t, "rwspin.unlock", "l")

		a := newAgent(t, s.a.lang, s.arena, "writer")
		a.do(t, "rwspin.lock", "l")
		r := s.b.asleep(t, off, 1, "rwspin.rlock", "l")
		a.kill(t)
		r.fails(t, syscall.EOWNERDEAD)
		if n := s.c.do(t, "rwspin.recover", "l"); n != 1 {
			t.Fatalf("%d repairs", n)
		}
		s.b.do(t, "rwspin.rlock", "l")
	})
}

// A process that is killed while it waits to write no longer counts as a writer.
func TestRWSpinLockKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rwspin.open", "l")
		s.b.do(t, "rwspin.rlock", "l")
		s.a.asleep(t, off, 1, "rwspin.lock", "l")
		r := s.c.asleep(t, off, 2, "rwspin.rlock", "l")
		s.a.kill(t)
		r.must(t)
	})
}

// A recovery that gives up marks the lock owner-dead without a participant ID. The ID of the dead participant may
// belong to another participant by now. Programs of both languages understand this word.
func TestRWSpinLockRecoveryGivesUp(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rwspin.open", "l")
		s.b.do(t, "rwspin.rlock", "l")
		s.a.do(t, "rwspin.ulock", "l")
		told := s.c.asleep(t, off, 1, "rwspin.ulock", "l")
		s.a.kill(t)
		told.fails(t, syscall.EOWNERDEAD)
		newAgent(t, s.b.lang, s.arena, "gives up").start(t, "rwspin.mend", "l", 50).fails(t, syscall.ETIMEDOUT)
		x, err := arena.Attach(s.arena, nil)
		require.NoError(t, err)
		l, err := prims.OpenRWSpinLock(x, "l", nil)
		require.NoError(t, err)
		require.Equal(t, "owner-dead", l.State().Word)
		require.NoError(t, x.Close())
		s.c.start(t, "rwspin.rlock", "l").fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "rwspin.utry", "l").fails(t, syscall.EOWNERDEAD)
		s.b.do(t, "rwspin.runlock", "l")
		require.EqualValues(t, 1, s.c.do(t, "rwspin.recover", "l"))
		s.b.do(t, "rwspin.lock", "l")
		s.b.do(t, "rwspin.unlock", "l")
	})
}

// A peer damages the list of slot records. Writers get an error, because a reader may be missing from the list. A
// process that has not opened the lock cannot open it. Readers can lock. When the list is whole again, the lock works
// as before, and a reader that died meanwhile has no hold.
func TestRWSpinLockDamagedListInC(t *testing.T) {
	for _, lang := range []string{"c", "go"} {
		name := newArena(t)
		x, y := newAgent(t, "c", name, "writes"), newAgent(t, lang, name, "reads")
		off := x.do(t, "rwspin.open", "l")
		y.do(t, "rwspin.rlock", "l")
		x.start(t, "rwspin.try", "l").fails(t, syscall.EBUSY)
		var was uint32
		asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
			was = (*arenakernel.Arena)(a).SlotRecords(o).Swap(1)
		})
		x.start(t, "rwspin.state", "l").fails(t, syscall.EPROTO)
		x.start(t, "rwspin.lock", "l").fails(t, syscall.EPROTO)
		x.do(t, "rwspin.rlock", "l")
		x.do(t, "rwspin.runlock", "l")
		x.do(t, "rwspin.ulock", "l")
		x.start(t, "rwspin.up", "l").fails(t, syscall.EPROTO)
		x.do(t, "rwspin.uunlock", "l")
		newAgent(t, lang, name, "opens").start(t, "rwspin.open", "l").fails(t, syscall.EPROTO)
		y.kill(t)
		asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
			(*arenakernel.Arena)(a).SlotRecords(o).Store(was)
		})
		x.do(t, "rwspin.state", "l")
		x.do(t, "rwspin.lock", "l")
		x.do(t, "rwspin.unlock", "l")
		sound(t, name)
	}
}

// A process is stopped for an hour while a waiter yields its CPU. After a yield that takes long, the process does not
// yield for some time. The test checks that this time is at most 10 seconds.
func TestStopDuringAYieldInC(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"spin", "spinlock"} {
		t.Run(verb, func(t *testing.T) { runC(t, "yield.c", newArena(t), verb) })
	}
}
