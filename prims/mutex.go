package prims

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// Mutex is a mutual exclusion lock between processes. The holder of a Mutex is a process: one
// goroutine may lock it, and another goroutine of the same process may unlock it.
//
// A Mutex is not fair: a new caller may lock it before a goroutine that was woken. But a goroutine that has waited
// for a millisecond is starving. At every other Unlock, a process hands the lock to one of its own starving
// goroutines, the one that has waited longest. In addition, one starving goroutine at a time, of any process, gets
// the next release.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of Unlock synchronizes
// before the m'th call of Lock returns. If a holder dies, the release by its death synchronizes before the call
// that reports the death, and before the call that gets the lock because of it.
type Mutex struct {
	// The fast paths access their words by plain pointers and the functions of package atomic. With atomic types
	// the compiler would not inline them.

	own  *uint32 // the owner word; see end for a closed handle
	wake *uint32 // the wake word
	// self is what Lock stores in the owner word: the ID of this participant, either with the kind biased or with
	// the kind held. Accessed atomically.
	self   uint32
	biased uint32 // our ID with the kind biased; ownerNever if this handle takes no biased holds
	plain  uint32 // our ID if this handle takes no biased holds, and its fast path may unlock; 0 otherwise

	owner *atomic.Uint32 // the owner word

	name     arenakernel.ParticipantID
	words    *mutexWords
	wakeWord park.WakeWord
	queue    *park.Queue
	a        *arenakernel.Arena
	object   arenakernel.Object
	policy   Policy
	repair   func() error
	key      race.Key
	opening  *opening // the opening of this handle; its object is the Mutex, or contains it

	granted atomic.Int32  // goroutines for which the lock was reserved and that have not tried to take it yet
	turns   atomic.Uint32 // how many releases have found a waiter; see localTurn

	// quiet counts the unlocks in a row that found no waiter. When it reaches the value of the field need, holds
	// are biased again, that is, released by a plain store. Only the holder of the Mutex accesses quiet.
	quiet uint32
	need  atomic.Uint32
	// reserved is the owner word that the last periodic check read, if the lock was reserved for a waiter then.
	// Otherwise it is 0.
	reserved  atomic.Uint32
	localLock bool // the Mutex is a local lock of a CohortMutex
	internal  bool // the Mutex guards words of the library, and no user data
	inner     bool // the Mutex is a component of an object, and the library unlocks it
	counts    *countWords
	variant   *mutexVariant // how the Mutex differs from a plain Mutex; nil if it does not
	log       *undoLog      // nil without PolicyRollback
	tx        *Tx           // the Tx of the goroutine that runs an Update of m
}

// MutexOptions says how a Mutex is created, and what this process does with it.
// A nil *MutexOptions means the zero value.
type MutexOptions struct {
	// Policy says what happens to the lock when its holder dies. 0 means PolicyReport for a new object; an existing
	// object may have any policy. If Policy is set and an existing object has another policy, opening fails.
	Policy Policy
	// Repair, if set, is called by Lock and LockContext of this process when they find that a holder died. The
	// process holds the lock while Repair runs. If Repair returns nil, the call returns with the lock. Otherwise
	// the call fails with ErrNotRecoverable, as Recover does. If Repair waits for the same lock, or closes the
	// handle or the arena, that call panics, because it would wait for itself. Repair, Checked and Contention
	// apply to this handle only and are not stored in the arena.
	Repair func() error
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	// See Mutex.SetSpin.
	Spin time.Duration
	// Checked makes every Unlock of this process a compare-and-swap, which detects every unlock of a lock that is
	// not held, even if two goroutines race. Without Checked, most Unlocks are a plain store, which is faster.
	Checked bool
	// Contention changes how the waiters of this process compete for the lock.
	Contention Contention
	// LogBytes is the size of the undo log of a new Mutex with PolicyRollback. The log holds the bytes that one
	// Update saves, and 16 bytes for each range that it saves. LogBytes is rounded up to a multiple of 64, and is
	// at most 1 MiB. 0 means 16 KiB for a new Mutex; an existing Mutex may have any size.
	LogBytes int
}

var mutexKind = arenakernel.KindOf("MUTX")

const mutexVersion = 1

// OpenMutex finds the Mutex of that name in the arena or creates it. An empty name makes a new anonymous Mutex.
// OpenMutex panics if opts.Policy is not a valid Policy.
func OpenMutex(a *arena.Arena, name string, opts *MutexOptions) (*Mutex, error) {
	return openMutex((*arenakernel.Arena)(a), name, opts, false)
}

