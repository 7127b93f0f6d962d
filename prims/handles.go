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
// Close first ends the waits of the handle, whose calls clean up while the words are still in place. Then it
// takes the words away from the fast paths, and gives them words that are never free. A fast path has no room
// for a test whether the handle is closed. With such a word it fails, and goes on in its slow path, which
// checks ended. The steps are at closeAll.
// steps are at closeAll.
type opening struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	what   string // the kind as people call it, such as "semaphore"

	refusal *shmsync.Error // the error with which use panics

	refuse func()      // makes the handle refuse waits from now on; it waits for nothing
	left   func() bool // wakes the waits of a handle that refuses, and reports whether its calls have left
	drain  func()      // waits for calls that do not wait, for a bounded time
	end    func()      // takes the words away

	closing atomic.Bool
	ended   atomic.Bool
	closed  chan struct{} // closed when the Close of the handle is over

	mu     sync.Mutex
	needed int  // guarded by: mu; how many users need the words, the handle included
	polls  int  // guarded by: mu; how often the end of the opening has looked for calls
	lost   bool // guarded by: mu; the arena may be unmapped by now
	shares bool // guarded by: handles; it uses a part that common returned
}

// newOpening makes the opening of a handle. Until its maker sets refuse, left and end, its Close
// has nothing to end.
func newOpening(a *arenakernel.Arena, o arenakernel.Object) *opening {
	what := kindNames[o.Kind]
	refusal := &shmsync.Error{Op: what + ".use", Object: objectName(o), Err: shmsync.ErrClosed, Detail: closedHandle}
	return &opening{
		a: a, object: o, what: what, refusal: refusal, refuse: func() {}, left: func() bool { return true },
		drain: func() {}, end: func() {}, closed: make(chan struct{}), needed: 1,
	}
}

// waitsIn says in which queues the calls of the handle wait. The queues do not change.
func (p *opening) waitsIn(queues ...*park.Queue) {
	p.refuse, p.left = func() { park.Refuse(queues...) }, func() bool { return park.Left(queues...) }
}

// kindNames are the names of the kinds for people.
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
func (k *condCore) opened() *opening       { return k.mon.opening }
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
func (x *Waitable[S, E]) opened() *opening { return x.mon.opening }
func (s *synchronized) opened() *opening   { return s.lock.opening }

// handles are the open handles of this process, by the segment of the arena and by the
// object.
var handles struct {
	sync.Mutex
	of     map[any]map[arenakernel.Offset]*objectHandles // guarded by: Mutex
	common map[commonKey]*commonPart                     // guarded by: Mutex; see common
}

// objectHandles are the open handles of this process on one object.
type objectHandles struct {
	open map[*opening]handle // guarded by: handles
}

// commonKey identifies an object while it is open. It includes the kind, so that a peer that
// overwrites the arena cannot make one kind's part pass for another's.
type commonKey struct {
	segment any
	at      arenakernel.Offset
	kind    arenakernel.Kind
}

// commonPart is what the handles of this process on an object share.
type commonPart struct {
	part any
	uses int // guarded by: handles; how many openings use it
}

func (p *opening) commonKey() commonKey {
	return commonKey{p.a.Segment(), p.object.Offset, p.object.Kind}
}

// share makes a handle of an object that the caller has opened, and registers the handle. The
// handle is closed together with the opening of the arena through which it was opened. After an
// error the object is closed.
//
// Preconditions: the caller is within a call that BeginCall has begun.
func share[H handle](a *arenakernel.Arena, o arenakernel.Object, build func(*arenakernel.Arena, arenakernel.Object) (H, error)) (H, error) {
	h, err := build(a, o)
	if err != nil {
		a.CloseObject(o)
		return h, err
	}
	if !register(a, o, h) {
		h.opened().close("") // no other goroutine has the handle, so this does not wait
		var none H
		return none, a.ClosedError("arena.open_object")
	}
	return h, nil
}

// register records a handle. It reports false if the Close of the arena has begun: Close has taken
// its list of the handles that it closes, or is about to.
func register(a *arenakernel.Arena, o arenakernel.Object, h handle) bool {
	handles.Lock()
	defer handles.Unlock()
	// Close sets its mark before it takes the list, which it does under this mutex.
	if a.Closing() {
		return false
	}
	handlesOn(a, o).open[h.opened()] = h
	a.OnEnd(&handles, func() { closeHandles(a) })
	a.OnClose(&handles, func() { loseHandles(a) })
	return true
}

// openAs finds the object of spec or creates it, and returns a handle that build makes. If the
// object existed before, differs says how it differs from what the caller asked for.
func openAs[H handle](
	a *arenakernel.Arena, spec arenakernel.ObjectSpec, op string,
	build func(*arenakernel.Arena, arenakernel.Object) (H, error), differs func(H) string,
) (H, error) {
	var none H
	if err := a.BeginCall("arena.open_object"); err != nil {
		return none, err
	}
	defer a.EndCall() // after the handle is registered, or nothing is left of it
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

// handleAt returns a handle on the object at an offset. The object must have that kind and
// version and at least that size.
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

// handlesOn returns the record of the handles on an object, and makes one if there is none.
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

// common returns the part that all handles of this process on an object share, and makes it if there is none.
// The opening uses the part until it ends. A build function calls common once, and must not fail after that:
// only an opening that share has registered ever ends, and so gives up its use of the part.
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

// leaveCommon ends the opening's use of the common part. The object is still open, so no other
// object can be at its offset.
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

// forget removes a handle from the open ones.
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

// stayIfOpen keeps the object open, and the words in place, until leave. It is for a call that
// has to clean up and for which Close does not wait. It reports false if the opening has ended.
// Then the caller must not call leave, which would end the opening twice.
func (p *opening) stayIfOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.needed == 0 || p.lost {
		return false
	}
	p.needed++
	return true
}

// leave ends what stayIfOpen has begun, or ends the handle itself.
func (p *opening) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.needed--; p.needed == 0 && !p.lost {
		p.ended.Store(true)
		p.end()
		p.leaveCommon() // before the object is closed: after that a peer may delete it
		p.a.CloseObject(p.object)
		p.forget() // the last step: until then the arena stays mapped
	}
}

// lose records that the arena is about to be unmapped, even if calls are still in it.
func (p *opening) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	p.ended.Store(true)
}

const closedHandle = "this handle is closed"

// error is the error that a call of a closed handle returns. It is nil while the handle is open.
func (p *opening) error(op string) error {
	if !p.ended.Load() {
		return nil
	}
	return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
}

// use panics if the handle is closed.
func (p *opening) use() {
	if p.ended.Load() {
		panic(p.refusal) // a value and no call, which would cost more of the budget for inlining
	}
}

func (p *opening) misused(verb string) {
	panic("shmsync: " + verb + " of " + p.what + " " + objectName(p.object) + ", whose handle is closed")
}

// objectAt opens the object at off, which may have come from a peer, if the object is of that
// kind.
//
// Preconditions: as for share.
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
