package prims

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// Event is a flag between processes that is set or not, and for which goroutines wait.
//
// An Event that is not auto-reset stays set until Reset. A Set ends every wait that began before the Set, even
// if a Reset follows at once. So no waiter misses a short pulse. In a bidirectional Event, goroutines can also
// wait for the reset, by the same rule.
//
// An auto-reset Event has tokens instead. A token is the permission for one waiter to go on. A Set makes a token
// for one of the waiting goroutines. If each of them has a token already, the Set makes a token for the next caller
// of Wait. While that token is there, another Set has no effect. Waiters are released in no particular order.
// IsSet, TryWait and Reset ignore the tokens that were made for waiters. A new caller of Wait leaves those tokens
// to the earlier waiters for about a millisecond, but no longer, because the processes of the earlier waiters may
// be stopped.
//
// In the terminology of the Go memory model, and across processes: a Set synchronizes
// before the return of each Wait that it lets go, and before each IsSet that is true
// because of it. In a bidirectional Event, a Reset synchronizes in the same way before the
// return of each WaitReset that it lets go.
//
// When a process dies, the Event stays as it was, and the waits of the process end. If a token was made for one
// of these waits and the wait has not taken it, the token is there for other waiters.
type Event struct {
	manual  *manualEvent // exactly one of manual and auto is not nil
	auto    *autoEvent
	mode    eventMode
	object  arenakernel.Object
	opening *opening // nil for the handle of a reaper
	spin    *atomic.Uint32
	key     race.Key
}

// EventOptions says how an Event is created. A nil *EventOptions means the zero value.
type EventOptions struct {
	// Mode says which waiters a Set releases. 0 means EventManualReset for a new object, and the mode of the
	// object for an existing one. If Mode is set and an existing object has another mode, opening fails.
	Mode EventMode
	// InitiallySet makes a new Event that is set.
	InitiallySet bool
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var eventKind = arenakernel.KindOf("EVNT")

const eventVersion = 4

// OpenEvent finds the Event of that name in the arena or creates it. An empty name makes a new anonymous Event.
// OpenEvent panics if opts.Mode is not a valid EventMode.
//
// An Event takes 256 bytes in an arena for up to 511 participants. An auto-reset Event takes 128 bytes more for
// each slot whose participants have opened the Event. These bytes are allocated when a participant of the slot
// opens the Event for the first time. If the arena has not enough room for them, the error Is [shmsync.ErrNoSpace].
func OpenEvent(a *arena.Arena, name string, opts *EventOptions) (*Event, error) {
	return openEvent((*arenakernel.Arena)(a), name, opts, false)
}

func openEvent(a *arenakernel.Arena, name string, opts *EventOptions, attach bool) (*Event, error) {
	var opt EventOptions
	if opts != nil {
		opt = *opts
	}
	if opt.Mode > EventBidirectional {
		panic(fmt.Sprintf("shmsync: OpenEvent %q: there is no mode %d", name, uint32(opt.Mode)))
	}
	mode := opt.Mode.stored()
	differs := func(is eventMode) string {
		if opt.Mode == 0 || mode == is {
			return ""
		}
		return fmt.Sprintf("it is %v, asked for %v", is, mode)
	}
	build := func(a *arenakernel.Arena, o arenakernel.Object) (*Event, error) {
		is, err := eventModeOf(a, o)
		if err != nil {
			return nil, err
		}
		if how := differs(is); how != "" { // checked here, before this process gets a slot record
			return nil, &shmsync.Error{Op: "event.open", Object: objectName(o), Err: shmsync.ErrIncompatible, Detail: how}
		}
		return buildEvent(a, o, is, false)
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: eventKind, Version: eventVersion, Name: name, Size: eventBytes,
		Init: func(body []byte) { initEvent(body, mode, opt.InitiallySet, spinField(opt.Spin)) },
	}, "event.open", build, func(e *Event) string { return differs(e.mode) })
}

// EventAt opens the Event at an offset that another process got from the method Offset.
func EventAt(a *arena.Arena, off arena.Offset) (*Event, error) {
	return handleAt(a, off, "event.open", eventKind, eventVersion, eventBytes, newEvent)
}

func newEvent(a *arenakernel.Arena, o arenakernel.Object) (*Event, error) {
	mode, err := eventModeOf(a, o)
	if err != nil {
		return nil, err
	}
	return buildEvent(a, o, mode, false)
}

