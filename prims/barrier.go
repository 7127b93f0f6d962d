package prims

import (
	"context"
	"fmt"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("barrier.arrive.counted")
	_ = crashpoint.Register("barrier.complete.taken")
	_ = crashpoint.Register("barrier.complete.returned")
	_ = crashpoint.Register("barrier.complete.opened")
	_ = crashpoint.Register("barrier.reset.remembered")
)

// Barrier makes a number of parties, in any number of processes, wait for each other, phase after
// phase: a phase ends when all parties have arrived. Its methods are those of C++'s std::barrier,
// and Register, Deregister and Reset. A process that will be a party calls Register after it has
// opened the Barrier. If it does not, and dies before its first arrival, the other parties wait
// for it for ever.
//
// Each arrival of a process in a phase counts as one party of that process. ArriveAndDrop removes
// one party. If a process arrives fewer times in a phase than before, because other processes
// arrived instead, it has fewer parties from then on. Register gives a process a party before its
// first arrival, and Deregister undoes that.
//
// When a process dies, its arrivals in the phase stay done. If others of its parties have not
// arrived, the phase is broken; otherwise the next phase is broken as soon as it begins. Every
// wait for a broken phase, however late it begins, ends with an error that Is ErrOwnerDead and
// names the dead process. Arrivals do not count until Reset begins another phase. A Barrier
// remembers at least the last 32 broken phases. A wait for an older phase also fails if the
// Barrier no longer knows how that phase ended.
//
// In the terminology of the Go memory model, and across processes: every arrival of a phase
// synchronizes before the completion of the phase, and the completion synchronizes before the
// return of every Wait for that phase that returns without an error.
type Barrier struct {
	mon        *monitor
	fifo       fifo
	words      *barrierWords
	shares     []*barrierShare
	a          *arenakernel.Arena
	object     arenakernel.Object
	name       arenakernel.ParticipantID
	completion func()
}

// BarrierPhase is the number of a phase of a Barrier. An arrival returns it, and Wait takes it.
type BarrierPhase uint64

// BarrierOptions says how a Barrier is created, and what this process does with it. A
// nil *BarrierOptions means the zero value.
type BarrierOptions struct {
	// Completion, if set, is called when an arrival of this process is the last of a phase,
	// before any waiter goes on. If Completion panics, or the process dies before it returns, the
	// phase is broken. Completion must not arrive at the Barrier, wait there, or close the
	// handle: Close waits until it has returned. Completion belongs to this handle and is not
	// stored: all handles on the Barrier should have the same one.
	Completion func()
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var barrierKind = arenakernel.KindOf("BARR")

const barrierVersion = 2

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: barrierKind, Version: barrierVersion, Repair: repairBarrier, Wake: wakeQueue, Check: checkBarrier, Inspect: inspectBarrier,
	})
}

// OpenBarrier finds the Barrier of that name in the arena or creates it, for that many parties.
// An empty name makes a fresh anonymous one. If an existing Barrier began with another number,
// the error Is ErrIncompatible. If parties is below 1, the error Is [fs.ErrInvalid]. A process
// that does not know the number calls AttachBarrier.
func OpenBarrier(a *arena.Arena, name string, parties int64, opts *BarrierOptions) (*Barrier, error) {
	if err := needs("Barrier", name, "a number of parties", parties); err != nil {
		return nil, err
	}
	return openBarrier((*arenakernel.Arena)(a), name, parties, opts, false)
}

func openBarrier(a *arenakernel.Arena, name string, parties int64, opts *BarrierOptions, attach bool) (*Barrier, error) {
	var opt BarrierOptions
	if opts != nil {
		opt = *opts
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: barrierKind, Version: barrierVersion, Name: name, Size: barrierBytes(a.MaxParticipants()),
		Init: func(body []byte) {
			w := barrierBody(body)
			w.size.Store(uint64(parties))
			w.expected.Store(uint64(parties))
			w.pending.Store(uint64(parties))
			w.mon.spin.Store(spinField(opt.Spin))
		},
	}, "barrier.open", newBarrier(opt.Completion), func(x *Barrier) string {
		if attach || uint64(parties) == x.words.size.Load() {
			return ""
		}
		return fmt.Sprintf("it began with %d parties, asked for %d", x.words.size.Load(), parties)
	})
}

