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

// MarkYield sets the yield bit of the status word, by which workers tell each other that one of them has yielded.
// If the bit was not set, MarkYield issues a permit, which wakes a sleeping worker. It reports whether this call
// has set the bit.
func (w *SignalWaker) MarkYield() bool {
	w.opening.use()
	return w.markCounted(statusYield)
}

// TryUnmarkYield clears the yield bit, and reports whether this call cleared it. It does not take back the permit
// that MarkYield issued.
func (w *SignalWaker) TryUnmarkYield() bool {
	w.opening.use()
	return w.unmarkStatus(statusYield)
}

// MarkTasks sets the tasks bit of the status word, which means that the worker's partition has tasks. A partition
// is the range of signals that the worker serves. If the bit was not set, MarkTasks issues a permit, which wakes a
// sleeping worker. It reports whether this call has set the bit.
func (w *SignalWaker) MarkTasks() bool {
	w.opening.use()
	return w.markCounted(statusTasks)
}

// markCounted does what markStatus does. Before the permit is issued, another worker may see the bit, go on, and
// close the handle. So Close waits for the call.
func (w *SignalWaker) markCounted(s signalStatus) bool {
	if w.head.status.Load()&uint64(s) != 0 {
		return false
	}
	defer w.serve().end()
	return w.markStatus(s)
}

// TryUnmarkTasks clears the tasks bit, and reports whether this call cleared it. If the partition summary still has
// a signal that may have work, TryUnmarkTasks sets the bit again, issues a permit, and reports false.
func (w *SignalWaker) TryUnmarkTasks() bool {
	defer w.serve().end() // a worker may see the cleared bit, and close the handle, before the bit is set again
	return w.tryUnmarkTasks()
}

// tryUnmarkTasks does what TryUnmarkTasks does, for a call that has called serve.
func (w *SignalWaker) tryUnmarkTasks() bool {
	if !w.unmarkStatus(statusTasks) {
		return false
	}
	crashpoint.Hit("signal.tasks.cleared")
	// sync(signal.tasks): acquire
	if w.head.partition.Load() != 0 {
		w.markStatus(statusTasks)
		return false
	}
	return true
}

// StatusBits reports whether the yield bit and the tasks bit of the status word are set.
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

// Partitions. In a program with partitions, all workers share one waker, and each worker serves only a range of its
// signals. This range is the worker's partition, and the signals in it are the worker's leaves. Each worker also has a
// waker of its own, in which it sleeps. The partition summary in the worker's own waker has a bit for each leaf: bit k
// stands for the k-th signal of the partition. The tasks bit is set while the partition summary has a bit.

// SyncPartitionSummary updates the partition summary of w. The parameter tree is the waker to which the signals of the
// partition belong, or nil for w itself. The signals are those from start up to but not including end, at most 64.
// Afterwards the summary has a bit for each of these signals that is not empty. SyncPartitionSummary reports whether
// the summary has a bit. The worker that owns w calls it before it sleeps. If SyncPartitionSummary removes the
// bit of a signal, it checks the signal once more afterwards, because the signal may have got a bit meanwhile.
func (w *SignalWaker) SyncPartitionSummary(start, end int, tree *SignalWaker) (work bool) {
	w.opening.use()
	if tree == nil {
		tree = w
	}
	tree.opening.use()
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
	if now == 0 && w.head.partition.Or(0) == 0 && w.head.status.Load()&uint64(statusTasks) == 0 {
		return w.head.partition.Load() != 0
	}
	defer w.serve().end() // a worker may see a bit as soon as it changes, and close the handle
	// First add the bits of leaves that have work now, so that no concurrent call misses any of them. Then remove
	// all other bits, one by one, and check the leaf of each removed bit once more.
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
		w.markStatus(statusTasks)
		return true
	}
	w.tryUnmarkTasks()
	return w.head.partition.Load() != 0
}

// MarkPartitionLeafActive records that leaf k of the partition, that is, its k-th signal, may have work, and sets
// the tasks bit. It reports whether no leaf was recorded before. A program that has set a bit in a leaf calls
// MarkPartitionLeafActive on the waker of the worker that owns the leaf.
func (w *SignalWaker) MarkPartitionLeafActive(k int) (wasEmpty bool) {
	m := w.leaf(k)
	defer w.serve().end() // the owner of the partition may close the handle before the tasks bit is set
	// sync(signal.tasks): release
	old := w.head.partition.Or(m)
	crashpoint.Hit("signal.partition.marked")
	w.markStatus(statusTasks)
	return old == 0
}

// ClearPartitionLeaf records that leaf k of the partition, that is, its k-th signal, has no work. If no other leaf
// has work, ClearPartitionLeaf also clears the tasks bit. The worker that owns the partition calls it, and checks
// the leaf once more afterwards.
func (w *SignalWaker) ClearPartitionLeaf(k int) {
	m := w.leaf(k)
	defer w.serve().end()
	if w.head.partition.And(^m)&^m == 0 {
		w.tryUnmarkTasks()
	}
}

// PartitionLeafHasWork reports whether leaf k of the partition, that is, its k-th signal, may have work.
func (w *SignalWaker) PartitionLeafHasWork(k int) bool {
	w.opening.use()
	w.add(StatLeafSummaryChecks, 1)
	return w.head.partition.Load()&w.leaf(k) != 0
}

// PartitionSummary returns the partition summary: bit k is set if leaf k may have work.
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
