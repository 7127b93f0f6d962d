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

// Sequencer is a counter between processes that goes up, and a queue of waiters. Each waiter
// waits until the counter has reached a token of its own. When the counter reaches tokens,
// exactly their waiters wake, in the order of the tokens. Waiters for the same token wake in the
// order of arrival.
//
// Increment costs one atomic addition and one load unless it reaches a token, however many
// goroutines wait.
//
// In the terminology of the Go memory model, and across processes: the Increment or Advance that
// takes the counter to n, and all before it, synchronize before every Value that returns n or
// more and every wait for n or less that ends without an error.
//
// No process holds a Sequencer. When a process dies, its counts stay, its waits are removed, and
// its reaper wakes the waiters that it should have woken.
type Sequencer struct {
	*sequence
}

// SequencerOptions says how a Sequencer is created. A nil *SequencerOptions means the
// zero value.
type SequencerOptions struct {
	// Initial is the value of a new Sequencer.
	Initial uint64
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	Spin time.Duration
}

var sequencerKind = arenakernel.KindOf("SEQR")

const sequencerVersion = 1

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: sequencerKind, Version: sequencerVersion, Repair: repairSequencer, Wake: wakeQueue, Check: checkSequencer, Inspect: inspectSequencer,
	})
}

// OpenSequencer finds the Sequencer of that name in the arena or creates it. An empty
// name makes a fresh anonymous one.
func OpenSequencer(a *arena.Arena, name string, opts *SequencerOptions) (*Sequencer, error) {
	return openSequencer((*arenakernel.Arena)(a), name, opts, false)
}

func openSequencer(a *arenakernel.Arena, name string, opts *SequencerOptions, attach bool) (*Sequencer, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: sequencerKind, Version: sequencerVersion, Name: name, Size: sequenceBytes,
		Init: func(body []byte) {
			if opts != nil {
				w := sequenceBody(body)
				w.value.Store(opts.Initial)
				w.mon.spin.Store(spinField(opts.Spin))
			}
		},
	}, "sequencer.open", newSequencer, nil)
}

// SequencerAt opens the Sequencer at an offset that another process got from the method Offset.
func SequencerAt(a *arena.Arena, off arena.Offset) (*Sequencer, error) {
	return handleAt(a, off, "sequencer.open", sequencerKind, sequencerVersion, sequenceBytes, newSequencer)
}

func newSequencer(a *arenakernel.Arena, o arenakernel.Object) (*Sequencer, error) {
	return buildSequencer(a, o, false), nil
}

func buildSequencer(a *arenakernel.Arena, o arenakernel.Object, bare bool) *Sequencer {
	return &Sequencer{buildSequence(a, o, "sequencer.wait", bare)}
}

// Value is the value of the counter.
func (s *Sequencer) Value() uint64 {
	s.mon.opening.use()
	v := s.words.value.Load()
	race.Acquire(s.mon.key)
	return v
}

// Increment adds one to the counter, wakes the waiters for the new value, and returns it. It
// makes no system call, and waits for no process, unless it reaches a token. The counter wraps
// from MaxUint64 to 0. Like all methods that return no error, it panics with an *[shmsync.Error]
// if a peer wrote an impossible value.
func (s *Sequencer) Increment() uint64 {
	s.mon.opening.use()
	race.ReleaseMerge(s.mon.key)
	// sync(sequencer.count): release
	// lin: Increment takes effect here.
	v := s.words.value.Add(1)
	if ^v <= s.words.next.Load() {
		s.counted(v)
	}
	return v
}

// Advance raises the counter to v if it is lower, and reports whether it did. It wakes the
// waiters for v or less.
func (s *Sequencer) Advance(v uint64) bool {
	s.mon.opening.use()
	race.ReleaseMerge(s.mon.key)
	for {
		// The loop ends: whenever the CAS fails, another process has counted.
		now := s.words.value.Load()
		if now >= v {
			return false
		}
		// sync(sequencer.count): release
		// lin: Advance takes effect here.
		if s.words.value.CompareAndSwap(now, v) {
			s.counted(v)
			return true
		}
	}
}

