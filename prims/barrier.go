package prims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("barrier.arrive.counted")
	_ = crashpoint.Register("barrier.complete.taken")
	_ = crashpoint.Register("barrier.complete.returned")
	_ = crashpoint.Register("barrier.complete.opened")
	_ = crashpoint.Register("barrier.reset.remembered")
)

// Barrier makes a number of parties, in any number of processes, wait for each other, phase after phase: a phase
// ends when all parties have arrived. Its methods are those of C++'s std::barrier, and Register, Deregister and
// Reset.
//
// A process that will be a party calls Register after it has opened the Barrier. Otherwise, if the process dies
// before its first arrival, the other parties wait for ever.
//
// Each arrival of a process in a phase counts as one party of that process. ArriveAndDrop removes one party. If a
// process arrives fewer times in a phase than in the phase before, because other processes arrived instead, it has
// fewer parties in later phases. Register makes a process a party before its first arrival, and Deregister undoes
// that.
//
// The arrivals that a process made in a phase still count after its death. If a process dies before all its parties
// have arrived, this phase is broken. If the process dies later, the next phase is broken as soon as it begins. Every
// wait for a broken phase, however late the wait begins, ends with an error that Is ErrOwnerDead and names the dead
// process. While the phase is broken, arrivals do not count; Reset begins another phase. A Barrier remembers at least
// the last 32 broken phases. If it no longer knows how an older phase ended, a wait for that phase fails.
//
// In the terminology of the Go memory model, and across processes: every arrival of a phase
// synchronizes before the completion of the phase, and the completion synchronizes before the
// return of every Wait for that phase that returns without an error.
type Barrier struct {
	eventcount
	recordLog
	words      *barrierWords
	name       arenakernel.ParticipantID
	completion func()
	inside     goroutineMark // marks the goroutine that runs completion
	slots      slotTable[barrierSlot]
	deaths     atomic.Uint32 // a.Deaths() when this handle last looked for dead participants
	// scratch is the memory that change works in, so that change allocates nothing. Guarded by: recordLog.private
	scratch struct {
		is  barrierState
		has barrierShare
		ch  recordChange
	}
}

// BarrierPhase is the number of a phase of a Barrier. An arrival returns it, and Wait takes it.
type BarrierPhase uint64

// BarrierOptions says how a Barrier is created, and what this process does with it. A
// nil *BarrierOptions means the zero value.
type BarrierOptions struct {
	// Completion, if set, is called when an arrival of this process is the last of a phase. No wait for the phase
	// returns before Completion has returned. If Completion panics, or the process dies before it returns, the phase
	// is broken. If Completion arrives at the Barrier, waits for the phase, or closes the handle or the arena, that
	// call panics, because it would wait for Completion itself. The arena does not store Completion: each handle on
	// the Barrier should get the same function.
	Completion func()
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var barrierKind = arenakernel.KindOf("BARR")

const barrierVersion = 3

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: barrierKind, Version: barrierVersion, Repair: repairBarrier, Wake: wakeBarrier, Check: checkBarrier, Inspect: inspectBarrier,
	})
}

// OpenBarrier finds the Barrier of that name in the arena or creates it, for the given number of parties. An empty
// name makes a new anonymous Barrier. If an existing Barrier was created for another number, the error Is
// ErrIncompatible. If parties is below 1 or above 2^31-1, the error Is [fs.ErrInvalid]. A process that does not
// know the number calls AttachBarrier.
func OpenBarrier(a *arena.Arena, name string, parties int64, opts *BarrierOptions) (*Barrier, error) {
	if err := needs("Barrier", name, "a number of parties", parties); err != nil {
		return nil, err
	}
	if parties > barrierMax {
		return nil, &shmsync.Error{Op: "barrier.open", Object: name, Err: fs.ErrInvalid, Detail: fmt.Sprintf("the highest number of parties is %d, not %d", int64(barrierMax), parties)}
	}
	return openBarrier((*arenakernel.Arena)(a), name, parties, opts, false)
}

