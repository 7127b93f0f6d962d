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

// autoEvent is an Event with automatic reset. A Set makes a token, which is a permission for one wait to end, and a
// wait that ends takes a token. Each process has a share: the number of its waits. A Set adds up the shares to find
// out whether there is a token for each wait. No process holds a lock of the arena, and no token belongs to a
// particular wait. So a stopped process blocks nobody. docs/design/0055 has the argument.
//
//	a wait                                   Set
//	share: waits + 1                         word: tokens, version
//	word: announced, version + 1             shares: more tokens than waits? If so, end
//	word: no token?                          word: tokens + 1, version + 1
//	sleep while the version is the same      if announced, wake one
//
// In every order of these steps, the wait ends. Either the wait finds the token, or the version has changed
// before the wait goes to sleep, or Set wakes a wait that sleeps.
type autoEvent struct {
	eventcount
	own     *eventRecord // counts the waits of this process; nil in the handle of a reaper or a tool
	slot    int
	known   atomic.Pointer[eventShares]
	records *atomic.Uint32 // offset of the newest slot record; each slot record has a share
	turns   atomic.Uint32  // counts wakes, which go alternately to threads in the kernel and to pollers
	tried   tryCheck
}

// buildAutoEvent makes a handle. If bare is set, the handle is for a reaper or a tool: it counts no waits, and
// no goroutine can wait through it.
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

// swap changes the word from one state to another by a CAS. If the old state names a wait that has ended, the caller
// has called countOff with this state, so that no share counts that wait any more.
func (x *autoEvent) swap(from, to tokenState) bool {
	// sync(event.set): release
	// lin: Set, Reset, TryWait and the end of a wait take effect here.
	return x.eventcount.swap(eventcountState(from), eventcountState(to))
}

// set does what Event.Set does.
func (x *autoEvent) set() {
	race.ReleaseMerge(x.key)
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
		s := x.load()
		if s.announced() {
			x.setAndWake()
			return
		}
		if s.tokens() > 0 {
			if fence(); x.load() == s {
				return // lin: nobody waits, and the Event is set.
			}
			continue
		}
		x.countOff(s)
		if x.swap(s, s.with(1)) {
			return
		}
	}
}

