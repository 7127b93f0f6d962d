package prims

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("spinlock.lock.acquired")
	_ = crashpoint.Register("spinlock.lock.announced")
	_ = crashpoint.Register("spinlock.lock.woken")
	_ = crashpoint.Register("spinlock.lock.leaving")
	_ = crashpoint.Register("spinlock.unlock.before_release")
	_ = crashpoint.Register("spinlock.unlock.before_wake")
)

// spinYields is how often a waiter that has spun yields its CPU before it sleeps. For comparison, a waiter in folly
// yields after a thousand tries, and never sleeps.
const spinYields = 4

// spinCore is the common part of a SpinLock and an RWSpinLock: the state word, the waiters for exclusive holds, and
// the recovery from a death.
type spinCore struct {
	state  *atomic.Uint32 // a spinWord
	name   arenakernel.ParticipantID
	words  *spinWords
	rw     *RWSpinLock   // the RWSpinLock that contains the spinCore; nil for a SpinLock
	op     string        // first part of the operation's name in errors
	what   string        // the kind of lock, for messages
	next   park.WakeWord // wakes the waiters for an exclusive hold
	queue  *park.Queue   // waiters of this process for an exclusive hold
	a      *arenakernel.Arena
	object arenakernel.Object
	policy Policy
	repair func() error
	key    race.Key

	opening *opening
	calls   atomic.Int32 // how many calls are between begin and finish; Close waits for them
}

func (c *spinCore) init(a *arenakernel.Arena, o arenakernel.Object, w *spinWords, op, what string, repair func() error) {
	dev, ino := a.Segment().ID()
	*c = spinCore{
		state: &w.state, name: a.Self(), words: w, op: op, what: what, next: spinWakeWord(a, w), a: a, object: o,
		policy: policyOf(w.policy), repair: repair, key: race.KeyOf(dev, ino, uint64(o.Offset)),
		opening: newOpening(a, o),
	}
	c.opening.refuse, c.opening.left, c.opening.end, c.opening.owed = c.refuse, c.callsLeft, c.end, c.wakeOwed
	c.queue = park.NewQueue(park.Config{
		WaitList: c.next.WaitList, Object: o, Word: o.Body + spinWakeOff, Check: c.check, Miss: c.next.WakeOne,
	})
}

func spinWakeWord(a *arenakernel.Arena, w *spinWords) park.WakeWord {
	return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller}}
}

// lockOrPanic is the slow path of Lock. It must not be inlined into Lock, because then the compiler would no longer
// inline Lock into its callers.
//
//go:noinline
func (c *spinCore) lockOrPanic() {
	if err := c.lock(nil); err != nil {
		panic(waysOut(err))
	}
}

// lock takes the lock exclusively. If it returns an error, it has not taken the lock. ctx may be nil.
func (c *spinCore) lock(ctx context.Context) error {
	err := c.own(ctx, true)
	if err == nil {
		c.acquired()
	}
	return err
}

// own takes the lock exclusively. It does what lock does, except that it does not report the hold to the race detector
// and to tests.
//
// For an RWSpinLock, own first waits until it can claim the lock, and then until the readers have left. Between the
// two waits, the state word names this process, but the call is in no queue. If this process left the arena at that
// time, another process could get the lock, and the call would not notice. So begin makes Close wait for the whole
// call.
func (c *spinCore) own(ctx context.Context, mayRepair bool) error {
	if c.rw == nil {
		return c.wait(ctx, spinHeld, mayRepair)
	}
	if !c.begin() {
		return c.closed()
	}
	defer c.finish()
	err := c.wait(ctx, spinDraining, mayRepair)
	if err == nil {
		err = c.rw.drain(ctx, drainForLock(c.name))
	}
	return err
}

// acquired reports the new hold to the race detector, and to tests.
func (c *spinCore) acquired() {
	race.Acquire(c.key)
	if c.rw != nil {
		race.Acquire(c.rw.readKey)
	}
	crashpoint.Hit("spinlock.lock.acquired")
}

