package prims

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("event.set.before_wake")
	_ = crashpoint.Register("event.wait.counted")
	_ = crashpoint.Register("event.wait.announced")
	_ = crashpoint.Register("event.wait.woken")
	_ = crashpoint.Register("event.wait.ended")
	_ = crashpoint.Register("event.wait.before_pass")
)

// autoEvent is an Event with automatic reset. A Set makes a token, and a wait takes one. It uses no lock of the
// arena and hands no token to a particular wait, so a stopped process blocks nobody. docs/design/0055 has the
// argument.
//
//	a wait                                   Set
//	share: waits + 1                         word: tokens, version
//	word: announced, version + 1             shares: are there as many waits?
//	word: no token?                          word: tokens + 1, version + 1
//	sleep while the version is the same      if announced, wake one
//
// Either the wait sees the token, or the version has changed when it goes to sleep, or Set wakes one that sleeps.
type autoEvent struct {
	eventcount
	own     *eventRecord // the share of this process; nil in the handle of a reaper or a tool
	slot    int
	known   atomic.Pointer[eventShares]
	records *atomic.Uint32 // names the latest slot record
	turns   atomic.Uint32  // counts the wakes of this handle: they go to the kernel's queue and the pollers alternately
}

// buildAutoEvent makes a handle. A bare handle is for a reaper or a tool: it has no share, and cannot wait.
func buildAutoEvent(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*autoEvent, error) {
	x := &autoEvent{slot: a.Self().Slot(), records: a.SlotRecords(o)}
	x.place(a, o, arenakernel.At[autoEventWords](a, o.Body).places(), "event.wait", nil)
	if bare {
		x.known.Store(readEventShares(a, o))
		return x, nil
	}
	record, err := a.SlotRecord(o, eventRecordBytes)
	if err != nil {
		return nil, err
	}
	x.own = arenakernel.SlotRecordAt[eventRecord](a, record)
	x.known.Store(readEventShares(a, o))
	if err := x.known.Load().err; err != nil {
		return nil, err
	}
	x.inherit()
	x.opening = newOpening(a, o)
	x.queue = park.NewQueue(park.Config{
		WaitList: x.list, Object: o, Word: o.Body + x.words.stateOff, Check: x.check, Rest: x.rest,
	})
	x.opening.waitsIn(x.queue)
	x.opening.end = func() { x.queue.Close() }
	return x, nil
}

func (x *autoEvent) load() tokenState {
	// sync(event.set): acquire
	return tokenState(x.eventcount.load())
}

// swap changes the word. The caller has called countOff for it.
func (x *autoEvent) swap(from, to tokenState) bool {
	// sync(event.set): release
	// lin: Set, Reset, TryWait and the end of a wait take effect here.
	return x.eventcount.swap(eventcountState(from), eventcountState(to))
}

// set is Set.
func (x *autoEvent) set() {
	race.ReleaseMerge(x.key)
	for {
		// The loop ends: whenever the CAS fails, another call has changed the word.
		s := x.load()
		if s.announced() {
			x.setAndWake()
			return
		}
		if s.tokens() > 0 {
			if fence(); x.load() == s {
				return // lin: nobody waits, and it is set.
			}
			continue
		}
		x.countOff(s)
		if x.swap(s, s.with(1)) {
			return
		}
	}
}

// setAndWake is set while there may be waits. A Close must wait for it, because it uses the words after the
// change.
func (x *autoEvent) setAndWake() {
	defer x.serve().end()
	for {
		// The loop ends: whenever the CAS fails, or the word is no longer s, another call has changed it.
		s, waits := x.look()
		if s.tokens() > waits || s.tokens() == tokensMost {
			if fence(); x.load() == s {
				return // lin: it was set when the word was s.
			}
			continue
		}
		x.noteCPU(eventcountState(s))
		if x.swap(s, s.with(s.tokens()+1)) {
			if s.announced() {
				crashpoint.Hit("event.set.before_wake")
				x.wakeOne()
			}
			return
		}
	}
}

// look returns the word, and the number of waits that the shares counted while the word had that value. It stops
// counting when it has found more waits than tokens. If there are no tokens, it counts nothing: waits is 0.
func (x *autoEvent) look() (s tokenState, waits uint64) {
	for {
		// The loop ends: whenever the word is no longer s, another call has changed it.
		s = x.load()
		x.countOff(s)
		if s.tokens() == 0 {
			return s, 0
		}
		if waits = x.waits(s, s.tokens()); x.load() == s {
			return s, waits
		}
	}
}

// claim is Reset and TryWait: it takes all tokens that no wait will take, and reports whether there was one. Mostly
// there is one. There are more if waiting participants have died, or if waits were given up.
func (x *autoEvent) claim() bool {
	for {
		// The loop ends: whenever the CAS fails, another call has changed the word.
		s, waits := x.look()
		if s.tokens() <= waits {
			return false
		}
		if x.swap(s, s.with(waits)) {
			race.Acquire(x.key)
			return true
		}
	}
}

// isSet is IsSet.
func (x *autoEvent) isSet() bool {
	s, waits := x.look()
	return s.tokens() > waits
}

// state returns what State reports: whether a token is there for the next caller, and whether there are waits.
func (x *autoEvent) state() (set, waiting bool) {
	s, waits := x.look()
	return s.tokens() > waits, x.waits(s, 0) > 0
}

