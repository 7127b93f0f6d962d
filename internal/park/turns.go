package park

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// Turns orders the waits of goroutines of this process on the lines of an object. A line is a queue of waits that are
// granted in the order of arrival, so only the first wait of this process on a line can be granted next. This wait has
// the turn: its goroutine polls the node of the wait, and then sleeps until a granter wakes it. The other goroutines
// wait for the turn in the Go runtime. Their nodes stay in state queued, so no granter has to wake them. When a wait
// ends, the next wait on the line gets the turn.
//
// A hand-over inside a process therefore only switches goroutines, and at most one thread of a
// process sleeps in the kernel for each line. All handles of a process share the Turns of an
// object. See docs/design/0034-turns.md.
type Turns struct {
	mu    sync.Mutex
	line  turnLine             // guarded by: mu; the line of the waits without a key
	keyed map[uint64]*turnLine // guarded by: mu; the lines of the waits with a key
	spare *turnLine            // guarded by: mu; an empty line for reuse, or nil
}

// A turnLine contains the waits of this process on one line, ordered by their stamps.
type turnLine struct {
	first, last *WaitNode    // guarded by: Turns.mu
	length      atomic.Int32 // number of waits on the line; written under Turns.mu
	// held is true from the grant of a wait of this line until its hold ends. The next wait cannot be granted
	// before the hold ends, so it gets the turn only then. held is written under Turns.mu.
	held  atomic.Bool
	key   uint64 // the key of the line in Turns.keyed
	keyed bool
}

// Append puts a wait at the end of the line of waits without a key. The caller must still hold the private lock that
// it held when the wait got its place among the waits of all processes. Without this lock, the goroutine of a later
// wait could append its wait first. The later wait would then have the turn, and no goroutine would read the node of
// the earlier one.
func (t *Turns) Append(s *WaitNode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(s, &t.line)
}

// AppendKey does what Append does, for the line of the given key.
func (t *Turns) AppendKey(s *WaitNode, key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.keyed[key]
	if l == nil {
		if l = t.spare; l == nil {
			l = &turnLine{keyed: true}
		}
		if t.keyed == nil {
			t.keyed = map[uint64]*turnLine{}
		}
		l.key, t.spare, t.keyed[key] = key, nil, l
	}
	t.add(s, l)
}

func (t *Turns) add(s *WaitNode, l *turnLine) { // guarded by: mu
	s.turns, s.line, s.since = t, l, 0
	s.ahead, s.behind = l.last, nil
	if l.last == nil {
		l.first = s
		s.turn.Store(!l.held.Load())
	} else {
		l.last.behind = s
		s.turn.Store(false)
	}
	l.last = s
	l.length.Add(1)
}

// OnLine reports whether the wait of s is on a line of [Turns].
func (s *WaitNode) OnLine() bool { return s.turns != nil }

// LeaveLine removes a wait from its line when the wait is over. If the wait was granted, the next wait on the line gets
// the turn when the hold ends, by a call of HoldEnded. Otherwise the next wait gets the turn now.
func (s *WaitNode) LeaveLine(granted bool) {
	t := s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	l, next := s.line, s.behind
	if s.ahead == nil {
		l.first = next
	} else {
		s.ahead.behind = next
	}
	if next == nil {
		l.last = s.ahead
	} else {
		next.ahead = s.ahead
	}
	l.length.Add(-1)
	if granted {
		l.held.Store(true)
	} else if s.ahead == nil && next != nil && !l.held.Load() {
		next.giveTurn()
	}
	s.turns, s.line, s.since, s.ahead, s.behind = nil, nil, 0, nil, nil
	t.tidy(l)
}

// tidy deletes the line of a key if the line has no waits.
func (t *Turns) tidy(l *turnLine) { // guarded by: mu
	if l.keyed && l.first == nil && !l.held.Load() {
		delete(t.keyed, l.key)
		t.spare = l
	}
}

// giveTurn gives the turn to the wait of s, and wakes its goroutine. The wait stays on its line while Turns.mu is held,
// so the goroutine cannot reuse the wait node meanwhile.
func (s *WaitNode) giveTurn() { // guarded by: Turns.mu
	s.turn.Store(true)
	s.look()
}

// HoldEnded gives the turn to the next wait on the line if the hold of a granted wait has ended. It may be called
// for every hold that ends, because a turn that comes too early only costs a poll. But it must not be left out,
// because then the next wait would never get the turn.
func (t *Turns) HoldEnded() {
	if t.line.held.Load() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.end(&t.line)
	}
}

// KeyHoldEnded does what HoldEnded does, for the line of the given key.
func (t *Turns) KeyHoldEnded(key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.keyed[key]; l != nil {
		t.end(l)
	}
}

func (t *Turns) end(l *turnLine) { // guarded by: mu
	l.held.Store(false)
	if l.first != nil {
		l.first.giveTurn()
	}
	t.tidy(l)
}

// Waits returns how many waits are on all lines.
func (t *Turns) Waits() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := int(t.line.length.Load())
	for _, l := range t.keyed {
		n += int(l.length.Load())
	}
	return n
}

