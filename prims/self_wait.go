package prims

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// Calls of this package run functions of the program, such as a Repair. Such a function may call a method that waits until
// the function has returned. That call would wait for itself for ever, so it panics.
//
// The library remembers which goroutine runs the function. If the same goroutine makes the call, the function is on its
// stack, so the function cannot return before the call does. No other goroutine gets such a panic. [asm.Goroutine]
// identifies goroutines. Where it cannot do so, the call does not panic, but waits for ever. A call whose context has a
// deadline does not panic either, because it ends with the error of the context.
//
// A call that runs a function records its goroutine in the variable running. A call that has to be fast records its
// goroutine in a goroutineMark instead. Only a call that is about to wait, and the Close of a handle or of the arena,
// look at these records.
//
// These waits are not found:
//
//   - the function waits for another goroutine, and that goroutine waits for the function;
//   - two functions on two goroutines close each other's arena;
//   - the function waits for a [Pending] of its own object;
//   - a rule of a Waitable closes its handle. Close does not wait for all calls that run rules, so a panic could be wrong.

// goroutineMark identifies the goroutine that runs a function of the program. It is 0 if no goroutine runs one.
//
// Each goroutine stores only itself and, when its function has returned, 0. So a goroutine finds itself in the mark
// only while it runs the function. But if several goroutines call begin at the same time, one of them may overwrite
// another. A call for which this is possible uses tryBegin. If tryBegin fails, the call uses the variable running
// instead.
type goroutineMark struct{ is atomic.Uintptr }

// goroutineUnknown is set in every mark. So a mark is not 0 where asm.Goroutine returns 0.
const goroutineUnknown = 1

// begin stores the calling goroutine.
func (m *goroutineMark) begin() { storeMark(&m.is, asm.Goroutine()|goroutineUnknown) }

// tryBegin stores the calling goroutine, unless the mark has a goroutine already. It reports whether it did.
func (m *goroutineMark) tryBegin() bool {
	return m.is.CompareAndSwap(0, asm.Goroutine()|goroutineUnknown)
}

// end stores that no goroutine runs a function.
func (m *goroutineMark) end() { storeMark(&m.is, 0) }

func (m *goroutineMark) any() bool { return m.is.Load() != 0 }

// mine reports whether the calling goroutine runs the function.
func (m *goroutineMark) mine() bool {
	g := asm.Goroutine()
	return g != 0 && m.is.Load() == g|goroutineUnknown
}

// running lists the functions of the program that run at present inside calls of this package. It does not have the
// functions that have a goroutineMark.
var running struct {
	sync.Mutex
	of map[uintptr]*runningFunc // guarded by: Mutex; the innermost function of each goroutine
	n  atomic.Int32             // the number of entries in the map
}

// runningFunc is a function of the program that a call runs.
type runningFunc struct {
	what   string // names the function in messages, such as `a Repair of mutex "m"`
	a      *arenakernel.Arena
	object *arenakernel.Object // nil if the function concerns no single object
	key    *uint64             // nil unless the object is a MultiLock
	handle *opening            // the Close of this handle waits for the function; nil if none does
	outer  *runningFunc        // the function within which this one runs, on the same goroutine
}

// begin records that the calling goroutine is about to run the function. After the function, the caller calls the
// method end.
func (f *runningFunc) begin() {
	g := asm.Goroutine()
	if g == 0 {
		return
	}
	running.Lock()
	defer running.Unlock()
	if running.of == nil {
		running.of = map[uintptr]*runningFunc{}
	}
	f.outer = running.of[g]
	running.of[g] = f
	running.n.Store(int32(len(running.of)))
}

// end records that the function has returned. It runs on the same goroutine as begin.
func (f *runningFunc) end() {
	g := asm.Goroutine()
	if g == 0 {
		return
	}
	running.Lock()
	defer running.Unlock()
	if f.outer == nil {
		delete(running.of, g)
	} else {
		running.of[g] = f.outer
	}
	running.n.Store(int32(len(running.of)))
}

// repairing records that the calling goroutine is about to run a repair of the object of p, or of the given key of that
// object. After the repair, the caller calls the method end of the result. If the parameter waited is true, the Close
// of the handle waits for the repair.
func (p *opening) repairing(key *uint64, waited bool) *runningFunc {
	f := &runningFunc{what: "a repair of " + p.title(key), a: p.a, object: &p.object, key: key}
	if waited {
		f.handle = p
	}
	f.begin()
	return f
}

