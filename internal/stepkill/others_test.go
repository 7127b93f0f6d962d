//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

var bg = context.Background()

func init() {
	addSequencers()
	addEvents()
	addQueues()
	addFutures()
	addConds()
	addCounters()
	addSignals()
	addArenas()
}

// each adds the same scene once for each number of waiters.
func each(name string, open func(a *arena.Arena) (part, error), waiters ...int) {
	for _, n := range waiters {
		what := name
		if n > 0 {
			what += fmt.Sprintf(", %d wait", n)
		}
		addScene(scene{name: what, waiters: n, open: open})
	}
}

// eachFresh does what each does, but every kill gets new objects.
func eachFresh(name string, open func(a *arena.Arena) (part, error), waiters ...int) {
	each(name, open, waiters...)
	for i := range waiters {
		scenes[len(scenes)-1-i].fresh = true
	}
}

// briefly returns an operation that waits and gives up after 3 ms.
func briefly(f func(ctx context.Context)) func() {
	return func() {
		ctx, cancel := context.WithTimeout(bg, 3*time.Millisecond)
		defer cancel()
		f(ctx)
	}
}

// canceledOrNil drops the error of a wait that was cancelled.
func canceledOrNil(err error) error {
	if errors.Is(err, shmsync.ErrCanceled) {
		return nil
	}
	return err
}

func addSequencers() {
	seq := func(f func(s *prims.Sequencer, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			s, err := prims.OpenSequencer(a, "s", nil)
			if err != nil {
				return part{}, err
			}
			p := part{close: s.Close}
			// All waiters wait for an even number.
			p.wait = waits(func(ctx context.Context) error { return s.WaitContext(ctx, (s.Value()+1)&^1) })
			p.rescue = func() {
				if s.Value()&1 != 0 {
					s.Increment()
				}
			}
			var mu sync.Mutex
			p.use = func() error {
				mu.Lock()
				defer mu.Unlock()
				ctx, cancel := limited()
				defer cancel()
				w := s.WaitAsync(s.Value() + 1)
				s.Increment()
				if err := s.WaitContext(ctx, s.Value()); err != nil {
					return err
				}
				if err := w.Wait(); err != nil {
					return err
				}
				if s.Value()&1 == 0 {
					s.Increment()
				}
				return nil
			}
			p.hold = func() {
				if s.Value()&1 == 0 {
					s.Increment()
				}
			}
			f(s, &p)
			return p, nil
		}
	}
	each("sequencer/increment", seq(func(s *prims.Sequencer, p *part) { p.op = func() { s.Increment() } }), 0, 3, 12)
	each("sequencer/advance", seq(func(s *prims.Sequencer, p *part) { p.op = func() { s.Advance(s.Value() + 1) } }), 2)
	each("sequencer/wait", seq(func(s *prims.Sequencer, p *part) {
		p.op = func() { s.Wait((s.Value() + 1) &^ 1) }
		p.free = p.rescue
	}), 0, 2)
	each("sequencer/wait, gives up", seq(func(s *prims.Sequencer, p *part) {
		p.late = true
		p.op = func() {
			ctx, cancel := context.WithTimeout(bg, 3e6)
			defer cancel()
			s.WaitContext(ctx, s.Value()+1000)
		}
	}), 1)
	each("sequencer/cancel waiters", seq(func(s *prims.Sequencer, p *part) {
		plain := p.wait
		p.wait = func() error { return canceledOrNil(plain()) }
		p.op = s.CancelWaiters
	}), 3)
	each("sequencer/reset", seq(func(s *prims.Sequencer, p *part) { p.op = func() { s.ResetTo(s.Value() + 2) } }), 0)
	eachFresh("sequencer/stop", func(a *arena.Arena) (part, error) {
		name := object
		s, err := prims.OpenSequencer(a, name, nil)
		if err != nil {
			return part{}, err
		}
		wait := waits(func(ctx context.Context) error { return s.WaitContext(ctx, 1) })
		return part{
			op: s.Stop, rescue: s.Stop,
			wait: func() error { return canceledOrNil(wait()) },
			use: func() error {
				s.Stop()
				if err := s.WaitContext(bg, s.Value()+1); !errors.Is(err, shmsync.ErrCanceled) {
					return fmt.Errorf("a wait after Stop: %w", err)
				}
				return s.WaitContext(bg, s.Increment())
			},
			close: func() error { return errors.Join(s.Close(), a.Delete(name)) },
		}, nil
	}, 0, 3)

	each("futex/post", func(a *arena.Arena) (part, error) { return futexPart(a, func(f *prims.Futex) { f.Post() }) }, 0, 3, 12)
	each("futex/wait", func(a *arena.Arena) (part, error) {
		return futexPart(a, func(f *prims.Futex) { f.Wait((f.Get() + 1) &^ 1) })
	}, 0, 2)
	each("futex/wait, gives up", func(a *arena.Arena) (part, error) {
		p, err := futexPart(a, func(f *prims.Futex) {
			briefly(func(ctx context.Context) { f.WaitContext(ctx, f.Get()+1000) })()
		})
		p.late = true
		return p, err
	}, 1)
	eachFresh("futex/stop", func(a *arena.Arena) (part, error) {
		name := object
		f, err := prims.OpenFutex(a, name, nil)
		if err != nil {
			return part{}, err
		}
		wait := waits(func(ctx context.Context) error { return f.WaitContext(ctx, 1) })
		return part{
			op: f.Stop, rescue: f.Stop,
			wait: func() error { return canceledOrNil(wait()) },
			use: func() error {
				f.Stop()
				if err := wait(); !errors.Is(err, shmsync.ErrCanceled) {
					return fmt.Errorf("a wait after Stop: %w", err)
				}
				return nil
			},
			close: func() error { return errors.Join(f.Close(), a.Delete(name)) },
		}, nil
	}, 0, 3)
}

