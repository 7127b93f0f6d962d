package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// Waitable is a toolkit for synchronization primitives between processes. A primitive consists of a shared state of
// type S and of rules. The rules say when a wait may go on and how that changes the state. A value of type E, at
// most eight bytes, says what one wait wants. S and E have no pointers.
//
// Waits are served in the order in which they came, or in the order of Rules.Before; no call overtakes a wait. A
// claim is what a successful wait has got, for example a permit. When a process dies, the claims that it holds are
// undone. The rules are called with the state locked. So they must be quick, and must not call the Waitable. They
// must be the same in all processes.
//
// If a rule panics or calls [runtime.Goexit], the state does not change, and the Waitable becomes not recoverable.
// Then waits end with an error that Is ErrNotRecoverable, Update and Release panic with such an error, and no rule
// is called until Recover succeeds. A process also runs rules for the waits of other processes, and for the claims
// of dead processes. A panic of a rule continues only in the goroutine whose own call needed the rule.
//
// In the terminology of the Go memory model, and across processes: each Update, Release and claim synchronizes
// before every later Update, Release and claim, and before a State that sees its change. An Update or Release also
// synchronizes before the return of a Wait that it ended.
//
// The design is that of Raymond Chen's library for awaitable synchronization objects.
type Waitable[S, E any] struct {
	mon    *monitor
	fifo   fifo
	words  *waitableWords
	copies [2]*S
	holds  []*waitableHold
	rules  Rules[S, E]
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	noRule bool // the code that is running is the function of an Update, not a rule. Guarded by: the queue lock
}

// Rules say how a Waitable behaves.
type Rules[S, E any] struct {
	// Claim reports whether a wait for e may go on in state s. If so, Claim changes s accordingly. For the same
	// state and e, it must give the same answer in every process.
	Claim func(s *S, e E) bool
	// Release undoes a claim for e, that is, the effect of a successful call of Claim. If Release is nil, processes
	// do not hold claims: nobody can release a claim, and the death of a process does not undo its claims.
	Release func(s *S, e E)
	// OnDeath is called instead of Release for a claim of a process that died. If OnDeath is nil, Release is
	// called.
	OnDeath func(s *S, e E)
	// Undo is called for a claim that was granted to a wait if the process died before Wait returned, so that it
	// never used the claim. If Undo is nil, Release is called or, if that is nil too, OnDeath. If all three are
	// nil, such a claim is never undone.
	Undo func(s *S, e E)
	// Before reports whether a wait for x is served before a wait for y that came earlier. If Before is nil, no
	// wait overtakes another.
	Before func(x, y E) bool
}

// WaitableOptions says how a Waitable is created. A nil *WaitableOptions means the
// zero value.
type WaitableOptions struct {
	// Holds bounds how many different claims can exist at a time in a new object. This counts claims that processes
	// hold, and claims that were granted to waits which have not returned yet. Claims are different if they differ
	// in the process or in the value of E. 0 means 256.
	Holds int
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var waitableKind = arenakernel.KindOf("WAIT")

const (
	waitableVersion  = 3
	waitableHolds    = 256
	waitableHoldSize = 40
	waitableCount    = 1 << 20 // the maximum number of claims of one participant for one value of E
)

// The results of a wait of a Waitable.
const (
	waitableGranted = iota
	waitableStopped
	waitableLost // the Waitable is not recoverable
)

// OpenWaitable finds the Waitable of that name in the arena or creates it with the state initial. An empty name
// makes a fresh anonymous one. An existing Waitable must have the same S and E.
func OpenWaitable[S, E any](a *arena.Arena, name string, initial S, rules Rules[S, E], opts *WaitableOptions) (*Waitable[S, E], error) {
	return openWaitable((*arenakernel.Arena)(a), name, initial, rules, opts, false)
}

func openWaitable[S, E any](a *arenakernel.Arena, name string, initial S, rules Rules[S, E], opts *WaitableOptions, attach bool) (*Waitable[S, E], error) {
	var opt WaitableOptions
	if opts != nil {
		opt = *opts
	}
	if rules.Claim == nil || opt.Holds < 0 {
		panic(fmt.Sprintf("shmsync: OpenWaitable %q without a Claim, or with %d holds", name, opt.Holds))
	}
	layout := waitableLayout[S, E]()
	count := opt.Holds
	if count == 0 {
		count = waitableHolds
	}
	shape := waitableShapeOf(sizeOf[S](), count)
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: waitableKind, Version: waitableVersion, Name: name, Size: shape.size, Layout: layout, AnySize: opt.Holds == 0,
		Type: waitableType[S, E](),
		Init: func(body []byte) {
			w := waitableBody(body)
			w.mon.spin.Store(spinField(opt.Spin))
			w.holds.Store(uint64(shape.count))
			initialState(body, shape, &initial)
		},
	}, "waitable.open", newWaitable(rules), nil)
}

