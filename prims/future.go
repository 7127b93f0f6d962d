package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("future.claim.claimed")
	_ = crashpoint.Register("future.set.stored")
	_ = crashpoint.Register("future.reset.stored")
	_ = crashpoint.Register("future.reap.abandoned")
	_ = crashpoint.Register("future.setall.before_wake")
)

// Future is the result of an operation of some process: an errno, 0 for success. It is set once,
// and any number of goroutines of any process wait for it. A result that is more than a number
// lies in the arena, for example in an [arena.Value]: the producer writes the value first and
// then calls Set, and a process that has seen the Future set may read the value. The producer
// calls Claim before it begins. If it dies without a Claim, waits go on, for ever if they have no
// context.
//
// If a producer that has called Claim dies before Set, every wait, now and later, ends with an
// error that Is ErrOwnerDead and names the producer, until a process calls Reset.
//
// In the terminology of the Go memory model, and across processes: the Set that sets a Future
// synchronizes before every return of IsSet, Wait and the like that reports its result.
type Future struct {
	mon    *monitor
	fifo   fifo
	words  *futureWords
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
}

// FutureOptions says how a Future is created. A nil *FutureOptions means the zero
// value.
type FutureOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var futureKind = arenakernel.KindOf("FUTR")

const futureVersion = 1

// How a wait for a Future ended; aux has the errno or the producer's ID.
const (
	futureIsSet = iota + 1
	futureIsAbandoned
)

// OpenFuture finds the Future of that name in the arena or creates it, unset. An
// empty name makes a fresh anonymous one.
func OpenFuture(a *arena.Arena, name string, opts *FutureOptions) (*Future, error) {
	return openFuture((*arenakernel.Arena)(a), name, opts, false)
}

func openFuture(a *arenakernel.Arena, name string, opts *FutureOptions, attach bool) (*Future, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: futureKind, Version: futureVersion, Name: name, Size: uint64(futureBytes),
		Init: func(body []byte) {
			if opts != nil {
				futureBody(body).mon.spin.Store(spinField(opts.Spin))
			}
		},
	}, "future.open", newFuture, nil)
}

// FutureAt opens the Future at an offset that another process got from the method Offset.
func FutureAt(a *arena.Arena, off arena.Offset) (*Future, error) {
	return handleAt(a, off, "future.open", futureKind, futureVersion, uint64(futureBytes), newFuture)
}

func newFuture(a *arenakernel.Arena, o arenakernel.Object) (*Future, error) {
	return buildFuture(a, o, false), nil
}

func buildFuture(a *arenakernel.Arena, o arenakernel.Object, bare bool) *Future {
	w := arenakernel.At[futureWords](a, o.Body)
	f := &Future{words: w, a: a, object: o, name: a.Self()}
	f.mon = buildMonitor(a, o, o.Body, f, bare)
	f.fifo = fifo{f.mon, &w.queue}
	return f
}

func (f *Future) load() futureState {
	// sync(future.set): acquire
	return futureState(f.words.state.Load())
}

func (f *Future) store(s futureState) {
	// sync(future.set): release
	f.words.state.Store(uint64(s))
}

// Claim makes this process the producer, and reports whether it is the producer now. It
// fails if another process is the producer, if the Future is set, or if its producer died.
func (f *Future) Claim() bool {
	b := takeWakes()
	s := f.begin(b)
	switch {
	case !s.over() && s.producer() == 0:
		f.store(s.claimedBy(f.name))
		crashpoint.Hit("future.claim.claimed")
	case s.over() || s.producer() != f.name:
		f.mon.leave(b)
		return false
	}
	f.mon.leave(b)
	return true
}

// begin takes the queue lock and returns the state after deaths are taken into account.
func (f *Future) begin(b *wakes) futureState {
	if err := f.mon.enter(nil); err != nil {
		panic(err)
	}
	return f.reaped(b)
}