func futexPart(a *arena.Arena, op func(f *prims.Futex)) (part, error) {
	f, err := prims.OpenFutex(a, "f", nil)
	if err != nil {
		return part{}, err
	}
	finish := func() {
		if f.Get()&1 != 0 {
			f.Post()
		}
	}
	begin := func() {
		if f.Get()&1 == 0 {
			f.Post()
		}
	}
	return part{
		hold: begin, op: func() { op(f) }, free: finish, rescue: finish,
		wait: waits(func(ctx context.Context) error { return f.WaitContext(ctx, (f.Get()+1)&^1) }),
		use: func() error {
			f.Post()
			ctx, cancel := limited()
			defer cancel()
			if err := f.WaitContext(ctx, f.Get()); err != nil {
				return err
			}
			begin()
			return nil
		},
		close: f.Close,
	}, nil
}

func addEvents() {
	ev := func(opts *prims.EventOptions, f func(e *prims.Event, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			e, err := prims.OpenEvent(a, "e", opts)
			if err != nil {
				return part{}, err
			}
			p := part{close: e.Close, hold: func() { e.Reset() }}
			set := func() {
				if !e.IsSet() {
					e.Set()
				}
			}
			p.wait = waits(e.WaitContext)
			p.rescue, p.free = set, set
			p.use = func() error {
				ctx, cancel := limited()
				defer cancel()
				e.Set()
				if err := e.WaitContext(ctx); err != nil {
					return err
				}
				e.Reset()
				if e.IsSet() {
					return errors.New("set after a reset")
				}
				return nil
			}
			f(e, &p)
			return p, nil
		}
	}
	for name, opts := range map[string]*prims.EventOptions{"event": nil, "auto event": {Mode: prims.EventAutoReset}, "two-way event": {Mode: prims.EventBidirectional}} {
		each(name+"/set", ev(opts, func(e *prims.Event, p *part) { p.op = e.Set }), 0, 3, 12)
		each(name+"/wait", ev(opts, func(e *prims.Event, p *part) { p.op = func() { e.Wait() } }), 0, 2)
		each(name+"/wait, gives up", ev(opts, func(e *prims.Event, p *part) {
			p.late = true
			p.op = func() {
				ctx, cancel := context.WithTimeout(bg, 3e6)
				defer cancel()
				e.WaitContext(ctx)
			}
		}), 1)
		each(name+"/reset", ev(opts, func(e *prims.Event, p *part) { p.prep, p.op = e.Set, func() { e.Reset() } }), 0)
	}
	each("auto event/try wait", ev(&prims.EventOptions{Mode: prims.EventAutoReset}, func(e *prims.Event, p *part) {
		p.prep, p.op = e.Set, func() { e.TryWait() }
	}), 0)
	each("two-way event/wait reset", ev(&prims.EventOptions{Mode: prims.EventBidirectional}, func(e *prims.Event, p *part) {
		p.hold, p.op = e.Set, func() { e.WaitReset() }
		p.wait = waits(e.WaitResetContext)
		p.rescue = func() {
			if e.IsSet() {
				e.Reset()
			}
		}
		p.free = p.rescue
	}), 0, 2)
	each("two-way event/reset", ev(&prims.EventOptions{Mode: prims.EventBidirectional}, func(e *prims.Event, p *part) {
		p.hold, p.op = e.Set, func() { e.Reset() }
		p.wait = waits(e.WaitResetContext)
		p.rescue = func() {
			if e.IsSet() {
				e.Reset()
			}
		}
		p.free = p.rescue
	}), 3)
}

