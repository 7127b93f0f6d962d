//go:build linux

package cinterop

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_rw.h.

func init() {
	verbs["rw"] = (*goAgent).rw
	groupTurns["group.rw"] = (*goAgent).groupRW
}

func (x *goAgent) rw(o order) (n uint64, err error) {
	var opts prims.RWMutexOptions
	if o.verb == "rw.open" {
		opts.Policy = prims.Policy(o.arg(0))
	}
	m, err := prims.OpenRWMutex(x.a, o.name, &opts)
	if err != nil {
		return 0, err
	}
	tried := func(ok bool) error {
		if err := m.State().Err; !ok && err != nil {
			return err
		}
		return try(ok)
	}
	switch o.verb {
	case "rw.open":
		return uint64(m.Offset()), nil
	case "rw.try":
		return 0, tried(m.TryLock())
	case "rw.rtry":
		return 0, tried(m.TryRLock())
	case "rw.unlock":
		m.Unlock()
	case "rw.runlock":
		m.RUnlock()
	case "rw.down":
		m.Downgrade()
	case "rw.utry":
		return 0, tried(m.TryLockUpgradable())
	case "rw.uunlock":
		m.UnlockUpgradable()
	case "rw.uptry":
		return 0, try(m.TryUpgrade())
	case "rw.w2u":
		m.DowngradeToUpgradable()
	case "rw.u2r":
		m.DowngradeToRead()
	case "rw.ulock":
		return 0, m.LockUpgradableContext(o.ctx(0))
	case "rw.up":
		return 0, m.UpgradeContext(o.ctx(0))
	case "rw.hang":
		return 0, m.Recover(x.hangs)
	case "rw.recover":
		err = m.Recover(func() error {
			n++
			return nil
		})
		return n, err
	case "rw.spoil":
		return 0, m.Recover(func() error { return errors.New("spoilt") })
	case "rw.lock":
		return 0, m.LockContext(o.ctx(0))
	case "rw.rlock":
		return 0, m.RLockContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

// groupUpgrades changes an upgradable hold in one of five ways, and releases the hold. The parameter turn selects the
// way.
func (x *goAgent) groupUpgrades(m *prims.RWMutex, name string, turn int) error {
	switch turn % 5 {
	case 0:
		m.UnlockUpgradable()
		return nil
	case 1:
		m.DowngradeToRead()
		m.RUnlock()
		return nil
	case 2:
		if !m.TryUpgrade() {
			m.UnlockUpgradable()
			return nil
		}
	default:
		ctx, cancel := inMs(1)
		defer cancel()
		if err := m.UpgradeContext(ctx); err != nil {
			m.UnlockUpgradable()
			return err
		}
	}
	if err := x.alone(name); err != nil {
		return err
	}
	if turn%5 == 3 {
		m.Unlock()
	} else {
		m.DowngradeToUpgradable()
		m.UnlockUpgradable()
	}
	return nil
}

func (x *goAgent) groupRW(name string, turn int) error {
	m, err := prims.OpenRWMutex(x.a, name, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx := context.Background()
	writes := turn%3 == 0
	upgrades := turn%6 == 1
	if writes && turn%2 != 0 || !writes && turn%4 == 0 || upgrades && turn%4 == 1 {
		c, cancel := inMs(1)
		defer cancel()
		ctx = c
	}
	if upgrades {
		err = m.LockUpgradableContext(ctx)
	} else if writes {
		err = m.LockContext(ctx)
	} else {
		err = m.RLockContext(ctx)
	}
	switch {
	case errors.Is(err, shmsync.ErrOwnerDead):
		err = m.Recover(func() error { return nil })
	case err == nil && upgrades:
		err = x.groupUpgrades(m, name, turn/6)
	case err == nil && writes:
		if err = x.alone(name); err != nil {
			return err
		}
		if turn%9 == 0 {
			m.Downgrade()
			m.RUnlock()
		} else {
			m.Unlock()
		}
	case err == nil:
		s, e := prims.OpenSequencer(x.a, name+"-in", nil)
		if e != nil {
			return e
		}
		defer s.Close()
		was := s.Value()
		for range 3 {
			runtime.Gosched()
		}
		if s.Value() != was {
			return errTwo
		}
		m.RUnlock()
	}
	return but(err, context.DeadlineExceeded)
}

func TestRWMutexPlain(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "rw.open", "m")
		s.b.start(t, "rw.open", "m", release).fails(t, syscall.EINVAL)
		s.a.do(t, "rw.rlock", "m")
		s.b.do(t, "rw.rlock", "m")
		s.b.start(t, "rw.try", "m").fails(t, syscall.EBUSY)
		s.b.start(t, "rw.lock", "m", 20).fails(t, syscall.ETIMEDOUT)
		s.c.do(t, "rw.rtry", "m") // the writer that gave up has let readers in again
		s.c.do(t, "rw.runlock", "m")
		w := s.c.asleep(t, off, 1, "rw.lock", "m")
		s.b.start(t, "rw.rtry", "m").fails(t, syscall.EBUSY)
		r := s.b.asleep(t, off, 2, "rw.rlock", "m")
		s.a.do(t, "rw.runlock", "m")
		s.b.do(t, "rw.runlock", "m")
		w.must(t)
		s.a.start(t, "rw.rlock", "m", 20).fails(t, syscall.ETIMEDOUT)
		s.a.start(t, "rw.unlock", "m").fails(t, unlockRefused)
		s.c.do(t, "rw.down", "m")
		r.must(t)
		s.a.start(t, "rw.try", "m").fails(t, syscall.EBUSY)
		s.b.do(t, "rw.runlock", "m")
		s.c.do(t, "rw.runlock", "m")
		s.a.do(t, "rw.lock", "m")
		r = s.b.asleep(t, off, 1, "rw.rlock", "m")
		s.a.do(t, "rw.unlock", "m")
		r.must(t)
	})
}

