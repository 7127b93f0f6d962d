package prims

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("once.run.taken")
	_ = crashpoint.Register("once.run.returned")
	_ = crashpoint.Register("once.run.done")
)

// Once lets one of many calls, in any number of processes, run its function. The other calls
// wait until that function has returned.
//
// If the process that runs the function dies before it returns, the next call runs its own
// function. So a function must tolerate that a killed process did a part of it before.
//
// In the terminology of the Go memory model, and across processes: the return of the
// function synchronizes before the return of every Do, and before every Done that is
// true.
type Once struct {
	done   *atomic.Uint32
	mon    *monitor
	fifo   fifo
	words  *onceWords
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	key    race.Key
}

// OnceOptions says how a Once is created. A nil *OnceOptions means the zero value.
type OnceOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var onceKind = arenakernel.KindOf("ONCE")

const onceVersion = 1

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: onceKind, Repair: repairOnce, Wake: wakeQueue, Check: checkOnce, Inspect: inspectOnce,
	})
}

// OpenOnce finds the Once of that name in the arena or creates it. An empty name
// makes a fresh anonymous one.
func OpenOnce(a *arena.Arena, name string, opts *OnceOptions) (*Once, error) {
	return openOnce((*arenakernel.Arena)(a), name, opts, false)
}

func openOnce(a *arenakernel.Arena, name string, opts *OnceOptions, attach bool) (*Once, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: onceKind, Version: onceVersion, Name: name, Size: onceBytes,
		Init: func(body []byte) {
			if opts != nil {
				onceBody(body).mon.spin.Store(spinField(opts.Spin))
			}
		},
	}, "once.open", newOnce, nil)
}

// OnceAt opens the Once at an offset that another process got from the method Offset.
func OnceAt(a *arena.Arena, off arena.Offset) (*Once, error) {
	return handleAt(a, off, "once.open", onceKind, onceVersion, onceBytes, newOnce)
}

func newOnce(a *arenakernel.Arena, o arenakernel.Object) (*Once, error) {
	return buildOnce(a, o, false), nil
}

func buildOnce(a *arenakernel.Arena, o arenakernel.Object, bare bool) *Once {
	w := arenakernel.At[onceWords](a, o.Body)
	x := &Once{done: &w.done, words: w, a: a, object: o, name: a.Self()}
	x.mon = buildMonitor(a, o, o.Body, x, bare)
	x.fifo = fifo{x.mon, &w.queue}
	x.key = x.mon.key
	x.mon.opening.end = x.end
	return x
}

// Do calls f if no call of Do on this Once, in any process, has called its function yet.
// Otherwise Do waits until that function has returned. A Do within f waits for ever. If f panics,
// Do considers it to have returned. Do panics with an *[shmsync.Error] where DoContext returns
// one.
func (o *Once) Do(f func()) {
	// A compare-and-swap of done, with f right after it, would be wrong: the second of two calls
	// would return before the first call's f has.
	if o.done.Load() == 0 || race.Enabled {
		o.doSlow(f)
	}
}

// DoContext is Do that ends with ctx.Err() if ctx ends while it waits for another call, or with
// an error that Is ErrNoSpace, ErrCorrupt or ErrClosed. Then f is not called. If a function has
// returned, or if no other call runs one, DoContext ignores ctx.
func (o *Once) DoContext(ctx context.Context, f func()) error {
	if o.done.Load() != 0 && !race.Enabled {
		return nil
	}
	return o.do(ctx, f)
}

// Done reports whether a function has returned.
func (o *Once) Done() bool {
	o.mon.opening.use()
	// sync(once.done): acquire
	if o.done.Load() == 0 {
		return false
	}
	race.Acquire(o.key)
	return true
}

//go:noinline
func (o *Once) doSlow(f func()) {
	if err := o.DoContext(nil, f); err != nil {
		panic(err)
	}
}

func (o *Once) do(ctx context.Context, f func()) error {
	if err := o.mon.opening.error("once.do"); err != nil {
		return err
	}
	if o.Done() {
		return nil
	}
	mine, err := o.join(ctx)
	if mine {
		o.run(f)
	}
	return err
}

// join waits for the function of another call, or makes the caller the runner.
func (o *Once) join(ctx context.Context) (mine bool, err error) {
	m := o.mon
	if err := m.begin(); err != nil {
		return false, err
	}
	defer m.finish()
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	waitNode, err := m.enqueue(ctx, 0, 0, func() bool {
		if o.done.Load() != 0 {
			return true
		}
		if n := arenakernel.ParticipantID(o.words.runner.Load() & arenakernel.ParticipantIDMask); n == 0 || !m.current(n) && m.ended(n) {
			storeWord(&o.words.runner, uint64(o.name))
			mine = true
		}
		return mine
	})
	if waitNode != nil {
		var end outcome
		if end, err = m.await(ctx, waitNode); err == nil {
			mine = end.result() == outcomeTurn
		}
	}
	// The words stay in place until the end of the function is recorded there. Close does not
	// wait for that.
	if mine && !m.opening.stayIfOpen() {
		return false, m.closed() // the arena is being unmapped, and others see that this process left
	}
	return mine, err
}

