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
	_ = crashpoint.Register("futex.post.before_wake")
	_ = crashpoint.Register("futex.stop.before_wake")
	_ = crashpoint.Register("futex.wait.announced")
	_ = crashpoint.Register("futex.wait.woken")
)

// Futex is an eventcount between processes: a counter that goes up, and waiters that sleep until
// the counter has reached a value. Goroutines use it to wait for a condition that they test without
// a lock:
//
//	for {
//		token := f.Get() + 1
//		if condition() {
//			break
//		}
//		f.Wait(token)
//	}
//
// The goroutine that makes the condition true then calls Post. A token is the value of the counter for which a
// goroutine waits. The waiter takes its token before it tests the condition, so it does not miss a Post that
// comes after the test.
//
// In the terminology of the Go memory model, and across processes: the Post that takes the counter to n, and every
// Post before it, synchronize before every Get that returns n or more, and before the return of every Wait for n or
// more that returns nil.
//
// No process holds a Futex, so a death leaves nothing to recover: a Post has either happened or
// not.
type Futex struct {
	state  *atomic.Uint64
	words  *futexWords
	queue  *park.Queue
	a      *arenakernel.Arena
	object arenakernel.Object
	key    race.Key
	looked atomic.Uint64 // the value of the counter at the last check

	opening *opening
}

// FutexOptions says how a Futex is created. A nil *FutexOptions means the zero
// value.
type FutexOptions struct {
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var futexKind = arenakernel.KindOf("FUTX")

const futexVersion = 1

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{Kind: futexKind, Version: futexVersion, Wake: wakeFutex, Inspect: inspectFutex})
}

// OpenFutex finds the Futex of that name in the arena or creates it, with its counter at 0. An empty name makes a
// new anonymous one.
func OpenFutex(a *arena.Arena, name string, opts *FutexOptions) (*Futex, error) {
	return openFutex((*arenakernel.Arena)(a), name, opts, false)
}

func openFutex(a *arenakernel.Arena, name string, opts *FutexOptions, attach bool) (*Futex, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: futexKind, Version: futexVersion, Name: name, Size: uint64(futexBytes),
		Init: func(body []byte) {
			if opts != nil {
				futexBody(body).spin.Store(spinField(opts.Spin))
			}
		},
	}, "futex.open", newFutex, nil)
}

// FutexAt opens the Futex at an offset that another process got from the method Offset.
func FutexAt(a *arena.Arena, off arena.Offset) (*Futex, error) {
	return handleAt(a, off, "futex.open", futexKind, futexVersion, uint64(futexBytes), newFutex)
}

func newFutex(a *arenakernel.Arena, o arenakernel.Object) (*Futex, error) {
	w := arenakernel.At[futexWords](a, o.Body)
	dev, ino := a.Segment().ID()
	f := &Futex{state: &w.state, words: w, a: a, object: o, key: race.KeyOf(dev, ino, uint64(o.Offset)), opening: newOpening(a, o)}
	f.queue = park.NewQueue(park.Config{
		WaitList: futexWaitList(a, w), Object: o, Word: o.Body + futexStateOff, All: true, Check: f.check,
	})
	f.opening.waitsIn(f.queue)
	f.opening.end = f.end
	return f, nil
}

func futexWaitList(a *arenakernel.Arena, w *futexWords) park.WaitList {
	return park.WaitList{Arena: a, Word: low(&w.state), Raw: wordPtr(low(&w.state)), Poller: &w.poller}
}

// Get returns the value of the counter, that is, the number of posts so far.
func (f *Futex) Get() uint64 {
	// sync(futex.post): acquire
	s := futexState(f.state.Load())
	if f.state == &closedFutex {
		panic(f.opening.refusal)
	}
	race.Acquire(f.key)
	return s.counter()
}

// Post adds 1 to the counter and wakes all waiters. After Stop it does nothing. It never blocks,
// and makes no system call when there are no waiters.
func (f *Futex) Post() {
	f.opening.use()
	race.ReleaseMerge(f.key)
	// This call stores the number of its CPU before the post, because a waiter that sees the post may use the number.
	f.tuning().NoteCPU()
	for {
		// A CAS fails only if another process has called Post or Stop, or has announced a waiter. Only one Stop changes the
		// word, and between two posts only one waiter announces itself. So if many CASes fail, other processes have posted:
		// the loop is lock-free.
		s := futexState(f.state.Load())
		switch {
		case s.stopped():
			return
		case s.announced():
			if f.change(s, s.posted()) {
				return
			}
		// sync(futex.post): release
		// lin: Post takes effect here, or in f.change.
		case f.state.CompareAndSwap(uint64(s), uint64(s.posted())):
			return
		}
	}
}

// change changes the word from one state to another, and wakes all waiters. It reports whether it did. Close waits
// until change has returned, even if a woken waiter calls Close at once.
func (f *Futex) change(from, to futexState) bool {
	defer f.opening.serve(f.queue).end()
	// sync(futex.post): release
	if !f.state.CompareAndSwap(uint64(from), uint64(to)) {
		return false
	}
	if to.stopped() {
		crashpoint.Hit("futex.stop.before_wake")
	} else {
		crashpoint.Hit("futex.post.before_wake")
	}
	f.queue.DeliverAll()
	return true
}

// Stop ends all present and later waits with ErrCanceled, except waits for a token that the counter has
// reached. Stop cannot be undone; a second Stop does nothing.
func (f *Futex) Stop() {
	f.opening.use()
	race.ReleaseMerge(f.key)
	for {
		s := futexState(f.state.Load())
		if s.stopped() || f.change(s, s.stop()) {
			return
		}
	}
}

