//go:build linux

package prims

import (
	"encoding/binary"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Waiters returns how many goroutines of this process sleep, or are parked, on w.
func (w *SignalWaker) Waiters() int { return w.queue.Waiting() }

// Object returns the object of w.
func (w *SignalWaker) Object() arenakernel.Object { return w.object }

// Announced reports whether a waiter has announced itself.
func (w *SignalWaker) Announced() bool { return w.wakeWord.Announced() }

// WakeSequence returns the sequence of the wake word. It counts the wakes, and wraps.
func (w *SignalWaker) WakeSequence() uint32 { return w.head.wake.Load() >> 1 }

// SetSummary overwrites the summary, and issues no permit.
func (w *SignalWaker) SetSummary(v uint64) { w.head.summary.Store(v) }

// SetGate overwrites the word of a gate.
func (w *SignalWaker) SetGate(q int, v uint64) { w.gates[q].word.Store(v) }

// SetCounts overwrites the numbers of workers and sleepers that this process has registered.
func (w *SignalWaker) SetCounts(workers, sleepers uint64) {
	w.row().count.Store(uint64(w.name) | workers*uint64(countWorker) | sleepers*uint64(countSleeper))
}

// GateWord returns the word of a gate.
func (w *SignalWaker) GateWord(q int) uint64 { return w.gates[q].word.Load() }

// MarkOwnerDead repairs the gates and the index as if each participant for which gone returns true had died.
func (w *SignalWaker) MarkOwnerDead(gone func(arena.ParticipantID) bool) {
	for q := range w.gates {
		w.reapGate(q, gone)
	}
	w.reapIndex()
}

// Repair does what a reaper does after the participant with the ID dead has died.
func (w *SignalWaker) Repair(dead arena.ParticipantID) { repairSignals(w.a, w.object, dead) }

// Scribble overwrites words of w with the bytes of b, until b is used up: first the head, then, for each signal, its
// words, the words of one of its gates, and the counts of one row.
func (w *SignalWaker) Scribble(b []byte) {
	next := func() (v uint64) {
		if len(b) < 8 {
			return 0
		}
		v = binary.LittleEndian.Uint64(b)
		b = b[8:]
		return v
	}
	h := w.head
	h.summary.Store(next())
	h.permits.Store(next())
	h.wake.Store(uint32(next()))
	h.poller.Store(next())
	h.status.Store(next())
	h.partition.Store(next())
	v := next()
	h.lastCPU.Store(uint32(v))
	h.pays.Store(uint32(v >> 32))
	for i := range w.lines {
		if len(b) == 0 {
			return
		}
		w.lines[i].bits.Store(next())
		w.lines[i].tasks.Store(next())
		w.gates[i*signalBits+i%3].word.Store(next())
		w.gates[i*signalBits+i%3].task.Store(uint32(next()))
		w.rows[i%len(w.rows)].count.Store(next())
	}
}

// Unscribble makes all words zero.
func (w *SignalWaker) Unscribble() {
	w.Scribble(nil)
	for i := range w.lines {
		w.lines[i].bits.Store(0)
		w.lines[i].tasks.Store(0)
	}
	for q := range w.gates {
		w.gates[q].word.Store(0)
		w.gates[q].task.Store(0)
	}
	for i := range w.rows {
		w.rows[i].count.Store(0)
	}
}

// SetHead overwrites words that are immutable in a correct SignalWaker.
func (w *SignalWaker) SetHead(config, rows uint32) (oldConfig, oldRows uint32) {
	oldConfig, oldRows = w.head.config, w.head.rows
	w.head.config, w.head.rows = config, rows
	return oldConfig, oldRows
}

// CheckSignals returns the error that Arena.Check reports for w.
func CheckSignals(w *SignalWaker) error { return checkSignals(w.a, w.object) }