// setAndWake does what the method set does, for an Event at which goroutines may wait. It uses the words of the
// Event even after its change. So a Close waits until setAndWake has returned.
func (x *autoEvent) setAndWake() {
	defer x.serve().end()
	for {
		// The loop repeats only if another call has changed the word. So the loop is lock-free.
		s, waits := x.look()
		if s.tokens() > waits || s.tokens() == tokensMost {
			if fence(); x.load() == s {
				return // lin: the Event was set when the word was s.
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

// look returns the state s of the word, and the number of waits while the word was in this state. It stops counting
// when it has found more waits than tokens. If there are no tokens, look does not count, and returns 0 waits.
func (x *autoEvent) look() (s tokenState, waits uint64) {
	for {
		// If the word is no longer s, another call has changed it. So the loop is lock-free.
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

// claim is the common part of Reset and TryWait. It takes all tokens that no wait will take, and reports whether
// there was such a token. Usually there is at most one such token. There are more if waiting participants have
// died, or if waits were given up.
func (x *autoEvent) claim() bool {
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
		s, waits := x.load(), uint64(0)
		if !s.quiet() {
			s, waits = x.look()
		}
		if s.tokens() <= waits {
			return false
		}
		if x.swap(s, s.with(waits)) {
			orderLoads(x.words.state) // a Set may have seen the token and changed nothing, so this call must see the stores before that Set; see fence
			race.Acquire(x.key)
			return true
		}
	}
}

// tryClaim does what Event.TryWait does. A token that was meant for a wait of a dead participant is free. So if all
// tokens seem to be meant for waits, tryClaim looks for dead participants.
func (x *autoEvent) tryClaim() bool {
	if x.claim() {
		return true
	}
	if x.load().tokens() == 0 || !x.tried.due() {
		return false
	}
	for _, h := range x.shares().all {
		if n := arenakernel.ParticipantID(h.name.Load() & arenakernel.ParticipantIDMask); n != 0 && waitShare(h.waits.Load()).waits() != 0 {
			x.a.Dead(n)
		}
	}
	return x.claim()
}

// isSet does what Event.IsSet does.
func (x *autoEvent) isSet() bool {
	s, waits := x.load(), uint64(0)
	if !s.quiet() {
		s, waits = x.look()
	}
	return s.tokens() > waits
}

// state returns what State reports: whether a token is there for the next caller, and whether there are waits.
func (x *autoEvent) state() (set, waiting bool) {
	s, waits := x.look()
	return s.tokens() > waits, x.waits(s, 0) > 0
}

// eventWait is a wait for a token. The share of this process counts the wait from its beginning on. The wait ends by
// a successful call of its method take, end or giveUp.
type eventWait struct {
	x         *autoEvent
	announced bool
	slept     bool
}

// begin begins a wait and counts it in the share of this process. The caller has called the method enter.
func (x *autoEvent) begin() *eventWait {
	// sync(event.announce): release
	x.own.waits.Add(1)
	crashpoint.Hit("event.wait.counted")
	return &eventWait{x: x}
}

// The method take takes a token, if there is one for this wait. Otherwise it returns the word on which the wait
// has to sleep.
//
// A wait that has not slept leaves the tokens to the waits that have announced themselves before it. So it takes a
// token only if no wait is announced, or if there are at least as many tokens as waits.
func (w *eventWait) take() (s tokenState, ok bool) {
	x := w.x
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
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
// in the word. If there are no other waits, it leaves at most one token.
func (w *eventWait) end(s tokenState, tokens uint64) bool {
	x := w.x
	others := x.waits(s|tokenAnnounced, 1) > 1
	if !others {
		tokens = min(tokens, 1)
	}
	to := s.ended(x.slot, tokens).alone(others)
	if waitShare(x.own.waits.Load()).ended() == to.version() {
		// The previous wait of this participant ended exactly 2^32 changes ago, so this wait would end at the same
		// version. Then other participants would believe that the share does not count this wait any more. A change
		// of the version avoids that.
		x.swap(s, s.with(s.tokens()))
		return false
	}
	if !x.swap(s, to) {
		return false
	}
	orderLoads(x.words.state) // as in claim
	crashpoint.Hit("event.wait.ended")
	x.countOff(to)
	if others && tokens > 0 {
		crashpoint.Hit("event.wait.before_pass")
		x.pass()
	}
	return true
}

// giveUp ends the wait. If the parameter unless is true and there is a token, giveUp also takes the token, and
// returns true.
func (w *eventWait) giveUp(unless bool) bool {
	for {
		// If the CAS fails, another call has changed the word. So the loop is lock-free.
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

// took is called after a wait has taken a token.
func (x *autoEvent) took() {
	race.Acquire(x.key)
	x.counts.took()
}

// eventYield is how long a wait that has not slept leaves the tokens to earlier waits. After that it takes a
// token, because the process of an earlier wait may be stopped.
const eventYield = time.Millisecond

// wait does what Event.Wait does after the method claim has found no token.
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
		// The loop repeats only after a wake, after eventYield, or after another call has changed the word.
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

// wakeOne wakes one waiter of any process.
func (x *autoEvent) wakeOne() {
	x.counts.add(countWake)
	x.queue.DeliverOneAsOne(x.turns.Add(1))
}

// pass wakes one more waiter of any process. pass may itself run as a part of a wake of goroutines of this process.
// So it does not wake such goroutines directly, but leaves them to the poller of this process.
func (x *autoEvent) pass() {
	x.counts.add(countWake)
	x.list.DeliverOne(x.turns.Add(1))
}

// check is called ten times a second while a goroutine of this process waits. It makes up for a missing wake. A
// wake is missing if a Set has woken a waiter whose process is stopped, or if the process that called Set was
// stopped before the wake.
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

// rest returns the word and its value. If ok is true, the method check has nothing to do while the word keeps
// that value.
func (x *autoEvent) rest() (word *atomic.Uint64, value uint64, ok bool) {
	s := x.load()
	return x.words.state, uint64(s), s.announced() && s.tokens() == 0
}

// wakeDead wakes the waiters that a dead process was about to wake.
func (x *autoEvent) wakeDead() {
	if x.load().tokens() > 0 {
		x.list.DeliverAll()
	}
}
