package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// opening is one opening of an object. Each handle has an opening of its own. The Close of the handle ends this
// opening, and no other opening of the process.
//
// Close first ends the waits of the handle. The waiting calls clean up while the words of the object are still in
// place. Then Close changes the pointers of the fast paths. Afterwards they point to private words, with which every
// fast path fails. The slow path finds that the field ended is set. So a fast path need not test whether the handle
// is closed. closeAll lists the steps.
type opening struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	what   string // the name of the kind in messages, such as "semaphore"

	refusal *shmsync.Error // the error with which the method use panics

	refuse func()      // makes the handle refuse new waits; does not block
	left   func() bool // wakes the remaining waiters, and reports whether no call is left
	drain  func()      // waits, for a bounded time, until calls that do not wait have returned
	end    func()      // makes the fast paths fail
	owed   func()      // makes the wakes that late calls leave to Close; see enterLate

	// Functions of the program that calls of the handle run: insideRule is for a rule, and inside is for any other
	// function, such as that of an Update. Close of the handle waits for inside only, and Close of the arena waits
	// for both. Immutable after the handle is built.
	inside, insideRule markedFunc

	closing atomic.Bool
	ended   atomic.Bool
	closed  chan struct{} // closed when the Close of the handle has ended

	mu      sync.Mutex
	needed  int  // guarded by: mu; 1 for the handle, plus the calls that keep the object open; see keepIfOpen
	awaited int  // guarded by: mu; how many of these calls Close of the arena waits for; see stayIfOpen
	lost    bool // guarded by: mu; the arena may have been unmapped
	shares  bool // guarded by: handles; the opening uses data that the function common returned
}

// newOpening makes the opening of a handle. The Close of the opening ends no wait until the caller sets the functions
// refuse, left and end.
func newOpening(a *arenakernel.Arena, o arenakernel.Object) *opening {
	what := kindNames[o.Kind]
	refusal := &shmsync.Error{Op: what + ".use", Object: objectName(o), Err: shmsync.ErrClosed, Detail: closedHandle}
	return &opening{
		a: a, object: o, what: what, refusal: refusal, refuse: func() {}, left: func() bool { return true },
		drain: func() {}, end: func() {}, owed: func() {}, closed: make(chan struct{}), needed: 1,
	}
}

// waitsIn sets the queues in which the calls of the handle wait. The set of queues does not change
// later.
func (p *opening) waitsIn(queues ...*park.Queue) {
	p.refuse, p.left = func() { park.Refuse(queues...) }, func() bool { return park.Left(queues...) }
}

// kindNames has the name of each kind of object, for messages.
var kindNames = map[arenakernel.Kind]string{
	mutexKind: "mutex", cohortKind: "cohort mutex", rwmutexKind: "rwmutex", spinKindID: "spin lock",
	rwSpinKindID: "reader/writer spin lock", multiLockKind: "multilock", fairMutexKind: "fair mutex",
	condKind: "cond", semaphoreKind: "semaphore", futexKind: "futex", sequencerKind: "sequencer",
	eventKind: "event", futureKind: "future", waitGroupKind: "waitgroup", latchKind: "latch",
	onceKind: "once", barrierKind: "barrier", queueKind: "queue", signalKind: "signal waker",
	waitableKind: "waitable", synchronizedKind: "synchronized",
}

// handle is a handle on an object.
type handle interface{ opened() *opening }

func (m *Mutex) opened() *opening          { return m.opening }
func (c *CohortMutex) opened() *opening    { return c.opening }
func (m *RWMutex) opened() *opening        { return m.opening }
func (l *SpinLock) opened() *opening       { return l.core.opening }
func (l *RWSpinLock) opened() *opening     { return l.core.opening }
func (x *MultiLock) opened() *opening      { return x.opening }
func (f *FairMutex) opened() *opening      { return f.opening }
func (k *condCore) opened() *opening       { return k.opening }
func (s *Semaphore) opened() *opening      { return s.opening }
func (f *Futex) opened() *opening          { return f.opening }
func (s *Sequencer) opened() *opening      { return s.opening }
func (e *Event) opened() *opening          { return e.opening }
func (f *Future) opened() *opening         { return f.opening }
func (g *WaitGroup) opened() *opening      { return g.counter.opening }
func (l *Latch) opened() *opening          { return l.counter.opening }
func (o *Once) opened() *opening           { return o.opening }
func (x *Barrier) opened() *opening        { return x.opening }
func (x *queueCore) opened() *opening      { return x.opening }
func (w *SignalWaker) opened() *opening    { return w.opening }
func (x *Waitable[S, E]) opened() *opening { return x.opening }
func (s *synchronized) opened() *opening   { return s.lock.opening }

