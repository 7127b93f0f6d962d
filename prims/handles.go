package prims

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// opening is what makes a handle one opening of an object: each has its own, and its
// Close ends this opening and no other of the process.
//
// Close goes through two steps. First it ends the waits of the handle, whose calls
// clean up with the words still there. Then it takes the words away from the fast
// paths, which have no room for a test: they find words that are never free, and so get
// to their slow paths, which look at ended.
type opening struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	what   string // for people, such as "semaphore"

	refusal *shmsync.Error // what use panics with

	shut func() // ends the waits of the handle, and returns when their calls have left
	end  func() // takes the words away

	closing atomic.Bool
	ended   atomic.Bool

	mu     sync.Mutex
	needed int  // guarded by: mu; by how many the words are needed, the handle included
	polls  int  // guarded by: mu; how often its end looked for calls
	lost   bool // guarded by: mu; the arena may be unmapped by now
	shares bool // guarded by: handles; it uses what common gave
}

// newOpening makes the opening of a handle. Until its maker says otherwise, there is
// nothing to be ended.
func newOpening(a *arenakernel.Arena, o arenakernel.Object) *opening {
	what := kindNames[o.Kind]
	refusal := &shmsync.Error{Op: what + ".use", Object: objectName(o), Err: shmsync.ErrClosed, Detail: closedHandle}
	return &opening{a: a, object: o, what: what, refusal: refusal, shut: func() {}, end: func() {}, needed: 1}
}

// kindNames is what people call the kinds.
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
func (f *FairMutex) opened() *opening      { return f.mon.opening }
func (k *condCore) opened() *opening       { return k.mon.opening }
func (s *Semaphore) opened() *opening      { return s.mon.opening }
func (f *Futex) opened() *opening          { return f.opening }
func (s *Sequencer) opened() *opening      { return s.mon.opening }
func (e *Event) opened() *opening          { return e.mon.opening }
func (f *Future) opened() *opening         { return f.mon.opening }
func (g *WaitGroup) opened() *opening      { return g.counter.opening }
func (l *Latch) opened() *opening          { return l.counter.opening }
func (o *Once) opened() *opening           { return o.mon.opening }
func (x *Barrier) opened() *opening        { return x.mon.opening }
func (x *queueCore) opened() *opening      { return x.mon.opening }
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

// commonKey names an object while it is open. The kind keeps a peer that overwrites the
// arena from having one part used as another.
type commonKey struct {
	segment any
	at      arenakernel.Offset
	kind    arenakernel.Kind
}

// commonPart is what the openings of an object share.
type commonPart struct {
	part any
	uses int // guarded by: handles; by openings
}

func (p *opening) commonKey() commonKey {
	return commonKey{p.a.Segment(), p.object.Offset, p.object.Kind}
}

// share makes a handle of an object that the caller has opened, and notes it. The
// handle is closed with the opening of the arena that it was opened through. After an
// error the object is closed.
func share[H handle](a *arenakernel.Arena, o arenakernel.Object, build func() (H, error)) (H, error) {
	h, err := build()
	if err != nil {
		a.CloseObject(o)
		return h, err
	}
	handles.Lock()
	defer handles.Unlock()
	on := handlesOn(a, o)
	on.open[h.opened()] = h
	a.OnEnd(&handles, func() { closeHandles(a) })
	a.OnClose(&handles, func() { loseHandles(a) })
	return h, nil
}