// Stopped reports whether Stop was called.
func (f *Futex) Stopped() bool {
	f.opening.use()
	return futexState(f.state.Load()).stopped()
}

// Wait waits until the counter has reached token. It then returns nil, even after Stop. If the
// Futex is stopped first, the error Is ErrCanceled. If this process closes the arena first, the
// error Is ErrClosed. A token is the result of Get plus the number of posts to wait for.
func (f *Futex) Wait(token uint64) error { return f.WaitContext(nil, token) }

// WaitContext is like Wait, but returns ctx.Err() if ctx ends first. A token that is reached takes precedence over
// a context that has ended.
func (f *Futex) WaitContext(ctx context.Context, token uint64) error {
	if err := f.opening.error("futex.wait"); err != nil {
		return err
	}
	if futexState(f.state.Load()).reached(token) {
		race.Acquire(f.key)
		return nil
	}
	if token > maxToken {
		panic(fmt.Sprintf("shmsync: Wait of futex %s for token %d: no counter gets there", objectName(f.object), token))
	}
	return f.waitSlow(ctx, token)
}

func (f *Futex) waitSlow(ctx context.Context, token uint64) error {
	if !f.queue.Enter() {
		return f.closed()
	}
	defer f.queue.Exit()
	c := park.CancelBy(ctx)
	defer c.Stop()
	for {
		s := futexState(f.state.Load())
		switch {
		case s.reached(token):
			race.Acquire(f.key)
			return nil
		case s.stopped():
			return f.fail("futex.wait", shmsync.ErrCanceled, "it was stopped")
		case !s.announced():
			if f.spin(token) {
				continue
			}
			// Each Post clears the announcement, even if it does not reach the token of this waiter. So the waiter announces
			// itself again after each Post.
			s = futexState(f.state.Load())
			if s.reached(token) || s.stopped() || !f.state.CompareAndSwap(uint64(s), uint64(s|futexAnnounced)) {
				continue
			}
			s |= futexAnnounced
		}
		crashpoint.Hit("futex.wait.announced")
		// Before the thread sleeps, the kernel compares the word with s once more. For a goroutine that waits through the
		// poller, the poller makes this comparison. If a Post has changed the word since the load of s, the waiter does not
		// sleep.
		switch ended := f.queue.Sleep(uint32(s), park.SleepSpec{}, &c); ended {
		case park.Again:
			crashpoint.Hit("futex.wait.woken")
		case park.Canceled, park.Closed: // a token that is reached takes precedence over the end of the wait
			switch {
			case futexState(f.state.Load()).reached(token):
				race.Acquire(f.key)
				return nil
			case ended == park.Closed:
				return f.closed()
			}
			return c.Err()
		}
	}
}

func (f *Futex) closed() error {
	return f.fail("futex.wait", shmsync.ErrClosed, closedHandle)
}

// spin spins until the token is reached, the Futex is stopped, or the bound for spinning is used up. It returns
// false if the bound is used up.
func (f *Futex) spin(token uint64) bool {
	return f.tuning().Spin(func() bool {
		s := futexState(f.state.Load())
		return s.reached(token) || s.stopped()
	})
}

func (f *Futex) tuning() park.Tuning {
	return park.Tuning{Budget: &f.words.spin, Pays: &f.words.pays, LastCPU: &f.words.lastCPU, Slot: f.a.Self().Slot()}
}

// check is called ten times a second while a goroutine of this process waits. It wakes waiters that a stopped or dead
// process should have woken. After a Post since the last check, it wakes the waiters even if the bit announced is set:
// a waiter for a later token may have set the bit, although the Post has not woken the others.
func (f *Futex) check() {
	s := futexState(f.state.Load())
	posted := f.looked.Swap(s.counter()) != s.counter()
	if posted || !s.announced() || s.stopped() {
		f.queue.DeliverAll()
	}
}

// wakeFutex wakes the waiters that a dead process should have woken. It leaves the word as it is. A Post changes the
// word by one CAS, and then wakes. A process that dies before its CAS has not posted.
func wakeFutex(a *arenakernel.Arena, obj arenakernel.Object, owed arenakernel.Owed) {
	w, err := arenakernel.TryAt[futexWords](a, obj.Body)
	if err == nil && (owed != arenakernel.OwedAnnounced || futexState(w.state.Load()).announced()) {
		l := futexWaitList(a, w)
		l.DeliverAll()
	}
}

// Offset is the place of the Futex in its arena. Another process can pass it to FutexAt.
func (f *Futex) Offset() arena.Offset { return f.object.Offset }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn
// the bound from earlier spins; if d is negative, they never spin.
func (f *Futex) SetSpin(d time.Duration) {
	f.opening.use()
	f.words.spin.Store(spinField(d))
}

// Spin returns the bound that SetSpin, or the creation of the object, has set.
func (f *Futex) Spin() time.Duration {
	f.opening.use()
	return spinOf(f.words.spin.Load())
}

// Close closes this handle on the Futex, and no other handle. Calls that wait through this handle
// end with an error that Is ErrClosed, unless their token is reached. A second Close returns an error that Is
// ErrClosed.
func (f *Futex) Close() error { return f.opening.close("futex.close") }

// end makes Get and Wait of this handle read a private counter in place of the counter of the Futex. The private
// counter never reaches a token.
func (f *Futex) end() {
	f.queue.Close()
	redirect(&f.state, &closedFutex)
}

// String renders the state on one line.
func (f *Futex) String() string {
	f.opening.use()
	return fmt.Sprintf("futex %s: %v", objectName(f.object), futexState(f.state.Load()))
}

func (f *Futex) fail(op string, err error, detail string) error {
	return failed(f.a, f.object, op, err, nil, detail)
}
