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
	_ = crashpoint.Register("sequencer.wait.judged")
)

// tokenCell is one handle's side of a cell of a Sequencer. A cell is a word for every 16th token. The waits of the
// process for tokens of the cell are in a token heap, a priority queue in the memory of the process. One
// [park.Watch] on the word of the cell serves all of them. Up to mostOnWord other waits sleep on that word
// themselves. No lock in shared memory is involved, so a stopped process blocks nobody; see docs/design/0054.
//
// The word of the cell is due if the counter has reached the token that the word announces; see tokenCellState.
//
//	a waiter                               a process that counts
//	cell: not due; token announced         value := value + 1
//	value: not reached yet                 cell: is it due?
//	sleep while the sequence is the same   if so, sequence + 1, by CAS, and wake all
//
// Both sides are sequentially consistent. So either the waiter sees the new count, or the process that
// counts sees the announcement.
type tokenCell struct {
	eventcount
	s *Sequencer

	mu       sync.Mutex
	onWord   [mostOnWord]wordWait // guarded by: mu
	waits    tokenHeap            // guarded by: mu
	arrivals uint64               // guarded by: mu
	turns    sequencerTurns       // guarded by: mu; the tokenWait.turns of every wait in the heap; void if sweep is set
	sweep    bool                 // guarded by: mu; the waits in the heap may differ in tokenWait.turns
	serving  bool                 // guarded by: mu; a goroutine is in serve
	again    bool                 // guarded by: mu; the goroutine in serve has to check the waits once more
	watch    *park.Watch          // only the goroutine in serve uses it
}

// cell returns this process's side of the cell of a token, or nil if the handle is closed.
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
	c.place(s.a, s.object, s.words.cell(i), "sequencer.wait", c.look)
	c.opening = s.opening
	c.queue = park.NewQueue(park.Config{WaitList: c.list, Object: s.object, Word: s.object.Body + c.words.stateOff, All: true, Check: c.check})
	if s.shut {
		park.Refuse(c.queue)
	}
	s.cells[i].Store(c)
	return c
}

// queues returns the queues of the cells that this process uses.
func (s *Sequencer) queues() (all []*park.Queue) {
	for i := range s.cells {
		if c := s.cells[i].Load(); c != nil {
			all = append(all, c.queue)
		}
	}
	return all
}

// refuse makes the handle refuse new waits.
func (s *Sequencer) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	park.Refuse(s.queues()...)
}

// end detaches the handle from the words of the object. A concurrent Increment may have changed the counter and not
// yet checked the cell. The Increment then finds that the handle is closed, and wakes nobody. So end wakes the waiters
// of other processes and of other handles instead.
func (s *Sequencer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	v := s.words.value.Load()
	for i := range s.words.cells {
		var e eventcount
		e.place(s.a, s.object, s.words.cell(i), "sequencer.wait", nil)
		for w := e.load(); tokenCellState(w).due(v); w = e.load() {
			// The CAS fails only if another process has changed the word, so the loop is lock-free.
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

// hit changes the sequence in the word of the cell, and wakes all waiters of the cell so that they check the
// counter. If the word is no longer s, hit does nothing and reports false.
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

// makeLook makes all waiters of the cell check the counter, including those that are about to announce their tokens
// in the word of the cell.
func (c *tokenCell) makeLook() {
	for s := c.load(); ; s = c.load() {
		// hit fails only if another call has changed the word, so the loop is lock-free.
		if c.hit(s) {
			return
		}
	}
}

// hitIfDue calls hit if waiters of the cell have to check the counter, which has become v. The parameter jump is
// the difference between v and the value before.
func (c *tokenCell) hitIfDue(v, jump uint64) {
	for {
		// hit fails only if another call has changed the word, so the loop is lock-free. One successful hit is
		// enough, because a waiter that announces itself later also checks the counter later.
		// sync(sequencer.announce): acquire
		s := c.load()
		if !s.due(v) && !(s.announced() && jump > tokenFar) || c.hit(s) {
			return
		}
	}
}

// look is the periodic check of the waits that sleep on the word of the cell: it wakes them if any of these waits
// is over. A process may have changed the counter, or ended all waits, and then stopped or died before it woke
// them. A waiter that is just about to sleep may miss this wake, but the next check wakes it.
func (c *tokenCell) look() {
	if c.anyOnWordOver() {
		c.wakeAll()
	}
}

// check is called ten times a second while a goroutine of this process waits in the cell. It wakes waiters whose
// wakes were lost.
func (c *tokenCell) check() {
	c.eventcount.check()
	if c.anyInHeapOver() {
		c.serve()
	}
}

// announce makes sure that a wake comes when the counter reaches the token of w. It returns the word on which the
// wait may sleep. ok is false if the wait is over.
func (c *tokenCell) announce(w *tokenWait) (s tokenCellState, ok bool) {
	for {
		// Another iteration means that another call has changed the counter or the word, or that the word was
		// due and this call has changed its sequence.
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
		// The counter may have reached the announced token before the announcement. The announced token is the
		// token of w or a nearer one.
		now := c.s.words.value.Load()
		switch {
		case c.s.isOver(w, now):
			return to, false
		case now-v >= uint64(to.ahead(v)): // this is also the case if a ResetTo has set the counter back
			c.hit(to)
			continue
		}
		return to, true
	}
}

// wakeSequencer wakes the waiters that a dead process may not have woken. The dead process may have changed the
// counter, or ended all waits, without a change of the word of a cell. So wakeSequencer also changes that word.
// Otherwise a waiter that is about to sleep on the old word would not notice.
func wakeSequencer(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	w, err := sequencerAt(a, o)
	if err != nil {
		return
	}
	for i := range w.cells {
		var e eventcount
		e.place(a, o, w.cell(i), "sequencer.wait", nil)
		s := e.load()
		for s.announced() && !e.swap(s, s.next()) {
			// The CAS fails only if another call has changed the word, so the loop is lock-free.
			s = e.load()
		}
		if s.announced() || owed != arenakernel.OwedAnnounced || w.cells[i].poller.Load() != 0 {
			e.list.DeliverAll()
		}
	}
}