// WaitableAt opens the Waitable at an offset that another process got from the method Offset.
func WaitableAt[S, E any](a *arena.Arena, off arena.Offset, rules Rules[S, E]) (*Waitable[S, E], error) {
	if rules.Claim == nil {
		panic("shmsync: WaitableAt without a Claim")
	}
	return handleAt(a, off, "waitable.open", waitableKind, waitableVersion, waitableShapeOf(sizeOf[S](), 1).size,
		func(k *arenakernel.Arena, o arenakernel.Object) (*Waitable[S, E], error) {
			if what := k.TypeDiffers(o, waitableLayout[S, E](), waitableType[S, E]()); what != "" {
				return nil, &shmsync.Error{Op: "waitable.open", Object: objectName(o), Err: shmsync.ErrIncompatible, Detail: "it has another state S or other waits E: " + what}
			}
			return buildWaitable(k, o, rules), nil
		})
}

// waitableLayout returns the fingerprint of S and E together.
func waitableLayout[S, E any]() uint64 {
	if sizeOf[E]() > 8 {
		panic(fmt.Sprintf("shmsync: a wait of a Waitable is of at most 8 bytes, %T has %d", *new(E), sizeOf[E]()))
	}
	layout, err := arenakernel.LayoutOf[struct {
		S S
		E E
	}]()
	if err != nil {
		panic("shmsync: Waitable: " + err.Error())
	}
	return layout
}

// waitableType returns a text that describes S and E together, in the same form as waitableLayout.
func waitableType[S, E any]() string {
	return arenakernel.TypeTextOf[struct {
		S S
		E E
	}]()
}

func newWaitable[S, E any](rules Rules[S, E]) func(*arenakernel.Arena, arenakernel.Object) (*Waitable[S, E], error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*Waitable[S, E], error) {
		return buildWaitable(a, o, rules), nil
	}
}

func buildWaitable[S, E any](a *arenakernel.Arena, o arenakernel.Object, rules Rules[S, E]) *Waitable[S, E] {
	shape := waitableShapeOf(sizeOf[S](), 0)
	shape = waitableShapeOf(sizeOf[S](), int((o.Size-shape.size)/waitableHoldSize))
	x := &Waitable[S, E]{words: arenakernel.At[waitableWords](a, o.Body), rules: rules, a: a, object: o, name: a.Self()}
	for i, off := range shape.copies {
		x.copies[i] = arenakernel.At[S](a, o.Body+off)
	}
	for i := range shape.count {
		x.holds = append(x.holds, arenakernel.At[waitableHold](a, o.Body+shape.holds+arenakernel.Offset(waitableHoldSize*i)))
	}
	x.mon = buildMonitor(a, o, o.Body, x)
	x.fifo = fifo{x.mon, &x.words.queue}
	x.asideFromRules()
	// Only a process that has the rules can undo the claims of dead processes. So start the poller of this process,
	// which is notified of deaths.
	x.mon.queueLock.queue.StartPoller()
	return x
}