// BarrierAt opens the Barrier at an offset that another process got from the method Offset. The
// handle has no Completion.
func BarrierAt(a *arena.Arena, off arena.Offset) (*Barrier, error) {
	return handleAt(a, off, "barrier.open", barrierKind, barrierVersion, barrierBytes((*arenakernel.Arena)(a).MaxParticipants()), newBarrier(nil))
}

func newBarrier(completion func()) func(*arenakernel.Arena, arenakernel.Object) (*Barrier, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*Barrier, error) {
		return buildBarrier(a, o, completion, false), nil
	}
}

func buildBarrier(a *arenakernel.Arena, o arenakernel.Object, completion func(), bare bool) *Barrier {
	w := arenakernel.At[barrierWords](a, o.Body)
	x := &Barrier{words: w, shares: barrierShares(a, o.Body), a: a, object: o, name: a.Self(), completion: completion}
	x.mon = buildMonitor(a, o, o.Body, x, bare)
	x.fifo = fifo{x.mon, &w.queue}
	return x
}

// Arrive counts n arrivals in this phase and returns the phase's number, for Wait. If these
// arrivals are the last, it runs the completion. While another process runs the completion,
// Arrive waits for the next phase; otherwise it does not block. It panics if n is not positive,
// if n is more than the arrivals that the phase still takes, and with an error that Is ErrCorrupt
// or ErrClosed. At a broken Barrier it counts nothing, and returns the number of the broken
// phase.
func (x *Barrier) Arrive(n int64) BarrierPhase {
	x.mustBegin()
	defer x.mon.finish()
	p, err := x.arrive(nil, "Arrive", n, 0)
	if err != nil {
		panic(err)
	}
	x.mon.leave(nil)
	return p
}

// Wait waits until phase p is over. It panics with an *[shmsync.Error] where WaitContext returns
// one, and if no phase can have the number p yet.
func (x *Barrier) Wait(p BarrierPhase) {
	if err := x.WaitContext(nil, p); err != nil {
		panic(err)
	}
}

// WaitContext is Wait that ends with ctx.Err() when ctx ends first, or with an error that Is
// ErrOwnerDead, ErrNoSpace, ErrCorrupt or ErrClosed. A phase that is over takes precedence over
// all of these. An arrival that has been made stays counted.
func (x *Barrier) WaitContext(ctx context.Context, p BarrierPhase) error {
	if err := x.mon.begin(); err != nil {
		return err
	}
	defer x.mon.finish()
	if err := x.mon.enter(ctx); err != nil {
		return err
	}
	if now := BarrierPhase(x.words.phase.Load()); p > now {
		x.mon.leave(nil)
		panic(fmt.Sprintf("shmsync: Wait for phase %d of barrier %s, which is in phase %d", p, objectName(x.object), now))
	}
	return x.wait(ctx, p)
}

// ArriveAndWait arrives once and waits until the phase is over. It panics with an
// *[shmsync.Error] where ArriveAndWaitContext returns one.
func (x *Barrier) ArriveAndWait() {
	if err := x.ArriveAndWaitContext(nil); err != nil {
		panic(err)
	}
}

// ArriveAndWaitContext is ArriveAndWait that returns the errors of WaitContext. Its arrival
// counts even if it returns an error, with two exceptions: the Barrier is broken, or ctx ended
// while another process ran the completion of the previous phase.
func (x *Barrier) ArriveAndWaitContext(ctx context.Context) error {
	if err := x.mon.begin(); err != nil {
		return err
	}
	defer x.mon.finish()
	p, err := x.arrive(ctx, "ArriveAndWait", 1, 0)
	if err != nil {
		return err
	}
	return x.wait(ctx, p)
}