// runningHere returns the innermost function f of the program that the calling goroutine runs and for which is(f) is
// true. It returns nil if there is no such function.
func runningHere(is func(f *runningFunc) bool) *runningFunc {
	// If this goroutine runs a function, then running.n counts this goroutine until the function has returned. So this
	// load finds a value greater than 0, although other goroutines change n as well.
	if running.n.Load() == 0 {
		return nil
	}
	running.Lock()
	defer running.Unlock()
	f := running.of[asm.Goroutine()]
	for f != nil && !is(f) {
		f = f.outer
	}
	return f
}

// title names the object of p, or the given key of that object, in messages.
func (p *opening) title(key *uint64) string {
	s := p.what + " " + objectName(p.object)
	if key != nil {
		s = fmt.Sprintf("key %d of %s", *key, s)
	}
	return s
}

// mustNotWaitForSelf panics if a wait for the object of p could never end, because the calling goroutine would wait for
// itself; see selfWait.
func (p *opening) mustNotWaitForSelf(ctx context.Context, call string) {
	if text := p.selfWait(ctx, call, nil); text != "" {
		panic(text)
	}
}

// selfWait returns the text of a panic if a wait for the object of p, or for the given key of that object, could never
// end: the calling goroutine runs a function of the program that has to return first. Otherwise selfWait returns "". It
// also returns "" if ctx has ended or has a deadline, because the wait then ends with ctx. The parameter call names the
// call that is about to wait.
func (p *opening) selfWait(ctx context.Context, call string, key *uint64) string {
	if park.Ends(ctx) {
		return ""
	}
	is := func(f *runningFunc) bool {
		return f.object != nil && f.object.Offset == p.object.Offset && f.a.Segment() == p.a.Segment() && (key == nil || f.key != nil && *f.key == *key)
	}
	if f := runningHere(is); f != nil {
		return waitsForItself(call+" of "+p.title(key), f.what)
	}
	if q := p.markedHere(); q != nil {
		return waitsForItself(call+" of "+p.title(key), q.inside.what+" of "+q.title(nil))
	}
	return ""
}

// markedHere returns the handle on the object of p whose mark says that the calling goroutine runs a function for this
// handle. It returns nil if there is no such handle.
func (p *opening) markedHere() *opening {
	switch {
	case p.inside.mark == nil:
		return nil // no handle on an object of this kind has a mark
	case p.inside.mark.mine():
		return p
	}
	handles.Lock()
	defer handles.Unlock()
	if on := handles.of[p.a.Segment()][p.object.Offset]; on != nil {
		for q := range on.open {
			if q.inside.mark != nil && q.inside.mark.mine() {
				return q
			}
		}
	}
	return nil
}

// markedFunc is a function of the program that calls of a handle run. A goroutineMark says which goroutine runs it.
type markedFunc struct {
	mark *goroutineMark // nil if the calls of the handle run no such function
	what string         // names the function in messages, such as "the function of an Update"
}

// mine reports whether the calling goroutine runs the function.
func (f markedFunc) mine() bool { return f.mark != nil && f.mark.mine() }

// mustNotCloseInside panics if the calling goroutine runs a function of the program, and Close of the handle would wait
// until that function has returned.
func (p *opening) mustNotCloseInside() {
	what := ""
	if f := runningHere(func(f *runningFunc) bool { return f.handle == p }); f != nil {
		what = f.what
	} else if p.inside.mine() {
		what = p.inside.what + " of " + p.title(nil)
	}
	if what != "" && !p.a.Killed() {
		panic(waitsForItself("Close of "+p.title(nil), what))
	}
}

// mustNotCloseArenaInside panics if the calling goroutine runs a function of the program, and Close of the arena would
// wait until that function has returned.
func mustNotCloseArenaInside(a *arenakernel.Arena) {
	what := ""
	if f := runningHere(func(f *runningFunc) bool { return f.a == a }); f != nil {
		what = f.what
	} else {
		what = markedIn(a)
	}
	if what != "" && !a.Killed() {
		panic(waitsForItself("Close of arena "+a.Path(), what))
	}
}

// markedIn names the function that the calling goroutine runs for a handle of the arena, according to the marks of the
// handles. It returns "" if there is none.
func markedIn(a *arenakernel.Arena) string {
	handles.Lock()
	defer handles.Unlock()
	for _, on := range handles.of[a.Segment()] {
		for p := range on.open {
			if p.a != a {
				continue
			}
			for _, f := range []markedFunc{p.inside, p.insideRule} {
				if f.mine() {
					return f.what + " of " + p.title(nil)
				}
			}
		}
	}
	return ""
}

// waitsForItself returns the text of a panic: the call would wait for ever, because it is made in the function that
// the parameter what names.
func waitsForItself(call, what string) string {
	const why = " would wait for itself, because it waits until that function has returned: call it afterwards"
	return "shmsync: " + call + " in " + what + why
}