// eventWait is a wait that the share counts. It is over when its method take, end or giveUp has changed the
// word to end it.
type eventWait struct {
	x         *autoEvent
	announced bool
	slept     bool
}

// begin counts a wait. The call has entered.
func (x *autoEvent) begin() *eventWait {
	// sync(event.announce): release
	x.own.waits.Add(1)
	crashpoint.Hit("event.wait.counted")
	return &eventWait{x: x}
}

// take takes a token if there is one for this wait. Otherwise it returns the word to sleep on.
//
// A wait that has not slept leaves the tokens to those that have announced themselves before it.
func (w *eventWait) take() (s tokenState, ok bool) {
	x := w.x
	for {
		// The loop ends: whenever the CAS fails, another call has changed the word.
		s = x.load()
		x.countOff(s)
		switch {
		case s.tokens() > 0 && (w.slept || !s.announced() || x.waits(s, s.tokens()) <= s.tokens()):
			if w.end(s, s.tokens()-1) {
				x.took()
				return s, true
			}
		case w.announced:
			return s, false
		default:
			to := s.with(s.tokens()) | tokenAnnounced
			if x.swap(s, to) {
				w.announced = true
				crashpoint.Hit("event.wait.announced")
				return to, false
			}
		}
	}
}

// end ends the wait, if the word is still s, and reports whether it did. It leaves the given number of tokens
// in the word, but at most one if nobody else waits.
func (w *eventWait) end(s tokenState, tokens uint64) bool {
	x := w.x
	others := x.waits(s|tokenAnnounced, 1) > 1
	if !others {
		tokens = min(tokens, 1)
	}
	to := s.ended(x.slot, tokens).alone(others)
	if waitShare(x.own.waits.Load()).ended() == to.version() {
		// The last wait of the participant ended exactly 2^32 changes ago. So others would think that this wait
		// is counted off already. A change of the version avoids that.
		x.swap(s, s.with(s.tokens()))
		return false
	}
	if !x.swap(s, to) {
		return false
	}
	crashpoint.Hit("event.wait.ended")
	x.countOff(to)
	if others && tokens > 0 {
		crashpoint.Hit("event.wait.before_pass")
		x.pass()
	}
	return true
}

// giveUp ends the wait. If unless is set and there is a token, giveUp takes the token, and returns true.
func (w *eventWait) giveUp(unless bool) bool {
	for {
		// The loop ends: whenever the CAS fails, another call has changed the word.
		s := w.x.load()
		w.x.countOff(s)
		tokens := s.tokens()
		took := unless && tokens > 0
		if took {
			tokens--
		}
		if w.end(s, tokens) {
			if took {
				w.x.took()
			}
			return took
		}
	}
}

// took is called when a wait has taken a token.
func (x *autoEvent) took() {
	race.Acquire(x.key)
	x.counts.took()
}

// eventYield bounds how long a wait that has not slept leaves the tokens to those that began before it: the process of
// one of those may be stopped.
const eventYield = time.Millisecond

// wait is Wait after a failed claim.
func (x *autoEvent) wait(ctx context.Context) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.leave()
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if x.shares().err != nil {
		return x.corruptShares()
	}
	x.counts.add(countContended)
	if !x.load().announced() && x.tuning().Spin(func() bool { return x.load().tokens() > 0 }) && x.claim() {
		x.counts.add(countSpin)
		x.counts.took()
		return nil
	}
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	w := x.begin()
	for {
		// The loop ends: each iteration follows a wake, or a change by another call.
		s, ok := w.take()
		if ok {
			return nil
		}
		var spec park.SleepSpec
		if s.tokens() > 0 {
			spec.Bounded = int64(eventYield)
		}
		x.counts.add(countSleep)
		switch ended := x.queue.Sleep(s.version(), spec, &cancel); ended {
		case park.Again:
			crashpoint.Hit("event.wait.woken")
			w.slept = true
		case park.Canceled, park.Closed:
			switch {
			case w.giveUp(true):
				return nil
			case ended == park.Closed:
				return x.closed()
			}
			return cancel.Err()
		}
	}
}

// wakeOne wakes one wait.
func (x *autoEvent) wakeOne() {
	x.counts.add(countWake)
	x.queue.DeliverOneAsOne(x.turns.Add(1))
}

// pass wakes one more wait. A wake may have called the caller of pass, so pass does not wake goroutines of this
// process itself, but leaves that to the poller.
func (x *autoEvent) pass() {
	x.counts.add(countWake)
	x.list.DeliverOne(x.turns.Add(1))
}

// check is called ten times a second while a goroutine of this process waits. A wake may have gone to a process that is
// stopped, or come from one that was stopped before it.
func (x *autoEvent) check() {
	s := x.load()
	now := uint64(s.version()) + 1
	before := x.looked.Swap(now)
	switch {
	case s.tokens() == 0:
	case before == now:
		x.queue.DeliverAllAsOne()
	default:
		x.wakeOne()
	}
}

// rest returns the word and its value. If ok is set, the periodic checks find nothing to do as long as the word
// keeps that value.
func (x *autoEvent) rest() (word *atomic.Uint64, value uint64, ok bool) {
	s := x.load()
	return x.words.state, uint64(s), s.announced() && s.tokens() == 0
}

// wakeDead makes the wakes that a dead process did not make.
func (x *autoEvent) wakeDead() {
	if x.load().tokens() > 0 {
		x.list.DeliverAll()
	}
}
