package prims

import (
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("counter.add.counted")
	_ = crashpoint.Register("counter.done.counted")
	_ = crashpoint.Register("counter.zero.untold")
	_ = crashpoint.Register("counter.zero.told")
	_ = crashpoint.Register("counter.zero.before_wake")
	_ = crashpoint.Register("counter.reap.lost")
)

// counter is what a WaitGroup and a Latch are: a counter of what is still to be done,
// waiters for its 0, and a record of how much of it each participant has undertaken.
//
// A decrement by a participant counts for what it has undertaken itself, as long as there
// is some, and then for others. So its share is never negative, and the work that it
// undertook last is there when it dies. When the counter becomes 0 no participant owes
// anything: all shares are void.
//
// The work of a dead participant is owed for ever, unless others do it all, another process
// takes it over, or Reset forgets it. While work is owed all waits end with ErrOwnerDead.
//
// There is no lock that a process could be stopped in. While all of the work is one
// participant's, a call is a compare-and-swap of the commit word. Other changes go
// through a record that any process completes; see counter_log.go. Waiters sleep on a word
// that counts events, as those of a Futex do.
type counter struct {
	left   *atomic.Uint64 // the commit word, for fast paths; a logged form for a closed handle
	me     uint64         // this participant, where the commit word has its owner
	words  *counterWords
	slots  []counterSlot
	list   park.WaitList
	queue  *park.Queue // nil for a reaper's handle, which cannot wait
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	key    race.Key
	op     string        // of waits, in errors
	looked atomic.Uint64 // the events at the last check
	// private is held by the goroutine that writes the record of this process.
	private *sync.Mutex
	counts  *countWords
	opening *opening
}

// counterPrivate are the private locks of all counters of this process, by the offset of the
// object: handles on an object share one. A goroutine holds one for a few stores, and waits
// for nothing meanwhile.
var counterPrivate [64]sync.Mutex

func buildCounter(a *arenakernel.Arena, o arenakernel.Object, op string, bare bool) *counter {
	w := arenakernel.At[counterWords](a, o.Body)
	dev, ino := a.Segment().ID()
	t := &counter{
		left: &w.commit, me: uint64(a.Self()) << counterIDShift, words: w, slots: counterSlots(a, o.Body), list: counterList(a, w),
		a: a, object: o, name: a.Self(), key: race.KeyOf(dev, ino, uint64(o.Offset)), op: op,
		private: &counterPrivate[o.Offset/64%64], counts: countsOf(a, &w.counts),
	}
	if bare {
		return t
	}
	t.opening = newOpening(a, o)
	t.queue = park.NewQueue(park.Config{
		WaitList: t.list, Object: o, Word: o.Body + counterEventsOff, All: true, Check: t.check,
	})
	t.opening.shut, t.opening.end = func() { park.Shut(t.queue) }, t.end
	return t
}

func counterList(a *arenakernel.Arena, w *counterWords) park.WaitList {
	return park.WaitList{Arena: a, Word: low(&w.events), Raw: wordPtr(low(&w.events)), Poller: &w.poller}
}

// end takes the counter away from the fast paths.
func (t *counter) end() {
	t.queue.Close()
	redirect(&t.left, &closedCount)
}

func (t *counter) load() counterWord { return counterWord(t.words.commit.Load()) }

// swap makes a change of the counter take effect.
func (t *counter) swap(from, to counterWord) bool {
	// sync(counter.commit): release
	// lin: a change of the counter takes effect here.
	return t.words.commit.CompareAndSwap(uint64(from), uint64(to))
}

// addAtOnce adds n, more than 0, if that takes one instruction. The compiler inlines it.
func (t *counter) addAtOnce(n int64) bool {
	w := t.left
	c := w.Load()
	// A logged form is negative here, so n is too much.
	return (c == 0 || c>>32 != 0 && uint64(uint32(c)&^1) == t.me) && n <= counterMax-int64(int32(c>>32)) && int64(c) >= 0 &&
		!race.Enabled && !crashpoint.Enabled && w.CompareAndSwap(c, c|t.me+uint64(n)<<32)
}

// doneAtOnce takes n, more than 0, off if that takes one instruction and leaves nothing to
// tell. The compiler inlines it.
func (t *counter) doneAtOnce(n uint64) bool {
	w := t.left
	c := w.Load()
	if uint64(uint32(c)&^1) != t.me || int64(c) < 0 || race.Enabled || crashpoint.Enabled {
		return false
	}
	to := c - n<<32
	if n >= c>>32 {
		if n != c>>32 || c&1 != 0 {
			return false
		}
		to = 0
	}
	return w.CompareAndSwap(c, to)
}

// countAtOnce is doneAtOnce for work that is nobody's share.
func (t *counter) countAtOnce(n uint64) bool {
	w := t.left
	c := w.Load()
	return uint32(c)&^1 == 0 && int64(c) >= 0 && n < c>>32 && !race.Enabled && !crashpoint.Enabled && w.CompareAndSwap(c, c-n<<32)
}

// enter begins a call that is not at its end at once. It panics if the handle is closed.
func (t *counter) enter() {
	if err := t.tryEnter(); err != nil {
		panic(err)
	}
}

func (t *counter) tryEnter() error {
	if !t.queue.Enter() {
		return t.closed()
	}
	return nil
}

func (t *counter) leave() { t.queue.Exit() }

