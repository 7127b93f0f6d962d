package prims

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("mutex.lock.acquired")
	_ = crashpoint.Register("mutex.lock.announced")
	_ = crashpoint.Register("mutex.lock.woken")
	_ = crashpoint.Register("mutex.lock.starving")
	_ = crashpoint.Register("mutex.lock.leaving")
	_ = crashpoint.Register("mutex.unlock.before_release")
	_ = crashpoint.Register("mutex.unlock.before_wake")
	_ = crashpoint.Register("mutex.unlock.reserved")
)

const (
	// starveAfter is how long a waiter waits before it asks the next release to hand the lock to it. Go's sync.Mutex
	// has the same value.
	starveAfter = 1e6 // ns
	// handOffEvery is the least time between two handoffs. After a handoff the lock is idle for about 25 µs, until
	// the waiter runs.
	handOffEvery = 1e6 // ns
	// unfencedSleep bounds each sleep of a waiter for a biased lock, if the system offers no fence. The holder
	// releases a biased lock by a plain store, and without a fence it may not see that a waiter is announced.
	unfencedSleep = 1e6 // ns
	// biasAfter is how many unlocks in a row must find no waiter before the holds become biased again. A biased hold
	// saves its holder some 5 ns, but costs each waiter a fence of some 17 µs.
	biasAfter = 4096
	biasMost  = 1 << 20
)

// ownerNever is a value that no owner word ever has. A comparison of ownerNever with an owner word
// always fails.
var ownerNever = 6<<ownerKindShift | rand.Uint32()&arenakernel.ParticipantIDMask

// lockOrPanic is the slow path of Lock. It must not be inlined in Lock, because then the compiler could not inline
// Lock in its callers.
//
//go:noinline
func (m *Mutex) lockOrPanic() {
	if err := m.lockSlow(nil); err != nil {
		panic(waysOut(err))
	}
}

// lockSlow continues a Lock whose first try has failed. ctx may be nil.
func (m *Mutex) lockSlow(ctx context.Context) error {
	if !m.queue.Enter() {
		return m.closed()
	}
	defer m.queue.Exit()
	w := waiter{m: m, cancel: park.CancelBy(ctx)}
	defer w.cancel.Stop() // also if a Repair panics or ends the goroutine
	if err := w.lock(); err != nil {
		return err
	}
	race.Acquire(m.key)
	m.counts.holds(w.met)
	crashpoint.Hit("mutex.lock.acquired")
	return nil
}

// step makes one try to lock, without waiting. o is the owner word. step takes a free lock, and also a lock whose
// reservation has expired. If the owner is dead, step changes the owner word as the policy says. If the lock is
// reserved for this process, step takes it only for a waiter that has slept. A waiter that has not slept leaves the
// lock to a goroutine of this process that has waited long.
//
// changed is true if the owner word is no longer o. err is not nil if the lock stays unavailable until a recovery.
func (m *Mutex) step(o ownerWord, slept bool) (took, changed bool, err error) {
	switch {
	case o.free():
		took = m.owner.CompareAndSwap(uint32(o), atomic.LoadUint32(&m.self))
		return took, true, nil
	case !o.valid():
		return false, false, m.fail("mutex.lock", shmsync.ErrCorrupt, nil, o.String())
	case o == ownerNotRecoverable:
		return false, false, m.notRecoverable("mutex.lock")
	case o.kind() == kindOwnerDead:
		return false, false, m.fail("mutex.lock", shmsync.ErrOwnerDead, m.a.Who(o.participant()), "")
	case o.kind() == kindReserved && m.expired():
		took = m.owner.CompareAndSwap(uint32(o), uint32(m.name))
		return took, true, nil
	case o.kind() == kindReserved && o.participant() == m.name && !slept:
		return false, false, nil
	case o.kind() == kindReserved && o.participant() == m.name:
		// sync(mutex.release): acquire
		took = m.owner.CompareAndSwap(uint32(o), uint32(m.name))
		return took, true, nil
	case m.a.Dead(o.participant()):
		changed, err = m.markOwnerDead(o)
		return false, changed, err
	}
	return false, false, nil
}

func (m *Mutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(m.words.died.Load() & arenakernel.ParticipantIDMask)
}

// waiter is one call that waits for the lock.
type waiter struct {
	m        *Mutex
	cancel   park.Cancel
	since    int64 // CLOCK_MONOTONIC time in ns of the first sleep
	slept    bool
	met      bool // the lock was not free at the first try
	starving bool // this process has asked that the next release be reserved for it
	granted  bool // the lock is reserved for this process, and this waiter was chosen to take it
	dying    bool // at the last sleep the holder was dead, but a system call of it might still store data
	exit     goneWait
	variant  waitVariant // the zero value for a waiter of a plain Mutex
}

// lock takes the lock. If the lock is owner-dead, it runs the function Repair of this process's options.
func (w *waiter) lock() error { return w.acquire(true) }

