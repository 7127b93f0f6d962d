//go:build linux

package cinterop

import (
	"errors"
	"syscall"

	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_more.h.

func init() {
	verbs["fair"] = (*goAgent).fair
	verbs["future"] = (*goAgent).future
	verbs["cond"] = (*goAgent).cond
	verbs["sem"] = (*goAgent).semaphore
}

func (x *goAgent) fair(o order) (n uint64, err error) {
	var opts prims.FairMutexOptions
	if o.verb == "fair.open" {
		opts.Policy = prims.Policy(o.arg(0))
	}
	f, err := prims.OpenFairMutex(x.a, o.name, &opts)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "fair.open":
		return uint64(f.Offset()), nil
	case "fair.try":
		if !f.TryLock() {
			if err := f.State().Err; err != nil {
				return 0, err
			}
			return 0, syscall.EBUSY
		}
	case "fair.unlock":
		f.Unlock()
	case "fair.hang":
		return 0, f.Recover(x.hangs)
	case "fair.recover":
		err = f.RecoverContext(o.ctx(0), func() error {
			n++
			return nil
		})
		return n, err
	case "fair.spoil":
		return 0, f.RecoverContext(o.ctx(0), func() error { return errors.New("spoilt") })
	case "fair.lock":
		return 0, f.LockContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) future(o order) (uint64, error) {
	f, err := prims.OpenFuture(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "future.open":
		return uint64(f.Offset()), nil
	case "future.claim":
		return 0, try(f.Claim())
	case "future.set":
		return 0, try(f.Set(syscall.Errno(o.arg(0))))
	case "future.isset":
		_, ok := f.IsSet()
		return yes(ok), nil
	case "future.reset":
		return 0, try(f.Reset())
	case "future.recoverall":
		_, err := prims.RecoverAll(x.a, func(prims.Lost) error { return nil })
		return 0, err
	case "future.wait":
		e, err := f.WaitContext(o.ctx(0))
		return uint64(e), err
	}
	return 0, syscall.ENOSYS
}

// cond opens a Cond and its lock: a Mutex with the name of the Cond and the suffix "-lock".
func (x *goAgent) cond(o order) (uint64, error) {
	m, err := prims.OpenMutex(x.a, o.name+"-lock", nil)
	if err != nil {
		return 0, err
	}
	c, err := prims.OpenCond(x.a, o.name, m, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "cond.open":
		return uint64(c.Offset()), nil
	case "cond.signal":
		c.Signal()
	case "cond.broadcast":
		c.Broadcast()
	case "cond.lock":
		m.Lock()
	case "cond.unlock":
		m.Unlock()
	case "cond.apart": // like cond.wait, with a Mutex for this call only
		if m, err = prims.OpenMutex(x.a, "", nil); err != nil {
			return 0, err
		}
		if c, err = prims.OpenCond(x.a, o.name, m, nil); err != nil {
			return 0, err
		}
		fallthrough
	case "cond.wait":
		if err := m.LockContext(o.ctx(1)); err != nil {
			return 0, err
		}
		err := c.WaitContext(o.ctx(0))
		if e := errnoOf(err); e == 0 || e == syscall.ETIMEDOUT {
			m.Unlock()
		}
		return 0, err
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) semaphore(o order) (uint64, error) {
	var s *prims.Semaphore
	var err error
	if o.verb == "sem.open" {
		s, err = prims.OpenSemaphore(x.a, o.name, o.arg(0), &prims.SemaphoreOptions{Mode: []prims.SemaphoreMode{0, prims.SemaphoreTransferable}[o.arg(1)]})
	} else {
		s, err = prims.AttachSemaphore(x.a, o.name, nil)
	}
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "sem.open":
		return uint64(s.Offset()), nil
	case "sem.try":
		return 0, try(s.TryAcquire(o.arg(0)))
	case "sem.release":
		s.Release(o.arg(0))
	case "sem.free":
		return uint64(s.State().Free), nil
	case "sem.acquire":
		return 0, s.AcquireContext(o.ctx(1), o.arg(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}