func openBarrier(a *arenakernel.Arena, name string, parties int64, opts *BarrierOptions, attach bool) (*Barrier, error) {
	var opt BarrierOptions
	if opts != nil {
		opt = *opts
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: barrierKind, Version: barrierVersion, Name: name, Size: barrierBytes(a),
		Init: func(body []byte) {
			w := barrierBody(body)
			w.size = uint32(parties)
			w.expected.Store(uint64(makeTagged(uint32(parties), 0)))
			w.pending.Store(uint64(makeTagged(uint32(parties), 0)))
			w.spin.Store(spinField(opt.Spin))
		},
	}, "barrier.open", newBarrier(opt.Completion), func(x *Barrier) string {
		if attach || uint64(parties) == uint64(x.words.size) {
			return ""
		}
		return fmt.Sprintf("it began with %d parties, asked for %d", x.words.size, parties)
	})
}

// BarrierAt opens the Barrier at an offset that another process got from the method Offset. The
// handle has no Completion.
func BarrierAt(a *arena.Arena, off arena.Offset) (*Barrier, error) {
	return handleAt(a, off, "barrier.open", barrierKind, barrierVersion, barrierBytes((*arenakernel.Arena)(a)), newBarrier(nil))
}

func newBarrier(completion func()) func(*arenakernel.Arena, arenakernel.Object) (*Barrier, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*Barrier, error) {
		if o.Size < barrierBytes(a) {
			return nil, wrongKind("barrier.open", o, barrierKind, barrierVersion)
		}
		if _, err := a.SlotRecord(o, barrierSlotBytes); err != nil {
			return nil, err
		}
		return buildBarrier(a, o, completion, false), nil
	}
}

// buildBarrier makes a handle. If bare is set, the handle is for a tool or a reaper and cannot wait. A bare
// handle can change the Barrier only if this participant already has a slot record, which is the memory in
// which it announces its changes.
func buildBarrier(a *arenakernel.Arena, o arenakernel.Object, completion func(), bare bool) *Barrier {
	w := arenakernel.At[barrierWords](a, o.Body)
	x := &Barrier{words: w, name: a.Self(), completion: completion}
	x.slots.init(a, o, barrierSlotBytes)
	x.recordLog.init(&w.commit, &w.tickets, o, x)
	x.slot = a.Self().Slot()
	x.deaths.Store(a.Deaths() - 1) // so that the first call of look looks for dead participants
	events := o
	events.Body += barrierEventsOff
	x.eventcount.init(a, events, barrierEvents(w), "barrier.wait", x.look, bare)
	x.eventcount.scan = x.scan
	if !bare {
		x.opening.inside = markedFunc{&x.inside, "the Completion"}
	}
	return x
}

// Arrive counts n arrivals in this phase and returns the number of the phase, for Wait. If these arrivals are the
// last, Arrive runs the completion. If another process is running the completion of this phase, Arrive waits until
// the phase is over, and arrives in the next phase; otherwise it does not block. At a broken Barrier it counts
// nothing, and returns the number of the broken phase. It panics if n is not positive, or if this phase expects fewer
// than n arrivals. If the Barrier is damaged or the handle is closed, it panics with an error that Is ErrCorrupt or
// ErrClosed.
func (x *Barrier) Arrive(n int64) BarrierPhase {
	x.mustEnter()
	defer x.leave()
	p, err := x.arrive(nil, "Arrive", n, 0)
	if err != nil {
		panic(err)
	}
	return BarrierPhase(p)
}

// Wait waits until phase p is over. It panics with an *[shmsync.Error] where WaitContext returns one. It also
// panics if p is the number of a phase that has not begun.
func (x *Barrier) Wait(p BarrierPhase) {
	if err := x.WaitContext(nil, p); err != nil {
		panic(err)
	}
}

// WaitContext is like Wait, but returns ctx.Err() if ctx ends first. Its other errors are ErrOwnerDead, if the phase
// is broken, ErrCorrupt and ErrClosed. If the phase has ended without a break, WaitContext returns nil even if ctx
// has ended. An arrival stays counted if the wait for its phase returns an error.
func (x *Barrier) WaitContext(ctx context.Context, p BarrierPhase) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.leave()
	s, err := x.read()
	if err != nil {
		return err
	}
	if uint64(p) > s.phase {
		panic(fmt.Sprintf("shmsync: Wait for phase %d of barrier %s, which is in phase %d", p, objectName(x.object), s.phase))
	}
	return x.wait(ctx, uint64(p))
}

