//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// pool is the state of a Waitable whose waits take something from it.
type pool struct{ Free, Taken int64 }

var poolRules = prims.Rules[pool, int64]{
	Claim: func(s *pool, n int64) bool {
		if s.Free < n {
			return false
		}
		s.Free -= n
		s.Taken += n
		return true
	},
	Release: func(s *pool, n int64) {
		s.Free += n
		s.Taken -= n
	},
}

// door is the state of a Waitable whose waits take nothing. Each change adds 1 to both Opened and Again, so they
// differ only if a change was torn.
type door struct {
	Open          bool
	Opened, Again int64
}

var doorRules = prims.Rules[door, int32]{Claim: func(s *door, _ int32) bool { return s.Open }}

func init() {
	addLock("waitable", func(a *arena.Arena) (*aLock, error) {
		x, err := prims.OpenWaitable(a, "p", pool{Free: 3}, poolRules, nil)
		if err != nil {
			return nil, err
		}
		return &aLock{
			lock:   func(ctx context.Context) error { return x.WaitContext(ctx, 2) },
			try:    func() bool { return x.TryWait(2) },
			unlock: func() { x.Release(2) },
			close: func() error {
				if s := x.State(); s != (pool{Free: 3}) {
					return fmt.Errorf("the state is %+v", s)
				}
				return x.Close()
			},
		}, nil
	})

	// Before the operation, the victim gets a claim for another value. This claim uses the last free hold of the
	// victim, so the operation adds a block of holds.
	eachFresh("waitable/claim that adds a block", func(a *arena.Arena) (part, error) {
		name := object
		x, err := prims.OpenWaitable(a, name, pool{Free: 30}, poolRules, nil)
		if err != nil {
			return part{}, err
		}
		return part{
			prep: func() { x.TryWait(1) },
			op:   func() { x.TryWait(2) },
			use: func() error {
				for e := range int64(4) {
					if !x.TryWait(1 + e) {
						return fmt.Errorf("a claim fails: %v", x)
					}
				}
				for e := range int64(4) {
					x.Release(1 + e)
				}
				return nil
			},
			close: func() error {
				if s := x.State(); s != (pool{Free: 30}) {
					return fmt.Errorf("the state is %+v", s)
				}
				return errors.Join(x.Close(), a.Delete(name))
			},
		}, nil
	}, 0)

	set := func(open bool) func(s *door) {
		return func(s *door) {
			if s.Open != open {
				s.Open = open
				s.Opened++
				s.Again++
			}
		}
	}
	doors := func(name string, f func(x *prims.Waitable[door, int32], p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			x, err := prims.OpenWaitable(a, name, door{}, doorRules, &prims.WaitableOptions{Spin: -1})
			if err != nil {
				return part{}, err
			}
			open := func() { x.Update(set(true)) }
			p := part{
				hold: func() { x.Update(set(false)) }, free: open, rescue: open,
				wait:  waits(func(ctx context.Context) error { return x.WaitContext(ctx, 1) }),
				close: x.Close,
			}
			p.use = func() error {
				open()
				if err := p.wait(); err != nil {
					return err
				}
				x.Update(set(false))
				if s := x.State(); s.Open || s.Opened != s.Again {
					return fmt.Errorf("an Update was made in part: %+v", s)
				}
				return nil
			}
			f(x, &p)
			return p, nil
		}
	}
	each("waitable/update", doors("d", func(x *prims.Waitable[door, int32], p *part) {
		p.op = func() { x.Update(set(true)) }
	}), 0, 3, 12)
	each("waitable/wait for an update", doors("d", func(x *prims.Waitable[door, int32], p *part) {
		p.op = func() { x.Wait(1) }
	}), 0, 2)
	// The waits in the queue have the priorities 2, 0, 2, and so on. The call has the priority 1, so it joins the queue
	// between two waits.
	each("waitable/wait with a priority", func(a *arena.Arena) (part, error) {
		rules := doorRules
		rules.Before = func(x, y int32) bool { return x > y }
		x, err := prims.OpenWaitable(a, "by priority", door{}, rules, &prims.WaitableOptions{Spin: -1})
		if err != nil {
			return part{}, err
		}
		open := func() { x.Update(set(true)) }
		n := new(atomic.Int32)
		wait := func(e func() int32) func(ctx context.Context) error {
			return func(ctx context.Context) error { return x.WaitContext(ctx, e()) }
		}
		return part{
			hold: func() { x.Update(set(false)) }, free: open, rescue: open, close: x.Close,
			wait: waits(wait(func() int32 { return 2 * (n.Add(1) % 2) })),
			op:   func() { x.Wait(1) },
			use: func() error {
				open()
				if err := waits(wait(func() int32 { return 1 }))(); err != nil {
					return err
				}
				x.Update(set(false))
				return nil
			},
		}, nil
	}, 0, 2, 3)
	each("waitable/state", doors("d", func(x *prims.Waitable[door, int32], p *part) { p.op = func() { x.State() } }), 0)
	eachFresh("waitable/stop", func(a *arena.Arena) (part, error) {
		name := object
		return doors(name, func(x *prims.Waitable[door, int32], p *part) {
			wait := p.wait
			p.wait = func() error {
				if err := wait(); err != nil && !errors.Is(err, shmsync.ErrCanceled) {
					return err
				}
				return nil
			}
			p.op, p.use = x.Stop, func() error {
				x.Stop()
				if err := wait(); !errors.Is(err, shmsync.ErrCanceled) {
					return fmt.Errorf("a wait after Stop: %w", err)
				}
				return nil
			}
			p.close = func() error { return errors.Join(x.Close(), a.Delete(name)) }
		})(a)
	}, 0, 3)
}
