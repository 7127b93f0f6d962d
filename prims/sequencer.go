package prims

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("sequencer.cancel.marked")
	_ = crashpoint.Register("sequencer.stop.marked")
	_ = crashpoint.Register("sequencer.reset.stored")
)

// Sequencer is a counter that processes share and increment. A waiter chooses a value, called its token, and waits
// until the counter has reached the token. If one call ends several waits, their order is not specified.
//
// Increment costs one atomic addition and one load unless it reaches a token, however many goroutines wait. A call
// that wakes waiters may also needlessly wake waiters whose tokens are higher by a multiple of 16.
//
// In the terminology of the Go memory model, and across processes: the Increment or Advance that takes the counter
// to n, and all such calls before it, synchronize before every Value that returns n or more and every wait for n or
// less that ends without an error.
//
// No process holds a Sequencer, and no call holds a lock, so a stopped process blocks nobody. When a process dies,
// the counter keeps the increments of the process, and the reaper wakes the waiters that the process should have woken.
type Sequencer struct {
	words   sequencerAll
	a       *arenakernel.Arena
	object  arenakernel.Object
	key     race.Key
	opening *opening
	cells   [sequencerCells]atomic.Pointer[tokenCell]

	mu   sync.Mutex
	shut bool // guarded by: mu; the handle refuses new waits, because Close has begun
	over bool // guarded by: mu; the handle no longer uses the words of the object
}

// SequencerOptions says how a Sequencer is created. A nil *SequencerOptions means the
// zero value.
type SequencerOptions struct {
	// Initial is the value of a new Sequencer.
	Initial uint64
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var sequencerKind = arenakernel.KindOf("SEQR")

const sequencerVersion = 3

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: sequencerKind, Version: sequencerVersion, Wake: wakeSequencer, Inspect: inspectSequencer,
	})
}

// OpenSequencer finds the Sequencer of that name in the arena or creates it. An empty
// name makes a fresh anonymous one.
func OpenSequencer(a *arena.Arena, name string, opts *SequencerOptions) (*Sequencer, error) {
	return openSequencer((*arenakernel.Arena)(a), name, opts, false)
}

func openSequencer(a *arenakernel.Arena, name string, opts *SequencerOptions, attach bool) (*Sequencer, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: sequencerKind, Version: sequencerVersion, Name: name, Size: sequencerBytes(a),
		Init: func(body []byte) {
			if opts != nil {
				w := sequencerBody(body)
				w.value.Store(opts.Initial)
				w.spin.Store(spinField(opts.Spin))
			}
		},
	}, "sequencer.open", newSequencer, nil)
}

// SequencerAt opens the Sequencer at an offset that another process got from the method Offset.
func SequencerAt(a *arena.Arena, off arena.Offset) (*Sequencer, error) {
	return handleAt(a, off, "sequencer.open", sequencerKind, sequencerVersion, sequencerBytes((*arenakernel.Arena)(a)), newSequencer)
}

func newSequencer(a *arenakernel.Arena, o arenakernel.Object) (*Sequencer, error) {
	w, err := sequencerAt(a, o)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	s := &Sequencer{
		words: w, a: a, object: o, key: race.KeyOf(dev, ino, uint64(o.Offset)), opening: newOpening(a, o),
	}
	s.opening.refuse, s.opening.left, s.opening.end = s.refuse, func() bool { return park.Left(s.queues()...) }, s.end
	return s, nil
}

// Value returns the value of the counter.
func (s *Sequencer) Value() uint64 {
	s.opening.use()
	v := s.words.value.Load()
	race.Acquire(s.key)
	return v
}

// Increment adds one to the counter, wakes the waiters for the new value, and returns the new value. It makes no
// system call unless it reaches a token, and never waits for another process. The counter wraps from MaxUint64 to
// 0. If the counter wraps, waits for tokens that it passed may succeed, or end with ErrCanceled.
func (s *Sequencer) Increment() uint64 {
	s.opening.use()
	race.ReleaseMerge(s.key)
	// sync(sequencer.count): release
	// lin: Increment takes effect here.
	v := s.words.value.Add(1)
	crashpoint.Hit("sequencer.count.counted")
	if tokenCellState(s.words.cells[v%sequencerCells].state.Load()).due(v) {
		s.counted(v)
	}
	return v
}