func openMutex(a *arenakernel.Arena, name string, opts *MutexOptions, attach bool) (*Mutex, error) {
	var opt MutexOptions
	if opts != nil {
		opt = *opts
	}
	opt.Policy.mustBeValid("mutex " + strconv.Quote(name))
	opt.Contention.mustBeValid("mutex " + strconv.Quote(name))
	log := logSize(opt.Policy, opt.LogBytes, "mutex "+strconv.Quote(name))
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: mutexKind, Version: mutexVersion, Name: name, Size: withLog(uint64(mutexBytes), log), AnySize: true,
		Init: func(body []byte) { initMutex(body, &opt, log) },
	}, "mutex.open", newMutex(&opt), func(m *Mutex) string {
		return cmp.Or(m.policy.differs(opt.Policy), m.log.differs(opt.LogBytes))
	})
}

// MutexAt opens the Mutex at an offset that another process got from the method Offset.
func MutexAt(a *arena.Arena, off arena.Offset) (*Mutex, error) {
	return handleAt(a, off, "mutex.open", mutexKind, mutexVersion, uint64(mutexBytes), newMutex(&MutexOptions{}))
}

func wrongKind(op string, o arenakernel.Object, want arenakernel.Kind, version uint16) error {
	return &shmsync.Error{Op: op, Object: objectName(o), Err: shmsync.ErrIncompatible,
		Detail: fmt.Sprintf("it is %s of version %d and %d bytes, not %s of version %d", arenakernel.KindPhrase(o.Kind), o.Version, o.Size, arenakernel.KindPhrase(want), version)}
}

// objectName returns the name of an object for messages.
func objectName(o arenakernel.Object) string {
	if o.Name != "" {
		return o.Name
	}
	return o.Offset.String()
}

func newMutex(opt *MutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*Mutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*Mutex, error) { return buildMutex(a, o, opt) }
}

func buildMutex(a *arenakernel.Arena, o arenakernel.Object, opt *MutexOptions) (*Mutex, error) {
	w, err := arenakernel.TryAt[mutexWords](a, o.Body)
	if err != nil {
		return nil, err
	}
	log, err := mutexLog(a, o, w)
	if err != nil {
		return nil, err
	}
	m := buildMutexAt(a, o, o.Body, opt)
	if log != nil {
		m.policy, m.log, m.tx = PolicyRollback, log, newTx(log, objectName(o))
		m.opening.inside = markedFunc{&m.tx.inside, "the function of an Update"}
	} else if m.policy == PolicyRollback {
		m.policy = PolicyReport // without a log, only a peer can have written PolicyRollback
	}
	m.counted()
	m.opening.end, m.opening.owed = m.end, m.wakeOwed
	return m, nil
}

// buildMutexAt makes a handle on the words of a mutex at off in the body of o. The object o is a Mutex, or an
// object of another kind that contains one.
func buildMutexAt(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, opt *MutexOptions) *Mutex {
	w := arenakernel.At[mutexWords](a, off)
	dev, ino := a.Segment().ID()
	m := &Mutex{
		own: wordPtr(&w.owner), wake: wordPtr(&w.wake), owner: &w.owner, words: w,
		name: a.Self(), a: a, object: o, policy: policyOf(w.policy), repair: opt.Repair,
		key: race.KeyOf(dev, ino, uint64(off)), opening: newOpening(a, o),
	}
	m.need.Store(biasAfter)
	m.biased = ownerNever
	m.wakeWord = mutexWakeWord(a, w)
	m.wakeWord.Near = opt.Contention.NearWakes
	m.variant = opt.Contention.variant()
	atomic.StoreUint32(&m.self, uint32(m.name))
	switch {
	case race.Enabled || crashpoint.Enabled && !shmsync.FeatureMembarrier.Have():
		// Every Unlock takes the slow path, because only the slow path has the hooks of the race
		// detector and of the crash points.
	case opt.Checked || !shmsync.FeatureMembarrier.Have():
		m.plain = uint32(m.name)
	default:
		m.biased = uint32(m.name) | ownerBiased
		if a.Fenced() {
			atomic.StoreUint32(&m.self, m.biased)
		}
	}
	m.queue = park.NewQueue(park.Config{
		WaitList: m.wakeWord.WaitList, Object: o, Word: off + mutexWakeOff, Check: m.check, Miss: m.wakeWord.WakeOne,
	})
	m.opening.waitsIn(m.queue)
	return m
}

func mutexWakeWord(a *arenakernel.Arena, w *mutexWords) park.WakeWord {
	return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller}}
}

// Lock locks m, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is owner-dead or
// not recoverable, or if this process closes the arena while the call waits.
func (m *Mutex) Lock() {
	if !race.Enabled && atomic.CompareAndSwapUint32(m.own, 0, atomic.LoadUint32(&m.self)) {
		return
	}
	m.lockOrPanic()
}

// LockContext locks m, and waits until that is possible or ctx ends. An error means that m is not held. The error
// is ctx.Err(), or it Is ErrCorrupt or ErrClosed. Depending on the policy of m, it may also be one that Is
// ErrOwnerDead or ErrNotRecoverable. If the lock is free, the call takes it even though ctx has ended.
func (m *Mutex) LockContext(ctx context.Context) error {
	if !race.Enabled && atomic.CompareAndSwapUint32(m.own, 0, atomic.LoadUint32(&m.self)) {
		return nil
	}
	return m.lockSlow(ctx)
}

