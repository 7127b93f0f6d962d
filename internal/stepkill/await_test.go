//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// together is a set of objects that one call can wait for. No object of it is ready.
type together struct {
	s *prims.Sequencer
	e *prims.Event
	m *prims.FairMutex
}

// init adds the scenes of pending waits, and of calls that wait for several objects at once.
func init() {
	add := func(name string, f func(x *together, p *part), waiters ...int) {
		each("await/"+name, func(a *arena.Arena) (part, error) {
			x := &together{}
			var errs [3]error
			x.s, errs[0] = prims.OpenSequencer(a, "s", &prims.SequencerOptions{Spin: -1})
			x.e, errs[1] = prims.OpenEvent(a, "e", &prims.EventOptions{Mode: prims.EventAutoReset, Spin: -1})
			x.m, errs[2] = prims.OpenFairMutex(a, "m", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
			if err := errors.Join(errs[:]...); err != nil {
				return part{}, err
			}
			lock := &aLock{x.m.LockContext, x.m.TryLock, x.m.Unlock, nil, nil}
			set := func() {
				if !x.e.IsSet() {
					x.e.Set()
				}
			}
			p := part{
				hold: func() { x.e.Reset() }, free: set, rescue: set,
				wait: waits(x.e.WaitContext),
				use: func() error {
					ctx, cancel := limited()
					defer cancel()
					set()
					at := x.s.At(x.s.Value() + 1)
					if i, err := prims.WaitAnyContext(ctx, at, x.e); i != 1 || err != nil {
						return fmt.Errorf("number %d was there: %w", i, err)
					}
					if x.e.IsSet() {
						return errors.New("the token was taken, and is there")
					}
					x.s.Increment()
					if err := prims.WaitAllContext(ctx, at); err != nil {
						return err
					}
					return lock.use()
				},
				close: func() error { return errors.Join(x.s.Close(), x.e.Close(), x.m.Close()) },
			}
			f(x, &p)
			return p, nil
		}, waiters...)
	}
	add("any", func(x *together, p *part) {
		p.op = func() { prims.WaitAny(x.s.At(x.s.Value()+1000), x.e) }
	}, 0, 2)
	add("all", func(x *together, p *part) {
		p.op = func() { prims.WaitAll(x.s.At(x.s.Value()), x.e) }
	}, 0)
	add("any, gives up", func(x *together, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { prims.WaitAnyContext(ctx, x.s.At(x.s.Value()+1000), x.e) })
	}, 1)
	for name, begin := range map[string]func(x *together) *prims.Pending{
		"sequencer":  func(x *together) *prims.Pending { return x.s.WaitAsync(x.s.Value() + 1000) },
		"event":      func(x *together) *prims.Pending { return x.e.WaitAsync() },
		"fair mutex": func(x *together) *prims.Pending { return x.m.LockAsync() },
	} {
		add(name+" pending, cancelled", func(x *together, p *part) {
			p.op = func() {
				if w := begin(x); !w.Cancel() && name == "fair mutex" {
					x.m.Unlock()
				}
			}
		}, 0, 1)
		if name == "fair mutex" {
			add(name+" held, pending, cancelled", func(x *together, p *part) {
				p.hold, p.free, p.late, p.rescue = x.m.Lock, x.m.Unlock, true, nil
				p.wait = func() error {
					x.m.Lock()
					//lint:ignore SA2001 the victim dies between the two
					x.m.Unlock()
					return nil
				}
				p.op = func() { begin(x).Cancel() }
			}, 0, 1)
		}
	}
}