// add adds n to the counter, as work of this participant. It reports false if the counter
// cannot be so high.
//
//go:noinline
func (t *counter) add(n uint64) bool {
	t.enter()
	defer t.leave()
	race.ReleaseMerge(t.key)
	for {
		// The loop ends: each turn that fails has met a change by another goroutine, or has
		// made one that a later turn does not have to make.
		c := t.load()
		switch to, sole := c.added(n, t.me); {
		case c.untold():
			t.tellZero(c)
		case !c.logged() && n > counterMax-c.count():
			return false
		case sole:
			if t.swap(c, to) {
				crashpoint.Hit("counter.add.counted")
				return true
			}
		case !c.logged():
			t.must(t.convert(c))
		default:
			r, err := t.addLogged(c, n)
			t.pay(r.due)
			t.must(err)
			if r.over {
				return r.made
			}
		}
	}
}

// finish takes n off the counter; it reports false if there is not so much.
//
//go:noinline
func (t *counter) finish(n uint64) bool {
	ok, err := t.tryFinish(n)
	t.must(err)
	return ok
}

// tryFinish is finish for a call that can return an error.
func (t *counter) tryFinish(n uint64) (ok bool, err error) {
	if err := t.tryEnter(); err != nil {
		return false, err
	}
	defer t.leave()
	if n == 0 {
		return true, nil
	}
	race.ReleaseMerge(t.key)
	for {
		// The loop ends as that of add does.
		c := t.load()
		switch to, sole := c.done(n, t.me); {
		case c.logged():
			r, err := t.doneLogged(c, n)
			t.pay(r.due)
			if r.over || err != nil {
				return r.made, err
			}
		case n > c.count():
			return false, nil
		case n == c.count():
			ok, due := t.becomeZero(c)
			t.pay(due)
			if ok {
				return true, nil
			}
		case sole:
			if t.swap(c, to) {
				crashpoint.Hit("counter.done.counted")
				return true, nil
			}
		default:
			if err := t.convert(c); err != nil {
				return false, err
			}
		}
	}
}

// becomeZero makes the counter 0, unless the commit word is not c any more. The caller pays
// what is due.
func (t *counter) becomeZero(c counterWord) (ok bool, due counterDue) {
	if !c.watched() {
		return t.swap(c, 0), 0
	}
	to := counterZero(t.zeroTicket())
	t.tuning().NoteCPU() // a waiter that sees the zero may look for it
	if !t.swap(c, to) {
		return false, 0
	}
	crashpoint.Hit("counter.zero.untold")
	return true, counterDue(to)
}

// zeroTicket is a number of a zero that waiters have not been told of.
func (t *counter) zeroTicket() uint32 {
	for {
		// The loop ends: the tickets of two turns differ.
		n := uint32(t.words.tickets.Add(1) & counterTickets)
		if n != 0 && n != counterEvents(t.words.events.Load()).ticket() {
			return n
		}
	}
}

// tellZero tells the waiters of the zero c, if that is still to be done. The next process that
// changes the counter does it, too: a process that is stopped here leaves no waiter behind.
//
//	the zero                           a waiter
//	commit: 0, ticket                  ticket of the events: is it another one?
//	events: ticket, sequence+1         events
//	commit: 0                          commit: is it 0? if not, make it watched
//	wake                               sleep while events has this sequence
//
// The counter does not rise before the events have the ticket, so a waiter that finds it
// risen finds the ticket.
func (t *counter) tellZero(c counterWord) {
	for {
		// The loop ends: another process told of this zero, or of a death, and of the latter
		// there are only so many.
		e := counterEvents(t.words.events.Load())
		if e.ticket() == c.ticket() {
			break
		}
		if t.load() != c {
			return // it was told
		}
		if t.words.events.CompareAndSwap(uint64(e), uint64(e.next(c.ticket()))) {
			break
		}
	}
	crashpoint.Hit("counter.zero.told")
	if t.swap(c, 0) {
		crashpoint.Hit("counter.zero.before_wake")
		t.wakeAll()
	}
}

// tell makes the waiters look at what a death has changed.
func (t *counter) tell() {
	crashpoint.Hit("counter.reap.lost")
	for {
		// The loop ends as that of tellZero does.
		e := counterEvents(t.words.events.Load())
		if t.words.events.CompareAndSwap(uint64(e), uint64(e.next(e.ticket()))) {
			break
		}
	}
	t.wakeAll()
}

func (t *counter) wakeAll() {
	t.counts.add(countWake)
	if t.queue == nil {
		t.list.DeliverAll()
		return
	}
	t.queue.DeliverAllAsOne()
}

// zero reports whether the counter is 0.
func (t *counter) zero() bool {
	// sync(counter.commit): acquire
	if !t.load().zero() {
		return false
	}
	race.Acquire(t.key)
	return true
}

// must panics with the error of a call that cannot return it.
func (t *counter) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (t *counter) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return &shmsync.Error{Op: op, Object: objectName(t.object), Err: err, Who: who, Detail: detail}
}

func (t *counter) closed() error { return t.fail(t.op, shmsync.ErrClosed, nil, closedHandle) }

func (t *counter) corrupt(detail string) error {
	return t.fail(t.op, shmsync.ErrCorrupt, nil, detail)
}

func (t *counter) ownerDead(name arenakernel.ParticipantID) error {
	return t.fail(t.op, shmsync.ErrOwnerDead, t.a.Who(name), "it died and left something undone")
}
