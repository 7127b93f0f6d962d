package prims

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// RWMutex is a reader/writer mutual exclusion lock between processes: any number of readers or one writer hold it.
// In addition, one process may have an upgradable hold: it reads beside the other readers, and can become the
// writer before any other writer. A hold belongs to a process: a goroutine may lock the RWMutex and another
// goroutine of the same process may unlock it. An RWMutex is not recursive: a goroutine that has a read hold must
// not call RLock again. If a writer arrived between the two calls, that writer would wait for the first read hold,
// and the second RLock would wait for the writer.
//
// Readers of different processes write different cache lines.
//
// # Who goes first
//
// Writers first compete for a mutex, the writers' mutex. The writer that gets it closes a gate. Readers that come
// later wait at the gate, and the writer waits for the readers that have the lock already. When the writer unlocks
// or gives up, it lets in all readers that sleep, before another writer can close the gate. So:
//
//   - At most one writer overtakes a sleeping reader: the writer for which
//     the reader sleeps.
//
//   - No reader overtakes a writer that has closed the gate. Writers compete with
//     each other as for a [Mutex]: they barge, and a writer that has lost for a
//     millisecond is handed the mutex.
//
//   - An upgradable hold keeps the writers' mutex and leaves the gate open. So writers
//     and other upgradable holds wait until it ends, and readers do not. Upgrade closes
//     the gate and waits for the readers that have the lock, as a writer does.
//
// After the death of a writer, one more writer may overtake a sleeping reader. A writer that waits for the lock may be
// stopped, so that it does not notice when the last reader leaves. After about a tenth of a second, the readers at the
// gate then open it and go in. The writer closes the gate again when it runs. No living process loses its hold.
//
// # From one hold to another
//
// These calls change the hold of a process. No other writer gets the lock in between:
//
//	from        to          call
//	none        reading     RLock, RLockContext, TryRLock
//	none        upgradable  LockUpgradable, LockUpgradableContext, TryLockUpgradable
//	none        writing     Lock, LockContext, TryLock
//	upgradable  writing     Upgrade, UpgradeContext, TryUpgrade
//	upgradable  reading     DowngradeToRead
//	writing     upgradable  DowngradeToUpgradable
//	writing     reading     Downgrade
//
// RUnlock, UnlockUpgradable and Unlock release the holds. A read hold cannot become another hold. If it could, two
// readers that both want to write would wait for each other.
//
// # When a process dies
//
// If a process dies, its read holds end, and no other process loses a hold. Its upgradable hold ends, too, under
// every policy, because nothing was written. If the process was waiting to write or to upgrade, the next writer
// goes on. If the process was writing, the [Policy] decides. Under PolicyRelease the lock becomes free. Under
// PolicyRollback the [RWMutex.Update] of the process is undone, and then the lock becomes free. Under PolicyReport
// the lock is owner-dead for readers and writers until Recover.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of Unlock synchronizes
// before the m'th call of Lock returns. For every call of RLock there is an n such that the n'th call of Unlock
// synchronizes before that call returns, and the matching call of RUnlock synchronizes before the n+1'th call of Lock
// returns. Upgrade counts as a Lock, and Downgrade as an Unlock and an RLock. If a holder dies, its death synchronizes
// before the call that reports the death, and before the next call that gets the lock.
//
// With respect to Lock and Unlock, LockUpgradable counts as a Lock, and UnlockUpgradable and DowngradeToRead count as
// an Unlock. But an earlier RUnlock does not synchronize before LockUpgradable, and UnlockUpgradable does not
// synchronize before a later RLock.
type RWMutex struct {
	// The compiler inlines the fast paths only if they use plain pointers and the functions of package atomic.

	own  *uint64 // this participant's reader word; in a closed handle, a private word
	shut *uint32 // the gate; in a closed handle, a private word

	mine    *atomic.Uint64 // this participant's reader word
	gate    *atomic.Uint32
	words   rwmutexAll
	records *atomic.Uint32 // the newest slot record; see readerWords
	known   atomic.Pointer[readerWords]
	name    arenakernel.ParticipantID
	writers *Mutex // held by the process that writes or has the upgradable hold

	wakeWordReaders park.WakeWord
	wakeWordWriter  park.WakeWord
	readers         *park.Queue // readers that wait for the gate
	writer          *park.Queue // a writer that waits for readers

	a        *arenakernel.Arena
	object   arenakernel.Object
	policy   Policy
	log      *undoLog // nil without PolicyRollback
	tx       *Tx      // the Tx of the goroutine that runs an Update of m
	repair   func() error
	wrote    race.Key        // the race detector's edge from an Unlock to the next lock
	read     race.Key        // the race detector's edge from an RUnlock to the next writer
	registry *readerRegistry // shared by the handles of this process
	opening  *opening
	calls    atomic.Int32  // calls that Close of the handle has to wait for; see begin
	stuck    atomic.Uint32 // the gate, if the last check found it closed while no reader had the lock
}

