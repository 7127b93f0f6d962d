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

// The Go side of testdata/agent_rw.h.

func init() {
	verbs["rw"] = (*goAgent).rw
	crewTurns["crew.rw"] = (*goAgent).crewRW
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
	case "rw.recover":
		err = m.Recover(context.Background(), func() error {
			n++
			return nil
		})
		return n, err
	case "rw.spoil":
		return 0, m.Recover(context.Background(), func() error { return errors.New("spoilt") })
	case "rw.lock":
		return 0, m.LockContext(o.ctx(0))
	case "rw.rlock":
		return 0, m.RLockContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) crewRW(name string, turn int) error {
	m, err := prims.OpenRWMutex(x.a, name, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx := context.Background()
	writes := turn%3 == 0
	if writes && turn%2 != 0 || !writes && turn%4 == 0 {
		c, cancel := inMs(1)
		defer cancel()
		ctx = c
	}
	if writes {
		err = m.LockContext(ctx)
	} else {
		err = m.RLockContext(ctx)
	}
	switch {
	case errors.Is(err, shmsync.ErrOwnerDead):
		err = m.Recover(context.Background(), func() error { return nil })
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
		s.c.do(t, "rw.rtry", "m") // who gave up has let readers in again
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

// What is no hold of the caller's cannot be given back.
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

// A writer that waits for readers, and a reader that waits for a writer, keep nobody out
// when they are killed.
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