func addQueues() {
	const room = 4
	q := func(full bool, f func(q *prims.Queue[int64], p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			q, err := prims.OpenQueue[int64](a, "q", room, nil)
			if err != nil {
				return part{}, err
			}
			p := part{close: q.Close}
			drain := func() {
				for {
					if _, ok := q.TryGet(); !ok {
						return
					}
				}
			}
			fill := func() {
				for q.TryPut(1) {
				}
			}
			// An item that is taken lets a Put go on, and an item that is put lets a Get go on.
			if full {
				p.hold = fill
				p.wait = waits(func(ctx context.Context) error { return q.PutContext(ctx, 2) })
				// An item that a dead process has claimed returns to the queue, even if a Put has used the room of the
				// item meanwhile. So rescue takes an item out if the queue is full.
				p.rescue = func() {
					if q.Len() >= room {
						q.TryGet()
					}
				}
			} else {
				p.hold = drain
				p.wait = waits(func(ctx context.Context) error { _, err := q.GetContext(ctx); return err })
				p.rescue = func() {
					if q.Len() == 0 {
						q.TryPut(3)
					}
				}
			}
			p.free = p.rescue
			p.use = func() error {
				ctx, cancel := limited()
				defer cancel()
				drain()
				for i := range int64(room) {
					if err := q.PutContext(ctx, i); err != nil {
						return err
					}
				}
				if q.TryPut(99) {
					return errors.New("more fits than there is room for")
				}
				for i := range int64(room) {
					v, err := q.GetContext(ctx)
					if err != nil || v != i {
						return fmt.Errorf("got %d, want %d: %w", v, i, err)
					}
				}
				return nil
			}
			f(q, &p)
			return p, nil
		}
	}
	put := func(q *prims.Queue[int64]) func() { return func() { q.Put(5) } }
	get := func(q *prims.Queue[int64]) func() { return func() { q.Get() } }
	each("queue/put", q(false, func(q *prims.Queue[int64], p *part) { p.op = put(q) }), 0, 2, 11)
	each("queue/put, full", q(true, func(q *prims.Queue[int64], p *part) { p.op = put(q) }), 0, 2)
	each("queue/get", q(true, func(q *prims.Queue[int64], p *part) { p.op = get(q) }), 0, 2, 11)
	each("queue/get, empty", q(false, func(q *prims.Queue[int64], p *part) { p.op = get(q) }), 0, 2)
	each("queue/put batch", q(false, func(q *prims.Queue[int64], p *part) {
		p.op = func() { q.PutBatch([]int64{1, 2, 3}) }
	}), 2)
	each("queue/get batch", q(true, func(q *prims.Queue[int64], p *part) {
		p.op = func() { q.GetBatch(make([]int64, 3)) }
	}), 2)
	each("queue/lease, gives up", q(false, func(q *prims.Queue[int64], p *part) {
		p.late = true
		p.op = func() {
			ctx, cancel := context.WithTimeout(bg, 3e6)
			defer cancel()
			q.LeaseContext(ctx)
		}
	}), 1)
	each("queue/put, gives up", q(true, func(q *prims.Queue[int64], p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { q.PutContext(ctx, 8) })
	}), 1)
	each("queue/get, gives up", q(false, func(q *prims.Queue[int64], p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { q.GetContext(ctx) })
	}), 1)
	each("queue/lease, empty", q(false, func(q *prims.Queue[int64], p *part) { p.op = func() { q.Lease() } }), 0, 2)
	each("queue/try put", q(false, func(q *prims.Queue[int64], p *part) { p.op = func() { q.TryPut(5) } }), 2)
	each("queue/try get", q(true, func(q *prims.Queue[int64], p *part) { p.op = func() { q.TryGet() } }), 2)
	eachFresh("queue/shut down", func(a *arena.Arena) (part, error) {
		name := object
		q, err := prims.OpenQueue[int64](a, name, room, nil)
		if err != nil {
			return part{}, err
		}
		wait := waits(func(ctx context.Context) error { _, err := q.GetContext(ctx); return err })
		return part{
			op: q.Shutdown, rescue: q.Shutdown,
			wait: func() error { return canceledOrNil(wait()) },
			use: func() error {
				q.Shutdown()
				if err := q.Put(1); !errors.Is(err, shmsync.ErrCanceled) {
					return fmt.Errorf("a put after Shutdown: %w", err)
				}
				if err := wait(); !errors.Is(err, shmsync.ErrCanceled) {
					return fmt.Errorf("a get after Shutdown: %w", err)
				}
				return nil
			},
			close: func() error { return errors.Join(q.Close(), a.Delete(name)) },
		}, nil
	}, 0, 3)
	for _, what := range []string{"lease", "ack", "nack"} {
		each("queue/"+what, q(what == "ack", func(q *prims.Queue[int64], p *part) {
			var l prims.Lease[int64]
			if what == "lease" {
				p.prep = func() { q.TryPut(7) }
				p.op = func() { q.TryLease() }
				return
			}
			p.prep = func() {
				q.TryPut(7)
				l, _ = q.TryLease()
			}
			p.op = l.Ack
			if what == "nack" {
				p.op = func() { l.Nack() }
			} else {
				p.op = func() { l.Ack() }
			}
		}), 0)
	}
}

