package prims

import (
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("signal.status.marked")
	_ = crashpoint.Register("signal.tasks.cleared")
	_ = crashpoint.Register("signal.partition.marked")
	_ = crashpoint.Register("signal.partition.cleared")
)

// MarkYield sets the yield bit of the status, which means that a worker has yielded. It issues a permit if the
// bit was not set, and reports whether this call has set it.
func (w *SignalWaker) MarkYield() bool {
	w.opening.use()
	return w.markStatus(statusYield)
}

// TryUnmarkYield clears the yield bit, and reports whether this call cleared it. The permit that was issued
// with the bit remains.
func (w *SignalWaker) TryUnmarkYield() bool {
	w.opening.use()
	return w.unmarkStatus(statusYield)
}

// MarkTasks sets the tasks bit of the status, which means that the partition has tasks. It issues a permit if
// the bit was not set, and reports whether this call has set it.
func (w *SignalWaker) MarkTasks() bool {
	w.opening.use()
	return w.markStatus(statusTasks)
}

// TryUnmarkTasks clears the tasks bit, and reports whether this call cleared it. If the summary of the
// partition still has a leaf, TryUnmarkTasks sets the bit again, with a permit, and reports false.
func (w *SignalWaker) TryUnmarkTasks() bool {
	w.opening.use()
	if !w.unmarkStatus(statusTasks) {
		return false
	}
	crashpoint.Hit("signal.tasks.cleared")
	// sync(signal.tasks): acquire
	if w.head.partition.Load() != 0 {
		w.MarkTasks()
		return false
	}
	return true
}

// StatusBits returns both bits.
func (w *SignalWaker) StatusBits() (yield, tasks bool) {
	w.opening.use()
	s := signalStatus(w.head.status.Load())
	return s&statusYield != 0, s&statusTasks != 0
}

func (v *signalView) markStatus(s signalStatus) bool {
	m := uint64(s)
	if v.head.status.Load()&m != 0 || v.head.status.Or(m)&m != 0 {
		return false
	}
	crashpoint.Hit("signal.status.marked")
	v.release(1)
	return true
}

func (v *signalView) unmarkStatus(s signalStatus) bool {
	m := uint64(s)
	return v.head.status.Load()&m != 0 && v.head.status.And(^m)&m != 0
}

// Partitions. In a program with partitions, all workers share one waker, and each worker serves only some of
// its signals: start..end-1. These signals are the worker's leaves. Each worker also has a waker of its own,
// which it sleeps on. The partition summary in the worker's own waker has a bit for each leaf: bit k stands for
// signal start+k of the shared waker. The tasks bit is set while the partition summary has a bit.

// SyncPartitionSummary updates the partition summary of w: afterwards it has a bit for each of the signals
// start..end-1 of tree that has bits. There are at most 64 such signals. SyncPartitionSummary reports whether
// any of them has bits. A nil tree means w itself. The worker that owns w calls it before it sleeps. If a leaf
// gets a bit during the call, a second check finds it.
func (w *SignalWaker) SyncPartitionSummary(start, end int, tree *SignalWaker) (work bool) {
	w.opening.use()
	if tree == nil {
		tree = w
	}
	if start < 0 || end < start || end-start > signalBits || end > tree.Signals() {
		w.mistake("partition %d..%d of %d signals", start, end, tree.Signals())
	}
	w.add(StatLeafSummaryChecks, 1)
	now := uint64(0)
	for k := range end - start {
		if tree.lines[start+k].bits.Load() != 0 {
			now |= 1 << k
		}
	}
	// First add the new leaves, so that no concurrent call misses any of them. Then remove the old leaves, and
	// check each of them once more after that.
	// sync(signal.tasks): release
	old := w.head.partition.Or(now)
	for k, gone := 0, old&^now; gone != 0; k, gone = k+1, gone>>1 {
		if gone&1 == 0 {
			continue
		}
		w.head.partition.And(^(uint64(1) << k))
		crashpoint.Hit("signal.partition.cleared")
		if k < end-start && tree.lines[start+k].bits.Load() != 0 {
			w.head.partition.Or(1 << k)
			now |= 1 << k
		}
	}
	if now != 0 {
		w.add(StatLeafSummaryHits, 1)
		w.MarkTasks()
		return true
	}
	w.TryUnmarkTasks()
	return w.head.partition.Load() != 0
}

// MarkPartitionLeafActive records that leaf k of the partition, counted from its start, may have work, and sets
// the tasks bit. It reports whether no leaf was active before. A program that has set a bit in a leaf calls it
// on the waker of the worker that owns the leaf.
func (w *SignalWaker) MarkPartitionLeafActive(k int) (wasEmpty bool) {
	w.opening.use()
	m := w.leaf(k)
	// sync(signal.tasks): release
	old := w.head.partition.Or(m)
	crashpoint.Hit("signal.partition.marked")
	w.MarkTasks()
	return old == 0
}

// ClearPartitionLeaf records that leaf k has no work. If no other leaf has work, it also clears the tasks bit.
// The worker that owns the partition calls it, and checks the leaf once more afterwards.
func (w *SignalWaker) ClearPartitionLeaf(k int) {
	w.opening.use()
	m := w.leaf(k)
	if w.head.partition.And(^m)&^m == 0 {
		w.TryUnmarkTasks()
	}
}

// PartitionLeafHasWork reports whether leaf k may have work.
func (w *SignalWaker) PartitionLeafHasWork(k int) bool {
	w.opening.use()
	w.add(StatLeafSummaryChecks, 1)
	return w.head.partition.Load()&w.leaf(k) != 0
}

// PartitionSummary returns the partition's summary.
func (w *SignalWaker) PartitionSummary() uint64 {
	w.opening.use()
	return w.head.partition.Load()
}

func (w *SignalWaker) leaf(k int) uint64 {
	if k < 0 || k >= signalBits {
		w.mistake("leaf %d of a partition", k)
	}
	return 1 << k
}
