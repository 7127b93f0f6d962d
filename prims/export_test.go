//go:build linux

package prims

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Functions for the tests of package prims_test.

// Waiters returns how many goroutines of this process sleep or are parked while they wait for m.
func (m *Mutex) Waiters() int { return m.queue.Waiting() }

// Spinners returns how many goroutines of this process count as spinning for m.
func (m *Mutex) Spinners() int { return int(m.variant.spinners.Load()) }

// Parked returns how many goroutines of this process are parked while they wait for m. A release hands them the lock
// without a system call.
func (m *Mutex) Parked() int { return m.queue.Parked() }

// Oldest returns the time at which the longest parked goroutine of this process began to wait.
func (m *Mutex) Oldest() int64 { return m.queue.Oldest() }

// NextIsLocal makes the next release prefer goroutines of this process.
func (m *Mutex) NextIsLocal() { m.turns.Store(1) }

// Granted returns the number of goroutines for which m was reserved and that have not tried to take m yet.
func (m *Mutex) Granted() int { return int(m.granted.Load()) }

// NextIsForAll makes the next release wake waiters of any process.
func (m *Mutex) NextIsForAll() { m.turns.Store(0) }

// WakeWord returns the value of the wake word.
func (m *Mutex) WakeWord() uint32 { return m.words.wake.Load() }

// Starving returns the participant that asks for a handoff of m, because one of its waiters has waited long, or 0.
func Starving(m *Mutex) uint32 { return m.words.starving.Load() }

// WakeInVain wakes the waiters of m, which is held.
func WakeInVain(m *Mutex) { m.wakeWord.WakeAll() }

// AskFor asks for a handoff of m in the name of participant n, as a waiter of n does that has waited long.
func (m *Mutex) AskFor(n arena.ParticipantID) { m.words.starving.Store(uint32(n)) }

// StarveAfter is how long a waiter waits in vain before it is handed the lock, in nanoseconds.
const StarveAfter = starveAfter

// OwnerWord returns the value of the owner word.
func (m *Mutex) OwnerWord() uint32 { return m.owner.Load() }

// HeldByUs reports whether the owner word says that this process holds m, or
// recovers it.
func (m *Mutex) HeldByUs() bool {
	o := ownerWord(m.owner.Load())
	return o.held() && o.participant() == m.name
}

// Check does what the periodic checks do.
func (f *Futex) Check() { f.check() }

// Waiters returns how many goroutines of this process sleep or are parked while they wait for f.
func (f *Futex) Waiters() int { return f.queue.Waiting() }

// Closing reports whether the handle is being closed.
func (m *Mutex) Closing() bool      { return m.queue.Closing() }
func (l *SpinLock) Closing() bool   { return l.core.queue.Closing() }
func (l *RWSpinLock) Closing() bool { return l.drainQueue.Closing() }

// Closing reports whether the handle f is being closed.
func (f *Futex) Closing() bool { return f.queue.Closing() }

// Describe renders the words of an object of this package.
func Describe(a *arena.Arena, o arenakernel.Object) string {
	return (*arenakernel.Arena)(a).Describe(o)
}

// Object returns the object of m.
func (m *Mutex) Object() arenakernel.Object { return m.object }

// Rewrite overwrites the words of a Mutex or a Futex with the bytes of b, even with values that no correct
// participant writes. Words for which b has no bytes stay as they are.
func Rewrite(a *arena.Arena, o arenakernel.Object, b []byte) {
	switch o.Kind {
	case mutexKind:
		w := arena.At[mutexWords](a, o.Body)
		words := []*atomic.Uint32{&w.owner, &w.wake, &w.starving, &w.handoff, nil, &w.died, &w.spin, &w.lastCPU, &w.pays}
		for _, word := range words {
			v, ok := next32(&b)
			switch {
			case !ok:
			case word == nil:
				w.policy = v
			default:
				word.Store(v)
			}
		}
		if len(b) >= 8 {
			w.poller.Store(binary.LittleEndian.Uint64(b))
		}
	case futexKind:
		w := arena.At[futexWords](a, o.Body)
		lo, _ := next32(&b)
		hi, ok := next32(&b)
		if ok {
			w.state.Store(uint64(hi)<<32 | uint64(lo))
		}
		for _, word := range []*atomic.Uint32{&w.lastCPU, &w.spin, &w.pays} {
			if v, ok := next32(&b); ok {
				word.Store(v)
			}
		}
		if len(b) >= 8 {
			w.poller.Store(binary.LittleEndian.Uint64(b))
		}
	}
}

func next32(b *[]byte) (v uint32, ok bool) {
	if len(*b) < 4 {
		return 0, false
	}
	v = binary.LittleEndian.Uint32(*b)
	*b = (*b)[4:]
	return v, true
}