// readerRegistry is what this process knows about its goroutines that wait to read. A registered goroutine is one
// that waits. A writer that opens the gate lets in all registered goroutines at once, which begins a new epoch. So
// a goroutine was let in if the epoch has changed since it registered.
//
// The registry also records whether this process has the upgradable hold.
type readerRegistry struct {
	sync.Mutex
	upgradable atomic.Uint32 // one of upgradableNot, upgradableHeld and upgradableUpgrading
	known      bool          // guarded by: Mutex; knowUpgradable has run
	waiting    uint32        // guarded by: Mutex; registered in this epoch
	due        uint32        // guarded by: Mutex; goroutines that were let in and have not noticed yet
	epoch      uint64        // guarded by: Mutex; how often a writer has let goroutines in
}

// RWMutexOptions says how an RWMutex is created, and what this process does with it. A nil
// *RWMutexOptions means the zero value.
type RWMutexOptions struct {
	// Policy says what happens to the lock when its writer dies. 0 means PolicyReport for a new object, and any
	// policy for an existing object. If Policy is set and an existing object has another policy, opening fails.
	Policy Policy
	// Repair, if set, is called by Lock, LockContext, LockUpgradable, LockUpgradableContext, RLock and RLockContext
	// of this process when they find that a writer died. The call holds the lock while Repair runs. If Repair
	// returns nil, the call returns with the lock. Otherwise the call fails with ErrNotRecoverable, as Recover
	// does. Repair applies to this handle only and is not stored in the arena.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	// See RWMutex.SetSpin.
	Spin time.Duration
	// LogBytes is the size of the undo log of a new RWMutex with PolicyRollback; see MutexOptions.
	LogBytes int
}

var rwmutexKind = arenakernel.KindOf("RWMX")

const rwmutexVersion = 2

// rwmutexHooks makes every call take its slow path, because only the slow path has the hooks of the race detector
// and of the crash points.
const rwmutexHooks = race.Enabled || crashpoint.Enabled

// OpenRWMutex finds the RWMutex of that name in the arena or creates it. An empty name makes a new anonymous
// RWMutex. An RWMutex takes 256 bytes in an arena for up to 511 participants, and 128 bytes more for each slot
// whose participants have opened it. These 128 bytes are allocated when a participant of the slot first opens the
// RWMutex. If there is no room, the error Is [shmsync.ErrNoSpace]. OpenRWMutex panics if opts.Policy is not a valid
// Policy.
func OpenRWMutex(a *arena.Arena, name string, opts *RWMutexOptions) (*RWMutex, error) {
	return openRWMutex((*arenakernel.Arena)(a), name, opts, false)
}

