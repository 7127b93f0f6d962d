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
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("once.run.taken")
	_ = crashpoint.Register("once.run.returned")
	_ = crashpoint.Register("once.run.done")
)

// Once runs a function once. Of all calls of Do, in any number of processes, one call runs the function that was
// passed to it. The other calls wait until that function has returned, and do not run their own functions.
//
// If the process that runs the function dies before the function returns, a waiting call, or the next call, runs its
// own function. So a function must tolerate that a killed process has already done a part of the work.
//
// In the terminology of the Go memory model, and across processes: the return of the function synchronizes before
// the return of every Do, and before every Done that returns true.
type Once struct {
	state   *atomic.Uint64 // the onceWord, for the fast path of Do; after Close, a private word that is never done
	words   *onceWords
	list    park.WaitList
	queue   *park.Queue // nil in the handle of a reaper, which cannot wait
	a       *arenakernel.Arena
	object  arenakernel.Object
	name    arenakernel.ParticipantID
	key     race.Key
	counts  *countWords
	opening *opening
}

// OnceOptions says how a Once is created. A nil *OnceOptions means the zero value.
type OnceOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var onceKind = arenakernel.KindOf("ONCE")

const onceVersion = 2

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: onceKind, Version: onceVersion, Repair: alone(repairOnce), Wake: wakeOnce, Check: checkOnce, Inspect: inspectOnce,
	})
}

// OpenOnce finds the Once of that name in the arena or creates it. An empty name makes a new anonymous Once.
func OpenOnce(a *arena.Arena, name string, opts *OnceOptions) (*Once, error) {
	return openOnce((*arenakernel.Arena)(a), name, opts, false)
}

func openOnce(a *arenakernel.Arena, name string, opts *OnceOptions, attach bool) (*Once, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: onceKind, Version: onceVersion, Name: name, Size: onceBytes,
		Init: func(body []byte) {
			if opts != nil {
				onceBody(body).spin.Store(spinField(opts.Spin))
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
	dev, ino := a.Segment().ID()
	x := &Once{
		state: &w.state, words: w, list: onceList(a, w), a: a, object: o, name: a.Self(),
		key: race.KeyOf(dev, ino, uint64(o.Offset)), counts: countsOf(a, &w.counts),
	}
	if bare {
		return x
	}
	x.opening = newOpening(a, o)
	x.queue = park.NewQueue(park.Config{WaitList: x.list, Object: o, Word: o.Body + onceStateOff, All: true, Check: x.check})
	x.opening.waitsIn(x.queue)
	x.opening.end = x.end
	return x
}

func onceList(a *arenakernel.Arena, w *onceWords) park.WaitList {
	return park.WaitList{Arena: a, Word: low(&w.state), Raw: wordPtr(low(&w.state)), Poller: &w.poller}
}

func (o *Once) load() onceWord { return onceWord(o.words.state.Load()) }

// swap changes the word by a CAS, and reports whether it did. The parameters are the old and the new value.
func (o *Once) swap(from, to onceWord) bool {
	// sync(once.done): release
	// lin: a turn begins, and the Once is done, here.
	return o.words.state.CompareAndSwap(uint64(from), uint64(to))
}

// Do calls f if no call of Do on this Once, in any process, has called its function yet. Otherwise Do waits until the
// function of the other call has returned. If f calls Do of this Once, or Close of the arena, the call in f panics,
// because it would wait for itself. If f panics, f counts as returned. Where DoContext returns an error, Do panics
// with that error, which is an *[shmsync.Error].
func (o *Once) Do(f func()) {
	if o.state.Load()&uint64(onceDone) == 0 || race.Enabled {
		o.doSlow(f)
	}
}

// DoContext is like Do, but ends early with ctx.Err() if ctx ends while it waits for another call. The error Is
// ErrClosed if the handle is closed. If DoContext returns an error, it has not called f. If a function has
// returned, or if no other call runs a function, DoContext ignores ctx.
func (o *Once) DoContext(ctx context.Context, f func()) error {
	if o.state.Load()&uint64(onceDone) != 0 && !race.Enabled {
		return nil
	}
	return o.do(ctx, f)
}

// Done reports whether the function of some call has returned.
func (o *Once) Done() bool {
	o.opening.use()
	return o.done()
}

// done does what Done does, but does not check whether the handle is closed.
func (o *Once) done() bool {
	// sync(once.done): acquire
	if !onceWord(o.state.Load()).done() {
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
	if err := o.opening.error("once.do"); err != nil {
		return err
	}
	if o.done() {
		return nil
	}
	began, mine, err := o.join(ctx)
	if mine {
		o.run(began, f)
	}
	return err
}

// run calls f for the call of Do that has become the runner. The first parameter is the word with which the turn began.
func (o *Once) run(began onceWord, f func()) {
	defer o.finish(began)
	running := &runningFunc{what: "the function of Do of once " + objectName(o.object), a: o.a, object: &o.object}
	running.begin()
	defer running.end()
	crashpoint.Hit("once.run.taken")
	f()
	crashpoint.Hit("once.run.returned")
}

// finish records that the function has returned, and wakes the waiters. It also does so if the handle was closed
// while the function ran.
func (o *Once) finish(began onceWord) {
	if !o.queue.EnterStay() {
		panic(o.closed()) // this process has left the arena: a test has simulated its death
	}
	defer o.queue.ExitLasting()
	defer o.opening.leave()
	race.ReleaseMerge(o.key)
	for {
		// Another process changes the word only to announce a waiter, and no process clears the announcement. So a
		// CAS fails at most once.
		w := o.load()
		if !w.runs(began) {
			return // a peer has overwritten the word
		}
		if w.announced() {
			o.tuning().NoteCPU() // a hint that a waiter may read as soon as the Once is done
		}
		if o.swap(w, w.finished()) {
			crashpoint.Hit("once.run.done")
			if w.announced() {
				o.wakeAll()
			}
			return
		}
	}
}

// Offset is the place of the Once in its arena, for OnceAt in another process.
func (o *Once) Offset() arena.Offset { return o.object.Offset }

// end gives the fast path of Do a private word that is never done, in place of the word of the Once.
func (o *Once) end() {
	o.queue.Close()
	redirect(&o.state, &closedOnce)
}

func (o *Once) closed() error {
	return &shmsync.Error{Op: "once.do", Object: objectName(o.object), Err: shmsync.ErrClosed, Detail: closedHandle}
}

// Close closes this handle on the Once, and no other handle. Calls that wait through this handle end with an error
// that Is ErrClosed. If a function is running, it goes on, and its return still counts. A second Close is an error
// that Is ErrClosed.
func (o *Once) Close() error { return o.opening.close("once.close") }

// OnceState is the result of State.
type OnceState struct {
	Done    bool              // the function of some call has returned
	Runner  *shmsync.Identity // the process that runs a function, or nil if none does
	Waiting bool              // a call has begun to wait for a function to return; it may have given up
}

// State reads o without locking it. The answer may be out of date when it returns.
func (o *Once) State() OnceState {
	o.opening.use()
	w := onceWord(o.state.Load())
	st := OnceState{Done: w.done(), Waiting: w.announced() && !w.done()}
	if st.Done {
		race.Acquire(o.key)
	} else if n := w.runner(); n != 0 {
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