// RollBackStale does what a late reaper does: the reaper has read the owner word o of m some time ago, was
// stopped, and resumes now.
func (m *Mutex) RollBackStale(o uint32) (changed bool) {
	return rollBackMutex(m.a, m.object, m.words, m.log, ownerWord(o))
}

// LogState returns the state of the undo log of m.
func (m *Mutex) LogState() uint64 { return uint64(m.log.state()) }

// Object returns the object of f.
func (f *Futex) Object() arenakernel.Object { return f.object }

// Queued returns how many waits are in the queue of s, or -1 if the queue is damaged.
func (s *Semaphore) Queued() (n int) {
	b := takeWakes()
	defer s.wake(b)
	s.private.Lock()
	defer s.private.Unlock()
	for {
		x := &s.scratch
		if s.begin(x, b) != nil {
			return -1
		}
		n = 0
		for w, ok := s.head(x); ok; n++ {
			next := x.get(w.Next())
			if next == arenakernel.RecordedLast {
				w, ok = wait{}, false
				continue
			}
			w, ok = s.waitAt(x, next)
		}
		if s.load() == x.c {
			if x.torn {
				return -1
			}
			return n
		}
	}
}

// Ends returns the words that name the first and the last wait of the queue.
func (q *recordQueue) Ends() (first, last *atomic.Uint64) { return q.first, q.last }

// Ends returns the words that name the first and the last wait of the queue.
func (c *Cond) Ends() (first, last *atomic.Uint64) { return c.core.Ends() }

// HasRecordOf reports whether the handle x knows the record of a slot.
func (x *Barrier) HasRecordOf(slot int) bool { return x.slotOf(slot) != nil }

// Check does what the poller does after a death, if a goroutine of this process waits for x.
func (x *Waitable[S, E]) Check() { x.check() }

// Object returns the object of x.
func (x *Waitable[S, E]) Object() arenakernel.Object { return x.object }

// Queued returns how many waits are in the queue of x.
func (x *Waitable[S, E]) Queued() int {
	b := takeWakes()
	defer x.wake(b)
	for {
		var c recordedChange
		if err := x.begin(&c, b); err != nil {
			return -1
		}
		n := 0
		for v := c.get(x.first); v != 0; n++ {
			w, ok := x.waitAt(&c, v)
			if !ok {
				break
			}
			v = firstAfter(c.get(w.Next()))
		}
		if x.load() == c.c {
			return n
		}
	}
}

// QueuedBehind returns how many waits are behind the first wait for e in the queue of x.
func (x *Waitable[S, E]) QueuedBehind(e E) (n int) {
	for v := valueIn(x.first); v >= arenakernel.RecordedFirst; {
		node, next, ok := x.queuedAt(v)
		if !ok {
			return 0
		}
		if v = next.value(); n > 0 || node.Wanted().Load() == x.pack(e) {
			n++
		}
	}
	return n - 1
}

// RemoveDead removes the waits of one participant from the queue of x, as the reap of a dead participant does. The
// result is true if a later reap has to remove more waits.
func (x *Waitable[S, E]) RemoveDead(id arenakernel.ParticipantID) (again bool) {
	b := takeWakes()
	defer x.wake(b)
	x.private.Lock()
	defer x.private.Unlock()
	x.without = id
	defer func() { x.without = 0 }()
	return x.beginReap(&x.scratch, b) != nil || x.unreaped.Load()
}

// BeginsWithMutex reports whether the bodies of objects of a kind begin with the words of a Mutex.
func BeginsWithMutex(k arena.Kind) bool {
	return slices.Contains([]arena.Kind{mutexKind, cohortKind, rwmutexKind, synchronizedKind}, k)
}

// QueuedAt returns how many waits are in the queues of an object.
func QueuedAt(a *arena.Arena, o arenakernel.Object) (n int) {
	if Queueless(o) {
		return waitsOf(a, o)
	}
	(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, node *arenakernel.Node) {
		// A node that is prepared and not queued yet does not count.
		if queued(node.Load()) && queuedValue(valueIn(node.Next())) {
			n++
		}
	})
	return n
}

// Core returns the part of c that all handles of this process on the same object share.
func (c *Cond) Core() any { return c.core }

// First returns the node of the first wait in the queue of c, or nil.
func (c *Cond) First() *arenakernel.Node {
	n, _ := c.core.a.NodeAt(arenakernel.Offset(valueIn(&c.core.words.first)) * linkUnit)
	return n
}

// OverwriteFirst overwrites the word that names the first wait of the queue.
func (c *Cond) OverwriteFirst(v uint32) { c.core.words.first.Store(uint64(makeRecorded(v, 7))) }

// Flying returns the number of waits that a Broadcast has woken and whose owners have not locked L again.
func (c *Cond) Flying() uint32 { return valueIn(&c.core.words.flying) }

