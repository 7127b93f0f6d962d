package prims

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("eventcount.wait.announced")
	_ = crashpoint.Register("eventcount.wait.woken")
)

// eventcount is the part of a handle through which goroutines wait. Waiters sleep until a number in shared memory, the
// sequence, changes. A change wakes all waiters, in no particular order. No call needs a lock in the arena, so a
// stopped process blocks nobody. docs/design/0042 explains why.
type eventcount struct {
	words   eventcountPlaces
	list    park.WaitList
	queue   *park.Queue // nil for the handle of a reaper, which cannot wait
	a       *arenakernel.Arena
	object  arenakernel.Object
	key     race.Key
	counts  *countWords
	opening *opening
	op      string // the name of a wait, for errors
	// look finishes what a stopped or dead process has left undone, and finds deaths. Waiters call look before they
	// sleep, and so do the periodic checks. look does nothing if the word alone describes the whole state of the
	// object.
	look func()
	// scan looks for deaths that no process has counted yet. It is called at each periodic check, and when a
	// waiter wakes up and the sequence has not changed. scan may be nil.
	scan   func()
	looked atomic.Uint64 // the sequence at the last periodic check, plus 1
}

// init prepares a handle. The parameter look may be nil if a wake is all that a dead or stopped process can leave
// undone; see the field look. If bare is set, the handle cannot wait.
func (e *eventcount) init(a *arenakernel.Arena, o arenakernel.Object, w *eventcountWords, op string, look func(), bare bool) {
	wordSaysAll := look == nil
	if wordSaysAll {
		look = func() {}
	}
	e.place(a, o, w.places(), op, look)
	if bare {
		return
	}
	e.opening = newOpening(a, o)
	c := park.Config{WaitList: e.list, Object: o, Word: o.Body + e.words.stateOff, All: true, Check: e.check}
	if wordSaysAll {
		c.Rest = e.rest
	}
	e.queue = park.NewQueue(c)
	e.opening.waitsIn(e.queue)
	e.opening.end = func() { e.queue.Close() }
}

// place prepares an eventcount whose words are at w. The handle cannot wait yet, because it has no park.Queue.
func (e *eventcount) place(a *arenakernel.Arena, o arenakernel.Object, w eventcountPlaces, op string, look func()) {
	dev, ino := a.Segment().ID()
	*e = eventcount{
		words: w, a: a, object: o, key: race.KeyOf(dev, ino, uint64(o.Offset)), counts: countsOf(a, w.counts), op: op, look: look,
		list: park.WaitList{Arena: a, Word: low(w.state), Raw: wordPtr(low(w.state)), Poller: w.poller},
	}
}

func (e *eventcount) load() eventcountState { return eventcountState(e.words.state.Load()) }

func (e *eventcount) swap(from, to eventcountState) bool {
	return e.words.state.CompareAndSwap(uint64(from), uint64(to))
}

// enter begins a call that uses the words, or that waits. Close waits until the call has ended, that is, until
// it has called the method leave.
func (e *eventcount) enter() error {
	if !e.queue.Enter() {
		return e.closed()
	}
	return nil
}

func (e *eventcount) leave() { e.queue.Exit() }

// serve does what the method enter does, for a call that does not wait. If the handle is closed, serve panics.
func (e *eventcount) serve() served { return e.opening.serve(e.queue) }

func (e *eventcount) closed() error { return e.fail(shmsync.ErrClosed, nil, closedHandle) }

func (e *eventcount) fail(err error, who *shmsync.Identity, detail string) error {
	return &shmsync.Error{Op: e.op, Object: objectName(e.object), Err: err, Who: who, Detail: detail}
}

// wait waits until the sequence is no longer seq. The caller has called the method enter. If the sequence has
// changed, wait returns nil even if ctx has ended or the handle is being closed.
//
//	a waiter                               a process that changes the object
//	word: is the sequence seq?             word: sequence + 1; was it announced?
//	word: announced, by CAS                if so, wake all
//	sleep while the sequence is seq
//
// Both sides change the same word by a CAS. If the CAS of one side succeeds, the other side finds that change
// in the word. If the CAS of one side fails, that side loads the word again.
func (e *eventcount) wait(ctx context.Context, seq uint32) error {
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	waits := false
	for {
		// The loop repeats only after a wake, or after another call has changed the word.
		if e.look(); e.load().sequence() != seq {
			e.counts.took()
			return nil
		}
		if !waits {
			waits = true
			e.counts.add(countContended)
			if !e.load().announced() && e.spin(seq) {
				e.counts.add(countSpin)
				continue
			}
		}
		if !e.announce(seq) {
			continue
		}
		crashpoint.Hit("eventcount.wait.announced")
		e.counts.add(countSleep)
		switch ended := e.queue.Sleep(seq, park.SleepSpec{}, &cancel); ended {
		case park.Again:
			crashpoint.Hit("eventcount.wait.woken")
			if e.scan != nil && e.load().sequence() == seq {
				// A reaper that cannot change the object wakes the waiters before it counts the death. So the next call of look
				// may miss this death.
				e.scan()
			}
		case park.Canceled, park.Closed:
			switch e.look(); {
			case e.load().sequence() != seq:
				return nil
			case ended == park.Closed:
				return e.closed()
			}
			return cancel.Err()
		}
	}
}