// counted wakes the waiters that have to check the counter after an Increment to v. One of these waiters may
// already have seen the new value and closed the handle. In that case the Close wakes the other waiters; see
// Sequencer.end.
func (s *Sequencer) counted(v uint64) {
	c := s.cell(v)
	if c == nil {
		return
	}
	if serves, ok := s.opening.tryServe(c.queue); ok {
		c.hitIfDue(v, 1)
		serves.end()
	}
}

// serve begins a call that wakes waiters and then uses the words of the object. Without serve, a woken waiter could
// close the handle, and the words could be freed during the call.
func (s *Sequencer) serve() served {
	c := s.cell(0)
	if c == nil {
		panic(s.opening.refusal)
	}
	return s.opening.serve(c.queue)
}

// Advance raises the counter to v if it is lower, and reports whether it did. It wakes the
// waiters for v or less.
func (s *Sequencer) Advance(v uint64) bool {
	s.opening.use()
	if s.words.value.Load() >= v {
		return false
	}
	defer s.serve().end()
	race.ReleaseMerge(s.key)
	for {
		// The CAS fails only if another process has changed the counter, so the loop is lock-free.
		now := s.words.value.Load()
		if now >= v {
			return false
		}
		// sync(sequencer.count): release
		// lin: Advance takes effect here.
		if s.words.value.CompareAndSwap(now, v) {
			crashpoint.Hit("sequencer.count.counted")
			s.jumped(v, v-now)
			return true
		}
	}
}

// jumped wakes the waiters that have to check the counter after it has become v. The parameter jump is the
// difference between v and the value before. The caller has called serve.
func (s *Sequencer) jumped(v, jump uint64) {
	for back := range min(jump, sequencerCells) {
		token := v - back
		w := tokenCellState(s.words.cells[token%sequencerCells].state.Load())
		if w.due(v) || w.announced() && jump > tokenFar {
			s.cell(token).hitIfDue(v, jump)
		}
	}
}

// Wait waits until the counter has reached token. Wait then returns nil, even after Stop. If the Sequencer is
// stopped or reset before the counter has reached token, or its waits are canceled, the error Is ErrCanceled. The
// only other error Is ErrClosed.
func (s *Sequencer) Wait(token uint64) error { return s.WaitContext(nil, token) }

// WaitContext does what Wait does, but returns ctx.Err() if ctx ends before the counter has reached token. If the
// counter has reached token at the time of the call, WaitContext returns nil even if ctx has ended.
func (s *Sequencer) WaitContext(ctx context.Context, token uint64) error {
	if err := s.opening.error("sequencer.wait"); err != nil {
		return err
	}
	// sync(sequencer.count): acquire
	if s.words.value.Load() >= token {
		race.Acquire(s.key)
		return nil
	}
	w := s.begin(token)
	if over, err := s.judge(&w); over {
		return err
	}
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return s.await(ctx, &w)
}

// WaitAsync begins a wait for token and returns at once. Any number of such waits may be pending; no goroutine
// and no thread blocks in them. A wait that is canceled ends with an error that Is ErrCanceled.
func (s *Sequencer) WaitAsync(token uint64) *Pending {
	s.opening.use()
	return s.async(token)
}

// CancelWaiters ends every wait that began before the call with an error that Is ErrCanceled, unless its token is
// reached. CancelWaiters wakes the waiters of other processes, and does not wait until they run. So if the counter
// reaches the token of such a waiter before the waiter runs, its wait may still end without an error. Later waits are
// not affected.
func (s *Sequencer) CancelWaiters() {
	s.opening.use()
	defer s.serve().end()
	race.ReleaseMerge(s.key)
	s.words.turns.Add(uint64(turnsOne))
	crashpoint.Hit("sequencer.cancel.marked")
	s.endWaits()
}