// ReapAfter reaps as if a participant had died. The result is true if the reap stores the count of deaths first, and
// lists the wait nodes of dead participants after that.
func (c *Cond) ReapAfter() (stored bool) {
	k := c.core
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	k.deaths.Store(k.a.Deaths() - 1)
	k.reap(&k.scratch, b, func() []arenakernel.Offset {
		stored = k.deaths.Load() == k.a.Deaths()
		return k.nodesOfAllDead()
	})
	return stored
}

// Object returns the object of c.
func (c *Cond) Object() arenakernel.Object { return c.core.object }

// Object returns the object of f.
func (f *Future) Object() arenakernel.Object { return f.object }

// BodyOf returns a copy of the body of an object.
func BodyOf(a *arena.Arena, o arenakernel.Object) []uint64 {
	b := make([]uint64, o.Size/8)
	for i := range b {
		b[i] = arena.At[atomic.Uint64](a, o.Body+arena.Offset(8*i)).Load()
	}
	return b
}

// Restore writes a copy of a body back into the object.
func Restore(a *arena.Arena, o arenakernel.Object, b []uint64) {
	for i, v := range b {
		arena.At[atomic.Uint64](a, o.Body+arena.Offset(8*i)).Store(v)
	}
}

// ScribbleAny writes one word of an object or of one of its nodes, as a faulty peer might.
func ScribbleAny(a *arena.Arena, o arenakernel.Object, r *rand.Rand) {
	var nodes []*arenakernel.Node
	var offs []arena.Offset
	(*arenakernel.Arena)(a).EachNode(o.Offset, func(off arena.Offset, n *arenakernel.Node) {
		nodes, offs = append(nodes, n), append(offs, off)
	})
	v := r.Uint64()
	switch r.IntN(4) {
	case 0:
		v = uint64(r.IntN(100))
	case 1:
		if len(offs) > 0 {
			v = uint64(offs[r.IntN(len(offs))])
		}
	case 2:
		v = uint64(makeRecorded(r.Uint32(), r.Uint32()))
		if len(offs) > 0 {
			v = uint64(makeRecorded(uint32(offs[r.IntN(len(offs))]/linkUnit), r.Uint32N(100)))
		}
	}
	if len(nodes) > 0 && r.IntN(2) == 0 {
		n := nodes[r.IntN(len(nodes))]
		[]*atomic.Uint64{n.Next(), n.Wanted(), n.Stamp(), n.Extra()}[r.IntN(4)].Store(v)
		return
	}
	arena.At[atomic.Uint64](a, o.Body+arena.Offset(8*r.IntN(int(min(o.Size, 512)/8)))).Store(v)
}

// Object returns the object of s.
func (s *Semaphore) Object() arenakernel.Object { return s.object }

// Head returns the first wait in the queue of s.
func (s *Semaphore) Head() (off arena.Offset, n *arenakernel.Node) {
	v := valueIn(s.first)
	if v == 0 {
		return 0, nil
	}
	off = arena.Offset(v) * linkUnit
	n, _ = s.a.NodeAt(arenakernel.Offset(off))
	return off, n
}

// Ended reports whether Close has made the calls of the handle fail.
func (x *Waitable[S, E]) Ended() bool { return x.opening.ended.Load() }

// Closing reports whether a Close of the handle has begun.
func (s *Synchronized[T]) Closing() bool { return s.lock.opening.closing.Load() }

// Closing reports whether Close was called.
func (x *Barrier) Closing() bool { return x.queue.Closing() }

// Closing reports whether l is being closed.
func (l *Latch) Closing() bool { return l.counter.opening.closing.Load() }

// Calls returns the number of calls for which Close would wait.
func (l *Latch) Calls() int { return l.counter.queue.Waiting() }

// Closing reports whether m is being closed.
func (m *RWMutex) Closing() bool { return m.opening.closing.Load() }

// Refuses reports whether the Close of m has got so far that m refuses new waits of writers.
func (m *RWMutex) Refuses() bool { return m.writer.Closing() }

// WakeOwed makes the wakes that calls have left to the Close of their handle. It returns the values of the writers' wake
// word before and after these wakes.
func (m *RWMutex) WakeOwed() (before, after uint32) {
	before = m.wakeWordWriter.Word.Load()
	m.wakeOwed()
	return before, m.wakeWordWriter.Word.Load()
}

// CloseHalf does a part of Close: the fast paths of m find the gate closed, but still use the reader word in the arena.
func (m *RWMutex) CloseHalf() {
	m.opening.ended.Store(true)
	redirect(&m.shut, &closedGate)
}

// Closing reports whether x is being closed.
func (x *MultiLock) Closing() bool { return x.opening.closing.Load() }

// Kept reports whether there is a call for which Close waits.
func (x *MultiLock) Kept() bool { return !x.opening.left() }