func openRWMutex(a *arenakernel.Arena, name string, opts *RWMutexOptions, attach bool) (*RWMutex, error) {
	var opt RWMutexOptions
	if opts != nil {
		opt = *opts
	}
	opt.Policy.mustBeValid("rwmutex " + strconv.Quote(name))
	log := logSize(opt.Policy, opt.LogBytes, "rwmutex "+strconv.Quote(name))
	size := rwmutexBytes(a)
	if log != 0 {
		size = withLog(uint64(mutexBytes), log)
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: rwmutexKind, Version: rwmutexVersion, Name: name, Size: size, AnySize: true,
		Init: func(body []byte) { initRWMutex(body, &opt, log) },
	}, "rwmutex.open", newRWMutex(&opt), func(m *RWMutex) string {
		return cmp.Or(m.policy.differs(opt.Policy), m.log.differs(opt.LogBytes))
	})
}

// RWMutexAt opens the RWMutex at an offset that another process got from the method Offset.
func RWMutexAt(a *arena.Arena, off arena.Offset) (*RWMutex, error) {
	return handleAt(a, off, "rwmutex.open", rwmutexKind, rwmutexVersion, rwmutexBytes((*arenakernel.Arena)(a)), newRWMutex(&RWMutexOptions{}))
}

func initRWMutex(body []byte, opt *RWMutexOptions, log uint64) {
	w := rwmutexBody(body)
	w.policy = opt.Policy.stored()
	initMutexWords(w.writers, &MutexOptions{Policy: PolicyRelease, Spin: opt.Spin})
	if log != 0 {
		logBody(body, uint64(mutexBytes)).size = uint32(log)
	}
}

func newRWMutex(opt *RWMutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*RWMutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*RWMutex, error) { return buildRWMutex(a, o, opt) }
}

func buildRWMutex(a *arenakernel.Arena, o arenakernel.Object, opt *RWMutexOptions) (*RWMutex, error) {
	w, err := rwmutexAt(a, o)
	if err != nil {
		return nil, err
	}
	log, err := rwmutexLog(a, o, w)
	if err != nil {
		return nil, err
	}
	if log == nil && o.Size != rwmutexBytes(a) {
		return nil, &shmsync.Error{Op: "rwmutex.open", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("%d bytes with policy %v", o.Size, policyOf(w.policy))}
	}
	record, err := a.Within().SlotRecord(o, rwmutexRecordBytes)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	mine := &arenakernel.SlotRecordAt[rwmutexRecord](a, record).state
	m := &RWMutex{
		own: raw64(mine), shut: wordPtr(w.gate), mine: mine, gate: w.gate, words: w, name: a.Self(), records: a.SlotRecords(o),
		a: a, object: o, policy: policyOf(w.policy), repair: opt.Repair,
		wrote: race.KeyOf(dev, ino, uint64(o.Offset)), read: race.KeyOf(dev, ino, uint64(o.Offset)+1),
		opening: newOpening(a, o),
	}
	if log != nil {
		m.policy, m.log, m.tx = PolicyRollback, log, newTx(log, objectName(o))
		m.opening.inside = markedFunc{&m.tx.inside, "the function of an Update"}
	} else if m.policy == PolicyRollback {
		m.policy = PolicyReport // without a log, only a peer can have written PolicyRollback
	}
	m.known.Store(readReaderWords(a, o))
	m.registry = common[readerRegistry](m.opening)
	m.opening.refuse, m.opening.left, m.opening.drain, m.opening.end = m.refuse, m.callsLeft, m.awaitUnlock, m.end
	m.opening.owed = m.wakeOwed
	// If the words of the writers' mutex were never initialized, its policy reads as PolicyReport. Under that policy
	// the mutex calls a Repair after a death. This Repair has nothing to do, because the gate records what a dead
	// writer has left.
	m.writers = buildMutexAt(a, o, o.Body, &MutexOptions{Repair: func() error { return nil }})
	m.writers.internal = true // the gate guards the data; this mutex does not
	m.writers.counted()
	m.writers.opening, m.writers.inner = m.opening, true
	m.wakeWordReaders, m.wakeWordWriter = rwmutexWakeWords(a, w)
	m.readers = park.NewQueue(park.Config{
		WaitList: m.wakeWordReaders.WaitList, Object: o, Word: o.Body + rwmutexReadersOff, All: true, Check: m.checkReaders,
	})
	m.writer = park.NewQueue(park.Config{
		WaitList: m.wakeWordWriter.WaitList, Object: o, Word: o.Body + rwmutexWriterOff, All: true, Check: m.checkWriter,
	})
	m.moveIn()
	m.knowUpgradable()
	return m, nil
}