// ArriveAndDrop arrives once and removes one party from all later phases, even at a broken
// Barrier. It blocks no longer than Arrive, and panics as Arrive does.
func (x *Barrier) ArriveAndDrop() {
	x.mustBegin()
	defer x.mon.finish()
	if _, err := x.arrive(nil, "ArriveAndDrop", 1, 1); err != nil {
		panic(err)
	}
	x.mon.leave(nil)
}

// wait waits for the end of phase p. The caller holds the queue lock, and wait releases it.
func (x *Barrier) wait(ctx context.Context, p BarrierPhase) error {
	const op = "barrier.wait"
	var end int
	var name uint32
	waitNode, err := x.mon.enqueue(ctx, 0, uint64(p), func() (over bool) {
		end, name, over = x.verdict(uint64(p))
		return over
	})
	switch {
	case err != nil:
		return err
	case waitNode != nil:
		f, err := x.mon.await(ctx, waitNode)
		if err != nil {
			return err
		}
		end, name = int(f.result()), f.aux()
	}
	if end == outcomeDead {
		return x.ownerDead(op, uint64(p), name)
	}
	return nil
}

// arrive counts n arrivals, removes drop parties, and returns the phase. The call keeps the
// handle open already. On return the caller holds the queue lock, unless there is an error.
func (x *Barrier) arrive(ctx context.Context, verb string, n int64, drop uint64) (BarrierPhase, error) {
	if n <= 0 {
		panic(fmt.Sprintf("shmsync: %s of %d at barrier %s", verb, n, objectName(x.object)))
	}
	m := x.mon
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	for x.words.completer.Load() != 0 && !x.isBroken() {
		// The loop ends: each turn waits for the end of one completion.
		if err := x.wait(ctx, BarrierPhase(x.words.phase.Load())); err != nil && !isOwnerDead(err) {
			return 0, err
		}
		if err := m.enter(ctx); err != nil {
			return 0, err
		}
	}
	p := BarrierPhase(x.words.phase.Load())
	switch {
	case x.isBroken():
		if drop != 0 {
			x.leave(drop)
		}
		return p, nil
	case uint64(n) > x.words.pending.Load():
		m.leave(nil)
		panic(fmt.Sprintf("shmsync: %s of %d at barrier %s: more than are expected", verb, n, objectName(x.object)))
	case !x.count(uint64(n), drop):
		return p, nil
	case x.words.completer.Load() != 0:
		m.leave(nil)
		return p, x.complete()
	case x.fifo.empty():
		return p, nil
	}
	m.resolveAndLeave()
	return p, m.enter(nil)
}

// count counts arrivals, with the queue lock held, and reports whether they were the last.
func (x *Barrier) count(n, drop uint64) (last bool) {
	w, h := x.words, x.mine()
	phase, pending, expected := w.phase.Load(), w.pending.Load()-n, w.expected.Load()
	parties, left := h.in(phase)
	own := min(n, left)
	parties += n - own
	var c change
	if drop != 0 {
		drop = min(drop, expected)
		expected, parties = expected-drop, parties-min(drop, parties)
		c.set(&w.expected, expected)
	}
	h.set(&c, phase, parties, left-own)
	switch {
	case pending > 0:
		c.set(&w.pending, pending)
	case x.completion == nil:
		c.set(&w.pending, expected)
		c.set(&w.phase, phase+1)
	default:
		c.set(&w.pending, 0)
		c.set(&w.completer, uint64(x.name))
	}
	x.mon.commit(&c)
	crashpoint.Hit("barrier.arrive.counted")
	return pending == 0
}

// complete runs the completion, and ends the phase. On return the caller holds the queue lock,
// unless there is an error.
func (x *Barrier) complete() error {
	crashpoint.Hit("barrier.complete.taken")
	returned := false
	defer func() {
		if !returned {
			x.giveUp()
		}
	}()
	x.completion()
	returned = true
	crashpoint.Hit("barrier.complete.returned")
	m, w := x.mon, x.words
	if err := m.enter(nil); err != nil {
		return err
	}
	if w.completer.Load() != uint64(x.name) {
		return nil // a peer overwrote the phase
	}
	var c change
	c.set(&w.completer, 0)
	c.set(&w.pending, w.expected.Load())
	c.set(&w.phase, w.phase.Load()+1)
	m.commit(&c)
	crashpoint.Hit("barrier.complete.opened")
	m.resolveAndLeave()
	return m.enter(nil)
}