// Closing reports whether f is being closed.
func (f *Future) Closing() bool { return f.opening.closing.Load() }

// Kept reports whether there is a call for which Close waits.
func (f *Future) Kept() bool { return !f.opening.left() }

// AwaitsGone reports whether a call of this process may be waiting until a dead holder of m is gone.
func (m *RWMutex) AwaitsGone() bool { return m.Kept() && m.writers.queue.Waiting() > 0 }

// Kept reports whether a dead process that is not gone keeps the gate closed.
func (m *RWMutex) Kept() bool {
	g := gateWord(m.gate.Load())
	return g.valid() && g.taken() && !m.a.Current(g.participant()) && !m.a.Gone(g.participant())
}

// WritersHeld reports whether a process has the writers' mutex.
func (m *RWMutex) WritersHeld() bool { return ownerWord(m.writers.owner.Load()).held() }

// Begin makes one attempt to end a broken phase and to begin the next one.
func (x *Barrier) Begin() (done bool, err error) { return x.begin(0) }

// Reap does what a reaper does after some participants have died. The function dead selects the participants by their
// slots.
func (x *Barrier) Reap(dead func(slot int) bool) {
	x.reap(func(n arenakernel.ParticipantID) bool { return dead(n.Slot()) })
	x.tell()
}

// BarrierBreaks is how many broken phases a Barrier remembers.
const BarrierBreaks = barrierBreaks

// CountedDeath reports whether a death was counted since the last reap of s.
func (s *Semaphore) CountedDeath() bool { return s.reapDue() }

// Rollbacks returns how many transactions of dead holders were undone.
func (m *Mutex) Rollbacks() uint64 { return m.log.head.rollbacks.Load() }

// Rollbacks returns how many transactions of dead writers were undone.
func (m *RWMutex) Rollbacks() uint64 { return m.log.head.rollbacks.Load() }

// LeaveLog makes m look as if a participant that is gone held it for writing. The undo log has the
// given state and records.
func (m *RWMutex) LeaveLog(state uint64, records []byte) {
	copy(m.log.records, records)
	m.log.head.state.Store(state)
	m.gate.Store(uint32(makeGate(gateHeld, arenakernel.ParticipantID(1<<11|9))))
}

// ReapUpdate does with the gate of m what the reaper of a dead participant does. The handle m may be closed.
func (m *RWMutex) ReapUpdate(dead arenakernel.ParticipantID) {
	reapUpdate(m.a, m.object, m.words, m.log, dead)
}

// LogRecords returns the records of the transaction in the undo log of m.
func (m *RWMutex) LogRecords() []byte {
	return append([]byte(nil), m.log.records[:uint64(m.log.state())&0xffffffff]...)
}

// LogRecords returns the records of the transaction in the undo log of m.
func (m *Mutex) LogRecords() []byte {
	return append([]byte(nil), m.log.records[:uint64(m.log.state())&0xffffffff]...)
}

// LoseLog makes m not recoverable, and its undo log unusable for a rollback.
func LoseLog(m *Mutex) {
	m.log.lose()
	m.owner.Store(uint32(ownerNotRecoverable))
}

// LoseRWLog makes m not recoverable, and its undo log unusable for a rollback.
func LoseRWLog(m *RWMutex) {
	m.log.lose()
	m.gate.Store(uint32(gateNotRecoverable))
}

// FlipGate changes a gate that n holds from held to recovering, and a gate that n recovers from recovering to held.
func (m *RWMutex) FlipGate(n arenakernel.ParticipantID) {
	held, recovering := uint32(makeGate(gateHeld, n)), uint32(makeGate(gateRecovering, n))
	if !m.gate.CompareAndSwap(held, recovering) {
		m.gate.CompareAndSwap(recovering, held)
	}
}

// LeaveLog makes m look as if a participant that is gone held it. The undo log has the given state
// and records.
func (m *Mutex) LeaveLog(state uint64, records []byte) {
	copy(m.log.records, records)
	m.log.head.state.Store(state)
	m.owner.Store(uint32(makeOwner(kindHeld, arenakernel.ParticipantID(1<<11|9))))
}

// Queueless reports whether the waiters of an object of this package sleep on a word, in no order.
func Queueless(o arenakernel.Object) bool {
	return o.Kind == waitGroupKind || o.Kind == latchKind || o.Kind == onceKind || o.Kind == queueKind || o.Kind == futureKind ||
		o.Kind == futexKind || o.Kind == barrierKind || o.Kind == sequencerKind || o.Kind == eventKind
}

// FirstDate returns the stored form of the time ns at which a wait became the first in its queue.
func FirstDate(ns int64) uint32 { return firstDate(ns) }

// FirstSince converts such a stored date back to CLOCK_MONOTONIC nanoseconds.
func FirstSince(date uint32, now int64) int64 { return firstSince(date, now) }
