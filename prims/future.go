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
	_ = crashpoint.Register("future.claim.claimed")
	_ = crashpoint.Register("future.set.decided")
	_ = crashpoint.Register("future.end.before_wake")
	_ = crashpoint.Register("future.reset.stored")
	_ = crashpoint.Register("future.reap.decided")
	_ = crashpoint.Register("future.setall.before_wake")
)

// Future is the result of an operation of some process: an errno, which is 0 for success. A Future is set once, and
// any number of goroutines of any process wait for it. The producer is the process that sets the Future. The
// producer calls Claim before it begins the operation. If the producer dies and has not called Claim, the waits go on
// until another process sets the Future.
//
// A result that is more than a number lies in the arena, for example in an [arena.Value]. In that case the producer
// writes the value first and then calls Set. A process that has seen the Future set may read the value.
//
// If a producer that has called Claim dies before Set, every wait, now and later, ends with an
// error that Is ErrOwnerDead and names the producer, until a process calls Reset.
//
// In the terminology of the Go memory model, and across processes: the Set that sets a Future
// synchronizes before every return of IsSet, Wait and the like that reports its result.
type Future struct {
	eventcount
	words *futureWords
	name  arenakernel.ParticipantID
}

// FutureOptions says how a Future is created. A nil *FutureOptions means the zero
// value.
type FutureOptions struct {
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var futureKind = arenakernel.KindOf("FUTR")

const futureVersion = 2

// OpenFuture finds the Future of that name in the arena or creates it, unset. An empty name makes a new anonymous
// one.
func OpenFuture(a *arena.Arena, name string, opts *FutureOptions) (*Future, error) {
	return openFuture((*arenakernel.Arena)(a), name, opts, false)
}

func openFuture(a *arenakernel.Arena, name string, opts *FutureOptions, attach bool) (*Future, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: futureKind, Version: futureVersion, Name: name, Size: futureBytes,
		Init: func(body []byte) {
			if opts != nil {
				futureBody(body).count.spin.Store(spinField(opts.Spin))
			}
		},
	}, "future.open", newFuture, nil)
}

// FutureAt opens the Future at an offset that another process got from the method Offset.
func FutureAt(a *arena.Arena, off arena.Offset) (*Future, error) {
	return handleAt(a, off, "future.open", futureKind, futureVersion, futureBytes, newFuture)
}

func newFuture(a *arenakernel.Arena, o arenakernel.Object) (*Future, error) {
	return buildFuture(a, o, false), nil
}

func buildFuture(a *arenakernel.Arena, o arenakernel.Object, bare bool) *Future {
	f := &Future{words: arenakernel.At[futureWords](a, o.Body), name: a.Self()}
	f.eventcount.init(a, o, &f.words.count, "future.wait", func() { f.now() }, bare)
	return f
}

func (f *Future) load() futureState {
	// sync(future.set): acquire
	return futureState(f.eventcount.load())
}

func (f *Future) swap(from, to futureState) bool {
	// sync(future.set): release
	// lin: Claim, Set, Reset and the death of the producer take effect here.
	return f.eventcount.swap(eventcountState(from), eventcountState(to))
}

// Future.now ends the present round, if its result is decided or if its producer has died, and then wakes the waiters.
// It returns the state after that. A Reset begins a new round.
func (f *Future) now() futureState {
	s, wake := f.end(f.dead)
	if wake {
		f.wakeAll()
	}
	return s
}

// dead reports whether the producer n has died. It returns false if n is this process.
func (f *Future) dead(n arenakernel.ParticipantID) bool { return n != f.name && f.a.Dead(n) }

// end does what Future.now does, but wakes nobody. If the second result is true, the caller has to wake the waiters.
// The function dead reports whether a producer has died.
func (f *Future) end(dead func(arenakernel.ParticipantID) bool) (s futureState, wake bool) {
	for {
		// The loop repeats only if another process has decided, ended or claimed the round, or has announced a
		// waiter. So the loop is lock-free.
		s := f.load()
		if s.over() {
			return s, false
		}
		slot := f.slot(s.round())
		r := futureResult(slot.Load())
		if !r.of(s.round()) {
			n := s.producer()
			if n == 0 || !dead(n) {
				return s, false
			}
			if f.load() != s {
				continue // r may be the result of a later round
			}
			died := abandonedBy(s.round(), n)
			if !slot.CompareAndSwap(uint64(r), uint64(died)) {
				continue
			}
			crashpoint.Hit("future.reap.decided")
			r = died
		}
		f.noteCPU(eventcountState(s))
		if to := s.ended(r); f.swap(s, to) {
			if s.announced() {
				crashpoint.Hit("future.end.before_wake")
			}
			return to, s.announced()
		}
	}
}