func addFutures() {
	fut := func(f func(x *prims.Future, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			x, err := prims.OpenFuture(a, "x", nil)
			if err != nil {
				return part{}, err
			}
			p := part{close: x.Close, hold: func() { x.Reset() }}
			p.wait = waits(func(ctx context.Context) error {
				if _, err := x.WaitContext(ctx); err != nil {
					return told(err)
				}
				return nil
			})
			p.rescue = func() {
				if _, set := x.IsSet(); !set && x.Claim() {
					x.Set(0)
				}
			}
			p.free = p.rescue
			p.use = func() error {
				ctx, cancel := limited()
				defer cancel()
				x.Reset()
				if !x.Claim() || !x.Set(syscall.EAGAIN) {
					return errors.New("a Future that was reset cannot be set")
				}
				errno, err := x.WaitContext(ctx)
				if err != nil || errno != syscall.EAGAIN {
					return fmt.Errorf("waited for %v: %w", errno, err)
				}
				x.Reset()
				return nil
			}
			f(x, &p)
			return p, nil
		}
	}
	each("future/claim", fut(func(x *prims.Future, p *part) { p.op = func() { x.Claim() } }), 0, 2)
	each("future/set", fut(func(x *prims.Future, p *part) {
		p.prep, p.op = func() { x.Claim() }, func() { x.Set(0) }
	}), 0, 3, 12)
	each("future/wait", fut(func(x *prims.Future, p *part) { p.op = func() { x.Wait() } }), 0, 2)
	each("future/wait, gives up", fut(func(x *prims.Future, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { x.WaitContext(ctx) })
	}), 1)
	each("future/set all", func(a *arena.Arena) (part, error) {
		y, err := prims.OpenFuture(a, "y", nil)
		if err != nil {
			return part{}, err
		}
		p, err := fut(func(x *prims.Future, p *part) {
			use, end, wait := p.use, p.close, p.wait
			p.hold = func() { x.Reset(); y.Reset() }
			p.op = func() { prims.SetAll(0, x, y) }
			p.wait = func() error {
				ctx, cancel := limited()
				defer cancel()
				if _, err := y.WaitContext(ctx); err != nil {
					return told(err)
				}
				return wait()
			}
			p.rescue = func() { prims.SetAll(0, x, y) }
			p.free = p.rescue
			p.use = func() error {
				y.Reset()
				if !y.Set(0) {
					return errors.New("a Future that was reset cannot be set")
				}
				return use()
			}
			p.close = func() error { return errors.Join(end(), y.Close()) }
		})(a)
		return p, err
	}, 0, 3)
	each("future/reset", fut(func(x *prims.Future, p *part) {
		p.prep, p.op = func() { x.Set(0) }, func() { x.Reset() }
	}), 0)
}