// eventModeOf returns the mode of an Event. In shared memory, an auto-reset Event has its mode in a word of its own.
// This word is 0 in any other Event.
func eventModeOf(a *arenakernel.Arena, o arenakernel.Object) (eventMode, error) {
	if o.Size == eventBytes {
		switch arenakernel.At[autoEventWords](a, o.Body).mode.Load() {
		case uint32(eventAuto):
			return eventAuto, nil
		case 0:
			mode := eventState(arenakernel.At[eventWords](a, o.Body).count.state.Load()).mode()
			if mode == eventManual || mode == eventBidirectional {
				return mode, nil
			}
		}
	}
	return 0, &shmsync.Error{Op: "event.open", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its mode is unknown"}
}

func buildEvent(a *arenakernel.Arena, o arenakernel.Object, mode eventMode, bare bool) (*Event, error) {
	e := &Event{object: o, mode: mode}
	if mode == eventAuto {
		x, err := buildAutoEvent(a, o, bare)
		if err != nil {
			return nil, err
		}
		e.auto, e.opening, e.spin, e.key = x, x.opening, x.words.spin, x.key
	} else {
		e.manual = buildManualEvent(a, o, bare)
		e.opening, e.spin, e.key = e.manual.opening, e.manual.words.spin, e.manual.key
	}
	return e, nil
}

// Set sets e and ends the waits for e. If e is auto-reset, Set ends one of these waits. If e is set already, Set
// changes nothing, but it still synchronizes: what the caller did before Set is visible after the next call that
// resets e or takes its token.
func (e *Event) Set() {
	e.opening.use()
	if e.auto != nil {
		e.auto.set()
		return
	}
	e.manual.turn(true)
}

// Reset makes e not set, and reports whether e was set. If e is auto-reset, Reset takes the token
// that is there for the next caller, and leaves the tokens that were made for waiters.
func (e *Event) Reset() bool {
	e.opening.use()
	if e.auto != nil {
		return e.auto.claim()
	}
	return e.manual.turn(false)
}

// IsSet reports whether e is set.
func (e *Event) IsSet() bool {
	e.opening.use()
	set := false
	if e.auto != nil {
		set = e.auto.isSet()
	} else {
		set = e.manual.load().set()
	}
	if set {
		race.Acquire(e.key)
	}
	return set
}

// Wait waits until e is set. If e is auto-reset, Wait takes a token that a Set has made. It panics with an
// *[shmsync.Error] where WaitContext returns one.
func (e *Event) Wait() {
	if err := e.WaitContext(nil); err != nil {
		panic(err)
	}
}

// WaitContext is like Wait, but returns ctx.Err() if ctx ends first. Its other errors are ErrClosed and, with
// EventAutoReset, ErrCorrupt. An Event that is set takes precedence over a context that has ended.
func (e *Event) WaitContext(ctx context.Context) error {
	if err := e.opening.error("event.wait"); err != nil {
		return err
	}
	if e.auto != nil {
		if e.auto.claim() {
			return nil
		}
		return e.auto.wait(ctx)
	}
	return e.manual.waitUntil(ctx, true)
}

// TryWait does what Wait does if Wait need not block, and reports whether e was set. It never
// blocks.
func (e *Event) TryWait() bool {
	e.opening.use()
	if e.auto != nil {
		return e.auto.tryClaim()
	}
	return e.IsSet()
}

// WaitAsync begins a wait for e to be set, and returns at once.
func (e *Event) WaitAsync() *Pending {
	e.opening.use()
	if e.auto != nil {
		return e.auto.async()
	}
	return e.manual.async(true)
}

// WaitReset waits until e, which is bidirectional, is not set. It panics with an
// *[shmsync.Error] where WaitResetContext returns one.
func (e *Event) WaitReset() {
	if err := e.WaitResetContext(nil); err != nil {
		panic(err)
	}
}

// WaitResetContext is like WaitReset, but returns ctx.Err() if ctx ends first, or another error of WaitContext. An
// Event that is not set takes precedence over a context that has ended.
func (e *Event) WaitResetContext(ctx context.Context) error {
	if err := e.opening.error("event.wait"); err != nil {
		return err
	}
	e.needBidirectional("WaitReset")
	return e.manual.waitUntil(ctx, false)
}

// WaitResetAsync begins a wait for the reset of e, which is bidirectional, and returns at once.
func (e *Event) WaitResetAsync() *Pending {
	e.opening.use()
	e.needBidirectional("WaitResetAsync")
	return e.manual.async(false)
}

func (e *Event) needBidirectional(verb string) {
	if e.mode&eventBidirectional == 0 {
		panic(fmt.Sprintf("shmsync: %s of event %s, which is not bidirectional", verb, objectName(e.object)))
	}
}

// EventState is the result of State.
type EventState struct {
	Set     bool      // a call of Wait does not block now
	Mode    EventMode // the mode with which the Event was created
	Waiting bool      // a call waits; if e is not auto-reset, Waiting may stay true after the call has given up
}

// State reads e without locking it. The answer may be out of date when it returns.
func (e *Event) State() EventState {
	e.opening.use()
	st := EventState{Mode: e.mode.public()}
	if e.auto != nil {
		st.Set, st.Waiting = e.auto.state()
	} else {
		s := e.manual.load()
		st.Set, st.Waiting = s.set(), s.announced()
	}
	return st
}

// String renders the state on one line.
func (e *Event) String() string {
	st, set := e.State(), "not set"
	if st.Set {
		set = "set"
	}
	return fmt.Sprintf("event %s: %v, %s, waiting %v", objectName(e.object), e.mode, set, st.Waiting)
}

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn the bound from
// earlier spins; if d is negative, they never spin.
func (e *Event) SetSpin(d time.Duration) {
	e.opening.use()
	e.spin.Store(spinField(d))
}

// Spin returns the bound that SetSpin, or the creation of the object, has set.
func (e *Event) Spin() time.Duration {
	e.opening.use()
	return spinOf(e.spin.Load())
}

// Offset is the place of the Event in its arena. Another process can pass it to EventAt.
func (e *Event) Offset() arena.Offset { return e.object.Offset }

// Close closes this handle on the Event, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. A second Close returns an error that Is ErrClosed.
func (e *Event) Close() error { return e.opening.close("event.close") }