func (c *spinCore) tryLock() bool {
	c.opening.use()
	if !c.try(spinHeld) {
		return false
	}
	c.acquired()
	return true
}

// try takes the lock if that is possible without waiting. The parameter named as is the kind of hold to take.
func (c *spinCore) try(as spinKind) bool {
	for counted := false; ; {
		o := spinWord(c.state.Load())
		switch n := o.participant(); {
		case counted, n == 0, n == c.name:
		case c.a.Dead(n): // this call may be the first one that finds the death
			// Count this call, so that Close of the handle waits for it. The reason: after step has taken the lock
			// from the dead process, another goroutine may get the lock and close the handle.
			if !c.queue.Enter() {
				return false
			}
			defer c.queue.Exit()
			counted = true
		case o.valid(c.rw != nil) && o.held():
			return false // as step would find
		}
		took, changed, _ := c.step(o, as)
		if took || !changed {
			return took
		}
	}
}

// step changes the lock, whose state word is o, if that is possible without waiting. It takes a free lock, or
// changes the word if the owner is dead. took reports whether the lock was taken. changed is true if the word is no
// longer o. err is not nil if the lock will not become free by itself.
func (c *spinCore) step(o spinWord, as spinKind) (took, changed bool, err error) {
	switch {
	case o.free() && as == spinRead:
		took, err = c.rw.enter()
		return took, err == nil, err
	case o.free():
		// sync(spinlock.release): acquire
		return c.state.CompareAndSwap(0, uint32(makeSpin(as, c.name))), true, nil
	case !o.valid(c.rw != nil):
		return false, false, c.fail("lock", shmsync.ErrCorrupt, nil, o.String())
	case o == spinLost:
		return false, false, c.fail("lock", shmsync.ErrNotRecoverable, c.a.Who(c.diedName()), "")
	case o.kind() == spinOwnerDead:
		return false, false, c.fail("lock", shmsync.ErrOwnerDead, c.a.Who(c.deadOwner(o)), "")
	case c.a.Dead(o.participant()):
		return false, markOwnerDeadSpin(c.a, c.object, c.words, o, c.rw != nil), nil
	}
	return false, false, nil
}

func (c *spinCore) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(c.words.died.Load() & arenakernel.ParticipantIDMask)
}

// deadOwner returns the participant that died while it held the lock, so that an error can name it. o is the
// state word.
func (c *spinCore) deadOwner(o spinWord) arenakernel.ParticipantID {
	if n := o.participant(); n != 0 {
		return n
	}
	return c.diedName()
}

// verdict returns the owner that the state word w names. err is the reason why nobody can lock the lock, or nil.
func (c *spinCore) verdict(w spinWord) (owner *shmsync.Identity, err error) {
	if n := w.participant(); n != 0 {
		owner = c.a.Who(n)
	}
	switch {
	case !w.valid(c.rw != nil):
		return owner, shmsync.ErrCorrupt
	case w.kind() == spinOwnerDead:
		return c.a.Who(c.deadOwner(w)), shmsync.ErrOwnerDead
	case w == spinLost:
		return c.a.Who(c.diedName()), shmsync.ErrNotRecoverable
	}
	return owner, nil
}

// spinWaiter is one blocked call of a lock method.
type spinWaiter struct {
	c        *spinCore
	as       spinKind
	wakeWord *park.WakeWord
	met      *metWords // where the waiter stores a time at which the present hold had already begun
	queue    *park.Queue
	cancel   park.Cancel
	slept    bool
	dying    bool // the waiter last slept because the process of a dead holder had not ended
	exit     goneWait
}

// wait waits until it can take the lock, and takes it. The parameter named as is the kind of hold to take.
func (c *spinCore) wait(ctx context.Context, as spinKind, mayRepair bool) error {
	w := spinWaiter{c: c, as: as, wakeWord: &c.next, met: &c.words.met, queue: c.queue, cancel: park.CancelBy(ctx)}
	if as == spinRead {
		w.wakeWord, w.met, w.queue = &c.rw.gate, &c.words.gateMet, c.rw.gateQueue
	}
	if !w.queue.Enter() {
		return c.closed()
	}
	defer w.queue.Exit()
	defer w.cancel.Stop() // also if a Repair panics or ends the goroutine
	return w.acquire(ctx, mayRepair)
}