// acquire takes the lock. If mayRepair is true, it may run the function Repair of this process's options.
func (w *waiter) acquire(mayRepair bool) error {
	m := w.m
	for spun := false; ; {
		o := ownerWord(m.owner.Load())
		took, changed, err := w.step(o)
		switch {
		case took:
			w.took()
			return nil
		case err != nil:
			if mayRepair && m.repair != nil && o.kind() == kindOwnerDead {
				if !m.mayTake(o) {
					switch w.sleepUntilGone(o) {
					case park.Granted:
						w.granted = true
					case park.Canceled:
						if ended, err := w.canceled(true); ended {
							return err
						}
					case park.Closed:
						w.leave()
						return m.closed()
					}
					continue
				}
				took, err = w.repair(o)
				if took {
					return nil
				}
				if err == nil {
					continue
				}
			}
			w.leave()
			return err
		case changed:
			continue
		}
		if !spun {
			spun = true
			w.met = true
			if m.spinWhileHeld(w.slept, w.variant.overtakes()) {
				m.counts.add(countSpin)
				continue
			}
		}
		if w.variant.timedOut(w.since) {
			if w.lastTry() {
				return nil
			}
			w.leave()
			return errTimedOut
		}
		switch w.sleep() {
		case park.Granted:
			w.granted = true
		case park.Again:
			spun = w.dying
			w.variant.woken(w)
		case park.Canceled:
			if ended, err := w.canceled(mayRepair); ended {
				return err
			}
		case park.Closed:
			w.leave()
			return m.closed()
		}
	}
}

// took is called when this waiter has got the lock. The wake of this waiter has cleared the announcement in the
// wake word, so took announces the waiters that may still sleep.
func (w *waiter) took() {
	if w.slept {
		v := w.m.wakeWord.Announce()
		w.m.meet(ownerWord(w.m.owner.Load()), uint32(v)) // the waiters that still sleep cannot date this hold
	}
	if w.starving {
		w.m.words.starving.CompareAndSwap(uint32(w.m.name), 0)
	}
}

// sleep announces the waiter in the wake word, checks the words of the lock again, and sleeps.
func (w *waiter) sleep() park.Result {
	m := w.m
	if !w.slept {
		w.mustNotWaitForSelf()
	}
	now := shmsync.Monotonic()
	if w.since == 0 {
		w.since = now
	}
	if w.slept && now-w.since > starveAfter && m.mayHandOff(now) {
		// The word starving has room for one process. If it names another process, this waiter cannot ask for the
		// next release. A waiter asks before each sleep, because another goroutine of its process may have used up
		// the last request.
		w.starving = m.words.starving.Load() == uint32(m.name) || m.words.starving.CompareAndSwap(0, uint32(m.name))
		if w.starving {
			crashpoint.Hit("mutex.lock.starving")
		}
	}
	var sleepSpec park.SleepSpec
	w.patient(&sleepSpec, now)
	if w.starving {
		sleepSpec.Other, sleepSpec.OtherIs = &m.words.handoff, m.words.handoff.Load()
	}
	w.variant.beforeSleep()
	v := m.wakeWord.Announce()
	crashpoint.Hit("mutex.lock.announced")
	o := ownerWord(m.owner.Load())
	if o.kind() == kindBiased && o.valid() {
		// Without a fence, the holder may release the lock and not see the announcement. After the fence, either
		// the holder sees the announcement or this waiter sees the release.
		if shmsync.Fence() != nil {
			sleepSpec.Bounded = unfencedSleep
		}
		o = ownerWord(m.owner.Load())
	}
	if !m.blocks(o, w.slept) {
		return park.Again
	}
	w.variant.bound(&sleepSpec, w.since, now)
	w.slept = true
	m.meet(o, uint32(v))
	sleepSpec.Owner, sleepSpec.Since = o.participant(), w.since
	if w.dying = o.held() && !m.a.Current(o.participant()); w.dying {
		sleepSpec.Owner, sleepSpec.Bounded, sleepSpec.Exact = 0, w.exit.next(), true
	} else {
		w.exit = goneWait{}
	}
	m.counts.add(countSleep)
	r := m.queue.Sleep(uint32(v), sleepSpec, &w.cancel)
	crashpoint.Hit("mutex.lock.woken")
	return r
}

// mustNotWaitForSelf panics if the waiter is about to wait for its own goroutine; see opening.selfWait.
func (w *waiter) mustNotWaitForSelf() {
	m := w.m
	// A wait with a timeout ends by itself. A local lock is never held while a function of the program runs, so
	// its waiter does not wait for its own goroutine.
	if ownerWord(m.owner.Load()).participant() == m.name && w.variant.timeout == 0 && !m.localLock && !w.cancel.Ends() {
		m.opening.mustNotWaitForSelf(nil, "Lock")
	}
}

// blocks reports whether a waiter may sleep while the owner word is o, because the process that changes the word next
// will wake a waiter.
func (m *Mutex) blocks(o ownerWord, slept bool) bool {
	switch {
	case !o.valid():
		return false
	case o.held():
		return m.a.Current(o.participant()) || m.stays(o)
	case o.kind() == kindReserved:
		return (o.participant() != m.name || !slept || m.granted.Load() > 0) && m.a.Current(o.participant())
	}
	return false
}

