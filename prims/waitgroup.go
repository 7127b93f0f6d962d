package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// WaitGroup is a counter of unfinished work, in any number of processes. Goroutines wait until the counter is 0. It
// has the methods of sync.WaitGroup, and the method Claim. It can be used again when the counter is 0. Add may be
// called at any time, even while others wait. A wait notices the death of a process only if that process has work
// of its own: work that it added, or took over by Claim. Suppose that a parent calls Add(1) and starts a child to do
// the work, and that the child is killed. Then a wait lasts for ever, unless the child has called Claim(1) first.
//
// When a process dies that has work of its own left, waits end with an error that Is ErrOwnerDead and names the
// process. Waits fail until other processes have done the work and the counter is 0, until another process has
// claimed the work, or until Reset. Done counts for work of the calling process as long as the process has some, and
// otherwise for work of others.
//
// In the terminology of the Go memory model, and across processes: a call of Done synchronizes
// before the return of any Wait that it ends.
type WaitGroup struct{ counter *counter }

// WaitGroupOptions says how a WaitGroup is created. A nil *WaitGroupOptions means the
// zero value.
type WaitGroupOptions struct {
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var waitGroupKind = arenakernel.KindOf("WGRP")

// counterVersion is the layout version of WaitGroup and Latch.
const counterVersion = 4

func init() {
	for _, kind := range []arenakernel.Kind{waitGroupKind, latchKind} {
		arenakernel.RegisterKind(arenakernel.KindOps{
			Kind: kind, Version: counterVersion, Repair: alone(repairCounter), Wake: wakeCounter, Check: checkCounter, Inspect: inspectCounter,
		})
	}
}

// OpenWaitGroup finds the WaitGroup of that name in the arena or creates it, with its
// counter at 0. An empty name makes a fresh anonymous one.
func OpenWaitGroup(a *arena.Arena, name string, opts *WaitGroupOptions) (*WaitGroup, error) {
	return openWaitGroup((*arenakernel.Arena)(a), name, opts, false)
}

func openWaitGroup(a *arenakernel.Arena, name string, opts *WaitGroupOptions, attach bool) (*WaitGroup, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: waitGroupKind, Version: counterVersion, Name: name, Size: counterBytes(a),
		Init: func(body []byte) {
			if opts != nil {
				counterBody(body).spin.Store(spinField(opts.Spin))
			}
		},
	}, "waitgroup.open", newWaitGroup, nil)
}

// WaitGroupAt opens the WaitGroup at an offset that another process got from the method Offset.
func WaitGroupAt(a *arena.Arena, off arena.Offset) (*WaitGroup, error) {
	return handleAt(a, off, "waitgroup.open", waitGroupKind, counterVersion, counterBytes((*arenakernel.Arena)(a)), newWaitGroup)
}

func newWaitGroup(a *arenakernel.Arena, o arenakernel.Object) (*WaitGroup, error) {
	t, err := newCounter(a, o, "waitgroup.wait")
	if err != nil {
		return nil, err
	}
	return &WaitGroup{t}, nil
}

// Add adds delta to the counter. When the counter becomes 0, all waits end. If the counter would become negative,
// Add panics and changes nothing. If the object is corrupt or the handle is closed, Add panics with an error that
// Is ErrCorrupt or ErrClosed.
func (g *WaitGroup) Add(delta int) {
	if delta > 0 {
		t := g.counter
		if !t.addAtOnce(int64(delta)) && !t.add(uint64(delta)) {
			panic("shmsync: WaitGroup " + objectName(t.object) + " counter overflow")
		}
		return
	}
	g.done(-int64(delta))
}

// Claim makes this process responsible for n of the units of work that other processes added. If this process dies
// before that work is done, waits fail. The death of the process that added the work no longer has an effect. The
// counter does not change.
//
// Claim first takes work that dead processes left, and then work of the process that has the most unclaimed work.
// It takes no work that another process claimed. If a process is just dying, Claim first waits until the work of
// that process can be claimed.
//
// Claim panics if n is negative, or if there are fewer than n units to claim. If other processes do some of the
// work meanwhile, a Claim that panics may have claimed a part of n. This process stays responsible for that part.
func (g *WaitGroup) Claim(n int) {
	if n < 0 || !g.counter.claim(uint64(n), true) {
		panic(fmt.Sprintf("shmsync: Claim of %d of waitgroup %s: more than there is to claim", n, objectName(g.counter.object)))
	}
}

// Done subtracts one from the counter, as Add(-1) does.
func (g *WaitGroup) Done() { g.done(1) }

func (g *WaitGroup) done(n int64) {
	if !g.counter.doneAtOnce(uint64(n)) && !g.counter.finish(uint64(n)) {
		panic("shmsync: negative WaitGroup counter: " + objectName(g.counter.object))
	}
}

// Go calls f in a new goroutine and adds one to the counter until f has returned. If f panics,
// which ends the process, Done is not called, and waits in other processes end with an error. Go does
// not wait for f, and neither does Close: wait with Wait before Close, because Done panics afterwards.
func (g *WaitGroup) Go(f func()) {
	g.Add(1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				panic(r)
			}
			g.Done()
		}()
		f()
	}()
}

// Wait waits until the counter is 0. If WaitContext would return an error, Wait panics with that *[shmsync.Error].
func (g *WaitGroup) Wait() {
	if g.counter.left.Load()>>32 != 0 || race.Enabled {
		g.counter.waitOrPanic()
	}
}

// WaitContext does what Wait does, but returns ctx.Err() when ctx ends first, or an error that Is ErrOwnerDead,
// ErrCorrupt or ErrClosed. If the counter is 0, WaitContext returns nil in all these cases.
func (g *WaitGroup) WaitContext(ctx context.Context) error {
	if g.counter.left.Load()>>32 == 0 && !race.Enabled {
		return nil
	}
	return g.counter.wait(ctx)
}

// Reset forgets the work that dead processes left, and reports whether there was any. From then on the counter
// counts only the work of living processes. If a dead process had added work for others, a Done for that work is
// then one Done too many.
func (g *WaitGroup) Reset() bool { return g.counter.reset() }

// Offset returns the place of the WaitGroup in its arena, for WaitGroupAt in another process.
func (g *WaitGroup) Offset() arena.Offset { return g.counter.object.Offset }

// Close closes this handle on the WaitGroup, and no other. Calls that wait through it end with an
// error that Is ErrClosed. This process keeps its share of the work. A second Close is an error
// that Is ErrClosed.
func (g *WaitGroup) Close() error {
	t := g.counter
	return t.opening.close("waitgroup.close")
}

// WaitGroupState is the result of State.
type WaitGroupState struct {
	Count   int64             // the counter
	Own     int64             // the work that this process has added or claimed, and not done
	Waiting bool              // there are waiters
	Err     error             // why waits fail: nil or ErrOwnerDead
	Who     *shmsync.Identity // the process that died; nil if the library no longer knows it
}

// State reads g without locking it. The result may be out of date when State returns.
func (g *WaitGroup) State() WaitGroupState {
	t := g.counter
	t.opening.use()
	v := t.view()
	who, err := t.trouble(v)
	return WaitGroupState{Count: int64(v.count), Own: int64(v.own), Waiting: t.waiting(v), Err: err, Who: who}
}

// String renders the state on one line.
func (g *WaitGroup) String() string {
	st := g.State()
	s := fmt.Sprintf("waitgroup %s: %d, %d of this process, waiting %v", objectName(g.counter.object), st.Count, st.Own, st.Waiting)
	if st.Err != nil {
		s += ", " + st.Err.Error()
	}
	return s
}