// Wait waits until the rules let a wait for e go on, and makes the claim. An error means that no claim was made.
// The error Is ErrCanceled after Stop, ErrNotRecoverable, ErrNoSpace, ErrCorrupt or ErrClosed.
func (x *Waitable[S, E]) Wait(e E) error { return x.WaitContext(context.Background(), e) }

// WaitContext does what Wait does, but returns ctx.Err() when ctx ends first. A wait that may go on at once
// succeeds even if ctx has ended.
func (x *Waitable[S, E]) WaitContext(ctx context.Context, e E) error {
	m := x.mon
	if err := m.begin(); err != nil {
		return err
	}
	defer m.finish()
	if err := m.enter(ctx); err != nil {
		return err
	}
	waitNode, err := x.enqueue(ctx, packExtra(e))
	if waitNode == nil {
		return err
	}
	if err := m.sleep(ctx, waitNode); err != nil {
		return err
	}
	x.awaitChange(waitNode)
	switch f := m.collect(waitNode); f.result() {
	case waitableGranted:
		x.accept(f.aux())
	case waitableStopped:
		return x.stopped()
	case waitableLost:
		return x.notRecoverable("waitable.wait")
	}
	return nil
}

// changeTries is how often awaitChange reads the words before it takes the queue lock.
const changeTries = 20

// awaitChange waits until the state contains the claim that the wait of waitNode was granted. The process that
// grants the wait first ends the wait and then changes the state, because the wait may give up until it is ended.
// Because of awaitChange, a State that is called after Wait has returned contains the claim. If the granting
// process is stopped in between, it holds the queue lock, and without that lock nobody could release the claim
// either. If it is dead, the next holder of the lock makes the change.
func (x *Waitable[S, E]) awaitChange(waitNode *park.WaitNode) {
	n := waitNode.Node
	if outcome(n.Extra().Load()).result() != waitableGranted {
		return
	}
	for range changeTries {
		// The node keeps its stamp until the change of the state is made, and this process does not use the node
		// for another wait before it has called collect.
		if stamp := n.Stamp().Load(); stamp == 0 || stamp == x.mon.words.accounted.Load() {
			return
		}
		shmsync.Yield()
	}
	if x.mon.enter(nil) == nil {
		x.mon.leave(nil)
	}
}

// enqueue makes a claim for this process or, if that is not possible now, queues a wait. The caller holds the
// queue lock, and enqueue releases it. If enqueue returns no wait node, there is nothing to wait for: the claim
// was made, or err says why not.
func (x *Waitable[S, E]) enqueue(ctx context.Context, extra uint64) (waitNode *park.WaitNode, err error) {
	m, b, done, queued := x.mon, takeWakes(), false, false
	defer func() {
		if done {
			return
		}
		x.fail(recover(), b, func() {
			switch {
			case queued:
				m.collect(waitNode) // fail has already ended the wait
			case waitNode != nil:
				waitNode.Return()
			}
		})
	}()
	x.reapIfDue(b)
	for {
		ended, err := x.tryClaim(extra)
		if ended {
			done = true
			m.leave(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return nil, err
		}
		var again bool
		if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
			done = true
			m.wake(b)
			return nil, err
		}
		if !again {
			break
		}
	}
	m.join(waitNode, 0, extra)
	queued = true
	x.resolve(b) // the rule Before may have put this wait first
	done = true
	m.leave(b)
	return waitNode, nil
}

// TryWait makes the claim that Wait would make, if that is possible without waiting, and reports whether it did.
// The method Err shows whether a wait can succeed later.
func (x *Waitable[S, E]) TryWait(e E) (ok bool) {
	x.mon.opening.use()
	if !x.mon.tryEnter() {
		return false
	}
	x.locked(func() (changed bool) {
		ended, err := x.tryClaim(packExtra(e))
		ok = ended && err == nil
		return false // a new claim does not let any other wait go on
	})
	return ok
}

