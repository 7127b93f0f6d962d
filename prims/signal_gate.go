package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("signal.schedule.gated")
	_ = crashpoint.Register("signal.publish.bit_set")
	_ = crashpoint.Register("signal.begin.taken")
	_ = crashpoint.Register("signal.begin.cleared")
	_ = crashpoint.Register("signal.finish.released")
	_ = crashpoint.Register("signal.drop.cleared")
)

// Gate is a handle on the gate of one queue. Any number of producers schedule the queue. At most one worker at a
// time executes it. The handle that began an execution has to finish it. A copy of that handle may finish it
// instead, if the handle itself is not used any more.
//
// The compare-and-swap that chooses the executor also writes the executor's ID into the gate. So if a process dies
// at any instruction, the gate is still scheduled, or it names that process as its executor; see [SignalWaker].
type Gate struct {
	w       *SignalWaker
	queue   uint32
	running signalGateWord // the gate word of the execution that this handle began; 0 if there is none
}

// Gate returns a handle on the gate of a queue. Gate is small enough to be inlined, so that the handle need not
// be on the heap.
func (w *SignalWaker) Gate(queue int) *Gate {
	if uint(queue) >= uint(len(w.gates)) {
		w.noSuchQueue(queue)
	}
	return &Gate{w: w, queue: uint32(queue)}
}

// Queue returns the number of the gate's queue.
func (g *Gate) Queue() int { return int(g.queue) }

func (g *Gate) word() *signalGate {
	g.w.opening.use()
	return &g.w.gates[g.queue]
}

func (g *Gate) key() race.Key { return g.w.key + race.Key(g.queue+1)*gateKeyStep }

// gateKeyStep is the distance between the keys by which the race detector knows two neighbouring gates.
const gateKeyStep = 0x9e3779b97f4a7c15

// Schedule announces that there is something in the queue. The caller has put it there before, by an atomic store or
// under a lock. Schedule reports whether this call has made the queue scheduled. The result is false if the queue was
// scheduled already. The result is also false if a worker executes the queue; then the Finish of that worker schedules
// the queue again. Schedule never blocks, and makes no system call if no worker sleeps. If the queue is scheduled
// already, Schedule only executes a fence and loads the gate twice.
func (g *Gate) Schedule() bool {
	gate := g.word()
	for {
		// Another iteration means that another call has changed the word since this call loaded it, so the loop is
		// lock-free.
		s := signalGateWord(gate.word.Load())
		if race.Enabled {
			race.ReleaseMerge(g.key())
		}
		if s.scheduled() {
			if fence(); signalGateWord(gate.word.Load()) == s {
				return false
			}
			continue
		}
		if !s.executing() {
			return g.scheduleIdle(gate)
		}
		// sync(signal.schedule): release
		// lin: Schedule takes effect here, or in the method scheduleIdle.
		if gate.word.CompareAndSwap(uint64(s), uint64(s.schedule())) {
			return false // the Finish of the executor finds the bit scheduled set
		}
		g.w.add(StatCASFailures, 1)
	}
}

// scheduleIdle does what Schedule does, for a queue that no worker executes. Before the bits are set, a worker may
// begin the execution, and then close the handle. So Close waits for the call.
func (g *Gate) scheduleIdle(gate *signalGate) bool {
	if q := g.w.queue; q.Enter() {
		made := g.scheduleCounted(gate)
		q.Exit()
		return made
	}
	defer g.w.serve().end()
	return g.scheduleCounted(gate)
}

func (g *Gate) scheduleCounted(gate *signalGate) bool {
	for {
		// The loop is lock-free for the same reason as the loop of Schedule.
		s := signalGateWord(gate.word.Load())
		if s.scheduled() {
			if fence(); signalGateWord(gate.word.Load()) == s {
				return false
			}
			continue
		}
		// sync(signal.schedule): release
		if gate.word.CompareAndSwap(uint64(s), uint64(s.schedule())) {
			if s.executing() {
				return false
			}
			crashpoint.Hit("signal.schedule.gated")
			g.w.publish(int(g.queue))
			return true
		}
		g.w.add(StatCASFailures, 1)
	}
}

// publish sets the bit of a queue, and the bit of its signal in the summary. It sets the summary bit even if
// the signal already had bits: the process that set the signal's first bit may have been stopped before it set
// the summary bit.
func (v *signalView) publish(q int) {
	i := q / signalBits
	// sync(signal.summary): release
	v.lines[i].bits.Or(1 << (q % signalBits))
	crashpoint.Hit("signal.publish.bit_set")
	v.mark(i)
}

// Begin begins the execution of a scheduled queue, and reports whether it did. If it did, the caller executes the
// queue until Finish. If several callers try at the same time, exactly one succeeds. A program usually calls Begin
// after it has cleared the queue's bit in its signal, but Begin does not require that.
func (g *Gate) Begin() bool {
	gate := g.word()
	for {
		// The CAS fails only if another call has begun the execution or set the bit named scheduled, so the loop is
		// lock-free.
		s := signalGateWord(gate.word.Load())
		if !s.ready() {
			return false
		}
		next := s.begin(g.w.name)
		// sync(signal.schedule): acquire
		// sync(signal.finish): acquire
		// lin: Begin takes effect here. The CAS writes the executor's ID together with the bit named executing. Only
		// after that, the method clear changes the queue's bit in its signal. If the process dies after the CAS, the
		// gate names it as the executor.
		if gate.word.CompareAndSwap(uint64(s), uint64(next)) {
			g.begun(next)
			crashpoint.Hit("signal.begin.taken")
			// The first atomic load in the method clear keeps later loads of the caller after the CAS. So Begin
			// need not call orderLoads.
			g.w.clear(int(g.queue))
			crashpoint.Hit("signal.begin.cleared")
			return true
		}
		g.w.add(StatCASFailures, 1)
	}
}