// giveUp breaks the phase after its completion has panicked.
func (x *Barrier) giveUp() {
	if x.mon.enter(nil) != nil {
		return
	}
	if x.words.completer.Load() == uint64(x.name) {
		x.breakPhase(x.words.phase.Load(), uint64(x.name), nil)
	}
	x.mon.resolveAndLeave()
}

// Register gives this process n of the parties, from this phase on: if it dies before it arrives
// n times, the phase is broken. A process that only arrives need not register. Register panics if
// n is not positive.
func (x *Barrier) Register(n int64) {
	if n <= 0 {
		panic(fmt.Sprintf("shmsync: Register of %d of barrier %s", n, objectName(x.object)))
	}
	x.enter()
	h, phase := x.mine(), x.words.phase.Load()
	parties, left := h.in(phase)
	if x.words.completer.Load() == 0 {
		left += uint64(n) // otherwise the phase takes no more arrivals, and these parties arrive in the next one
	}
	var c change
	h.set(&c, phase, parties+uint64(n), left)
	x.mon.commit(&c)
	x.mon.leave(nil)
}

// Deregister says that this process no longer has parties, and that other processes arrive in its
// place: the Barrier expects as many arrivals as before. ArriveAndDrop reduces the number.
func (x *Barrier) Deregister() {
	x.enter()
	h := x.mine()
	var c change
	h.set(&c, x.words.phase.Load(), 0, 0)
	x.mon.commit(&c)
	x.mon.leave(nil)
}

// Reset begins another phase of a broken Barrier, and reports whether it did. The new number of
// parties is the number that was expected before, less the parties that died. That number is
// right however many died, even during Reset. Waits for the broken phase report that it broke,
// before and after Reset. If the Barrier is not broken, Reset does nothing and returns false. So
// every process that learns of a death may call it.
func (x *Barrier) Reset() bool { return x.reset(0) }

// ResetTo is Reset with a new number of parties, for a program that starts other processes in
// place of the dead ones. It panics if parties is not positive.
func (x *Barrier) ResetTo(parties int64) bool {
	if parties <= 0 {
		panic(fmt.Sprintf("shmsync: ResetTo of barrier %s to %d parties", objectName(x.object), parties))
	}
	return x.reset(parties)
}

// reset is ResetTo, or Reset if parties is 0.
func (x *Barrier) reset(parties int64) bool {
	x.enter()
	if x.mon.deaths.Load() != x.a.Deaths() {
		if err := x.mon.reapAndEnter(nil); err != nil {
			panic(err)
		}
	}
	if !x.isBroken() {
		x.mon.leave(nil)
		return false
	}
	if !x.a.AllGone() {
		// In the next phase other processes write data into which the dead may still write.
		x.mon.leave(nil)
		if err := x.mon.awaitAllGone(); err != nil {
			panic(err)
		}
		return x.reset(parties)
	}
	x.begin(uint64(parties))
	x.mon.resolveAndLeave()
	return true
}

// mustBegin is monitor.begin for a call that cannot return an error.
func (x *Barrier) mustBegin() {
	if err := x.mon.begin(); err != nil {
		panic(err)
	}
}

func (x *Barrier) enter() {
	if err := x.mon.enter(nil); err != nil {
		panic(err)
	}
}

// Offset is the place of the Barrier in its arena, for BarrierAt in another process.
func (x *Barrier) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the Barrier, and no other. Calls that wait through it end with an
// error that Is ErrClosed, and Close waits for a completion that one of them runs. This process
// keeps its parties. A second Close is an error that Is ErrClosed.
func (x *Barrier) Close() error { return x.mon.opening.close("barrier.close") }
