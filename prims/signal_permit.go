package prims

import (
	"context"
	"math"
	"math/bits"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("signal.release.permitted")
	_ = crashpoint.Register("signal.acquire.announced")
	_ = crashpoint.Register("signal.acquire.woken")
	_ = crashpoint.Register("signal.acquire.taken")
)

// Release issues n permits and wakes up to n waiters. It panics if n is negative, or if there would be 2^64 permits or
// more; then it issues none. It never blocks, and makes no system call when nobody sleeps.
//
// In the terminology of the Go memory model, and across processes: Release synchronizes before
// the return of each Acquire that takes one of its permits.
func (w *SignalWaker) Release(n int) {
	w.opening.use()
	if n < 0 {
		w.mistake("Release of %d permits", n)
	}
	if n == 0 {
		return
	}
	if race.Enabled {
		race.ReleaseMerge(w.key)
	}
	if !w.release(n) {
		w.mistake("Release of %d permits: too many permits", n)
	}
}

// release does what Release does, for an n that is greater than 0. If there would be too many
// permits, release issues none and reports false. A caller that releases permits for signals can ignore this result,
// because the permits that exist are more than enough.
func (v *signalView) release(n int) bool {
	for {
		// The CAS fails only if another call has taken or issued a permit, so the loop is lock-free. An addition that
		// wraps and is undone would lose all permits if the process died between the two steps.
		p := v.head.permits.Load()
		if p > math.MaxUint64-uint64(n) {
			return false
		}
		// sync(signal.permit): release
		// lin: Release takes effect here.
		if v.head.permits.CompareAndSwap(p, p+uint64(n)) {
			break
		}
	}
	crashpoint.Hit("signal.release.permitted")
	v.rouse(n)
	return true
}

// rouse wakes up to n waiters after n permits were issued. The announcement in the wake word decides whether the
// first wake is made. The number of further wakes is taken from a hint, the approximate number of sleepers. A hint
// suffices, because each waiter that takes a permit wakes another waiter while there are more permits.
func (v *signalView) rouse(n int) {
	b := v.wakeWakeWord()
	if !b.Announced() {
		return
	}
	if v.queue != nil {
		if !enterLate(v.queue) {
			return
		}
		defer v.queue.Exit()
	}
	park.Tuning{LastCPU: &v.head.lastCPU, Slot: v.a.Self().Slot()}.NoteCPU()
	b.Release()
	if n > 1 {
		for k := range min(n, v.sleepers()) - 1 {
			b.DeliverOne(uint32(k))
		}
	}
}

// TryAcquire takes a permit if there is one, and reports whether it did.
func (w *SignalWaker) TryAcquire() bool {
	w.opening.use()
	return w.take()
}

// take does what TryAcquire does, for a call that checks by itself whether the handle is closed.
func (w *SignalWaker) take() bool {
	for {
		// The CAS fails only if another call has taken or issued a permit, so the loop is lock-free.
		p := w.head.permits.Load()
		if p == 0 {
			return false
		}
		// sync(signal.permit): acquire
		if w.head.permits.CompareAndSwap(p, p-1) {
			if race.Enabled {
				race.Acquire(w.key)
			}
			return true
		}
	}
}

// Acquire takes a permit, and waits until there is one. A worker calls it after Next has found nothing. A permit
// means that there was something to do after that search. But a permit is only a hint, because another worker may
// have done the work since then, and the caller's next search may find nothing. If there is no permit but the
// summary is not empty, Acquire returns without a permit. The caller then calls Next again, which finds a queue or
// clears the stale bits. Acquire panics with an *[shmsync.Error] that Is ErrClosed if this process closes the arena
// meanwhile.
func (w *SignalWaker) Acquire() {
	if w.TryAcquire() {
		return
	}
	if err := w.acquireSlow(nil); err != nil {
		panic(err)
	}
}

// AcquireContext does what Acquire does, but returns ctx.Err() if ctx ends while there is no permit, and an error that
// Is ErrClosed if this process closes the arena. An error means that no permit was taken. If there is a permit,
// AcquireContext takes it even if ctx has ended.
func (w *SignalWaker) AcquireContext(ctx context.Context) error {
	if err := w.opening.error("signalwaker.acquire"); err != nil {
		return err
	}
	if w.take() {
		return nil
	}
	return w.acquireSlow(ctx)
}