// openAs finds the object of spec or creates it, and gives a handle that build makes. If the
// object was there before, differs says in what it is not what the caller asked for.
func openAs[H handle](
	a *arenakernel.Arena, spec arenakernel.ObjectSpec, op string,
	build func(*arenakernel.Arena, arenakernel.Object) (H, error), differs func(H) string,
) (H, error) {
	var none H
	o, created, err := a.OpenObject(spec)
	if err != nil {
		return none, err
	}
	h, err := share(a, o, func() (H, error) { return build(a, o) })
	if err != nil {
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

// handleAt gives a handle on the object at an offset, which has to be of the kind and the
// version and of that many bytes at least.
func handleAt[H handle](
	a *arena.Arena, off arena.Offset, op string, kind arenakernel.Kind, version uint16, size uint64,
	build func(*arenakernel.Arena, arenakernel.Object) (H, error),
) (H, error) {
	k := (*arenakernel.Arena)(a)
	o, err := objectAt(k, off, op, kind, version, size)
	if err != nil {
		var none H
		return none, err
	}
	return share(k, o, func() (H, error) { return build(k, o) })
}

// handlesOn are the handles on an object, for a new one if there are none.
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

// common gives what all handles of this process on an object share, and makes it if
// there is none. The opening uses it until the opening ends. A build function calls common
// once, and succeeds then: only an opening that share has noted is ended.
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

// leaveCommon ends the use of what common gave. The object is still open, so no other object
// lies where it lies.
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

// forget takes a handle out of those that are open.
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

// closeHandles closes the handles that were opened through an opening of an arena.
func closeHandles(a *arenakernel.Arena) {
	handles.Lock()
	var all []*opening
	for _, on := range handles.of[a.Segment()] {
		for p := range on.open {
			if p.a == a && !p.closing.Load() {
				all = append(all, p)
			}
		}
	}
	handles.Unlock()
	for _, p := range all {
		p.close("")
	}
}

// loseHandles is called before an arena is unmapped, for handles whose Close did not
// wait for a call that needs the words still.
func loseHandles(a *arenakernel.Arena) {
	handles.Lock()
	objects := handles.of[a.Segment()]
	delete(handles.of, a.Segment())
	maps.DeleteFunc(handles.common, func(key commonKey, _ *commonPart) bool { return key.segment == any(a.Segment()) })
	handles.Unlock()
	for _, on := range objects {
		for p := range on.open {
			p.lose()
		}
	}
}

// close is the Close of a handle.
func (p *opening) close(op string) error {
	if !p.closing.CompareAndSwap(false, true) {
		return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
	}
	p.shut()
	p.leave()
	return nil
}

// stayIfOpen keeps the object open, and the words in place, until leave: for a call that
// has to clean up, and that Close does not wait for. It reports false if the opening has
// ended: then there is nothing to be kept, and leave would end it once more.
func (p *opening) stayIfOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.needed == 0 || p.lost {
		return false
	}
	p.needed++
	return true
}

// leave ends what stayIfOpen has begun, or the handle itself.
func (p *opening) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.needed--; p.needed == 0 && !p.lost {
		p.ended.Store(true)
		p.end()
		p.leaveCommon() // before the object is closed: a peer may delete it then
		p.a.CloseObject(p.object)
		p.forget() // last: the arena is not unmapped before
	}
}

// lose says that the arena is about to be unmapped, also if calls are still in it.
func (p *opening) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	p.ended.Store(true)
}

const closedHandle = "this handle is closed"

// error is what a call of a closed handle returns. It is nil while the handle is open.
func (p *opening) error(op string) error {
	if !p.ended.Load() {
		return nil
	}
	return &shmsync.Error{Op: op, Object: objectName(p.object), Err: shmsync.ErrClosed, Detail: closedHandle}
}

// use panics if the handle is closed.
func (p *opening) use() {
	if p.ended.Load() {
		panic(p.refusal) // not a call, which costs more of the budget for inlining
	}
}

func (p *opening) misused(verb string) {
	panic("shmsync: " + verb + " of " + p.what + " " + objectName(p.object) + ", whose handle is closed")
}

// objectAt opens the object at off, an offset that may have come from a peer, if it
// is of that kind.
func objectAt(a *arenakernel.Arena, off arenakernel.Offset, op string, kind arenakernel.Kind, version uint16, size uint64) (arenakernel.Object, error) {
	o, err := a.ObjectAt(off)
	if err != nil {
		return o, err
	}
	if o.Kind != kind || o.Version != version || o.Size < size {
		a.CloseObject(o)
		return o, wrongKind(op, o, kind, version)
	}
	return o, nil
}