// handles are the open handles of this process. The first key is the segment, that is, the mapped file of the
// arena; the second key is the offset of the object.
var handles struct {
	sync.Mutex
	of     map[any]map[arenakernel.Offset]*objectHandles // guarded by: Mutex
	common map[commonKey]*commonPart                     // guarded by: Mutex; see common
}

// objectHandles are the open handles of this process on one object.
type objectHandles struct {
	open map[*opening]handle // guarded by: handles
}

// commonKey identifies an object while it is open. It includes the kind of the object. Otherwise a peer that
// overwrites the arena could make this process use the commonPart of one kind for an object of another kind.
type commonKey struct {
	segment any
	at      arenakernel.Offset
	kind    arenakernel.Kind
}

// commonPart is data of this process that all its handles on an object share.
type commonPart struct {
	part any
	uses int // guarded by: handles; how many openings use the part
}

func (p *opening) commonKey() commonKey {
	return commonKey{p.a.Segment(), p.object.Offset, p.object.Kind}
}

// The function share makes a handle on an object that the caller has opened, and registers the handle. The
// handle is closed together with the opening of the arena through which it was opened. If share returns an
// error, it has closed the object.
//
// Preconditions: the caller has called BeginCall, and has not called EndCall yet.
func share[H handle](a *arenakernel.Arena, o arenakernel.Object, build func(*arenakernel.Arena, arenakernel.Object) (H, error)) (H, error) {
	h, err := build(a, o)
	if err != nil {
		a.CloseObject(o)
		return h, err
	}
	if !register(a, o, h) {
		h.opened().close("") // no other goroutine has the handle, so this does not block
		var none H
		return none, a.ClosedError("arena.open_object")
	}
	return h, nil
}

// register adds a handle to the open handles of this process. If the Close of the arena has begun, register adds
// nothing and returns false, because Close may already have made its list of handles.
func register(a *arenakernel.Arena, o arenakernel.Object, h handle) bool {
	handles.Lock()
	defer handles.Unlock()
	// Close of the arena first marks the arena as closing, and then makes its list of handles under this mutex.
	// So either this check sees the mark, or Close finds the handle in the list.
	if a.Closing() {
		return false
	}
	handlesOn(a, o).open[h.opened()] = h
	a.BeforeClose(func() { mustNotCloseArenaInside(a) })
	a.OnEnd(&handles, func() { closeHandles(a) })
	a.OnClose(&handles, func() { loseHandles(a) })
	return true
}

// openAs finds the object that spec describes, or creates it. It returns the handle that the function build makes.
// If the object existed before, openAs calls the function differs. If the object is what the caller asked for, differs
// returns "". Otherwise differs returns a text that says what is wrong, and openAs returns an error.
func openAs[H handle](
	a *arenakernel.Arena, spec arenakernel.ObjectSpec, op string,
	build func(*arenakernel.Arena, arenakernel.Object) (H, error), differs func(H) string,
) (H, error) {
	var none H
	if err := a.BeginCall("arena.open_object"); err != nil {
		return none, err
	}
	defer a.EndCall() // runs after the handle is registered, or after everything is cleaned up
	within := a.Within()
	o, created, err := within.OpenObject(spec)
	if err != nil {
		return none, err
	}
	h, err := share(a, o, build)
	if err != nil {
		if created && spec.Name == "" {
			within.DeleteObject(o) // no other process can find the object
		}
		return none, err
	}
	if created || differs == nil {
		return h, nil
	}
	if how := differs(h); how != "" {
		h.opened().close(op)
		return none, &shmsync.Error{Op: op, Object: objectName(o), Err: shmsync.ErrIncompatible, Detail: how}
	}
	return h, nil
}