// reaped returns the state after it has recorded the death of the producer, if the producer died.
// The queue lock is held.
func (f *Future) reaped(b *wakes) futureState {
	f.mon.reapIfDue(b)
	s := f.load()
	if n := s.producer(); s.claimed() && n != f.name && f.a.Dead(n) {
		f.abandon(s)
		f.resolve(b)
	}
	return f.load()
}

// Set sets the Future, wakes all waiters, and reports whether it did. It does nothing if the
// Future is set already, or if its producer has died. Any process may set it, even one that has
// not claimed it. Set waits only while another process is in the middle of a call.
func (f *Future) Set(errno shmsync.Errno) bool {
	b := takeWakes()
	done := f.setTo(errno, b)
	f.mon.wake(b)
	return done
}

// setTo is Set without the wakes.
func (f *Future) setTo(errno shmsync.Errno, b *wakes) bool {
	s := f.begin(b)
	if s.over() {
		f.mon.leave(nil)
		return false
	}
	race.ReleaseMerge(f.mon.key)
	f.store(s.setTo(errno))
	crashpoint.Hit("future.set.stored")
	f.resolve(b)
	f.mon.owe(b)
	f.mon.leave(nil)
	return true
}

// SetAll sets each of the futures, and then wakes the waiters of all. It returns how many it has
// set.
func SetAll(errno shmsync.Errno, futures ...*Future) (set int) {
	owed := make([]*wakes, 0, len(futures))
	defer func() { // deferred, so that it also runs if one of them panics
		crashpoint.Hit("future.setall.before_wake")
		for i, b := range owed {
			futures[i].mon.wake(b)
		}
	}()
	for _, f := range futures {
		owed = append(owed, takeWakes())
		if f.setTo(errno, owed[len(owed)-1]) {
			set++
		}
	}
	return set
}

// IsSet reports whether the Future is set, and its result.
func (f *Future) IsSet() (shmsync.Errno, bool) {
	f.mon.opening.use()
	s := f.load()
	if !s.set() {
		return 0, false
	}
	race.Acquire(f.mon.key)
	return s.errno(), true
}

// Wait waits until the Future is set, and returns its result. An error means that there is no
// result: it Is ErrOwnerDead if the producer died, or ErrNoSpace, ErrCorrupt or ErrClosed.
func (f *Future) Wait() (shmsync.Errno, error) { return f.WaitContext(nil) }

// WaitContext is Wait that ends with ctx.Err() when ctx ends first. A Future that is set takes
// precedence over a context that has ended.
func (f *Future) WaitContext(ctx context.Context) (shmsync.Errno, error) {
	if err := f.mon.opening.error("future.wait"); err != nil {
		return 0, err
	}
	if e, ok := f.IsSet(); ok {
		return e, nil
	}
	if err := f.mon.begin(); err != nil {
		return 0, err
	}
	defer f.mon.finish()
	s, end, err := f.join(ctx)
	if s == nil {
		if err != nil {
			return 0, err
		}
		return f.resultOf(end)
	}
	if end, err = f.mon.await(ctx, s); err != nil {
		return 0, err
	}
	return f.resultOf(end)
}

// join queues a wait. The call keeps the handle open already. If it returns no wait node, the wait has ended
// with the error or the outcome.
func (f *Future) join(ctx context.Context) (*park.WaitNode, outcome, error) {
	m := f.mon
	if err := m.enter(ctx); err != nil {
		return nil, 0, err
	}
	b := takeWakes()
	var waitNode *park.WaitNode
	for {
		if s := f.reaped(b); s.over() {
			race.Acquire(m.key)
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, s.outcome(), nil
		}
		var again bool
		var err error
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			m.wake(b)
			return nil, 0, err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, 0, 0)
	m.leave(b)
	return waitNode, 0, nil
}

// outcome is how waits end when the state is over.
func (s futureState) outcome() outcome {
	if s.set() {
		return outcome(makeOutcome(0, futureIsSet, uint32(s.errno())))
	}
	return outcome(makeOutcome(0, futureIsAbandoned, uint32(s.producer())))
}