// TryBeginInline begins the execution of a queue that is idle, and reports whether it did. It is
// for a producer that processes its own item at once.
func (g *Gate) TryBeginInline() bool {
	gate := g.word()
	s := signalGateWord(gate.word.Load())
	if !s.idle() {
		return false
	}
	next := s.begin(g.w.name)
	// sync(signal.finish): acquire
	if !gate.word.CompareAndSwap(uint64(s), uint64(next)) {
		g.w.add(StatCASFailures, 1)
		return false
	}
	g.begun(next)
	return true
}

func (g *Gate) begun(next signalGateWord) {
	g.running = next
	if race.Enabled {
		race.Acquire(g.key())
	}
	g.w.add(StatTasksPolled, 1)
}

// Finish ends the execution that this handle began. It reports whether the queue is scheduled again because a
// producer scheduled it in the meantime. Finish panics if this handle executes nothing. So a second Finish
// panics instead of ending the execution of another worker.
func (g *Gate) Finish() (again bool) { return g.finish(false) }

// FinishAndSchedule ends the execution that this handle began, and schedules the queue again. It is for a worker
// that has left something in the queue.
func (g *Gate) FinishAndSchedule() { g.finish(true) }

func (g *Gate) finish(again bool) bool {
	gate := g.word()
	if again || race.Enabled || g.w.counting {
		return g.finishCounted(gate, again)
	}
	s := signalGateWord(gate.word.Load())
	// If no producer has scheduled the queue, the CAS is all that there is to do.
	// sync(signal.finish): release
	if g.running == 0 || s != g.running || !gate.word.CompareAndSwap(uint64(s), uint64(s.finish(false))) {
		return g.finishCounted(gate, false)
	}
	g.running = 0
	return false
}

// finishCounted does what finish does, if the call has to schedule the queue again, or has to count. Another worker may
// go on and close the handle before the call is complete. So Close waits for the call.
func (g *Gate) finishCounted(gate *signalGate, again bool) bool {
	defer g.w.serve().end()
	running := g.running
	for {
		// The CAS fails at most once, because during an execution producers can only set the bit named scheduled.
		s := signalGateWord(gate.word.Load())
		if running == 0 || s&^gateScheduled != running {
			g.w.mistake("Finish of queue %d by a handle that does not execute it: the gate is %v", g.queue, s)
		}
		next := s.finish(again)
		if race.Enabled {
			race.ReleaseMerge(g.key())
		}
		// sync(signal.finish): release
		if gate.word.CompareAndSwap(uint64(s), uint64(next)) {
			g.running = 0
			g.ended(next.scheduled(), again)
			return next.scheduled()
		}
		g.w.add(StatCASFailures, 1)
	}
}

func (g *Gate) ended(scheduled, yielded bool) {
	switch {
	case yielded:
		g.w.add(StatYielded, 1)
	case !scheduled:
		g.w.add(StatCompleted, 1)
	}
	if scheduled {
		crashpoint.Hit("signal.finish.released")
		g.w.publish(int(g.queue))
	}
}

// clear clears the bit of a queue that the caller executes. If that was the last set bit of the signal, clear also
// clears the signal's bit in the summary. That is safe because no process needs to set the queue's bit before the
// execution ends.
func (v *signalView) clear(q int) {
	i, m := q/signalBits, uint64(1)<<(q%signalBits)
	line := &v.lines[i]
	if line.bits.Load()&m != 0 && line.bits.And(^m)&^m == 0 {
		v.unmarkIfEmpty(i)
	}
}

// drop clears the bit of a queue whose gate does not wait for an executor. Such a needless bit exists if a reap or
// a late producer has set it, or if the executor has not cleared it yet. The gate may become scheduled just before
// drop clears the bit, and then the bit is needed. So drop checks the gate once more after it has cleared the bit.
func (v *signalView) drop(q int) {
	i, m := q/signalBits, uint64(1)<<(q%signalBits)
	left := v.lines[i].bits.And(^m) &^ m
	crashpoint.Hit("signal.drop.cleared")
	if signalGateWord(v.gates[q].word.Load()).ready() {
		v.publish(q)
	} else if left == 0 {
		v.unmarkIfEmpty(i)
	}
}

// dropCounted does what drop does. As soon as drop has set the bit again, another worker may go on, and close the
// handle. So Close waits for the call.
func (w *SignalWaker) dropCounted(q int) {
	defer w.serve().end()
	w.drop(q)
}

// GateState is the state of a gate at one moment.
type GateState struct {
	Scheduled bool              // something is, or was, in the queue
	Executing bool              // a worker executes the queue
	Executor  *shmsync.Identity // the process of the worker that executes the queue, if it is known
	Epoch     uint32            // counts the executions, and wraps
}

// State returns the state of the gate.
func (g *Gate) State() GateState {
	s := signalGateWord(g.word().word.Load())
	st := GateState{Scheduled: s.scheduled(), Executing: s.executing(), Epoch: s.epoch()}
	if s.executing() {
		st.Executor = g.w.a.Who(s.participant())
	}
	return st
}

// String renders the state.
func (g *Gate) String() string {
	return signalGateWord(g.word().word.Load()).String()
}
