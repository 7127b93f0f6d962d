//go:build linux

package cinterop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_group.h.

func init() { verbs["group"] = (*goAgent).group }

func (x *goAgent) group(o order) (n uint64, err error) {
	turn := groupTurns[o.verb]
	if turn == nil {
		return 0, syscall.ENOSYS
	}
	for n < uint64(o.arg(0)) && err == nil {
		err = turn(x, o.name, int(n))
		n++
	}
	return n, err
}

var groupTurns = map[string]func(x *goAgent, name string, turn int) error{
	"group.queue": (*goAgent).groupQueue, "group.event": (*goAgent).groupEvent, "group.seq": (*goAgent).groupSeq,
	"group.fair": (*goAgent).groupFair, "group.cond": (*goAgent).groupCond, "group.wg": (*goAgent).groupWaitGroup,
	"group.barrier": (*goAgent).groupBarrier, "group.future": (*goAgent).groupFuture, "group.once": (*goAgent).groupOnce,
	"group.sem": (*goAgent).groupSemaphore, "group.sync": (*goAgent).groupSynchronized,
}

func inMs(ms int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
}

// The function but returns err, or nil if err is one of the errors in the parameter fine.
func but(err error, fine ...error) error {
	for _, f := range fine {
		if errors.Is(err, f) {
			return nil
		}
	}
	return err
}

var errTwo = errors.New("there are two")

// alone passes through the critical section of the given name. It returns an error if another process is in that
// critical section.
func (x *goAgent) alone(name string) error {
	s, err := prims.OpenSequencer(x.a, name+"-in", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	was := s.Value()
	runtime.Gosched()
	if s.Increment() != was+1 {
		return errTwo
	}
	return nil
}

func (x *goAgent) groupQueue(name string, turn int) error {
	q, err := prims.AttachQueue[uint64](x.a, name, nil)
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.Put(uint64(os.Getpid())); err != nil {
		return err
	}
	if turn%3 == 0 {
		_, err = q.Get()
	} else if l, e := q.Lease(); e != nil {
		err = e
	} else {
		if turn%3 == 1 {
			l.Nack()
			if l, err = q.Lease(); err != nil {
				return err
			}
		}
		l.Ack()
	}
	if err == nil && turn%7 == 0 {
		ctx, cancel := inMs(1)
		defer cancel()
		if l, e := q.LeaseContext(ctx); e == nil {
			l.Nack()
		}
	}
	return err
}

func (x *goAgent) groupEvent(name string, turn int) error {
	e, err := prims.OpenEvent(x.a, name, nil)
	if err != nil {
		return err
	}
	defer e.Close()
	ctx, cancel := inMs(5)
	defer cancel()
	if err := but(e.WaitContext(ctx), context.DeadlineExceeded); err != nil {
		return err
	}
	e.Set()
	return nil
}

func (x *goAgent) groupSeq(name string, turn int) error {
	s, err := prims.OpenSequencer(x.a, name, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := inMs(3)
	defer cancel()
	err = s.WaitContext(ctx, s.Increment()+1+uint64(turn%3))
	if turn%16 == 15 {
		s.CancelWaiters()
	}
	return but(err, context.DeadlineExceeded, shmsync.ErrCanceled)
}

func (x *goAgent) groupFair(name string, turn int) error {
	f, err := prims.OpenFairMutex(x.a, name, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx := context.Background()
	if turn%4 == 3 {
		c, cancel := inMs(1)
		defer cancel()
		ctx = c
	}
	switch err = f.LockContext(ctx); {
	case err == nil:
		if err = x.alone(name); err == nil {
			f.Unlock()
		}
	case errors.Is(err, shmsync.ErrOwnerDead):
		err = f.Recover(func() error { return nil })
	}
	return but(err, context.DeadlineExceeded)
}

func (x *goAgent) groupCond(name string, turn int) error {
	m, err := prims.OpenMutex(x.a, name+"-lock", nil)
	if err != nil {
		return err
	}
	defer m.Close()
	c, err := prims.OpenCond(x.a, name, m, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err = m.LockContext(context.Background()); err == nil {
		if turn%4 == 0 {
			c.Broadcast()
		} else {
			c.Signal()
		}
		ctx, cancel := inMs(4)
		defer cancel()
		if err = but(c.WaitContext(ctx), context.DeadlineExceeded); err == nil {
			m.Unlock()
		}
	}
	if errors.Is(err, shmsync.ErrOwnerDead) {
		err = m.Recover(func() error { return nil })
	}
	return err
}

func (x *goAgent) groupWaitGroup(name string, turn int) error {
	g, err := prims.OpenWaitGroup(x.a, name, nil)
	if err != nil {
		return err
	}
	defer g.Close()
	g.Add(2)
	g.Done()
	ctx, cancel := inMs(2)
	defer cancel()
	err = g.WaitContext(ctx)
	g.Done()
	if errors.Is(err, shmsync.ErrOwnerDead) {
		g.Reset()
	}
	return but(err, shmsync.ErrOwnerDead, context.DeadlineExceeded)
}

func (x *goAgent) groupBarrier(name string, turn int) error {
	b, err := prims.AttachBarrier(x.a, name, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := inMs(5)
	defer cancel()
	err = b.ArriveAndWaitContext(ctx)
	if errors.Is(err, shmsync.ErrOwnerDead) {
		b.ResetTo(2)
	}
	return but(err, shmsync.ErrOwnerDead, context.DeadlineExceeded)
}

func (x *goAgent) groupFuture(name string, turn int) error {
	f, err := prims.OpenFuture(x.a, name, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Claim() {
		f.Set(syscall.Errno(turn))
	} else {
		ctx, cancel := inMs(5)
		defer cancel()
		_, err = f.WaitContext(ctx)
	}
	if turn%2 == 0 || errors.Is(err, shmsync.ErrOwnerDead) {
		f.Reset()
	}
	return but(err, shmsync.ErrOwnerDead, context.DeadlineExceeded)
}

func (x *goAgent) groupOnce(name string, turn int) error {
	o, err := prims.OpenOnce(x.a, fmt.Sprintf("%s-%d", name, turn/4), nil)
	if err != nil {
		return err
	}
	defer o.Close()
	if err = o.DoContext(context.Background(), runtime.Gosched); err == nil && !o.Done() {
		err = errors.New("it is not done")
	}
	return err
}

func (x *goAgent) groupSemaphore(name string, turn int) error {
	s, err := prims.AttachSemaphore(x.a, name, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, n := context.Background(), int64(1+turn%2)
	if turn%4 == 3 {
		c, cancel := inMs(1)
		defer cancel()
		ctx = c
	}
	if err = s.AcquireContext(ctx, n); err == nil {
		if turn%8 < 2 {
			runtime.Gosched()
		}
		s.Release(n)
	}
	return but(err, context.DeadlineExceeded)
}