func addConds() {
	cond := func(f func(m *prims.Mutex, c *prims.Cond, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRelease})
			if err != nil {
				return part{}, err
			}
			c, err := prims.OpenCond(a, "c", m, nil)
			if err != nil {
				return part{}, err
			}
			p := part{close: func() error { return errors.Join(c.Close(), m.Close()) }}
			p.wait = waits(func(ctx context.Context) error {
				m.Lock()
				defer m.Unlock()
				return c.WaitContext(ctx)
			})
			p.rescue = func() {
				m.Lock()
				c.Signal()
				m.Unlock()
			}
			p.free = p.rescue
			p.use = func() error {
				done := make(chan error, 1)
				go func() { done <- p.wait() }()
				for {
					select {
					case err := <-done:
						return err
					default:
						p.rescue()
					}
				}
			}
			f(m, c, &p)
			return p, nil
		}
	}
	each("cond/signal", cond(func(m *prims.Mutex, c *prims.Cond, p *part) { p.op = c.Signal }), 0, 3, 12)
	each("cond/broadcast", cond(func(m *prims.Mutex, c *prims.Cond, p *part) { p.op = c.Broadcast }), 3, 12)
	each("cond/signal, locked", cond(func(m *prims.Mutex, c *prims.Cond, p *part) {
		p.prep, p.op = m.Lock, func() { c.Signal(); m.Unlock() }
	}), 3)
	each("cond/wait", cond(func(m *prims.Mutex, c *prims.Cond, p *part) { p.prep, p.op = m.Lock, c.Wait }), 0, 2)
	each("cond/wait, gives up", cond(func(m *prims.Mutex, c *prims.Cond, p *part) {
		p.late = true
		p.prep, p.op = m.Lock, func() {
			ctx, cancel := context.WithTimeout(bg, 3e6)
			defer cancel()
			c.WaitContext(ctx)
		}
	}), 1)
}

func addCounters() {
	each("waitgroup/add", func(a *arena.Arena) (part, error) { return groupPart(a, false) }, 0)
	each("waitgroup/done", func(a *arena.Arena) (part, error) { return groupPart(a, true) }, 0, 3, 12)
	addGroupWaits()

	latch := func(f func(l *prims.Latch, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			l, err := prims.OpenLatch(a, object, 1, nil)
			if err != nil {
				return part{}, err
			}
			down := func() {
				// CountDown may first complete a change that the dead process had begun. If this change brings the
				// count to 0, CountDown panics.
				defer func() {
					if r := recover(); r != nil && l.State().Count != 0 {
						panic(r)
					}
				}()
				if l.State().Count == 1 {
					l.CountDown(1)
				}
			}
			p := part{
				op:     func() { l.CountDown(1) },
				wait:   waits(l.WaitContext),
				rescue: down, free: down,
				use: func() error {
					down()
					return waits(l.WaitContext)()
				},
				close: func() error { return errors.Join(l.Close(), a.Delete(object)) },
			}
			f(l, &p)
			return p, nil
		}
	}
	eachFresh("latch/count down", latch(func(l *prims.Latch, p *part) {}), 0, 3, 12)
	eachFresh("latch/wait", latch(func(l *prims.Latch, p *part) { p.op = l.Wait }), 0, 1)
	eachFresh("latch/arrive and wait", latch(func(l *prims.Latch, p *part) { p.op = func() { l.ArriveAndWait(1) } }), 2)
	eachFresh("latch/wait, gives up", latch(func(l *prims.Latch, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { l.WaitContext(ctx) })
	}), 1)
	eachFresh("latch/claim", latch(func(l *prims.Latch, p *part) {
		use, wait := p.use, p.wait
		p.op = func() { l.Claim(1) }
		p.wait = func() error { return deadOrNil(wait()) }
		p.use = func() error { // Reset ends the claims of the dead
			l.Reset()
			return use()
		}
	}), 0, 2)

	each("barrier/arrive", func(a *arena.Arena) (part, error) {
		b, err := prims.OpenBarrier(a, "b", 3, nil)
		if err != nil {
			return part{}, err
		}
		meet := func() error {
			ctx, cancel := limited()
			defer cancel()
			return deadOrNil(b.ArriveAndWaitContext(ctx))
		}
		level := func() {
			b.ResetTo(3)
			for b.State().Pending < 3 {
				b.Arrive(1)
			}
		}
		all := func() error {
			level()
			done := make(chan error, 2)
			go func() { done <- meet() }()
			go func() { done <- meet() }()
			return errors.Join(meet(), <-done, <-done)
		}
		return part{
			hold: level, op: func() { b.ArriveAndWait() },
			wait: meet, use: all, close: b.Close,
			rescue: func() {
				if st := b.State(); st.Err == nil && st.Waiting {
					b.Arrive(1)
				}
			},
		}, nil
	}, 2)

	addBarriers()

	once := func(a *arena.Arena) (part, error) {
		o, err := prims.OpenOnce(a, object, nil)
		if err != nil {
			return part{}, err
		}
		do := waits(func(ctx context.Context) error { return o.DoContext(ctx, func() {}) })
		return part{
			op: func() { o.Do(func() {}) }, use: do,
			wait: func() error { // do not wait before the victim runs the function, has run it, or is dead
				for !o.Done() && o.State().Runner == nil && !dead.Load() {
					runtime.Gosched()
				}
				return do()
			},
			close: func() error { return errors.Join(o.Close(), a.Delete(object)) },
		}, nil
	}
	eachFresh("once/do", once, 0, 2)
	for _, what := range []string{"waits", "gives up"} {
		eachFresh("once/do, "+what, func(a *arena.Arena) (part, error) {
			o, err := prims.OpenOnce(a, object, &prims.OnceOptions{Spin: -1})
			if err != nil {
				return part{}, err
			}
			name, gate, over := object, make(chan struct{}), make(chan struct{})
			do := func(ctx context.Context) error { return o.DoContext(ctx, func() {}) }
			p := part{
				hold: func() { // another process runs the function
					begun := make(chan struct{})
					go func() {
						defer close(over)
						o.Do(func() { close(begun); <-gate })
					}()
					<-begun
				},
				free: func() { close(gate); <-over },
				op:   func() { do(bg) },
				wait: waits(do), use: waits(do),
				close: func() error { return errors.Join(o.Close(), a.Delete(name)) },
			}
			if what == "gives up" {
				p.late, p.op = true, briefly(func(ctx context.Context) { do(ctx) })
			}
			return p, nil
		}, 1)
	}
}