func (f *Future) slot(r futureRound) *atomic.Uint64 { return &f.words.results[r.slot()] }

// resultOf returns the result of round r, which must be over. A Future keeps 32 results. If the result of round r has
// been replaced, resultOf returns that of the latest round that is over. The second result is false if a peer has
// overwritten the words.
func (f *Future) resultOf(r futureRound) (futureResult, bool) {
	for {
		// The loop repeats only if 32 more rounds have ended. So the loop is lock-free.
		v := futureResult(f.slot(r).Load())
		if v.of(r) {
			race.Acquire(f.key)
			return v, true
		}
		s := f.load()
		last := s.round()
		if !s.over() {
			last = last.before()
		}
		if last == r {
			return 0, false
		}
		r = last
	}
}

// judge returns what a wait in round r returns. The round is over.
func (f *Future) judge(r futureRound) (shmsync.Errno, error) {
	v, ok := f.resultOf(r)
	switch {
	case !ok:
		return 0, f.fail(shmsync.ErrCorrupt, nil, fmt.Sprintf("the result of round %d is not there", r))
	case v.abandoned():
		return 0, f.fail(shmsync.ErrOwnerDead, f.a.Who(v.producer()), "its producer has not set it")
	}
	return v.errno(), nil
}

// Claim makes this process the producer, that is, the process whose death ends the waits with ErrOwnerDead. It
// reports whether this process is the producer now. Claim fails if another process is the producer, if the
// Future is set, or if its producer died.
func (f *Future) Claim() bool {
	defer f.serve().end()
	for {
		// The loop repeats only if another process has claimed or ended the round, or has announced a waiter. So
		// the loop is lock-free.
		s := f.now()
		switch {
		case s.over():
			return false
		case s.producer() != 0:
			return s.producer() == f.name
		case f.swap(s, s.claimedBy(f.name)):
			crashpoint.Hit("future.claim.claimed")
			return true
		}
	}
}

// Set sets the Future, wakes all waiters, and reports whether it did. It does nothing if the Future is set
// already, or if its producer has died. Any process may set the Future, even a process that has not claimed it.
// Set does not block.
func (f *Future) Set(errno shmsync.Errno) bool {
	defer f.serve().end()
	done, wake := f.set(errno)
	if wake {
		f.wakeAll()
	}
	return done
}

// set does what Set does, but wakes nobody. If the second result is true, the caller has to wake the waiters.
func (f *Future) set(errno shmsync.Errno) (done, wake bool) {
	for {
		// The loop repeats only if another process has decided the round. So the loop is lock-free.
		s := f.now()
		if s.over() {
			return false, false
		}
		slot := f.slot(s.round())
		r := futureResult(slot.Load())
		if r.of(s.round()) || f.load().round() != s.round() {
			continue // the round is decided, or r may be the result of a later round
		}
		race.ReleaseMerge(f.key)
		if slot.CompareAndSwap(uint64(r), uint64(resultOf(s.round(), errno))) {
			crashpoint.Hit("future.set.decided")
			_, wake = f.end(f.dead)
			return true, wake
		}
	}
}

// SetAll sets each of the futures, and then wakes the waiters of all of them. It returns how many futures it
// has set.
func SetAll(errno shmsync.Errno, futures ...*Future) (set int) {
	calls, owes := make([]served, 0, len(futures)), make([]bool, len(futures))
	defer func() { // deferred, so that it also runs if the call panics for one of the futures
		crashpoint.Hit("future.setall.before_wake")
		for i, call := range calls {
			if owes[i] {
				futures[i].wakeAll()
			}
			call.end()
		}
	}()
	for _, f := range futures {
		// All calls of serve come before the first set, because a waiter of one Future may close the other futures.
		calls = append(calls, f.serve())
	}
	for i, f := range futures {
		var done bool
		if done, owes[i] = f.set(errno); done {
			set++
		}
	}
	return set
}

// Wait waits until the Future is set, and returns its result. An error means that there is no
// result: it Is ErrOwnerDead if the producer died, or ErrCorrupt or ErrClosed.
func (f *Future) Wait() (shmsync.Errno, error) { return f.WaitContext(nil) }

