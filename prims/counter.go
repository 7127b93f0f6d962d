package prims

import (
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

// counter is what WaitGroup and Latch have in common: the count of the work that is still to be done, the
// waiters for a count of 0, and the share of each participant. The share of a participant is how much of the
// work the participant has undertaken to do. It is in the slot record of the participant's slot.
//
// A decrement is first taken from the share of the participant that makes it. The rest of the decrement is work of
// other participants. So a share is never negative. The work of a participant counts as done in the order in which it
// was undertaken. So the share of a participant that dies is the work that it undertook last. When the counter
// becomes 0, no participant has work left, so all shares lose their meaning: they are void.
//
// After a death, the share of the dead participant is work that the dead owe. They owe it until other
// participants have done all of the work, another process claims it, or Reset removes it from the count. While
// the dead owe work, all waits end with ErrOwnerDead.
//
// No call holds a lock that another process needs, so a stopped process blocks no other process. The commit
// word is the word by whose compare-and-swap each change takes effect. While all of the work is the share of
// one participant, the commit word holds the whole state. Other changes go through a record, a list of new
// values that any process can carry out; see recordLog. Waiters sleep on a word that counts events, as the
// waiters of a Futex do.
type counter struct {
	left    *atomic.Uint64 // the commit word, for fast paths; in a closed handle, a word on which the fast paths fail
	me      uint64         // the ID of this participant, shifted to the bits of the owner in the commit word
	words   *counterWords
	slots   slotTable[counterSlot]
	own     *counterSlot  // the slot record of this participant; nil for the handle of a reaper
	deaths  atomic.Uint32 // the result of a.Deaths() when a waiter of this handle last looked for dead participants
	sought  atomic.Uint64 // the value of words.events when a waiter of this handle last looked for dead participants
	list    park.WaitList
	queue   *park.Queue // nil for the handle of a reaper, which cannot wait
	a       *arenakernel.Arena
	object  arenakernel.Object
	name    arenakernel.ParticipantID
	key     race.Key
	op      string        // name of the operation, for the errors of waits
	looked  atomic.Uint64 // the value of words.events at the last periodic check
	counts  *countWords
	opening *opening
	recordLog
}

// newCounter makes a handle. The parameter op is the name of the operation, for the errors of waits.
func newCounter(a *arenakernel.Arena, o arenakernel.Object, op string) (*counter, error) {
	t := bareCounter(a, o, op)
	own, err := t.slots.join()
	if err != nil {
		return nil, err
	}
	t.own = own
	t.deaths.Store(a.Deaths() - 1) // so that the first wait looks for dead participants
	t.opening = newOpening(a, o)
	t.queue = park.NewQueue(park.Config{
		WaitList: t.list, Object: o, Word: o.Body + counterEventsOff, All: true, Check: t.check,
	})
	t.opening.waitsIn(t.queue)
	t.opening.end = t.end
	return t, nil
}

// bareCounter makes the handle of a reaper or a tool, which cannot wait.
func bareCounter(a *arenakernel.Arena, o arenakernel.Object, op string) *counter {
	w, counts := counterAt(a, o)
	dev, ino := a.Segment().ID()
	t := &counter{
		left: &w.commit, me: uint64(a.Self()) << counterIDShift, words: w, list: counterList(a, w),
		a: a, object: o, name: a.Self(), key: race.KeyOf(dev, ino, uint64(o.Offset)), op: op, counts: counts,
	}
	t.slots.init(a, o, counterSlotBytes)
	t.recordLog.init(&w.commit, &w.tickets, o, t)
	t.slot = a.Self().Slot()
	return t
}

func counterList(a *arenakernel.Arena, w *counterWords) park.WaitList {
	return park.WaitList{Arena: a, Word: low(&w.events), Raw: wordPtr(low(&w.events)), Poller: &w.poller}
}

// end makes the fast paths of this handle fail.
func (t *counter) end() {
	t.queue.Close()
	redirect(&t.left, &closedCount)
}

// addAtOnce adds n, which is positive, if one compare-and-swap is enough, and reports whether it did. The
// compiler inlines it.
func (t *counter) addAtOnce(n int64) bool {
	w := t.left
	c := w.Load()
	// In the logged form, c is negative as an int64, so addAtOnce returns false.
	return (c == 0 || c>>32 != 0 && uint64(uint32(c)&^1) == t.me) && n <= counterMax-int64(int32(c>>32)) && int64(c) >= 0 &&
		!race.Enabled && !crashpoint.Enabled && w.CompareAndSwap(c, c|t.me+uint64(n)<<32)
}

// doneAtOnce subtracts n, which is positive, if one compare-and-swap is enough and no waiter has to be woken.
// It reports whether it did. The compiler inlines it.
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

// countAtOnce is like doneAtOnce, but for work that is in no participant's share. It fails if the counter would
// become 0.
func (t *counter) countAtOnce(n uint64) bool {
	w := t.left
	c := w.Load()
	return uint32(c)&^1 == 0 && int64(c) >= 0 && n < c>>32 && !race.Enabled && !crashpoint.Enabled && w.CompareAndSwap(c, c-n<<32)
}

// serve begins a call that does not wait and that the fast path could not complete. It panics if the handle is
// closed.
func (t *counter) serve() served { return t.opening.serve(t.queue) }

func (t *counter) enter() error {
	if !t.queue.Enter() {
		return t.closed()
	}
	return nil
}

func (t *counter) leave() { t.queue.Exit() }

// add adds n to the counter, as work of this participant. It reports false if the counter would
// overflow.
//
//go:noinline
func (t *counter) add(n uint64) bool {
	defer t.serve().end()
	race.ReleaseMerge(t.key)
	for {
		// The loop repeats only if another goroutine has changed the counter, or if this iteration has made a
		// preparatory change. Each preparatory change, such as the conversion of the commit word to the logged
		// form, is needed only once. So the loop is lock-free.
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

// finish subtracts n from the counter. It reports false if the counter is less than n.
//
//go:noinline
func (t *counter) finish(n uint64) bool {
	ok, err := t.tryFinish(n)
	t.must(err)
	return ok
}

// tryFinish does what finish does, but returns an error where finish panics.
func (t *counter) tryFinish(n uint64) (ok bool, err error) {
	s, ok := t.opening.tryServe(t.queue)
	if !ok {
		return false, t.closed()
	}
	defer s.end()
	if n == 0 {
		return true, nil
	}
	race.ReleaseMerge(t.key)
	for {
		// The loop is lock-free for the same reason as the loop of the method add.
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

// becomeZero sets the counter to 0 if the commit word is still c, and reports whether it did. The caller then calls
// pay(due), which wakes the waiters.
func (t *counter) becomeZero(c counterWord) (ok bool, due counterDue) {
	if !c.watched() {
		return t.swap(c, 0), 0
	}
	to := counterZero(t.zeroTicket())
	t.tuning().NoteCPU() // a waiter that sees the zero may read the number of this CPU
	if !t.swap(c, to) {
		return false, 0
	}
	crashpoint.Hit("counter.zero.untold")
	return true, counterDue(to)
}

// zeroTicket returns a ticket, that is, a number that identifies one moment at which the counter became 0. It must
// differ from the ticket in the events word, which belongs to the last zero that waiters were told of.
func (t *counter) zeroTicket() uint32 {
	for {
		// Each iteration gets another ticket. Only 0 and the ticket in the events word are refused, so the loop
		// ends.
		n := uint32(t.words.tickets.Add(1) & counterTickets)
		if n != 0 && n != counterEvents(t.words.events.Load()).ticket() {
			return n
		}
	}
}

// tellZero tells the waiters that the counter has become 0, as the commit word c says. It changes the events word, so
// that the waits end, and wakes the waiters. It does nothing if another process has told the waiters. A process that
// wants to change the counter first calls tellZero if no process has told the waiters. So a process that stops in
// tellZero leaves no waiter behind.
//
//	the change to 0, and tellZero         a waiter
//	set commit to 0, with a new ticket    read events: if its ticket has changed, end
//	copy the ticket into events, and      read commit: if the count is 0, end; otherwise set the bit watched
//	add 1 to the sequence of events       sleep while the sequence of events is the same
//	remove the ticket from commit
//	wake the waiters
//
// The counter does not rise before the events word has the ticket of the zero. So a waiter that finds that the
// counter has risen also finds the new ticket.
func (t *counter) tellZero(c counterWord) {
	for {
		// If the CAS fails, another process has changed the events word because of this zero or because of a
		// death. The number of deaths is bounded, so the loop ends.
		e := counterEvents(t.words.events.Load())
		if e.ticket() == c.ticket() {
			break
		}
		if t.load() != c {
			return // another process has told the waiters
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

// tell wakes the waiters after a reap has changed what the dead owe.
func (t *counter) tell() {
	crashpoint.Hit("counter.reap.lost")
	t.recheck()
}

// recheck wakes the waiters because of a death, so that they check the counter again.
func (t *counter) recheck() {
	for {
		// If the CAS fails, another process has changed the events word; see the loop of tellZero.
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

// must panics with err if err is not nil. The calls that return no error use it.
func (t *counter) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (t *counter) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(t.a, t.object, op, err, who, detail)
}

func (t *counter) closed() error { return t.fail(t.op, shmsync.ErrClosed, nil, closedHandle) }

func (t *counter) corrupt(detail string) error {
	return t.fail(t.op, shmsync.ErrCorrupt, nil, detail)
}

// corruptShares returns the error of a call that cannot find the shares.
func (t *counter) corruptShares() error { return t.corrupt("its list of slot records") }

func (t *counter) ownerDead(name arenakernel.ParticipantID) error {
	return t.fail(t.op, shmsync.ErrOwnerDead, t.a.Who(name), "it died and left something undone")
}