// repair runs the function Repair of this process's options.
func (w *spinWaiter) repair(ctx context.Context) error {
	ended := false
	defer func() {
		if !ended { // Repair has panicked or ended the goroutine
			w.leave()
		}
	}()
	err := w.c.recover(ctx, w.c.repair, true)
	ended = true
	return err
}

func (c *spinCore) closed() error {
	return c.fail("lock", shmsync.ErrClosed, nil, closedHandle)
}

func (w *spinWaiter) acquire(ctx context.Context, mayRepair bool) error {
	c := w.c
	for spun := false; ; {
		o := spinWord(c.state.Load())
		took, changed, err := c.step(o, w.as)
		switch {
		case took:
			w.took()
			return nil
		case err != nil && mayRepair && c.repair != nil && o.kind() == spinOwnerDead && o.valid(true):
			if err = w.repair(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			w.leave()
			return err
		}
		if changed {
			continue
		}
		if !spun {
			spun = true
			if c.spinWhile(o, func() bool { return !spinWord(c.state.Load()).held() }) {
				continue
			}
		}
		switch w.sleep() {
		case park.Again:
			spun = w.dying
		case park.Canceled:
			// If the lock can be taken now, take it even if the context has ended. Then a wake that this waiter may
			// have got is not lost.
			if c.try(w.as) {
				w.took()
				return nil
			}
			if mayRepair && c.mayRepair() {
				continue // a lock that this call may repair takes precedence over the end of the context, too
			}
			w.leave()
			return w.cancel.Err()
		case park.Closed:
			w.leave()
			return c.closed()
		}
	}
}

// mayRepair reports whether the lock is owner-dead, and the function Repair of this process's options may run now.
func (c *spinCore) mayRepair() bool {
	o := spinWord(c.state.Load())
	return c.repair != nil && o.kind() == spinOwnerDead && o.valid(c.rw != nil) && c.a.Gone(o.participant())
}

// spinWhile spins while the function done returns false, and then yields the CPU a few times. It reports whether
// done has returned true.
func (c *spinCore) spinWhile(o spinWord, done func() bool) bool {
	if c.tuning().Spin(done) {
		return true
	}
	if c.words.spin.Load() == 1 {
		return false
	}
	if o.participant() == c.name {
		// The holder is a goroutine of this process, which may need the CPU of this thread to go on.
		runtime.Gosched()
		return done()
	}
	return park.GiveWay(spinYields, done)
}

// tuning returns the parameters of the spinning of waiters.
func (c *spinCore) tuning() park.Tuning {
	return park.Tuning{Budget: &c.words.spin, Pays: &c.words.pays, LastCPU: &c.words.lastCPU, Slot: c.name.Slot()}
}

// took ends a wait that got the lock. The process that woke this waiter has cleared the announcement bit. So took sets
// the bit again, because other waiters may be asleep.
func (w *spinWaiter) took() {
	if w.slept && w.as != spinRead {
		v := w.wakeWord.Announce()
		if o := spinWord(w.c.state.Load()); o.held() && o.participant() == w.c.name {
			w.met.meet(uint32(o), uint32(v))
		}
	}
}

// sleep announces the waiter in the wake word, checks the state word again, and sleeps.
func (w *spinWaiter) sleep() park.Result {
	if !w.slept && spinWord(w.c.state.Load()).participant() == w.c.name && !w.cancel.Ends() {
		w.c.opening.mustNotWaitForSelf(nil, "Lock")
	}
	v := w.wakeWord.Announce()
	crashpoint.Hit("spinlock.lock.announced")
	o := spinWord(w.c.state.Load())
	if !w.c.blocks(o) {
		return park.Again
	}
	w.slept = true
	w.met.meet(uint32(o), uint32(v))
	sleepSpec := park.SleepSpec{Owner: o.participant()}
	if w.dying = !w.c.a.Current(o.participant()); w.dying {
		sleepSpec = park.SleepSpec{Bounded: w.exit.next(), Exact: true}
	}
	r := w.queue.Sleep(uint32(v), sleepSpec, &w.cancel)
	crashpoint.Hit("spinlock.lock.woken")
	return r
}

// blocks reports whether a waiter may sleep while the state word is o. It may if the next change of the word will
// wake the waiter.
func (c *spinCore) blocks(o spinWord) bool {
	return o.valid(c.rw != nil) && o.held() && (c.a.Current(o.participant()) || c.stays(o))
}

// stays reports whether nobody may end the hold in the state word o yet. This is the case if the holder is dead, its
// process has not ended, and the policy frees the lock only after the end of the process.
func (c *spinCore) stays(o spinWord) bool {
	return o.kind() != spinDraining && o.ownerDied(policyOf(c.words.policy)).free() && !c.a.Gone(o.participant())
}

// leave ends a wait that did not get the lock. This waiter may have got a wake that it does not use, so leave makes
// sure that another wake reaches the remaining waiters. If this waiter is a reader, no other wake is needed,
// because a wake for readers reaches all readers.
func (w *spinWaiter) leave() {
	crashpoint.Hit("spinlock.lock.leaving")
	if !w.slept || w.as == spinRead {
		return
	}
	w.wakeWord.Announce()
	if !w.c.blocks(spinWord(w.c.state.Load())) {
		w.wakeWord.Release()
	}
}

// unlock is the slow path of Unlock.
func (c *spinCore) unlock() {
	c.opening.use()
	c.release("Unlock", spinHeld, spinFree)
}

// release releases a hold of this process, or turns it into another kind of hold.
func (c *spinCore) release(verb string, from spinKind, to spinWord) {
	race.ReleaseMerge(c.key)
	crashpoint.Hit("spinlock.unlock.before_release")
	// sync(spinlock.release): release
	if !c.state.CompareAndSwap(uint32(makeSpin(from, c.name)), uint32(to)) {
		c.notHeld(verb)
	}
	if to.free() && c.waited() {
		c.passOn()
	}
}

// giveBack releases the hold of a call that took the lock and then fails. Close does not wait for this call. So this
// process may have left the arena meanwhile, which ends its holds. Then giveBack does nothing.
func (c *spinCore) giveBack() {
	// sync(spinlock.release): release
	if c.state.CompareAndSwap(uint32(makeSpin(spinHeld, c.name)), 0) && c.waited() {
		c.passOn()
	}
}

// waited reports whether a release has to wake a waiter, because one is announced.
func (c *spinCore) waited() bool {
	return c.next.Announced() || c.rw != nil && c.rw.gate.Announced()
}

// passOn is called after a release. It wakes all waiting readers, and one of the waiters for an exclusive hold.
func (c *spinCore) passOn() {
	crashpoint.Hit("spinlock.unlock.before_wake")
	if enterLate(c.queue) {
		defer c.queue.Exit()
		c.wakeWaited()
	}
}

// wakeWaited does what passOn does. The caller is Close, or a call that Close waits for.
func (c *spinCore) wakeWaited() {
	c.tuning().NoteCPU()
	if c.rw != nil && c.rw.gate.Announced() {
		c.rw.gate.WakeAll()
	}
	c.next.Release()
}

// notHeld panics because the caller has released a hold which this process does not have.
func (c *spinCore) notHeld(verb string) {
	o := spinWord(c.state.Load())
	if !o.valid(c.rw != nil) {
		panic(c.fail("unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic("shmsync: " + verb + " of " + c.what + " " + objectName(c.object) + ", which this process does not hold so: it is " + o.String())
}

func (c *spinCore) fail(verb string, err error, who *shmsync.Identity, detail string) error {
	return failed(c.a, c.object, c.op+"."+verb, err, who, detail)
}