// unlockRefused is the error of an unlock by a process that does not have the hold.
const unlockRefused = syscall.EPERM

func TestRWMutexKilledWriter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.a.do(t, "rw.lock", "m")
		r := s.b.asleep(t, off, 1, "rw.rlock", "m")
		w := s.c.asleep(t, off, 2, "rw.lock", "m")
		s.a.kill(t)
		r.fails(t, syscall.EOWNERDEAD)
		w.fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "rw.rtry", "m").fails(t, syscall.EOWNERDEAD)
		s.b.start(t, "rw.spoil", "m").fails(t, syscall.ENOTRECOVERABLE)
		s.c.start(t, "rw.rlock", "m").fails(t, syscall.ENOTRECOVERABLE)
		if n := s.c.do(t, "rw.recover", "m"); n != 1 {
			t.Fatalf("%d repairs", n)
		}
		s.b.do(t, "rw.rlock", "m")
	})
}

func TestRWMutexKilledWriterRelease(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m", release)
		s.a.do(t, "rw.lock", "m")
		r := s.b.asleep(t, off, 1, "rw.rlock", "m")
		s.a.kill(t)
		r.must(t)
	})
}

func TestRWMutexKilledReader(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.a.do(t, "rw.rlock", "m")
		s.a.do(t, "rw.rlock", "m")
		w := s.b.asleep(t, off, 1, "rw.lock", "m")
		s.a.kill(t)
		w.must(t)
	})
}

// A writer that waits for readers is killed, and so is a reader that waits for a writer. After its death neither
// keeps anybody out.
func TestRWMutexKilledWaiter(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.b.do(t, "rw.rlock", "m")
		s.a.asleep(t, off, 1, "rw.lock", "m")
		r := s.c.asleep(t, off, 2, "rw.rlock", "m")
		s.a.kill(t)
		r.must(t)
		s.b.do(t, "rw.runlock", "m")
		s.c.do(t, "rw.runlock", "m")

		a := newAgent(t, s.a.lang, s.arena, "reader")
		s.b.do(t, "rw.lock", "m")
		a.asleep(t, off, 1, "rw.rlock", "m")
		a.kill(t)
		s.b.do(t, "rw.unlock", "m")
		s.c.do(t, "rw.lock", "m")
	})
}