// Stop ends all waits as CancelWaiters does, and makes all later waits end at once. From then on a wait succeeds
// only if its token is already reached. The counter can still change. Stop cannot be undone; a second Stop does
// nothing.
func (s *Sequencer) Stop() {
	s.opening.use()
	defer s.serve().end()
	race.ReleaseMerge(s.key)
	for {
		// The CAS fails only if another process has ended the waits, so the loop is lock-free.
		t := sequencerTurns(s.words.turns.Load())
		if t.stopped() {
			return
		}
		if s.words.turns.CompareAndSwap(uint64(t), uint64(t+turnsOne|turnsStopped)) {
			crashpoint.Hit("sequencer.stop.marked")
			s.endWaits()
			return
		}
	}
}

// endWaits wakes the waiters of all cells, so that each checks whether its wait is over. A cell is a word for every
// 16th token. The caller has called serve.
func (s *Sequencer) endWaits() {
	for i := range uint64(sequencerCells) {
		s.cell(i).makeLook()
	}
}

// Stopped reports whether Stop was called.
func (s *Sequencer) Stopped() bool {
	s.opening.use()
	return sequencerTurns(s.words.turns.Load()).stopped()
}

// ResetTo ends all waits as CancelWaiters does, and sets the counter to v, which may be lower than its value.
// ResetTo reports whether the counter had a value other than v. It does not undo a Stop. If another process raises
// the counter meanwhile, this change may be lost, and a wait whose token it reached may end with ErrCanceled.
func (s *Sequencer) ResetTo(v uint64) bool {
	s.opening.use()
	defer s.serve().end()
	race.ReleaseMerge(s.key)
	s.words.turns.Add(uint64(turnsOne))
	crashpoint.Hit("sequencer.cancel.marked")
	// sync(sequencer.count): release
	// lin: ResetTo takes effect here.
	was := s.words.value.Swap(v)
	crashpoint.Hit("sequencer.reset.stored")
	s.endWaits()
	return was != v
}

// SequencerState is the result of State.
type SequencerState struct {
	Value   uint64 // the counter
	Stopped bool   // Stop was called
	Waiting bool   // there are waiters; one that is about to give up may be included
	Next    uint64 // if there are waiters, a lower bound of their tokens
}

// State reads s without locking it. The result may be out of date when State returns.
func (s *Sequencer) State() SequencerState {
	st := SequencerState{Value: s.Value(), Stopped: s.Stopped()}
	ahead, announced := s.words.next(st.Value)
	if st.Waiting = announced && len(s.a.WaitsOf(s.object)) > 0; st.Waiting {
		st.Next = st.Value + ahead
	}
	return st
}

// String renders the state on one line.
func (s *Sequencer) String() string {
	return fmt.Sprintf("sequencer %s: %v", objectName(s.object), s.State())
}

// String renders the state by the names of its parts.
func (st SequencerState) String() string {
	str := fmt.Sprintf("value %d", st.Value)
	if st.Stopped {
		str += ", stopped"
	}
	if st.Waiting {
		str += fmt.Sprintf(", waiting for %d or more", st.Next)
	}
	return str
}

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters
// learn the bound from experience; if d is negative, they never spin.
func (s *Sequencer) SetSpin(d time.Duration) {
	s.opening.use()
	s.words.spin.Store(spinField(d))
}

// Spin returns the value of the last SetSpin.
func (s *Sequencer) Spin() time.Duration {
	s.opening.use()
	return spinOf(s.words.spin.Load())
}

// Offset returns the place of the Sequencer in its arena, for SequencerAt in another process.
func (s *Sequencer) Offset() arena.Offset { return s.object.Offset }

// Close closes this handle on the Sequencer, and no other. Calls that wait through it end with an
// error that Is ErrClosed. A second Close is an error that Is ErrClosed.
func (s *Sequencer) Close() error { return s.opening.close("sequencer.close") }