// announce sets the bit announced in the word. Then the process that changes the sequence wakes this waiter.
// announce reports whether the sequence is still seq.
func (e *eventcount) announce(seq uint32) bool {
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
		s := e.load()
		if s.sequence() != seq {
			return false
		}
		if s.announced() || e.swap(s, s|eventcountAnnounced) {
			return true
		}
	}
}

// spin spins until the sequence is no longer seq, or until sleeping is likely to be faster. It reports whether the
// sequence has changed.
func (e *eventcount) spin(seq uint32) bool {
	return e.tuning().Spin(func() bool { return e.load().sequence() != seq })
}

func (e *eventcount) tuning() park.Tuning {
	w := e.words
	return park.Tuning{Budget: w.spin, Pays: w.pays, LastCPU: w.lastCPU, Slot: e.a.Self().Slot()}
}

// noteCPU records the CPU of this goroutine before a change that waiters may see soon. These waiters use the
// number of that CPU to decide how to spin.
func (e *eventcount) noteCPU(s eventcountState) {
	if s.announced() && e.queue != nil {
		e.tuning().NoteCPU()
	}
}

// wakeAll wakes all waiters, so that they check the word again.
func (e *eventcount) wakeAll() {
	e.counts.add(countWake)
	if e.queue == nil {
		e.list.DeliverAll()
		return
	}
	e.queue.DeliverAllAsOne()
}

// check is called ten times a second while a goroutine of this process waits. It finishes what a stopped or dead
// process has left undone. Then it wakes all waiters, because one of them may sleep on an old sequence. If the bit
// announced is set, and the sequence is the same as at the last check, it wakes nobody: the last check has woken such
// waiters.
func (e *eventcount) check() {
	if e.scan != nil {
		e.scan()
	}
	e.look()
	s := e.load()
	now := uint64(s.sequence()) + 1
	if e.looked.Swap(now) != now || !s.announced() {
		// Another process may have been stopped after it made the poller node of this process ready. Then no process wakes
		// the goroutines of this process through the node. So this call wakes them without the node.
		e.queue.DeliverAllAsOne()
	}
}

// rest returns the word and its value. If ok is true, periodic checks find nothing to do while the word keeps
// that value. ok is true if two conditions hold. First, the last check saw the present sequence, so it has
// woken all waiters of earlier sequences. Second, the bit announced is set, so the process that changes the
// sequence next wakes the waiters.
func (e *eventcount) rest() (word *atomic.Uint64, value uint64, ok bool) {
	s := e.load()
	return e.words.state, uint64(s), s.announced() && e.looked.Load() == uint64(s.sequence())+1
}

// wakeDead wakes the waiters that a dead process was about to wake. After a change, the word no longer says
// whether there are waiters. But each sleeping thread has a record in the arena, and sleeping goroutines have a
// poller node. So DeliverAll finds them without the word.
func (e *eventcount) wakeDead(owed arenakernel.Owed) {
	if owed != arenakernel.OwedAnnounced || e.load().announced() || e.words.poller.Load() != 0 {
		e.list.DeliverAll()
	}
}

// watch arranges that notify is called once, when the sequence may no longer be seq. The caller has called the method
// enter. The parameter named before is the last watch of the same wait, or nil if this watch is its first. If the
// sequence has changed, or the handle is being closed, watch arranges nothing and returns nil.
func (e *eventcount) watch(seq uint32, before *park.Watch, notify func()) *park.Watch {
	for {
		// The loop repeats only if another call has changed the word.
		if e.look(); !e.announce(seq) || e.queue.Closing() {
			return nil
		}
		if w := e.queue.Watch(seq, before, notify); w != nil {
			return w
		}
	}
}