// run runs f, as the runner.
func (o *Once) run(f func()) {
	defer o.mon.leaveStay()
	defer o.finish()
	crashpoint.Hit("once.run.taken")
	f()
	crashpoint.Hit("once.run.returned")
}

func (o *Once) finish() {
	m := o.mon
	q := m.queueLock.queue
	if !q.Enter() {
		panic(m.closed()) // this process has left the arena
	}
	defer q.Exit()
	if err := m.enter(nil); err != nil {
		panic(err)
	}
	race.ReleaseMerge(o.key)
	// sync(once.done): release
	// lin: the Once is done from here on.
	o.done.Store(1)
	crashpoint.Hit("once.run.done")
	storeWord(&o.words.runner, 0)
	if o.fifo.empty() {
		m.leave(nil)
	} else {
		m.resolveAndLeave()
	}
}

// resolve ends all waits if the function has returned. If the runner is gone, it makes the
// first waiter the runner.
func (o *Once) resolve(b *wakes) {
	if o.done.Load() != 0 {
		o.mon.endAll(b, &o.fifo, outcomeOpen, 0)
		return
	}
	for w, ok := o.fifo.head(); ok && o.words.runner.Load() == 0; w, ok = o.fifo.head() {
		if !o.mon.waiting(w) {
			o.fifo.detach(w)
			o.mon.releaseNode(w)
			continue
		}
		if o.mon.end(b, w, outcomeTurn, 0) {
			o.account(w)
		}
	}
}

func (o *Once) account(w wait) {
	if outcome(w.Extra().Load()).result() != outcomeTurn || o.done.Load() != 0 {
		o.mon.account(w, nil)
		return
	}
	var c change
	c.set(&o.words.runner, uint64(w.Owner()))
	o.mon.account(w, &c)
}

func (o *Once) detach(w wait)            { o.fifo.detach(w) }
func (o *Once) requeue(w wait)           { o.fifo.requeue(w) }
func (o *Once) each(f func(w wait) bool) { o.fifo.each(f) }
func (o *Once) clear()                   { o.fifo.clear() }

func (o *Once) reap(dead func(arenakernel.ParticipantID) bool) {
	if n := arenakernel.ParticipantID(o.words.runner.Load() & arenakernel.ParticipantIDMask); dead(n) && o.mon.ended(n) {
		storeWord(&o.words.runner, 0)
	}
}

func (o *Once) holders(f func(arenakernel.ParticipantID)) {
	f(arenakernel.ParticipantID(o.words.runner.Load() & arenakernel.ParticipantIDMask))
}

// Offset is the place of the Once in its arena, for OnceAt in another process.
func (o *Once) Offset() arena.Offset { return o.object.Offset }

// end takes the word away from the fast path of Do.
func (o *Once) end() {
	o.mon.queueLock.end()
	redirect(&o.done, new(atomic.Uint32))
}

// Close closes this handle on the Once, and no other. Calls that wait through it end with an error that Is
// ErrClosed. A function that runs goes on, and counts. A second Close is an error that Is ErrClosed.
func (o *Once) Close() error { return o.mon.opening.close("once.close") }

// OnceState is the result of State.
type OnceState struct {
	Done    bool              // a function has returned
	Runner  *shmsync.Identity // the process that runs its function, or nil
	Waiting bool              // there are waiters
}

// State reads o without locking it. The answer may be out of date when it returns.
func (o *Once) State() OnceState {
	o.mon.opening.use()
	st := OnceState{Done: o.Done(), Waiting: !o.fifo.empty()}
	if n := arenakernel.ParticipantID(o.words.runner.Load() & arenakernel.ParticipantIDMask); !st.Done && n != 0 {
		st.Runner = o.a.Who(n)
	}
	return st
}

// String renders the state on one line.
func (o *Once) String() string {
	st := o.State()
	switch {
	case st.Done:
		return fmt.Sprintf("once %s: done", objectName(o.object))
	case st.Runner != nil:
		return fmt.Sprintf("once %s: %v runs it, waiting %v", objectName(o.object), st.Runner, st.Waiting)
	}
	return fmt.Sprintf("once %s: not done", objectName(o.object))
}