// addGroupWaits adds the operations on a WaitGroup whose counter another process has increased.
func addGroupWaits() {
	group := func(f func(g *prims.WaitGroup, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			p, err := groupPart(a, false)
			if err != nil {
				return part{}, err
			}
			g, err := prims.OpenWaitGroup(a, "g", nil)
			if err != nil {
				return part{}, err
			}
			end := p.close
			p.close = func() error { return errors.Join(end(), g.Close()) }
			p.hold, p.free = func() { g.Reset(); g.Add(1) }, g.Done
			f(g, &p)
			return p, nil
		}
	}
	each("waitgroup/wait", group(func(g *prims.WaitGroup, p *part) { p.op = g.Wait }), 0, 2)
	each("waitgroup/wait, gives up", group(func(g *prims.WaitGroup, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { g.WaitContext(ctx) })
	}), 1)
	each("waitgroup/claim", group(func(g *prims.WaitGroup, p *part) {
		p.op = func() { g.Claim(1) }
		p.rescue = func() {
			if g.State().Err != nil {
				g.Reset()
			}
		}
	}), 0)
	// Before the operation, another process increases the counter and dies.
	each("waitgroup/reset", group(func(g *prims.WaitGroup, p *part) {
		p.hold, p.free = nil, nil
		p.prep, p.op = func() { g.Add(1) }, func() { g.Reset() }
		p.rescue = func() {
			if g.State().Err != nil {
				g.Reset()
			}
		}
	}), 0, 2)
	for i := range 2 {
		scenes[len(scenes)-1-i].sacrificed = true
	}
}

