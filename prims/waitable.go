package prims

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Waitable is a toolkit for synchronization primitives between processes. A primitive consists of a shared state of
// type S and of rules. The rules say when a wait may go on and how that changes the state. A value of type E, at
// most eight bytes, says what one wait wants. S and E must have no pointers.
//
// Waits are served in the order in which they came, or in the order of Rules.Before; no call overtakes a wait. A
// claim is what a successful wait has got, for example a permit. When a process dies, the claims that it holds are
// undone.
//
// A rule works on a private copy of the state. While it runs, other processes can change the Waitable, so a process
// that is stopped in a rule delays no other process. If another process has changed the state meanwhile, the result is
// discarded, and the rule is called again. So a rule, and the function of Update, must do nothing but change the
// copy, and must not keep the pointer to it. Rules must not call the Waitable, and must be the same in all processes.
// The goroutines of one process call the rules one at a time, so rules must be quick. The function of Update may take
// long.
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
	waitableCore
	rules  Rules[S, E]
	fields uint64            // see packExtra
	copied S                 // the copy of the state on which a rule works. guarded by: private
	marks  []waitableMark[E] // see begins. guarded by: private
	marked bool              // after a runtime.Goexit in a rule, x was made not recoverable. guarded by: private
	copies sync.Pool         // of *S: the copies of the state on which the functions of Update work
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
	// Undo is called for a claim that a process never used, because the process died after its wait was granted the
	// claim and before Wait returned. If Undo is nil, Release is called or, if Release is nil too, OnDeath. If all
	// three are nil, such a claim is never undone.
	Undo func(s *S, e E)
	// Before reports whether a wait for x is served before a wait for y that came earlier. If Before is nil, no
	// wait overtakes another.
	Before func(x, y E) bool
}

// WaitableOptions says how a Waitable is created. A nil *WaitableOptions means the
// zero value.
type WaitableOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var waitableKind = arenakernel.KindOf("WAIT")

const (
	waitableVersion = 5
	waitableCount   = 1 << 20 // the maximum number of claims of one participant for one value of E
)

// OpenWaitable finds the Waitable of that name in the arena or creates it with the state initial. An empty name makes a
// fresh anonymous one. An existing Waitable must have the same S and E. If S has at most eight bytes, a Waitable takes
// 128 bytes, and 256 more for each slot whose participants have opened it. If S is larger, the Waitable takes the size
// of S more, and twice that size more for each slot. If a participant has claims for several values of E at a time, the
// Waitable gets 256 bytes more for every four such values. If there is not enough room, the error Is
// [shmsync.ErrNoSpace].
func OpenWaitable[S, E any](a *arena.Arena, name string, initial S, rules Rules[S, E], opts *WaitableOptions) (*Waitable[S, E], error) {
	return openWaitable((*arenakernel.Arena)(a), name, initial, rules, opts, false)
}

func openWaitable[S, E any](a *arenakernel.Arena, name string, initial S, rules Rules[S, E], opts *WaitableOptions, attach bool) (*Waitable[S, E], error) {
	var opt WaitableOptions
	if opts != nil {
		opt = *opts
	}
	if rules.Claim == nil {
		panic(fmt.Sprintf("shmsync: OpenWaitable %q without a Claim", name))
	}
	shape := waitableShapeOf(a, sizeOf[S]())
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: waitableKind, Version: waitableVersion, Name: name, Size: shape.size, Layout: waitableLayout[S, E](),
		Type: waitableType[S, E](),
		Init: func(body []byte) {
			waitableBody(body).spin.Store(spinField(opt.Spin))
			initialState(body, shape, &initial)
		},
	}, "waitable.open", newWaitable(rules), nil)
}