// tryClaim makes a claim for this process if no wait is queued and the rules allow the claim.
func (x *Waitable[S, E]) tryClaim(extra uint64) (ended bool, err error) {
	switch {
	case x.lost():
		return true, x.notRecoverable("waitable.wait")
	case x.words.stopped.Load() != 0:
		return true, x.stopped()
	case !x.fifo.empty():
		return false, nil
	}
	s := x.state()
	if !x.claim(&s, extra) {
		return false, nil
	}
	place, ok := x.place(x.name, extra, false)
	if !ok {
		return true, x.mon.fail("waitable.wait", shmsync.ErrNoSpace, nil, fmt.Sprintf("all %d holds are taken, or one %d times", len(x.holds), waitableCount))
	}
	var c change
	x.note(&c, place, x.name, extra, false)
	x.change(&c, &s)
	x.mon.commit(&c)
	return true, nil
}

func (x *Waitable[S, E]) stopped() error {
	return x.mon.fail("waitable.wait", shmsync.ErrCanceled, nil, "it was stopped")
}

// Release undoes a claim for e that this process has made. It panics if there is no such claim, if the rules have
// no Release, or if x is not recoverable. In the last case it panics with an error that Is ErrNotRecoverable, and
// the claim stays.
func (x *Waitable[S, E]) Release(e E) {
	if x.rules.Release == nil {
		panic("shmsync: Release of waitable " + objectName(x.object) + ", whose claims are not held")
	}
	extra, has := packExtra(e), false
	x.mustEnter("waitable.release")
	x.locked(func() (changed bool) {
		h := x.find(x.name, extra)
		if has = h != nil; !has {
			return false
		}
		s := x.state()
		x.rules.Release(&s, e)
		var c change
		c.set(&h.count, h.count.Load()-1)
		x.change(&c, &s)
		x.mon.commit(&c)
		return true
	})
	if !has {
		panic("shmsync: waitable " + objectName(x.object) + ": Release of a claim that this process does not have")
	}
}

// Update changes the state by a call of f with the state locked, and ends the waits that can go on now. If f
// panics, the state is unchanged and x can still be used. If x is not recoverable, Update panics with an error that
// Is ErrNotRecoverable.
func (x *Waitable[S, E]) Update(f func(s *S)) {
	x.mustEnter("waitable.update")
	x.locked(func() (changed bool) {
		s := x.state()
		x.noRule = true
		f(&s)
		x.noRule = false
		var c change
		x.change(&c, &s)
		x.mon.commit(&c)
		return true
	})
}

// Stop ends all waits, and all later waits, with an error that Is ErrCanceled. Stop cannot be undone. Claims stay,
// and can be released.
func (x *Waitable[S, E]) Stop() {
	if err := x.mon.enter(nil); err != nil {
		panic(err)
	}
	x.locked(func() (changed bool) {
		x.words.stopped.Store(1)
		return true
	})
}

// mustEnter takes the queue lock, and panics if the object or the handle cannot be used.
func (x *Waitable[S, E]) mustEnter(op string) {
	err := x.mon.enter(nil)
	if err == nil && x.lost() {
		x.mon.leave(nil)
		err = x.notRecoverable(op)
	}
	if err != nil {
		panic(err)
	}
}

// locked calls f with the queue lock held, serves the waiters if f has changed the state, and releases the lock. If
// a rule that f runs panics or ends its goroutine, x becomes not recoverable.
func (x *Waitable[S, E]) locked(f func() (changed bool)) {
	b, done := takeWakes(), false
	defer func() {
		switch {
		case done:
		case x.noRule:
			x.noRule = false
			x.mon.leave(b)
		default:
			x.fail(recover(), b, nil)
		}
	}()
	x.reapIfDue(b)
	if f() {
		x.resolve(b)
	}
	done = true
	x.mon.leave(b)
}

// Offset returns the place of the Waitable in its arena, for WaitableAt in another process.
func (x *Waitable[S, E]) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the Waitable, and no other. Calls that wait through it end with an
// error that Is ErrClosed. This process keeps its claims; release them through another handle. A
// second Close is an error that Is ErrClosed.
func (x *Waitable[S, E]) Close() error {
	return x.mon.opening.close("waitable.close")
}