func rwmutexWakeWords(a *arenakernel.Arena, w rwmutexAll) (readers, writer park.WakeWord) {
	wakeWord := func(word *atomic.Uint32, poller *atomic.Uint64) park.WakeWord {
		return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: word, Raw: wordPtr(word), Poller: poller}}
	}
	return wakeWord(&w.wakeReaders, &w.pollerReaders), wakeWord(&w.wakeWriter, &w.pollerWriter)
}

// moveIn makes this participant the owner of the reader word of its slot, unless it is the owner already.
func (m *RWMutex) moveIn() {
	for fresh := readerWord(m.name.Generation()); ; {
		w := readerWord(m.mine.Load())
		if w.generation() == m.name.Generation() {
			break // an earlier handle of this process has done this already; the process may have holds
		}
		if m.mine.CompareAndSwap(uint64(w), uint64(fresh)) {
			m.wakeWordWriter.Release() // a writer may be waiting for the dead participant that had the slot before
			break
		}
	}
}

// RLock locks m for reading, and waits until that is possible. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, or if this process closes the arena while the call waits. A process can have up
// to 8,388,606 read holds at a time. RLock does not check this, because the check would make each call slower. It
// also panics, with an error that Is ErrNoSpace, if 8,388,606 goroutines of this process wait already.
func (m *RWMutex) RLock() {
	if rwmutexHooks {
		m.rlockOrPanic(0)
		return
	}
	if w := atomic.AddUint64(m.own, uint64(readerOne)); atomic.LoadUint32(m.shut) != 0 {
		m.rlockOrPanic(w)
	}
}

// RLockContext locks m for reading, and waits until that is possible or ctx ends. An error means that m is not
// held. The error is ctx.Err(), or it Is ErrCorrupt, ErrClosed or ErrNoSpace. Depending on the policy of m, it may also
// be one that Is ErrOwnerDead or ErrNotRecoverable. If there is no writer, the call ignores ctx.
func (m *RWMutex) RLockContext(ctx context.Context) error {
	if rwmutexHooks {
		return m.rlockSlow(ctx, 0)
	}
	if w := atomic.AddUint64(m.own, uint64(readerOne)); atomic.LoadUint32(m.shut) != 0 {
		return m.rlockSlow(ctx, w)
	}
	return nil
}

// RUnlock releases one read hold. It panics if this process has no read hold.
func (m *RWMutex) RUnlock() {
	if rwmutexHooks {
		m.runlockHooks()
		return
	}
	w := atomic.AddUint64(m.own, readerBack)
	if atomic.LoadUint32(m.shut) != 0 || w >= readerBelow {
		m.runlockSlow(w)
	}
}

// RLocker returns a Locker whose Lock and Unlock are RLock and RUnlock of m.
func (m *RWMutex) RLocker() sync.Locker { return (*rlocker)(m) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }

// Offset is the place of the RWMutex in its arena, for RWMutexAt in another process.
func (m *RWMutex) Offset() arena.Offset { return m.object.Offset }

// Close closes this handle on the RWMutex, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. Holds of this process stay, and can be released through another handle. A second Close
// is an error that Is ErrClosed.
func (m *RWMutex) Close() error { return m.opening.close("rwmutex.close") }

func (m *RWMutex) queues() []*park.Queue {
	return []*park.Queue{m.writers.queue, m.readers, m.writer}
}