// WaitableAt opens the Waitable at an offset that another process got from the method Offset.
func WaitableAt[S, E any](a *arena.Arena, off arena.Offset, rules Rules[S, E]) (*Waitable[S, E], error) {
	if rules.Claim == nil {
		panic("shmsync: WaitableAt without a Claim")
	}
	return handleAt(a, off, "waitable.open", waitableKind, waitableVersion, waitableShapeOf((*arenakernel.Arena)(a), sizeOf[S]()).size,
		func(k *arenakernel.Arena, o arenakernel.Object) (*Waitable[S, E], error) {
			if what := k.TypeDiffers(o, waitableLayout[S, E](), waitableType[S, E]()); what != "" {
				return nil, &shmsync.Error{Op: "waitable.open", Object: objectName(o), Err: shmsync.ErrIncompatible, Detail: "it has another state S or other waits E: " + what}
			}
			return buildWaitable(k, o, rules)
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

// pack packs a value of E into a word.
func (x *Waitable[S, E]) pack(e E) uint64 { return packExtra(e, x.fields) }

// fieldBits returns a mask of those bits of a word that the fields of a value of type t at the given offset use.
// Padding and blank fields have no bits in the mask.
func fieldBits(t reflect.Type, at uintptr) (mask uint64) {
	switch t.Kind() {
	case reflect.Array:
		for i := range t.Len() {
			mask |= fieldBits(t.Elem(), at+uintptr(i)*t.Elem().Size())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.Name != "_" {
				mask |= fieldBits(f.Type, at+f.Offset)
			}
		}
	default:
		for i := range t.Size() {
			mask |= 0xff << (8 * (at + i))
		}
	}
	return mask
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
		return buildWaitable(a, o, rules)
	}
}

func buildWaitable[S, E any](a *arenakernel.Arena, o arenakernel.Object, rules Rules[S, E]) (*Waitable[S, E], error) {
	shape := waitableShapeOf(a, sizeOf[S]())
	if o.Size != shape.size {
		return nil, wrongKind("waitable.open", o, waitableKind, waitableVersion)
	}
	x := &Waitable[S, E]{rules: rules, fields: fieldBits(reflect.TypeFor[E](), 0)}
	if err := x.openCore(a, o, shape, false); err != nil {
		return nil, err
	}
	// A rule may end the goroutine that runs it, and the goroutines of this library must not end. So the method check
	// runs rules in a separate goroutine.
	x.openWaits(x.check, x.torn)
	// Only a process that has the rules can undo the claims of dead processes. So start the poller of this process,
	// which is notified of deaths, and calls the method check if goroutines wait.
	x.queue.StartPoller()
	return x, nil
}

// TryWait makes the claim that Wait would make, if that is possible without waiting, and reports whether it did.
// If it did not, the method Err shows whether a wait can succeed later. Like a wait, TryWait looks for processes that
// died and undoes their claims, but not in each call: if it is called again and again, it does so ten times a second.
func (x *Waitable[S, E]) TryWait(e E) (ok bool) {
	defer x.opening.serve(x.queue).end()
	made, err := x.take(context.Background(), e)
	if !made && err == nil && x.tried.due() {
		x.check()
		made, err = x.take(context.Background(), e)
	}
	return made && err == nil
}

// Release undoes a claim for e that this process has made. It panics if there is no such claim, if the rules have
// no Release, or if x is not recoverable. In the last case it panics with an error that Is ErrNotRecoverable, and
// the claim stays.
func (x *Waitable[S, E]) Release(e E) {
	if x.rules.Release == nil {
		panic("shmsync: Release of waitable " + objectName(x.object) + ", whose claims are not held")
	}
	defer x.opening.serve(x.queue).end()
	extra, has := x.pack(e), false
	var err error
	var tries attempts
	defer x.over(&tries)
	x.locked(func(c *recordedChange, b *wakes) (changed bool) {
		for {
			// The loop repeats only if another call has changed the Waitable. So it is lock-free.
			x.again(&tries)
			if _, err = x.copyState(c, b, &x.copied, &tries); err != nil {
				return false
			}
			// The words that this call reads from here on belong to the copied state if the commit word stays the same.
			by := x.lostIn(c)
			h, missed := x.labelOf(x.name, extra)
			count := h.counted()
			switch has = count != 0; {
			case x.load() != c.c:
				continue
			case by != 0:
				err = x.notRecoverable("waitable.release", by)
				return false
			case !has:
				err = missed
				return false
			}
			x.rules.Release(&x.copied, e)
			x.setCount(c, h, count-1)
			x.put(c, &x.copied)
			if changed, err = x.end(c, b); changed || err != nil {
				return changed
			}
		}
	})
	switch {
	case err != nil:
		panic(err)
	case !has:
		panic("shmsync: waitable " + objectName(x.object) + ": Release of a claim that this process does not have")
	}
}

// Stop ends all waits, and all later waits, with an error that Is ErrCanceled. Stop cannot be undone. Claims stay,
// and can be released.
func (x *Waitable[S, E]) Stop() {
	defer x.opening.serve(x.queue).end()
	var err error
	x.locked(func(c *recordedChange, b *wakes) (changed bool) {
		for {
			// The loop repeats only if another process has changed the Waitable. So it is lock-free.
			if err = x.begin(c, b); err != nil {
				return false
			}
			c.set(waitableStoppedWord, 0, &x.words.stopped, 1)
			var ok bool
			if ok, err = x.end(c, b); ok || err != nil {
				return ok
			}
		}
	})
	if err != nil {
		panic(err)
	}
}

// Offset returns the place of the Waitable in its arena, for WaitableAt in another process.
func (x *Waitable[S, E]) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the Waitable, and no other. Calls that wait through it end with an
// error that Is ErrClosed. This process keeps its claims; release them through another handle. A
// second Close is an error that Is ErrClosed.
func (x *Waitable[S, E]) Close() error {
	return x.opening.close("waitable.close")
}