func TestRWMutexUpgradable(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.a.do(t, "rw.open", "m")
		for _, verb := range []string{"rw.uunlock", "rw.up", "rw.uptry", "rw.u2r", "rw.w2u"} {
			s.a.start(t, verb, "m").fails(t, unlockRefused)
		}
		s.b.do(t, "rw.rlock", "m")
		s.a.do(t, "rw.ulock", "m")
		s.c.do(t, "rw.rtry", "m") // a reader gets in beside the upgradable hold
		s.c.do(t, "rw.runlock", "m")
		s.b.start(t, "rw.try", "m").fails(t, syscall.EBUSY)
		s.b.start(t, "rw.utry", "m").fails(t, syscall.EBUSY)
		s.b.start(t, "rw.ulock", "m", 20).fails(t, syscall.ETIMEDOUT)
		s.b.start(t, "rw.uunlock", "m").fails(t, unlockRefused)
		s.a.start(t, "rw.unlock", "m").fails(t, unlockRefused)
		s.a.start(t, "rw.uptry", "m").fails(t, syscall.EBUSY)
		s.a.start(t, "rw.up", "m", 20).fails(t, syscall.ETIMEDOUT)
		s.c.do(t, "rw.rtry", "m") // an upgrade that gave up has let readers in again
		s.c.do(t, "rw.runlock", "m")
		w := s.c.asleep(t, off, 1, "rw.lock", "m")
		up := s.a.asleep(t, off, 2, "rw.up", "m")
		s.b.start(t, "rw.rtry", "m").fails(t, syscall.EBUSY)
		r := s.b.asleep(t, off, 3, "rw.rlock", "m")
		s.b.do(t, "rw.runlock", "m")
		up.must(t)
		s.a.start(t, "rw.uunlock", "m").fails(t, unlockRefused)
		s.a.do(t, "rw.w2u", "m")
		r.must(t)
		s.b.do(t, "rw.runlock", "m")
		s.a.do(t, "rw.uptry", "m")
		s.a.do(t, "rw.w2u", "m")
		s.a.do(t, "rw.u2r", "m")
		s.b.start(t, "rw.try", "m").fails(t, syscall.EBUSY)
		s.a.do(t, "rw.runlock", "m")
		w.must(t)
		u := s.b.asleep(t, off, 1, "rw.ulock", "m")
		s.c.do(t, "rw.unlock", "m")
		u.must(t)
		s.b.do(t, "rw.uunlock", "m")
		s.a.do(t, "rw.utry", "m")
		s.a.do(t, "rw.uunlock", "m")
	})
}

// If a process dies while it has an upgradable hold or while it upgrades, no death is reported. If it dies after
// the upgrade, the death is reported as that of a writer.
func TestRWMutexKilledUpgrader(t *testing.T) {
	forPairs(t, func(t *testing.T, s scene) {
		off := s.b.do(t, "rw.open", "m")
		s.a.do(t, "rw.ulock", "m")
		w := s.b.asleep(t, off, 1, "rw.lock", "m")
		s.a.kill(t)
		w.must(t)
		s.b.do(t, "rw.w2u", "m")

		a := newAgent(t, s.a.lang, s.arena, "upgrader")
		u := a.asleep(t, off, 1, "rw.ulock", "m")
		s.c.do(t, "rw.rlock", "m")
		s.b.do(t, "rw.uunlock", "m")
		u.must(t)
		a.asleep(t, off, 1, "rw.up", "m")
		r := s.b.asleep(t, off, 2, "rw.rlock", "m")
		a.kill(t)
		r.must(t)
		s.b.do(t, "rw.ulock", "m")
		s.b.do(t, "rw.u2r", "m")
		s.b.do(t, "rw.runlock", "m")
		s.b.do(t, "rw.runlock", "m")
		s.c.do(t, "rw.runlock", "m")

		a = newAgent(t, s.a.lang, s.arena, "writer")
		a.do(t, "rw.ulock", "m")
		a.do(t, "rw.up", "m")
		u = s.b.asleep(t, off, 1, "rw.ulock", "m")
		a.kill(t)
		u.fails(t, syscall.EOWNERDEAD)
		s.c.start(t, "rw.utry", "m").fails(t, syscall.EOWNERDEAD)
		if n := s.c.do(t, "rw.recover", "m"); n != 1 {
			t.Fatalf("%d repairs", n)
		}
		s.b.do(t, "rw.ulock", "m")
	})
}