// addBarriers adds the operations on a Barrier except the plain wait.
func addBarriers() {
	barrier := func(f func(b *prims.Barrier, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			name := object
			b, err := prims.OpenBarrier(a, name, 2, &prims.BarrierOptions{Completion: func() {}, Spin: -1})
			if err != nil {
				return part{}, err
			}
			// fill completes each phase in which a process has already arrived, or in which a process waits.
			fill := func() {
				for b.State().Err == nil && (b.State().Waiting || b.State().Pending < b.State().Expected) {
					b.Arrive(1)
				}
			}
			p := part{
				rescue: fill, free: fill,
				wait: func() error {
					ctx, cancel := limited()
					defer cancel()
					return deadOrNil(b.ArriveAndWaitContext(ctx))
				},
				use: func() error {
					ctx, cancel := limited()
					defer cancel()
					for { // repeat until all waiters have learned of the parties that died
						fill()
						for range max(b.State().Expected-1, 0) {
							b.Arrive(1)
						}
						err := b.ArriveAndWaitContext(ctx)
						if err == nil {
							return nil
						}
						if err := told(err); err != nil {
							return err
						}
						b.ResetTo(2)
					}
				},
				close: func() error { return errors.Join(b.Close(), a.Delete(name)) },
			}
			f(b, &p)
			return p, nil
		}
	}
	eachFresh("barrier/arrive, completes", barrier(func(b *prims.Barrier, p *part) {
		p.hold, p.op = func() { b.Arrive(1) }, func() { b.Arrive(1) }
	}), 0)
	eachFresh("barrier/arrive, gives up", barrier(func(b *prims.Barrier, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { b.ArriveAndWaitContext(ctx) })
	}), 0)
	eachFresh("barrier/arrive and drop", barrier(func(b *prims.Barrier, p *part) { p.op = b.ArriveAndDrop }), 0)
	eachFresh("barrier/join, leave", barrier(func(b *prims.Barrier, p *part) {
		p.op = func() {
			b.Register(1)
			b.Deregister()
		}
	}), 0, 1)
	// Before the operation, another process becomes a party and dies.
	eachFresh("barrier/reset", barrier(func(b *prims.Barrier, p *part) {
		p.prep, p.op = func() { b.Register(1) }, func() { b.ResetTo(2) }
	}), 0)
	scenes[len(scenes)-1].sacrificed = true
}

func groupPart(a *arena.Arena, done bool) (part, error) {
	g, err := prims.OpenWaitGroup(a, "g", nil)
	if err != nil {
		return part{}, err
	}
	p := part{close: g.Close, hold: func() { g.Reset() }}
	p.op = func() { g.Add(1) }
	if done {
		p.prep, p.op = func() { g.Add(1) }, g.Done
	}
	p.wait = waits(func(ctx context.Context) error { return deadOrNil(g.WaitContext(ctx)) })
	p.use = func() error {
		ctx, cancel := limited()
		defer cancel()
		g.Reset()
		g.Add(2)
		g.Done()
		g.Done()
		return g.WaitContext(ctx)
	}
	return p, nil
}

func deadOrNil(err error) error {
	if err == nil {
		return nil
	}
	return told(err)
}

func addSignals() {
	waker := func(f func(w *prims.SignalWaker, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			w, err := prims.OpenSignalWaker(a, "w", &prims.SignalWakerOptions{Signals: 1})
			if err != nil {
				return part{}, err
			}
			p := part{close: w.Close}
			p.wait = waits(w.AcquireContext)
			p.rescue = func() {
				if w.Permits() == 0 {
					w.Release(1)
				}
			}
			p.free = p.rescue
			drain := func() {
				for w.TryAcquire() {
				}
			}
			p.hold = drain
			p.use = func() error {
				drain()
				w.Release(1)
				ctx, cancel := limited()
				defer cancel()
				if err := w.AcquireContext(ctx); err != nil {
					return err
				}
				g := w.Gate(1)
				if !g.Schedule() && !g.State().Scheduled {
					return errors.New("a gate cannot be scheduled")
				}
				if g.Begin() {
					g.Finish()
				}
				drain()
				return nil
			}
			f(w, &p)
			return p, nil
		}
	}
	each("signalwaker/release", waker(func(w *prims.SignalWaker, p *part) { p.op = func() { w.Release(1) } }), 0, 3, 12)
	each("signalwaker/acquire", waker(func(w *prims.SignalWaker, p *part) { p.op = w.Acquire }), 0, 2)
	each("signalwaker/acquire, gives up", waker(func(w *prims.SignalWaker, p *part) {
		p.late, p.op = true, briefly(func(ctx context.Context) { w.AcquireContext(ctx) })
	}), 1)
	for name, op := range map[string]func(w *prims.SignalWaker){
		"next": func(w *prims.SignalWaker) {
			w.Gate(1).Schedule()
			if g, ok := w.Next(0); ok {
				g.Finish()
			}
		},
		"begin inline, again": func(w *prims.SignalWaker) {
			if g := w.Gate(2); g.TryBeginInline() {
				g.FinishAndSchedule()
			}
		},
		"reserve, release": func(w *prims.SignalWaker) {
			if q, ok := w.ReserveTask(); ok {
				w.ReleaseTask(q)
			}
		},
		"mark, unmark": func(w *prims.SignalWaker) {
			w.MarkActive(0)
			w.TryUnmarkIfEmpty(0)
			w.MarkYield()
			w.TryUnmarkYield()
		},
		"partition": func(w *prims.SignalWaker) {
			w.MarkPartitionLeafActive(0)
			w.SyncPartitionSummary(0, 1, nil)
			w.ClearPartitionLeaf(0)
		},
		"register": func(w *prims.SignalWaker) {
			w.RegisterWorker()
			w.RegisterSleeper()
			w.UnregisterSleeper()
			w.UnregisterWorker()
		},
	} {
		each("signalwaker/"+name, waker(func(w *prims.SignalWaker, p *part) { p.op = func() { op(w) } }), 0, 2)
	}
	each("signalwaker/schedule", waker(func(w *prims.SignalWaker, p *part) { p.op = func() { w.Gate(1).Schedule() } }), 0, 2)
	each("signalwaker/begin, finish", waker(func(w *prims.SignalWaker, p *part) {
		p.prep = func() { w.Gate(1).Schedule() }
		p.op = func() {
			g := w.Gate(1)
			if g.Begin() {
				g.Finish()
			}
		}
	}), 0, 2)
}

