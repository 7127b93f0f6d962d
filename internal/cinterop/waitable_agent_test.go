//go:build linux

package cinterop

import (
	"syscall"

	"github.com/shmsync/shmsync/prims"
)

// This file has the verbs of the agent in Go for kinds that C does not have.

func init() {
	verbs["waitable"] = (*goAgent).waitable
	verbs["cohort"] = (*goAgent).cohort
}

type room struct{ Free uint32 }

// waitable opens a Waitable whose waits claim parts of a number.
func (x *goAgent) waitable(o order) (uint64, error) {
	w, err := prims.OpenWaitable(x.a, o.name, room{uint32(o.arg(0))}, prims.Rules[room, uint32]{
		Claim: func(s *room, n uint32) bool {
			if s.Free < n {
				return false
			}
			s.Free -= n
			return true
		},
		Release: func(s *room, n uint32) { s.Free += n },
	}, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "waitable.open":
		return uint64(w.Offset()), nil
	case "waitable.wait":
		return 0, w.WaitContext(o.ctx(1), uint32(o.arg(0)))
	case "waitable.release":
		w.Release(uint32(o.arg(0)))
		return 0, nil
	}
	return 0, syscall.ENOSYS
}

func (x *goAgent) cohort(o order) (uint64, error) {
	m, err := prims.OpenCohortMutex(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "cohort.open":
		return uint64(m.Offset()), nil
	case "cohort.lock":
		return 0, m.LockContext(o.ctx(0))
	case "cohort.unlock":
		m.Unlock()
		return 0, nil
	}
	return 0, syscall.ENOSYS
}