// end gives the fast paths of this handle private words in place of the words of the lock, as Mutex.end does.
func (m *RWMutex) end() {
	for _, q := range m.queues() {
		q.Close()
	}
	takeWords(&m.writers.own, &m.writers.wake)
	redirect(&m.shut, &closedGate)
	redirect(&m.own, &closedReader)
}

// Policy says what happens to m when its writer dies.
func (m *RWMutex) Policy() Policy { return m.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn the bound from
// earlier spins; if d is negative, they never spin.
func (m *RWMutex) SetSpin(d time.Duration) {
	m.opening.use()
	m.words.writers.spin.Store(spinField(d))
}

// Spin returns the duration that the last SetSpin set.
func (m *RWMutex) Spin() time.Duration {
	m.opening.use()
	return spinOf(m.words.writers.spin.Load())
}

// RWMutexState is the result of State.
type RWMutexState struct {
	Held    bool              // a process writes, or recovers the lock
	Owner   *shmsync.Identity // the process that writes, waits for the readers to leave, has the upgradable hold, or died with one of these; nil if there is none or it is not known
	Readers int               // how many read holds all living processes have
	Waiting int               // how many goroutines of all living processes wait to read
	Closed  bool              // a writer, or an Upgrade, waits for the readers to leave
	// Upgradable says that a process has the upgradable hold. It is also true for a moment before a writer closes
	// the gate, and after a writer has opened the gate.
	Upgradable bool
	Queued     bool   // writers may be waiting for the holder of the writers' mutex
	Err        error  // why no call can lock m: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word       string // the gate, rendered for people
}

// State reads m without locking it. The answer may be out of date
// when it returns.
func (m *RWMutex) State() RWMutexState {
	m.opening.use()
	g := gateWord(m.gate.Load())
	s := RWMutexState{
		Held: g.taken() && g.kind() != gateClosed, Closed: g.kind() == gateClosed && g.valid(),
		Queued: m.writers.wakeWord.Announced(), Word: g.String(),
	}
	readers := m.readerWords()
	for _, r := range readers.words {
		if w := r.load(); m.a.Current(r.name(w)) {
			s.Readers += int(w.reading())
			s.Waiting += int(w.waiting())
		}
	}
	if n := g.participant(); n != 0 {
		s.Owner = m.a.Who(n)
	}
	if n := m.upgrader(); n != 0 {
		s.Upgradable, s.Owner = true, m.a.Who(n)
	}
	switch {
	case !g.valid(), readers.err != nil:
		s.Err = shmsync.ErrCorrupt
	case g.kind() == gateOwnerDead:
		s.Err = shmsync.ErrOwnerDead
	case g == gateNotRecoverable:
		s.Err = shmsync.ErrNotRecoverable
		s.Owner = m.a.Who(m.diedName())
	}
	return s
}

// String renders the state on one line.
func (m *RWMutex) String() string {
	s := m.State()
	if n := m.upgrader(); n != 0 {
		s.Word += ", held upgradable by " + n.String()
	}
	return fmt.Sprintf("rwmutex %s: %s, %d reading, %d waiting", objectName(m.object), s.Word, s.Readers, s.Waiting)
}

func (m *RWMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(m.words.died.Load() & arenakernel.ParticipantIDMask)
}

func (m *RWMutex) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(m.a, m.object, op, err, who, detail)
}

func (m *RWMutex) closed(op string) error {
	return m.fail(op, shmsync.ErrClosed, nil, closedHandle)
}

// trouble returns an error if the gate g is corrupt, or stays closed until a process calls Recover. Otherwise it
// returns nil.
func (m *RWMutex) trouble(op string, g gateWord) error {
	switch {
	case !g.valid():
		return m.fail(op, shmsync.ErrCorrupt, nil, g.String())
	case g.kind() == gateOwnerDead:
		return m.fail(op, shmsync.ErrOwnerDead, m.a.Who(g.participant()), "")
	case g == gateNotRecoverable:
		return notRecoverable(m.a, m.object, op, m.diedName(), m.log)
	}
	return nil
}