func addArenas() {
	plain := func(f func(a *arena.Arena, p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			p := part{use: func() error {
				off, err := a.Alloc(500, 0)
				if err != nil {
					return err
				}
				a.Free(off)
				for _, o := range slices.Collect(a.Objects()) { // a walk keeps its current object open
					if o.Name == "" {
						if err := a.DeleteObject(o); err != nil {
							return err
						}
					}
				}
				for _, name := range []string{"v", "new"} {
					m, err := prims.OpenMutex(a, name, nil)
					if err != nil {
						return err
					}
					m.Lock()
					//lint:ignore SA2001 the victim dies between the two
					m.Unlock()
					if err := m.Close(); err != nil {
						return err
					}
					if err := a.Delete(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
						return err
					}
				}
				return nil
			}}
			f(a, &p)
			return p, nil
		}
	}
	open := func(a *arena.Arena, name string) *prims.Mutex {
		m, err := prims.OpenMutex(a, name, nil)
		if err != nil {
			panic(err)
		}
		return m
	}
	each("arena/create object", plain(func(a *arena.Arena, p *part) { p.op = func() { open(a, "new") } }), 0)
	each("arena/open object", plain(func(a *arena.Arena, p *part) {
		p.hold = func() { open(a, "v").Close() }
		p.op = func() { open(a, "v") }
	}), 0)
	each("arena/create anonymous, close", plain(func(a *arena.Arena, p *part) { p.op = func() { open(a, "").Close() } }), 0)
	each("arena/close object", plain(func(a *arena.Arena, p *part) {
		var m *prims.Mutex
		p.prep = func() { m = open(a, "v") }
		p.op = func() { m.Close() }
	}), 0)
	each("arena/delete object", plain(func(a *arena.Arena, p *part) {
		p.hold = func() { open(a, "v").Close() }
		p.op = func() { a.Delete("v") }
	}), 0)
	each("arena/claim and unclaim", plain(func(a *arena.Arena, p *part) {
		p.op = func() {
			if off, err := (*arenakernel.Arena)(a).ClaimBlock(3000); err == nil {
				(*arenakernel.Arena)(a).UnclaimBlock(off)
			}
		}
	}), 0)
	each("arena/alloc and free", plain(func(a *arena.Arena, p *part) {
		p.op = func() { // the block is small, because it is lost if the victim dies between Alloc and Free
			if off, err := a.Alloc(64, 0); err == nil {
				a.Free(off)
			}
		}
	}), 0)
	each("arena/close", plain(func(a *arena.Arena, p *part) {
		p.prep = func() { open(a, "").Lock() }
		p.op = func() { a.Close() }
	}), 0)
	addScene(scene{name: "arena/join", unjoined: true, open: plain(func(a *arena.Arena, p *part) {})})
	addScene(scene{name: "arena/join, reap", unjoined: true, sacrificed: true, open: plain(func(a *arena.Arena, p *part) {
		p.prep = func() { open(a, "").Lock() }
	})})
}