// WaitContext is like Wait, but returns ctx.Err() if ctx ends first. A Future that is set takes precedence over a
// context that has ended.
func (f *Future) WaitContext(ctx context.Context) (shmsync.Errno, error) {
	if e, err := f.result(); err != errUnset {
		return e, err
	}
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.leave()
	s := f.now()
	if !s.over() {
		if err := f.wait(ctx, s.sequence()); err != nil {
			return 0, err
		}
	}
	return f.judge(s.round())
}

// Subscribe arranges that fn is called once, on a new goroutine, with the results that Wait would return. The call
// comes when the Future is set, or at once if it is set already. The Pending ends just before the call. If the Pending
// is cancelled, fn gets an error that Is ErrCanceled. If this process closes the arena, fn gets an error that Is
// ErrClosed. Only the end of the process prevents the call.
func (f *Future) Subscribe(fn func(shmsync.Errno, error)) *Pending {
	var errno shmsync.Errno
	if err := f.enter(); err != nil {
		go fn(errno, err)
		return resolved(err)
	}
	defer f.leave() // when this runs, the Pending has ended or keeps the handle open
	s := f.now()
	judge := func() (err error) {
		errno, err = f.judge(s.round())
		return err
	}
	if s.over() {
		err := judge()
		go fn(errno, err)
		return resolved(err)
	}
	return f.pend(s.sequence(), judge, func(err error) { fn(errno, err) })
}

// Reset makes a Future unset and unclaimed if it is set or if its producer died, and reports whether it did. Otherwise
// Reset does nothing, since waiters may still wait for the result. A wait that began before the Reset returns the old
// result. The Future keeps 32 results: if it has replaced the old one before the wait returns, the wait returns the
// latest result.
//
// After the death of a producer, Reset waits until no system call of the dead process can write any more. If the
// words name a living process as a dead producer, Reset panics with an error that Is ErrCorrupt.
func (f *Future) Reset() bool { return f.reset(false) }

// reset does what Reset does. If abandonedOnly is set, it resets the Future only if the producer died. RecoverAll sets
// it: another process may have reset and set the Future meanwhile, and this result must stay.
func (f *Future) reset(abandonedOnly bool) bool {
	defer f.serve().end()
	for {
		// The loop repeats only after another process has reset the Future, or after awaitGone, which ends when the dead
		// process is gone.
		s := f.now()
		switch {
		case !s.over(), abandonedOnly && !s.abandoned():
			return false
		case s.abandoned() && !f.a.Gone(s.producer()):
			// A producer that leaves the arena gives up its rounds first, and stays current until it has left. So a current
			// producer is no proof of damage, but a live one is.
			if f.a.Live(s.producer()) && f.load() == s {
				panic(f.fail(shmsync.ErrCorrupt, nil, fmt.Sprintf("%v, which lives", s)))
			}
			if f.awaitGone(s) == errClosing {
				panic(f.closed())
			}
		case f.swap(s, s.reset()):
			crashpoint.Hit("future.reset.stored")
			return true
		}
	}
}

// awaitGone waits until the dead producer in s is gone. It also returns if the state is no longer s, or if a living
// participant has the ID of the producer. The only error is errClosing.
func (f *Future) awaitGone(s futureState) error {
	n := s.producer()
	return awaitUntil(nil, f.queue, func() bool { return f.load() != s || f.a.Gone(n) || f.a.Live(n) })
}

func (f *Future) reached() (bool, error) {
	if _, err := f.result(); err != errUnset {
		return true, err
	}
	if err := f.enter(); err != nil { // Close waits for a call that has entered, and so for its stores
		return true, err
	}
	defer f.leave()
	s := f.now()
	if !s.over() {
		return false, nil
	}
	_, err := f.judge(s.round())
	return true, err
}

func (f *Future) watch(notify func()) (watcher, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave() // when this runs, the wait has ended or its watcher keeps the handle open
	s := f.now()
	judge := func() error {
		_, err := f.judge(s.round())
		return err
	}
	if s.over() {
		return ended(judge(), notify), nil
	}
	return f.watchChange(s.sequence(), judge, notify)
}

// Offset is the place of the Future in its arena. Another process can pass it to FutureAt.
func (f *Future) Offset() arena.Offset { return f.object.Offset }

// Close closes this handle on the Future, and no other handle. Calls that wait through this handle
// end with an error that Is ErrClosed. If this process has claimed the Future, the claim stays. A
// second Close returns an error that Is ErrClosed.
func (f *Future) Close() error { return f.opening.close("future.close") }