// acquireSlow waits for a permit. No wake is lost between the check of the permits and the sleep, for the following
// reason. A waiter announces itself in the wake word, checks the permits, and sleeps only while the word keeps the
// announced value. A process that issues a permit reads the word afterwards, and changes it if a waiter is
// announced. So either the waiter sees the permit, or the process that issues the permit sees the announcement, and
// then the sleep ends or does not begin.
func (w *SignalWaker) acquireSlow(ctx context.Context) error {
	if !w.queue.Enter() {
		return w.fail("signalwaker.acquire", shmsync.ErrClosed, closedHandle)
	}
	defer w.queue.Exit()
	if w.tuning().Spin(func() bool { return w.head.permits.Load() != 0 }) && w.take() {
		return nil
	}
	c := park.CancelBy(ctx)
	defer c.Stop()
	if w.counter(countSleeper, 1) {
		defer w.counter(countSleeper, -1)
	}
	w.add(StatWaiting, 1)
	for {
		word := w.wakeWord.Announce()
		crashpoint.Hit("signal.acquire.announced")
		if w.take() {
			crashpoint.Hit("signal.acquire.taken")
			w.passOn()
			return nil
		}
		if w.SnapshotSummary() != 0 {
			// There is something to do, but another worker has taken the permit for it. That worker may be slow. It
			// may also have taken the permit before it could see that there are waiters, and then it wakes none of
			// them.
			w.passOn()
			return nil
		}
		// A permit, or a wake that was meant for another waiter, may come at the moment when the context ends.
		// Neither must be lost.
		switch w.queue.Sleep(uint32(word), park.SleepSpec{}, &c) {
		case park.Again:
			crashpoint.Hit("signal.acquire.woken")
		case park.Canceled:
			ok := w.take()
			w.passOn()
			if ok {
				return nil
			}
			return c.Err()
		case park.Closed:
			w.passOn()
			return w.fail("signalwaker.acquire", shmsync.ErrClosed, closedHandle)
		}
	}
}

// passOn is called by a waiter that stops waiting. A wake that has come meanwhile has cleared the announcement bit,
// although other waiters may still sleep. So passOn sets the bit again, and wakes a sleeper if there are more permits.
func (v *signalView) passOn() {
	b := v.wakeWakeWord()
	b.Announce()
	if v.head.permits.Load() != 0 {
		b.Release()
	}
}

// Permits returns the number of permits.
func (w *SignalWaker) Permits() uint64 {
	w.opening.use()
	return w.head.permits.Load()
}

// Sleepers returns how many goroutines of all living processes wait for a permit, including workers that called
// RegisterSleeper. It is for tools; no wake depends on it.
func (w *SignalWaker) Sleepers() int {
	w.opening.use()
	return w.sleepers()
}

func (v *signalView) sleepers() (n int) {
	for i := range v.rows {
		if c := signalCount(v.rows[i].count.Load()); c != 0 && c.participant().Slot() == i+1 && v.a.Current(c.participant()) {
			n += c.sleepers()
		}
	}
	return n
}

// RegisterSleeper counts a worker that waits elsewhere, for example in a poll of file descriptors, among the
// sleepers. The worker registers, calls Next once more, and only then waits. The SignalWaker does not wake such a
// worker. The death of the process undoes the registration. RegisterSleeper panics if this process has 1,048,575
// sleepers already.
func (w *SignalWaker) RegisterSleeper() {
	w.opening.use()
	if !w.counter(countSleeper, 1) {
		w.mistake("RegisterSleeper: this process has %d sleepers, and can have no more", maxSleepers)
	}
}

// UnregisterSleeper undoes one RegisterSleeper of this process.
func (w *SignalWaker) UnregisterSleeper() {
	w.opening.use()
	if !w.counter(countSleeper, -1) {
		w.mistake("UnregisterSleeper without RegisterSleeper")
	}
}