// ArriveAndWait arrives once and waits until the phase is over. It panics with an
// *[shmsync.Error] where ArriveAndWaitContext returns one.
func (x *Barrier) ArriveAndWait() {
	if err := x.ArriveAndWaitContext(nil); err != nil {
		panic(err)
	}
}

// ArriveAndWaitContext is like ArriveAndWait, but returns errors, which are those of WaitContext. Even if it returns
// an error, its arrival may have counted:
//
//   - ErrClosed: the arrival has counted, unless the Op of the *[shmsync.Error] is "barrier.arrive".
//   - ctx.Err(): the arrival has counted, unless ctx ended while another process ran the completion of the previous
//     phase. If the Barrier has a completion, a program that must know whether its arrival counted calls Arrive, and
//     then WaitContext.
//   - ErrOwnerDead: the phase is broken, and its arrivals no longer matter.
//   - ErrCorrupt: the arrival may or may not have counted.
func (x *Barrier) ArriveAndWaitContext(ctx context.Context) error {
	if err := x.enter(); err != nil {
		return x.notCounted(err)
	}
	defer x.leave()
	p, err := x.arrive(ctx, "ArriveAndWait", 1, 0)
	if err != nil {
		return err
	}
	return x.wait(ctx, p)
}

// ArriveAndDrop arrives once and removes one party from all later phases, even at a broken
// Barrier. It blocks no longer than Arrive, and panics as Arrive does.
func (x *Barrier) ArriveAndDrop() {
	x.mustEnter()
	defer x.leave()
	if _, err := x.arrive(nil, "ArriveAndDrop", 1, 1); err != nil {
		panic(err)
	}
}

// wait waits for the end of phase p.
func (x *Barrier) wait(ctx context.Context, p uint64) error {
	for {
		// eventcount.wait below returns nil only if the phase has ended or is broken. So the next iteration
		// returns.
		s, err := x.read()
		v := s.verdict(p, barrierBreak(x.words.breaks[p%barrierBreaks].Load()))
		switch {
		case err != nil:
			return err
		case s.phase < p:
			return x.corrupt(fmt.Sprintf("it was in phase %d, and is in phase %d", p, s.phase))
		case v.broken:
			return x.ownerDead("barrier.wait", p, v)
		case v.over:
			race.Acquire(x.key)
			return nil
		}
		x.mustNotComplete(ctx, "Wait", s.completer)
		if err := x.eventcount.wait(ctx, uint32(p)<<1); err != nil {
			return err
		}
	}
}

// arrive counts n arrivals in this phase, and returns the number of this phase. It removes as many parties as
// the parameter drop says from all later phases. The caller has called the method enter.
func (x *Barrier) arrive(ctx context.Context, verb string, n int64, drop uint64) (uint64, error) {
	if n <= 0 {
		panic(fmt.Sprintf("shmsync: %s of %d at barrier %s", verb, n, objectName(x.object)))
	}
	if x.deaths.Load() != x.a.Deaths() {
		x.reap(x.absent) // if a dead party breaks this phase, the arrival must not count in it
	}
	race.ReleaseMerge(x.key)
	var completer arenakernel.ParticipantID
	if x.completion != nil {
		completer = x.name
	}
	for {
		was, is, err := x.change(x.slot, func(s *barrierState, h *barrierShare) {
			if s.completer != 0 && !s.isBroken() {
				return
			}
			s.take(h, x.name)
			switch {
			case s.isBroken():
				if drop != 0 {
					s.drop(h, drop)
				}
			case uint64(n) <= s.pending:
				s.count(h, uint64(n), drop, completer)
			}
		})
		switch {
		case err != nil:
			return 0, err
		case was.completer != 0 && !was.isBroken():
			// Another process runs the completion. After the wait for the end of this phase, the loop repeats.
			x.mustNotComplete(ctx, verb, was.completer)
			if err := x.wait(ctx, was.phase); err != nil && !isOwnerDead(err) {
				return 0, x.notCounted(err)
			}
			continue
		case was.isBroken():
			return was.phase, x.tell()
		case is.isBroken() && is.phase == was.phase:
			// The previous participant of this slot was a party and died. This call took over the share of the slot,
			// and thereby broke the phase.
			return was.phase, x.tell()
		case uint64(n) > was.pending:
			panic(fmt.Sprintf("shmsync: %s of %d at barrier %s: more than are expected", verb, n, objectName(x.object)))
		}
		crashpoint.Hit("barrier.arrive.counted")
		if is.completer != 0 {
			return was.phase, x.runCompletion()
		}
		// The process that ended the previous phase may have been stopped before it woke the waiters. In that
		// case this call wakes them.
		return was.phase, x.tellOf(is.sequence())
	}
}