// TryLock locks m if that is possible without waiting, and reports whether it did. If it did not, State tells why.
// A lock that is reserved for a waiter counts as locked. If that waiter does not take the lock within 0.1 s,
// TryLock takes it, because the waiter's process may be stopped.
func (m *Mutex) TryLock() bool {
	if !race.Enabled && atomic.CompareAndSwapUint32(m.own, 0, atomic.LoadUint32(&m.self)) {
		return true
	}
	return m.tryLockSlow()
}

// Unlock unlocks m. It panics if this process does not hold m. If a peer overwrote the lock, it panics with an
// error that Is ErrCorrupt.
//
// If two goroutines race to unlock the same hold, the later one may release the hold of another process. A handle
// that was opened with the option Checked prevents that.
func (m *Mutex) Unlock() {
	if race.Enabled {
		m.unlockSlow(atomic.LoadUint32(m.own))
		return
	}
	if name := m.plain; name != 0 {
		wake := m.wake // loaded before the CAS, because the processor loads nothing during the CAS
		// sync(mutex.release): release
		if atomic.CompareAndSwapUint32(m.own, name, 0) {
			if atomic.LoadUint32(wake)&1 != 0 {
				m.wakeAfter()
			}
			return
		}
	} else if *m.own == m.biased {
		// A plain load of the owner word is enough, because no other process writes that word while this process
		// holds m.
		if releaseBiased(m.own, m.wake) {
			m.loseBias()
		}
		return
	}
	m.unlockSlow(*m.own)
}

// Offset is the place of the Mutex in its arena, for MutexAt in another process.
func (m *Mutex) Offset() arena.Offset { return m.object.Offset }

// Close closes this handle on the Mutex, and no other handle. Calls that wait through this handle
// end with an error that Is ErrClosed. If this process holds the lock, it still holds it after
// Close, and can release it through another handle. A second Close returns an error that Is ErrClosed.
func (m *Mutex) Close() error { return m.opening.close("mutex.close") }

// end makes the fast paths of this handle use private words instead of the words of the lock. A call of Lock or
// Unlock at the same time is a mistake of the user. Such a call uses either the old words or the private ones.
func (m *Mutex) end() {
	takeWords(&m.own, &m.wake)
	m.queue.Close()
}

// Policy says what happens to m when its holder dies.
func (m *Mutex) Policy() Policy { return m.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn
// the bound from earlier spins; if d is negative, they never spin.
func (m *Mutex) SetSpin(d time.Duration) {
	m.opening.use()
	m.words.spin.Store(spinField(d))
}

// Spin returns the bound that SetSpin, or the creation of the object, has set.
func (m *Mutex) Spin() time.Duration {
	m.opening.use()
	return spinOf(m.words.spin.Load())
}

// MutexState is the result of State.
type MutexState struct {
	Held    bool              // a process has the lock: its holder, or a process that recovers it
	Owner   *shmsync.Identity // that process, or a dead one that left the lock; nil if there is none or it is not known
	Waiting bool              // there may be waiters
	Err     error             // why no call can lock m: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the owner word, rendered for people
}

// State reads m without locking it. The answer may be out of date
// when it returns.
func (m *Mutex) State() MutexState {
	m.opening.use()
	w := ownerWord(m.owner.Load())
	s := MutexState{Held: w.held(), Waiting: m.wakeWord.Announced(), Word: w.String()}
	if n := w.participant(); n != 0 {
		s.Owner = m.a.Who(n)
	}
	switch {
	case !w.valid():
		s.Err = shmsync.ErrCorrupt
	case w.kind() == kindOwnerDead:
		s.Err = shmsync.ErrOwnerDead
	case w == ownerNotRecoverable:
		s.Err = shmsync.ErrNotRecoverable
		s.Owner = m.a.Who(arenakernel.ParticipantID(m.words.died.Load() & arenakernel.ParticipantIDMask))
	}
	return s
}

// String renders the state on one line.
func (m *Mutex) String() string {
	return fmt.Sprintf("mutex %s: %s", objectName(m.object), m.State().Word)
}

func (m *Mutex) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(m.a, m.object, m.variant.op(op), err, who, detail)
}

// named returns text followed by the name of m. The text ends with the word "mutex". If m belongs to a CohortMutex,
// named replaces this word by "cohort mutex".
func (m *Mutex) named(text string) string { return m.variant.text(text) + objectName(m.object) }

func initMutex(body []byte, opt *MutexOptions, log uint64) {
	initMutexWords(mutexBody(body), opt)
	if log != 0 {
		logBody(body, uint64(mutexBytes)).size = uint32(log)
	}
}

func initMutexWords(w *mutexWords, opt *MutexOptions) {
	w.policy = opt.Policy.stored()
	w.spin.Store(spinField(opt.Spin))
}