// RegisterWorker adds one to the number of workers of this process; see WorkerCount. UnregisterWorker, or the death
// of the process, undoes that. RegisterWorker panics if this process has 32,767 workers already.
func (w *SignalWaker) RegisterWorker() {
	w.opening.use()
	if !w.counter(countWorker, 1) {
		w.mistake("RegisterWorker: this process has %d workers, and can have no more", maxWorkers)
	}
}

// UnregisterWorker undoes one RegisterWorker of this process.
func (w *SignalWaker) UnregisterWorker() {
	w.opening.use()
	if !w.counter(countWorker, -1) {
		w.mistake("UnregisterWorker without RegisterWorker")
	}
}

// WorkerCount returns how many workers the living processes have registered.
func (w *SignalWaker) WorkerCount() (n int) {
	w.opening.use()
	for i := range w.rows {
		if c := signalCount(w.rows[i].count.Load()); c != 0 && w.a.Current(c.participant()) {
			n += c.workers()
		}
	}
	return n
}

// row returns the words that w has for the slot of this participant.
func (w *SignalWaker) row() *signalRow { return &w.rows[w.name.Slot()-1] }

// counter adds the parameter by, which is 1 or -1, to one of the counts of this process, and reports whether it
// could. If the words of the slot still have the counts of its previous participant, these counts become 0 first.
func (w *SignalWaker) counter(what signalCount, by int) bool {
	row := w.row()
	for {
		// The CAS fails only if another goroutine has changed the counts, so the loop is lock-free.
		old := signalCount(row.count.Load())
		c := old
		if c.participant() != w.name {
			c = signalCount(w.name)
		}
		have, most := c.workers(), maxWorkers
		if what == countSleeper {
			have, most = c.sleepers(), maxSleepers
		}
		if have += by; have < 0 || have > most {
			return false
		}
		if by > 0 {
			c += what
		} else {
			c -= what
		}
		if row.count.CompareAndSwap(uint64(old), uint64(c)) {
			return true
		}
	}
}

// restock makes sure that there is a permit for each bit of the summary and of the status word. A dead process may
// have taken a permit without using it, or may not have issued a permit that it had to issue. There will be at least as
// many permits as the parameter least says.
func (v *signalView) restock(least int) {
	need := bits.OnesCount64(v.head.summary.Load()&v.mask) + bits.OnesCount64(v.head.status.Load()&uint64(statusYield|statusTasks))
	need = max(need, least)
	for {
		// The CAS fails only if another call has taken or issued a permit, so the loop is lock-free.
		p := v.head.permits.Load()
		if p >= uint64(need) {
			return
		}
		// sync(signal.permit): release
		if v.head.permits.CompareAndSwap(p, uint64(need)) {
			v.rouse(need - int(p))
			return
		}
	}
}

// ended reports whether the participant n is dead and its process has ended.
func (w *SignalWaker) ended(n arenakernel.ParticipantID) bool { return w.a.Dead(n) && w.a.Gone(n) }

// check is called ten times a second while a goroutine of this process waits for a permit. It completes what a
// stopped or dead process has left undone.
func (w *SignalWaker) check() {
	w.sweep()
	w.restock(0)
	if w.head.permits.Load() != 0 {
		w.wakeWord.WakeOne()
	}
	w.wakeWord.Announce()
}

// sweep examines the next group of gates, and the index, and completes what a stopped or dead process has left undone
// there.
func (w *SignalWaker) sweep() {
	at := int(w.cursor.Add(1)-1) * lookGates % len(w.gates)
	for q := at; q < min(at+lookGates, len(w.gates)); q++ {
		w.reapGate(q, w.ended)
	}
	w.reapIndex()
}

// sweepFirst is the part of Next that makes a sweep ten times a second. The workers of this process may always find
// work, and then none of them waits, so the method check is not called. swept is a flag that a timer clears, because
// reading a clock would make Next noticeably slower.
//
//go:noinline
func (w *SignalWaker) sweepFirst() {
	if !w.swept.CompareAndSwap(false, true) {
		return
	}
	defer w.serve().end()
	w.timer.Reset(park.CheckEvery())
	w.sweep()
}

// lookGates is how many gates one sweep examines.
const lookGates = 256