// notCounted returns the error of an arrival that does not count. err is the cause: an error of the method enter,
// or of a wait for a completion. If err Is ErrClosed, the result has the Op "barrier.arrive", by which the caller
// sees that its arrival has not counted.
func (x *Barrier) notCounted(err error) error {
	if errors.Is(err, shmsync.ErrClosed) {
		return failed(x.a, x.object, "barrier.arrive", shmsync.ErrClosed, nil, closedHandle)
	}
	return err
}

// Register gives this process n more parties, from this phase on: if the process dies before it has arrived n times,
// the phase is broken. The first arrival of a process makes it a party, too. But if a process dies before its first
// arrival and has not called Register, its death breaks no phase. Register panics if n is not positive.
func (x *Barrier) Register(n int64) {
	if n <= 0 {
		panic(fmt.Sprintf("shmsync: Register of %d of barrier %s", n, objectName(x.object)))
	}
	x.own(func(s *barrierState, h *barrierShare) { s.register(h, uint64(n)) })
}

// Deregister says that this process no longer has parties, and that other processes arrive in its place. The Barrier
// still expects as many arrivals as before; only ArriveAndDrop reduces this number.
func (x *Barrier) Deregister() {
	x.own(func(s *barrierState, h *barrierShare) { s.put(h, 0, 0) })
}

// own calls the function rule, which changes the state and the share of this process, and publishes the changes. The
// share of a process is the number of parties that belong to it.
func (x *Barrier) own(rule func(s *barrierState, h *barrierShare)) {
	x.mustEnter()
	defer x.leave()
	_, _, err := x.change(x.slot, func(s *barrierState, h *barrierShare) {
		s.take(h, x.name)
		rule(s, h)
	})
	if err == nil {
		err = x.tell() // the change broke the phase if the slot's previous participant died as a party
	}
	if err != nil {
		panic(err)
	}
}

// Reset begins another phase of a broken Barrier, and reports whether it did. The new phase expects one arrival less
// for each party that has died. Parties that die during Reset count, too. Waits for the broken phase end with
// ErrOwnerDead, before and after Reset. If the Barrier is not broken, Reset does nothing and returns false. So every
// process that learns of a death may call Reset.
func (x *Barrier) Reset() bool { return x.reset(0) }

// ResetTo is Reset with a new number of parties, for a program that starts other processes in
// place of the dead ones. It panics if parties is not positive, or more than 2^31-1.
func (x *Barrier) ResetTo(parties int64) bool {
	if parties <= 0 || parties > barrierMax {
		panic(fmt.Sprintf("shmsync: ResetTo of barrier %s to %d parties", objectName(x.object), parties))
	}
	return x.reset(parties)
}

// reset is Reset if parties is 0, and ResetTo otherwise.
func (x *Barrier) reset(parties int64) bool {
	x.mustEnter()
	defer x.leave()
	for {
		// The loop repeats only after a wait for dead participants, or after another call has changed the
		// Barrier.
		x.reap(x.absent)
		s, err := x.read()
		switch {
		case err != nil:
			panic(err)
		case !s.isBroken():
			x.tell()
			return false
		case !x.a.AllGone():
			x.tell()
			if err := awaitAllGone(x.a, x.queue); err != nil {
				panic(x.closed())
			}
			continue
		}
		done, err := x.begin(uint64(parties))
		if err == nil {
			err = x.tell()
		}
		if err != nil {
			panic(err)
		}
		if done {
			return true
		}
	}
}

// mustEnter calls the method enter, and panics with its error. It is for calls that cannot return an error.
func (x *Barrier) mustEnter() {
	if err := x.enter(); err != nil {
		panic(err)
	}
}

// Offset is the place of the Barrier in its arena. Another process can pass it to BarrierAt.
func (x *Barrier) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the Barrier, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. If a call through this handle runs the completion, Close waits for that call. This
// process keeps its parties. A second Close returns an error that Is ErrClosed.
func (x *Barrier) Close() error { return x.opening.close("barrier.close") }