// Wait waits until the counter has reached token. It then returns nil, even after Stop. If the
// Sequencer is stopped, or its waits are cancelled, before that, the error Is ErrCanceled. Other
// errors are ErrNoSpace, ErrCorrupt and ErrClosed.
func (s *Sequencer) Wait(token uint64) error { return s.WaitContext(nil, token) }

// WaitContext is Wait that ends with ctx.Err() when ctx ends first. A token that is reached takes
// precedence over a context that has ended.
func (s *Sequencer) WaitContext(ctx context.Context, token uint64) error {
	if err := s.mon.opening.error("sequencer.wait"); err != nil {
		return err
	}
	if s.reached(token) {
		race.Acquire(s.mon.key)
		return nil
	}
	return s.wait(ctx, token)
}

// WaitAsync begins a wait for token and returns at once. Any number of such waits may be pending;
// no goroutine and no thread blocks in them. A wait that is cancelled ends with an error that Is
// ErrCanceled.
func (s *Sequencer) WaitAsync(token uint64) *Pending {
	s.mon.opening.use()
	return s.async(token)
}

// CancelWaiters ends every wait that began before the call with an error that Is ErrCanceled,
// unless its token is reached. When it returns, these waits have ended. Later waits are not
// affected.
func (s *Sequencer) CancelWaiters() { s.cancelAll(false) }

// Stop ends all waits as CancelWaiters does, and all later waits at once: from then on only waits
// for tokens that are reached succeed. The counter can still change. Stop cannot be undone; a
// second Stop does nothing.
func (s *Sequencer) Stop() {
	s.mon.opening.use()
	if !s.Stopped() || s.overdue() {
		s.cancelAll(true)
	}
}

// Stopped reports whether Stop was called.
func (s *Sequencer) Stopped() bool {
	s.mon.opening.use()
	return s.words.stopped.Load() != 0
}

// ResetTo sets the counter to v, which may be lower, and reports whether it did. It does nothing
// while there are waiters. It does not undo a Stop.
func (s *Sequencer) ResetTo(v uint64) bool { return s.reset(v) }

// SequencerState is the result of State.
type SequencerState struct {
	Value   uint64 // the counter
	Stopped bool   // Stop was called
	Waiting bool   // there are waiters
	Next    uint64 // a lower bound of the tokens that are waited for, if there are waiters
}

// State reads s without locking it. The answer may be out of date when it returns.
func (s *Sequencer) State() SequencerState {
	s.mon.opening.use()
	st := SequencerState{Value: s.words.value.Load(), Stopped: s.Stopped(), Waiting: s.words.root.Load() != 0}
	if st.Waiting {
		st.Next = ^s.words.next.Load()
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
	s.mon.opening.use()
	s.words.mon.spin.Store(spinField(d))
}

// Spin is the value of the last SetSpin.
func (s *Sequencer) Spin() time.Duration {
	s.mon.opening.use()
	return spinOf(s.words.mon.spin.Load())
}

// Offset is the place of the Sequencer in its arena, for SequencerAt in another process.
func (s *Sequencer) Offset() arena.Offset { return s.object.Offset }

// Close closes this handle on the Sequencer, and no other. Calls that wait through it end with an
// error that Is ErrClosed. A second Close is an error that Is ErrClosed.
func (s *Sequencer) Close() error {
	return s.mon.opening.close("sequencer.close")
}

// What the reaper and tools call.

func repairSequencer(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	if o.Size >= sequenceBytes {
		repairMonitor(buildSequencer(a, o, true).mon, dead)
	}
}

func checkSequencer(a *arenakernel.Arena, o arenakernel.Object) error {
	if o.Size < sequenceBytes {
		return wrongKind("sequencer.check", o, sequencerKind, sequencerVersion)
	}
	return checkSequence(buildSequence(a, o, "sequencer.check", true))
}

func checkSequence(q *sequence) error {
	if err := checkMutexWords(q.object, &q.words.mon.queueLock); err != nil {
		return err
	}
	if n := q.words.stopped.Load(); n > 1 {
		return q.mon.fail(q.op, shmsync.ErrCorrupt, nil, fmt.Sprintf("its mark of a stop is %d", n))
	}
	return nil
}