// resultOf is the result of a wait that ended with that outcome.
func (f *Future) resultOf(end outcome) (shmsync.Errno, error) {
	switch end.result() {
	case futureIsSet:
		return shmsync.Errno(end.aux()), nil
	case futureIsAbandoned:
		return 0, f.mon.fail("future.wait", shmsync.ErrOwnerDead, f.a.Who(arenakernel.ParticipantID(end.aux()&arenakernel.ParticipantIDMask)), "its producer has not set it")
	}
	return 0, f.mon.fail("future.wait", shmsync.ErrCorrupt, nil, fmt.Sprintf("a wait ended as %#x", uint64(end)))
}

// Subscribe calls fn once with the results of Wait, on a goroutine of its own: when the Future is
// set, or at once if it is set already. The Pending ends just before the call. If the Pending is
// cancelled, or this process closes the arena, fn gets an error that Is ErrCanceled or ErrClosed.
// So fn is called in any case, unless the process ends first.
func (f *Future) Subscribe(fn func(shmsync.Errno, error)) *Pending {
	var errno shmsync.Errno
	if err := f.mon.begin(); err != nil {
		go fn(errno, err)
		return resolved(err)
	}
	defer f.mon.finish() // by then the wait node keeps the handle open
	s, end, err := f.join(nil)
	if s == nil {
		if err == nil {
			errno, err = f.resultOf(end)
		}
		go fn(errno, err)
		return resolved(err)
	}
	return f.mon.pendThen("future.wait", s,
		func(end outcome) (err error) {
			errno, err = f.resultOf(end)
			return err
		},
		func(err error) { fn(errno, err) })
}

// Reset makes a Future unset and unclaimed if it is set or if its producer died, and reports
// whether it did. Waiters that began before get the old result. It returns false for a Future
// that is not set, since waiters may still wait for that result. After the death of a producer,
// Reset waits until no system call of the dead process can write any more.
func (f *Future) Reset() bool {
	b := takeWakes()
	s := f.begin(b)
	for s.abandoned() && !f.a.Gone(s.producer()) {
		f.mon.leave(b)
		if err := f.mon.awaitGone(nil, s.producer()); err != nil {
			panic(err)
		}
		b = takeWakes()
		s = f.begin(b)
	}
	if s.over() {
		f.resolve(b)
		f.store(0)
		crashpoint.Hit("future.reset.stored")
	}
	f.mon.leave(b)
	return s.over()
}

// Offset is the place of the Future in its arena, for FutureAt in another process.
func (f *Future) Offset() arena.Offset { return f.object.Offset }

// Close closes this handle on the Future, and no other. Calls that wait through it end with an
// error that Is ErrClosed. A claim of this process stays. A second Close is an error that Is
// ErrClosed.
func (f *Future) Close() error { return f.mon.opening.close("future.close") }

// FutureState is the result of State.
type FutureState struct {
	Set      bool              // the result is there
	Errno    shmsync.Errno     // what it is set to
	Producer *shmsync.Identity // the process that has claimed it, or nil
	Waiting  bool              // there are waiters
	Err      error             // ErrOwnerDead if the producer died before it set the Future
}

// State reads f without locking it. The answer may be out of date when it returns.
func (f *Future) State() FutureState {
	f.mon.opening.use()
	s := f.load()
	st := FutureState{Set: s.set(), Waiting: !f.fifo.empty()}
	if st.Set {
		st.Errno = s.errno()
	}
	if n := s.producer(); n != 0 {
		st.Producer = f.a.Who(n)
	}
	if s.abandoned() || s.claimed() && !f.a.Current(s.producer()) {
		st.Err = shmsync.ErrOwnerDead
	}
	return st
}

// String renders the state on one line.
func (f *Future) String() string {
	f.mon.opening.use()
	return fmt.Sprintf("future %s: %v", objectName(f.object), f.load())
}
