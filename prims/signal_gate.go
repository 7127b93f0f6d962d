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

// Gate is a handle on the gate of one queue. Any number of producers schedule the queue; one
// worker at a time executes it. The handle that began an execution, or a copy that replaces it,
// has to finish the execution.
//
// The compare-and-swap that chooses the executor also writes the executor's ID into the gate. So
// a death at any instruction leaves a gate that is scheduled, or a gate that names its dead
// executor; see [SignalWaker].
type Gate struct {
	w       *SignalWaker
	queue   uint32
	running signalGateWord // word of the execution that this handle began; 0 if none
}

// Gate returns a handle on the gate of a queue. It is inlined, so that the handle need not be on
// the heap.
func (w *SignalWaker) Gate(queue int) *Gate {
	if uint(queue) >= uint(len(w.gates)) {
		w.noSuchQueue(queue)
	}
	return &Gate{w: w, queue: uint32(queue)}
}

// Queue is the number of the gate's queue.
func (g *Gate) Queue() int { return int(g.queue) }

func (g *Gate) word() *signalGate {
	g.w.opening.use()
	return &g.w.gates[g.queue]
}

func (g *Gate) key() race.Key { return g.w.key + race.Key(g.queue+1)*gateKeyStep }

// gateKeyStep separates the keys of gates for the race detector.
const gateKeyStep = 0x9e3779b97f4a7c15

// Schedule says that there is something in the queue. The caller has published it by an atomic
// store, or under a lock. Schedule reports whether this call has made the queue scheduled. The
// result is false if the queue was scheduled already. It is also false if a worker executes the
// queue; then the Finish of that worker schedules it again. Schedule never blocks. If the queue
// is scheduled, the call costs one load. It makes no system call if no worker sleeps.
func (g *Gate) Schedule() bool {
	gate := g.word()
	for {
		// The loop ends: whenever the CAS fails, another call has succeeded, and of such calls
		// only the end of an execution leaves the queue unscheduled.
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
		// sync(signal.schedule): release
		// lin: Schedule takes effect here.
		if gate.word.CompareAndSwap(uint64(s), uint64(s.schedule())) {
			if s.executing() {
				return false // its executor will find the flag
			}
			crashpoint.Hit("signal.schedule.gated")
			g.w.publish(int(g.queue))
			return true
		}
		g.w.add(StatCASFailures, 1)
	}
}

// publish sets the bit of a queue, and the bit of its signal in the summary. It sets the second
// bit in any case: the process that set the signal's first bit may be stopped before it reached
// the summary.
func (v *signalView) publish(q int) {
	i := q / signalBits
	// sync(signal.summary): release
	v.lines[i].bits.Or(1 << (q % signalBits))
	crashpoint.Hit("signal.publish.bit_set")
	v.mark(i)
}

// Begin begins the execution of a scheduled queue, and reports whether the caller is its executor
// from here on, until Finish. If several callers try, one succeeds. A program calls it after it
// has acquired the queue's bit, but Begin does not need the bit.
func (g *Gate) Begin() bool {
	gate := g.word()
	for {
		// The loop ends: whenever the CAS fails, another call has begun the execution or set the
		// flag.
		s := signalGateWord(gate.word.Load())
		if !s.ready() {
			return false
		}
		next := s.begin(g.w.name)
		// sync(signal.schedule): acquire
		// sync(signal.finish): acquire
		// lin: Begin takes effect here. The name is written together with the flag, and before
		// the bit is cleared: if the process dies here, the gate says that it was the executor.
		if gate.word.CompareAndSwap(uint64(s), uint64(next)) {
			g.begun(next)
			crashpoint.Hit("signal.begin.taken")
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

// Finish ends the execution that this handle began. It reports whether the queue is scheduled
// again, because a producer scheduled it in the meantime. It panics if this handle executes
// nothing. So a second Finish panics, and never ends the execution of another worker.
func (g *Gate) Finish() (again bool) { return g.finish(false) }

// FinishAndSchedule ends the execution and schedules the queue again. It is for a worker that has
// left something in the queue.
func (g *Gate) FinishAndSchedule() { g.finish(true) }

func (g *Gate) finish(again bool) bool {
	gate, running := g.word(), g.running
	for {
		// The loop ends: during an execution a producer can set one flag, once.
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

// clear clears the bit of a queue that the caller executes. If that was the signal's last bit, it
// clears the signal's bit in the summary. Nobody has a reason to set the bit before the execution
// ends.
func (v *signalView) clear(q int) {
	i, m := q/signalBits, uint64(1)<<(q%signalBits)
	line := &v.lines[i]
	if line.bits.Load()&m != 0 && line.bits.And(^m)&^m == 0 {
		v.unmarkIfEmpty(i)
	}
}

// drop clears a bit whose gate does not wait for an executor: a reap or a late producer may have set the bit,
// or the executor has not cleared it yet. Just before drop clears the bit, the gate may become scheduled, so
// that the bit is needed. So drop checks the gate once more afterwards.
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

// GateState is the state of a gate at one moment.
type GateState struct {
	Scheduled bool              // something is in the queue, or was
	Executing bool              // a worker executes it
	Executor  *shmsync.Identity // the worker's process, if it is known
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