// look wakes the goroutine of a wait, so that the goroutine reads its node.
func (s *WaitNode) look() {
	select {
	case s.wake <- struct{}{}:
	default: // the goroutine has been woken already
	}
}

// SleepInTurn does what Sleep does, for a wait on a line. It first waits until the wait has the turn. Then it polls
// the node for a while, and then sleeps. The result awake is true if the wait ended without a sleep. The caller must
// call LeaveLine afterwards.
func (s *WaitNode) SleepInTurn(q *Queue, t Tuning, c *Cancel) (r Result, awake bool) {
	if r, over := s.awaitTurn(q, c); over {
		return r, true
	}
	if s.Resolved() || s.poll(t) {
		return Again, true
	}
	return s.Sleep(q, c), false
}

// awaitTurn waits until the wait of s has the turn. The result over is true if the wait ended before it had the turn;
// then the result r says why.
func (s *WaitNode) awaitTurn(q *Queue, c *Cancel) (r Result, over bool) {
	if s.turn.Load() {
		return Again, false
	}
	// A wait may be granted although other waits of this process are before it on the line, for example if a peer
	// has overwritten the queue. The periodic checks find such a wait.
	s.nodePool.lot.checkPeriodically(q)
	s.since = shmsync.Monotonic()
	s.Node.SetParkedSince(s.since)
	s.in.Store(q) // stored before the call of Closing, because a Close wakes only the waits whose queue is stored here
	var done <-chan struct{}
	if c.ctx != nil {
		done = c.ctx.Done()
	}
	for !s.turn.Load() {
		switch {
		case s.Resolved():
			return Again, true
		case q.Closing():
			return s.giveUp(Closed), true
		case s.Torn(q):
			return s.giveUp(Torn), true
		}
		if done == nil {
			<-s.wake // this is faster than the select below
			continue
		}
		select {
		case <-s.wake:
		case <-done:
			return s.giveUp(Canceled), true
		}
	}
	return Again, false
}

const (
	pollLooks  = 2 // reads of the node in a round, each after a pause
	pollPause  = 8
	pollYields = 6 // reads of the node in a round, each after other goroutines could run

	pollShort = 50_000  // ns: the budget if polls usually fail: about the cost of a sleep and a wake
	pollLong  = 500_000 // ns: the budget if polls usually succeed; longer than a wake takes on a busy machine
	pollPays  = 20_000  // ns: polling is worth its cost if successful polls take at most this long
)

// pollBudget returns the maximum length of the next poll of a node, in ns. If two processes hand a lock over to each
// other and both sleep when their turns come, each hand-over needs a wake. This ends only if one of the processes polls
// for as long as a wake of the other process takes. So the budget is long while polls usually succeed quickly. If they
// usually fail, one poll in probeEvery is long.
func (p payWord) pollBudget() int64 {
	n := p.failures()
	if n < spinGiveUp && payUnit*p.took() <= pollPays || n >= spinGiveUp && n%probeEvery == 0 {
		return pollLong
	}
	return pollShort
}

// pollLimit returns the maximum length of a poll in ns. The parameter b is the word Tuning.Budget of the object. A peer
// may have written any value to this word, so a budget of more than 1 ms counts as 1 ms.
func pollLimit(b uint32, p payWord) int64 {
	if b != 0 {
		return min(int64(b-1), int64(time.Millisecond))
	}
	return p.pollBudget()
}

// poll reads the node until the wait is over or the budget is spent. It reports whether the wait is
// over. Between the reads, it lets other goroutines of the process run, because these may be about
// to join the line. If no other goroutine is on the line, poll spins instead, because yielding is
// slow for a goroutine that is locked to its thread. If the last releaser of another process ran on
// this CPU, poll gives up soon, because that process cannot run while this one polls.
func (s *WaitNode) poll(t Tuning) bool {
	b := t.Budget.Load()
	if b == 1 {
		return false
	}
	if s.line.length.Load() == 1 {
		return t.Spin(s.Resolved)
	}
	limit := pollLimit(b, payWord(t.Pays.Load()))
	if oneCPU() {
		limit = 0
	} else if cpu, _, ok := asm.CPU(); ok && cpuNote(t.LastCPU.Load()).other(t.Slot) == cpu+1 {
		limit = 0
	}
	start := shmsync.Monotonic()
	for {
		if s.pollRound(limit > 0) {
			t.learn(shmsync.Monotonic()-start, true)
			return true
		}
		if spent := shmsync.Monotonic() - start; spent >= limit {
			t.learn(spent, false)
			return false
		}
	}
}

// pollRound reads the node several times, and reports whether the wait is over.
func (s *WaitNode) pollRound(pause bool) bool {
	if pause {
		for range pollLooks {
			asm.Pause(pollPause)
			if s.Resolved() {
				return true
			}
		}
	}
	for range pollYields {
		runtime.Gosched()
		if s.Resolved() {
			return true
		}
	}
	return false
}