// lastTry takes a free lock although the context has ended, because a free lock takes precedence over the context.
// A wake may have gone to this waiter. If lastTry takes the lock, that wake is not lost.
func (w *waiter) lastTry() bool {
	for {
		o := ownerWord(w.m.owner.Load())
		took, changed, _ := w.step(o)
		if took {
			w.took()
			return true
		}
		if !changed {
			return false
		}
	}
}

// leave ends a wait that did not get the lock. A wake may have gone to this waiter, so leave makes sure that
// another wake reaches the remaining waiters.
func (w *waiter) leave() {
	m := w.m
	crashpoint.Hit("mutex.lock.leaving")
	if w.starving {
		m.words.starving.CompareAndSwap(uint32(m.name), 0)
	}
	gaveBack := m.giveBack()
	if !w.slept && !gaveBack {
		return
	}
	m.wakeWord.Announce()
	o := ownerWord(m.owner.Load())
	if o.kind() == kindBiased && o.valid() {
		shmsync.Fence()
		o = ownerWord(m.owner.Load())
	}
	if !m.blocks(o, true) {
		m.wakeNext()
	}
}

// wakeNext wakes one waiter after a release. One wake is enough: every waiter sleeps on the wake word, even one that
// has waited long.
func (m *Mutex) wakeNext() {
	if m.counts != nil && m.wakeWord.Announced() {
		m.counts.woken.Add(1)
	}
	m.wakeWord.Release()
}

// loseBias makes new holds not biased for a while, so that Unlock uses a CAS again. It is called after the release
// of a biased hold that found a waiter, because a biased hold costs each waiter an expensive fence.
func (m *Mutex) loseBias() {
	atomic.StoreUint32(&m.self, uint32(m.name))
	m.need.Store(min(2*m.need.Load(), biasMost))
	m.wakeAfter()
}

// unlockSlow continues an Unlock that the fast path could not complete. o is the owner word that the fast path has
// read.
func (m *Mutex) unlockSlow(o uint32) {
	race.ReleaseMerge(m.key)
	if m.ended("Unlock") {
		o = m.owner.Load() // on a closed handle, the fast path has read a private word instead of the owner word
	}
	if m.unlockBiased(o) {
		return
	}
	if m.counts != nil {
		o = m.owner.Load() // in an arena with counters, the fast path has read a private word instead of the owner word
		// A local lock uses the counters of its CohortMutex. The Unlock of the local lock does not end the hold of the
		// CohortMutex, so it keeps the time of that hold.
		if o == uint32(m.name) && !m.localLock {
			m.counts.since.Store(0)
		}
	}
	if o != uint32(m.name) {
		m.badUnlock(ownerWord(o))
		return
	}
	crashpoint.Hit("mutex.unlock.before_release")
	waited := m.wakeWord.Announced()
	m.count(waited)
	if (waited || m.words.starving.Load() != 0) && m.handOn(ownerWord(o), waited) {
		return
	}
	// sync(mutex.release): release
	if !m.owner.CompareAndSwap(o, 0) {
		m.badUnlock(ownerWord(m.owner.Load()))
		return
	}
	if m.wakeWord.Announced() {
		// This call has already tried to hand the lock to a goroutine of this process.
		crashpoint.Hit("mutex.unlock.before_wake")
		if enterLate(m.queue) {
			defer m.queue.Exit()
			m.wakeAny()
		}
	}
}

// handOn hands the lock, which this process holds, to a waiter that has waited long, and reports whether it did.
// waited is true if a waiter is announced. handOn stores words even after the handoff has taken effect, so it makes
// Close of the handle wait.
func (m *Mutex) handOn(o ownerWord, waited bool) bool {
	if !m.queue.Enter() {
		return false
	}
	defer m.queue.Exit()
	return waited && m.localTurn() && m.handOver(o) || m.reserve(o)
}

// wakeAfter is called after a release. It hands the lock to a waiter of this process, or wakes a waiter of any
// process.
func (m *Mutex) wakeAfter() {
	crashpoint.Hit("mutex.unlock.before_wake")
	if !enterLate(m.queue) {
		return
	}
	defer m.queue.Exit()
	if m.localTurn() && m.handOver(ownerFree) {
		return
	}
	m.wakeAny()
}

// wakeAny wakes a waiter, or reserves the lock for it. It treats the waiters of all processes alike.
func (m *Mutex) wakeAny() {
	if m.reserve(ownerFree) {
		return
	}
	m.noteCPU()
	m.wakeNext()
	if m.oldest() != 0 {
		// The wake has cleared the announcement, and the woken waiter may run late. Until it runs, releases see the
		// parked waiters only if a waiter is announced again.
		m.wakeWord.Announce()
	}
}

// count is called by the holder at each release. It decides whether later holds of this process become biased. waited
// is true if the release found a waiter.
func (m *Mutex) count(waited bool) {
	if m.biased == ownerNever {
		return
	}
	if waited {
		m.quiet = 0
		return
	}
	if m.quiet++; m.quiet >= m.need.Load() && m.a.Fenced() {
		m.quiet = 0
		atomic.StoreUint32(&m.self, m.biased)
	}
}
