package prims

import (
	"sync"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("sequencer.count.counted")
	_ = crashpoint.Register("sequencer.count.before_wake")
	_ = crashpoint.Register("sequencer.wait.read")
	_ = crashpoint.Register("sequencer.wait.announced")
	_ = crashpoint.Register("sequencer.wait.looked")
	_ = crashpoint.Register("sequencer.wait.woken")
)

// tokenCell is one handle's side of a cell of a Sequencer. The waits of the process for tokens of the cell are
// in a token heap, in its own memory. One watch on the word of the cell stands for all of them. A few other
// waits sleep on that word themselves. No lock of the arena is involved, so a stopped process blocks nobody.
// docs/design/0054 has the argument.
//
//	a waiter                               a process that counts
//	cell: not due; token announced         value := value + 1
//	value: not reached yet                 cell: is it due?
//	sleep while the sequence is the same   if so, sequence + 1, by CAS, and wake all
//
// Either the waiter sees the count, or the process that counts finds the announcement.
type tokenCell struct {
	eventcount
	s *Sequencer

	mu       sync.Mutex
	onWord   [mostOnWord]wordWait // guarded by: mu
	waits    tokenHeap            // guarded by: mu
	arrivals uint64               // guarded by: mu
	turns    sequencerTurns       // guarded by: mu; those of the waits, unless sweep is set
	sweep    bool                 // guarded by: mu; a wait may have begun with other turns
	serving  bool                 // guarded by: mu; a goroutine is in serve
	again    bool                 // guarded by: mu; that goroutine has to check the waits once more
	watch    *park.Watch          // of the goroutine in serve
}

// cell returns this process's side of the cell of a token, or nil after the end of the handle.
func (s *Sequencer) cell(token uint64) *tokenCell {
	i := int(token % sequencerCells)
	if c := s.cells[i].Load(); c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cells[i].Load(); c != nil || s.over {
		return c
	}
	c := &tokenCell{s: s}
	c.place(s.a, s.object, s.words.places(i), "sequencer.wait", c.look)
	c.opening = s.opening
	c.queue = park.NewQueue(park.Config{WaitList: c.list, Object: s.object, Word: s.object.Body + c.words.stateOff, All: true, Check: c.check})
	if s.shut {
		park.Refuse(c.queue)
	}
	s.cells[i].Store(c)
	return c
}

// queues are those of the cells that this process uses.
func (s *Sequencer) queues() (all []*park.Queue) {
	for i := range s.cells {
		if c := s.cells[i].Load(); c != nil {
			all = append(all, c.queue)
		}
	}
	return all
}

// refuse makes the handle refuse waits.
func (s *Sequencer) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	park.Refuse(s.queues()...)
}

// end takes the words away. If a call of Increment has counted and has not checked the cell yet, it finds the
// handle ended. So end wakes the waiters of other processes and handles in its place.
func (s *Sequencer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	v := s.words.value.Load()
	for i := range s.words.cells {
		var e eventcount
		e.place(s.a, s.object, s.words.places(i), "sequencer.wait", nil)
		for w := e.load(); tokenCellState(w).due(v); w = e.load() {
			// The loop ends: whenever the CAS fails, another process has changed the word.
			if e.swap(w, w.next()) {
				e.list.DeliverAll()
				break
			}
		}
	}
	for _, q := range s.queues() {
		q.Close()
	}
}

func (c *tokenCell) load() tokenCellState { return tokenCellState(c.eventcount.load()) }

func (c *tokenCell) swap(from, to tokenCellState) bool {
	// sync(sequencer.announce): release
	return c.eventcount.swap(eventcountState(from), eventcountState(to))
}

// hit changes the sequence, and wakes all waiters of the cell so that they check the counter. It reports false,
// and does nothing, if the word is no longer s.
func (c *tokenCell) hit(s tokenCellState) bool {
	c.noteCPU(eventcountState(s))
	if !c.swap(s, tokenCellState(eventcountState(s).next())) {
		return false
	}
	if s.announced() {
		crashpoint.Hit("sequencer.count.before_wake")
		c.wakeAll()
	}
	return true
}

// makeLook makes all waiters of the cell check the counter, also those that are about to announce themselves.
func (c *tokenCell) makeLook() {
	for s := c.load(); ; s = c.load() {
		// The loop ends: whenever the CAS fails, another call has changed the word.
		if c.hit(s) {
			return
		}
	}
}

// hitIfDue calls hit if waiters of the cell have to check the counter, which has become v. jump is the
// difference to its value before.
func (c *tokenCell) hitIfDue(v, jump uint64) {
	for {
		// The loop ends: whenever the CAS fails, another call has changed the word. One that succeeds suffices: a later
		// announcement follows a look at the counter.
		// sync(sequencer.announce): acquire
		s := c.load()
		if !s.due(v) && !(s.announced() && jump > tokenFar) || c.hit(s) {
			return
		}
	}
}

// look makes the wakes of a process that has counted, or has ended all waits, and was stopped or died before it woke
// the waiters. A waiter that is just about to sleep misses this wake, but the next check wakes it.
func (c *tokenCell) look() {
	if c.anyOnWordOver() {
		c.wakeAll()
	}
}

// check is called ten times a second while a goroutine of this process waits in the cell.
func (c *tokenCell) check() {
	c.eventcount.check()
	if c.anyInHeapOver() {
		c.serve()
	}
}

// announce makes sure that a wake comes when the counter reaches the token of w. It returns the word on which
// the wait may sleep. ok is false if the wait is over.
func (c *tokenCell) announce(w *tokenWait) (s tokenCellState, ok bool) {
	for {
		// The loop ends: each iteration follows a change by another call, or makes one that is due.
		s, v := c.load(), c.s.words.value.Load()
		switch {
		case c.s.isOver(w, v):
			return s, false
		case s.due(v):
			c.hit(s)
			continue
		}
		crashpoint.Hit("sequencer.wait.read")
		to := s.announce(w.token, v)
		if to != s && !c.swap(s, to) {
			continue
		}
		crashpoint.Hit("sequencer.wait.announced")
		// The count that reaches the token, or the nearer one that stands for it, may have come before the announcement.
		now := c.s.words.value.Load()
		switch {
		case c.s.isOver(w, now):
			return to, false
		case now-v >= uint64(to.ahead(v)): // or the counter was set back
			c.hit(to)
			continue
		}
		return to, true
	}
}

// wakeSequencer makes the wakes that a dead process did not make. The dead process may have counted, or ended
// all waits, without a change of the word of a cell. So wakeSequencer changes the words: a waiter may be about
// to sleep.
func wakeSequencer(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	w, err := arenakernel.TryAt[sequencerWords](a, o.Body)
	if err != nil {
		return
	}
	for i := range w.cells {
		var e eventcount
		e.place(a, o, w.places(i), "sequencer.wait", nil)
		s := e.load()
		for s.announced() && !e.swap(s, s.next()) {
			// The loop ends: whenever the CAS fails, another call has changed the word.
			s = e.load()
		}
		if s.announced() || owed != arenakernel.OwedAnnounced || w.cells[i].poller.Load() != 0 {
			e.list.DeliverAll()
		}
	}
}
