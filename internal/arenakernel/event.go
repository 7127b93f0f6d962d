package arenakernel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
)

// An EventKind says what has happened; see [Event].
type EventKind uint8

// The kinds of events.
const (
	EventDeath          EventKind = iota + 1 // a participant has died
	EventOwnerDead                           // an object became owner-dead: a participant died while it held the object
	EventTakenBack                           // what a dead participant held was released, as the policy of the object says
	EventRepaired                            // a repair has succeeded
	EventNotRecoverable                      // an object became not recoverable
	EventCorrupt                             // impossible bytes were found
)

// String returns the kind as a word.
func (k EventKind) String() string {
	names := [...]string{"", "death", "owner dead", "taken back", "repaired", "not recoverable", "corrupt"}
	if int(k) >= len(names) || k == 0 {
		return "unknown event"
	}
	return names[k]
}

// An Event describes a failure in an arena, or a recovery from a failure.
type Event struct {
	Kind   EventKind
	Time   time.Time
	Object Object            // zero if the event concerns no object or an unknown object
	Key    *uint64           // the key of a MultiLock; nil for other objects
	Who    *shmsync.Identity // the participant that died; nil if unknown
	Err    error             // the error of EventNotRecoverable and EventCorrupt, if there is one
	Missed uint64            // how many earlier events were dropped
}

// events delivers the events of an arena to the functions of Options.OnEvent.
type events struct {
	hooked atomic.Bool // true if hooks is not empty
	mu     sync.Mutex
	hooks  []*eventHook // guarded by: mu

	deathMu sync.Mutex          // locked before mu, and before the lock of the deathLog
	deathOf map[*eventHook]bool // guarded by: deathMu; the hooks that get deaths
	death   *deathFunc          // guarded by: deathMu; turns deaths into events; registered while deathOf is not empty
}

// An eventHook is the OnEvent function of one opening.
type eventHook struct {
	f       func(Event)
	mu      sync.Mutex
	pending []Event             // guarded by: mu
	told    map[Object]struct{} // guarded by: mu; objects whose damage was reported, or will be
	started bool                // guarded by: mu; f may be called from now on
	running bool                // guarded by: mu; a goroutine is calling f
	over    bool                // guarded by: mu; the opening is closed
}

const (
	// eventsPending is the maximum number of events that wait for a slow hook. If there are more,
	// the oldest events are dropped, and the next call of the hook reports their number.
	eventsPending = 256
	// eventsTold limits the memory for the objects whose damage was reported. If more objects are
	// damaged, the damage of an object may be reported again.
	eventsTold = 1024
)

// The method hook begins to collect events for the function f, and returns an eventHook. No event is
// passed to f before the caller has called the method start of this eventHook.
func (e *events) hook(f func(Event)) *eventHook {
	h := &eventHook{f: f}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = append(e.hooks, h)
	e.hooked.Store(true)
	return h
}

// unhook ends the calls of h. A call of its function that is already running continues.
func (e *events) unhook(h *eventHook) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, x := range e.hooks {
		if x == h {
			e.hooks = append(e.hooks[:i:i], e.hooks[i+1:]...)
			break
		}
	}
	e.hooked.Store(len(e.hooks) > 0)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over, h.pending = true, nil
}

// tell passes x to all hooks, without waiting for any of them.
func (e *events) tell(x Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.Time = time.Now() // with mu held, so that times do not decrease
	for _, h := range e.hooks {
		h.add(x)
	}
}

// add queues an event for h.f, and starts the goroutine that calls h.f if it is not running.
func (h *eventHook) add(x Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if x.Kind == EventCorrupt {
		if _, again := h.told[x.Object]; again {
			return
		}
		if h.told == nil || len(h.told) >= eventsTold {
			h.told = map[Object]struct{}{}
		}
		h.told[x.Object] = struct{}{}
	}
	if h.pending = append(h.pending, x); len(h.pending) > eventsPending {
		first := h.pending[0]
		if first.Kind == EventCorrupt {
			delete(h.told, first.Object)
		}
		h.pending[1].Missed += first.Missed + 1
		h.pending = h.pending[1:]
	}
	h.call()
}

// The method call starts a goroutine that calls h.f for the pending events. It does nothing if no
// event is pending, or if such a goroutine is already running.
func (h *eventHook) call() { // guarded by: mu
	if h.started && !h.running && len(h.pending) > 0 {
		h.running = true
		go h.run()
	}
}

// The method start allows h to call its function for the events that it has collected, and for
// later events.
func (h *eventHook) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = true
	h.call()
}

// run calls h.f for the pending events, in order.
func (h *eventHook) run() {
	idle := false
	defer func() {
		if !idle {
			go h.run() // f has ended this goroutine, for example by a failed assertion in a test
		}
	}()
	for {
		h.mu.Lock()
		if len(h.pending) == 0 {
			h.running, idle = false, true
			h.mu.Unlock()
			return
		}
		x := h.pending[0]
		h.pending = h.pending[1:]
		h.mu.Unlock()
		h.f(x)
	}
}

// keepTelling delivers the events of this arena to h until this opening is closed.
func (a *Arena) keepTelling(h *eventHook) {
	a.OnEnd(h, func() {
		a.events.unhook(h)
		a.tellDeaths(h, false)
	})
	a.tellDeaths(h, true)
	h.start()
}

// tellDeaths begins or ends the events that tell h of deaths. All hooks together need only one
// function that is registered by onDeath.
func (a *Arena) tellDeaths(h *eventHook, begin bool) {
	e := &a.events
	e.deathMu.Lock()
	defer e.deathMu.Unlock()
	switch had := len(e.deathOf); {
	case begin && had == 0:
		e.deathOf = map[*eventHook]bool{h: true}
		e.death = &deathFunc{atOnce: true, f: func(p Participant) { // called at once, so events have the order of the deaths
			e.tell(Event{Kind: EventDeath, Who: &p.Identity, Missed: p.Missed})
		}}
		a.onDeath(e.death)
	case begin:
		e.deathOf[h] = true
	default:
		if delete(e.deathOf, h); had > 0 && len(e.deathOf) == 0 {
			a.offDeath(e.death)
		}
	}
}

// Happened reports an event of object o to the functions of Options.OnEvent. The argument named
// died is the participant whose death caused the event, or 0. The caller may hold a lock, because
// Happened does not wait for these functions.
func (a *Arena) Happened(kind EventKind, o Object, key *uint64, died ParticipantID, err error) {
	if !a.events.hooked.Load() {
		return
	}
	x := Event{Kind: kind, Object: o, Key: key, Err: err}
	if died != 0 {
		x.Who = a.Who(died)
	}
	a.events.tell(x)
}