// handleAt returns a handle on the object at the offset off. The object must be of the given kind and version, and
// have at least the given size.
func handleAt[H handle](
	a *arena.Arena, off arena.Offset, op string, kind arenakernel.Kind, version uint16, size uint64,
	build func(*arenakernel.Arena, arenakernel.Object) (H, error),
) (H, error) {
	k := (*arenakernel.Arena)(a)
	var none H
	if err := k.BeginCall("arena.object"); err != nil {
		return none, err
	}
	defer k.EndCall()
	o, err := objectAt(k, off, op, kind, version, size)
	if err != nil {
		return none, err
	}
	return share(k, o, build)
}

// handlesOn returns the list of the handles on an object, and makes the list if there is none.
func handlesOn(a *arenakernel.Arena, o arenakernel.Object) *objectHandles { // guarded by: handles
	if handles.of == nil {
		handles.of = map[any]map[arenakernel.Offset]*objectHandles{}
	}
	objects := handles.of[a.Segment()]
	if objects == nil {
		objects = map[arenakernel.Offset]*objectHandles{}
		handles.of[a.Segment()] = objects
	}
	on := objects[o.Offset]
	if on == nil {
		on = &objectHandles{open: map[*opening]handle{}}
		objects[o.Offset] = on
	}
	return on
}

// The function common returns the data that all handles of this process on an object share, and makes this data if
// there is none. The opening p uses the data until p ends. A function that builds a handle calls common at most once,
// and must not fail after that: a handle whose build fails is never closed, and would use the data for ever.
func common[C any](p *opening) *C {
	handles.Lock()
	defer handles.Unlock()
	key := p.commonKey()
	c := handles.common[key]
	if c == nil {
		if handles.common == nil {
			handles.common = map[commonKey]*commonPart{}
		}
		c = &commonPart{part: new(C)}
		handles.common[key] = c
	}
	c.uses++
	p.shares = true
	return c.part.(*C)
}

// leaveCommon ends the opening's use of the data that the function common returned. The object is still open at
// that time, so no other object can be at its offset.
func (p *opening) leaveCommon() {
	handles.Lock()
	defer handles.Unlock()
	if !p.shares {
		return
	}
	p.shares = false
	key := p.commonKey()
	if c := handles.common[key]; c != nil {
		if c.uses--; c.uses == 0 {
			delete(handles.common, key)
		}
	}
}

// forget removes a handle from the open handles of this process.
func (p *opening) forget() {
	handles.Lock()
	defer handles.Unlock()
	objects := handles.of[p.a.Segment()]
	on := objects[p.object.Offset]
	if on == nil {
		return
	}
	if delete(on.open, p); len(on.open) == 0 {
		delete(objects, p.object.Offset)
	}
	if len(objects) == 0 {
		delete(handles.of, p.a.Segment())
	}
}

const closedHandle = "this handle is closed"

// error returns the error for a call of a closed handle, or nil if the handle is open.
func (p *opening) error(op string) error {
	if !p.ended.Load() {
		return nil
	}
	return p.refused(op)
}

// refused returns the error for a call that came after the beginning of Close. It is not inlined, so that the
// method error is small enough to be inlined.
//
//go:noinline
func (p *opening) refused(op string) error {
	return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
}

// use panics if the handle is closed.
func (p *opening) use() {
	if p.ended.Load() {
		panic(p.refusal) // with a call of another function here, the compiler would not inline this method
	}
}

func (p *opening) misused(verb string) {
	panic("shmsync: " + verb + " of " + p.what + " " + objectName(p.object) + ", whose handle is closed")
}

// objectAt opens the object at the offset off if the object is of the given kind. off may be wrong, because a
// peer may have supplied it.
//
// Preconditions: those of the function share.
func objectAt(a *arenakernel.Arena, off arenakernel.Offset, op string, kind arenakernel.Kind, version uint16, size uint64) (arenakernel.Object, error) {
	o, err := a.Within().ObjectAt(off)
	if err != nil {
		return o, err
	}
	if o.Kind != kind || o.Version != version || o.Size < size {
		a.CloseObject(o)
		return o, wrongKind(op, o, kind, version)
	}
	return o, nil
}
