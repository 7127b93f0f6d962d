package prims

import (
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

// RWMutex is a reader/writer mutual exclusion lock between processes: it is
// held by any number of readers or by one writer. One process may hold it
// upgradable: it reads beside the other readers, and can become the writer without
// letting another writer in between. A hold belongs to a process: a
// goroutine may lock it and another of the same process unlock it. It is not
// recursive: a goroutine that reads must not read again, since a writer that
// came in between waits for the first and keeps out the second.
//
// Readers of different processes write different cache lines.
//
// # Who goes first
//
// A writer that has its turn among the writers closes a gate: readers that come
// after that wait, and it waits for the readers that are in. When it unlocks, or
// gives up, all readers that sleep by then are let in at once, before another
// writer can close the gate. So:
//
//   - A reader that sleeps is passed by one writer at most: the one that it
//     sleeps for.
//
//   - A writer is passed by no reader once it has its turn. Among writers it is as
//     with a [Mutex]: they barge, and one that has lost for a millisecond is
//     handed the next turn.
//
//   - An upgradable hold takes a turn among the writers and leaves the gate open:
//     writers and other upgradable holds wait for it, readers do not. Upgrade closes
//     the gate and waits for the readers that are in, as a writer does.
//
// Across the death of a writer the count begins anew. If the process of a writer does not
// run for a tenth of a second, because it is stopped for example, readers that only wait for
// this writer open the gate and pass it. The writer closes the gate again when it runs. A
// hold is never taken away from a living process.
//
// # From one hold to another
//
// No other writer comes in between.
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
// RUnlock, UnlockUpgradable and Unlock give the holds back. A read hold cannot become
// another hold: two readers that both wanted to write would wait for each other.
//
// # When a process dies
//
// Its read holds end, and no other process loses one. An upgradable hold ends in the same
// way under every policy, because nothing was written. If the process was waiting to write
// or to upgrade, the next writer goes on. If it was writing, the [Policy] decides: the lock
// becomes free, or it is owner-dead for readers and writers until Recover.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call
// of Unlock synchronizes before the m'th call of Lock returns. For every call of RLock there
// is an n such that the n'th call of Unlock synchronizes before that call returns, and the
// call of RUnlock that goes with it synchronizes before the n+1'th call of Lock returns.
// Upgrade counts as a Lock, and Downgrade as an Unlock and an RLock. Among Lock and Unlock,
// LockUpgradable counts as a Lock, and UnlockUpgradable and DowngradeToRead as an Unlock; an
// earlier RUnlock does not synchronize before LockUpgradable, nor UnlockUpgradable before a
// later RLock. A release by a death synchronizes before the call that reports it, and before
// the call that gets the lock because of it.
type RWMutex struct {
	// The fast paths fit the compiler's budget for inlining only with plain
	// pointers to their words and the functions of package atomic.

	own  *uint64 // this participant's reader word
	shut *uint32 // the gate

	mine    *atomic.Uint64 // this participant's reader word
	gate    *atomic.Uint32
	words   rwmutexAll
	name    arenakernel.ParticipantID
	writers *Mutex // its holder closes the gate, writes, and opens the gate

	wakeWordReaders park.WakeWord
	wakeWordWriter  park.WakeWord
	readers         *park.Queue // waits for the gate
	writer          *park.Queue // waits for readers

	a        *arenakernel.Arena
	object   arenakernel.Object
	policy   Policy
	repair   func() error
	wrote    race.Key        // released by writers
	read     race.Key        // released by readers
	registry *readerRegistry // shared by the handles of this process
	opening  *opening
	calls    atomic.Int32  // those between begin and finish
	stuck    atomic.Uint32 // the gate that the last check found closed although nobody reads
}

// readerRegistry is what this process knows about its goroutines that wait to
// read. A grant lets in all that are registered, so it is one number that tells
// them apart: a goroutine was let in when the epoch is not any more the one in
// which it registered.
//
// It also tells whether this process has the upgradable hold.
type readerRegistry struct {
	sync.Mutex
	upgradable atomic.Uint32 // upgradableNot and its like
	known      bool          // guarded by: Mutex; upgradable says what earlier handles left
	waiting    uint32        // guarded by: Mutex; registered in this epoch
	due        uint32        // guarded by: Mutex; let in, and not aware of it yet
	epoch      uint64        // guarded by: Mutex; grants so far
}

// RWMutexOptions says how a RWMutex is created, and what this process does with
// it. A nil *RWMutexOptions means the zero value.
type RWMutexOptions struct {
	// Policy is what becomes of the lock when its writer dies; 0 means PolicyReport for a
	// new object, and any policy for one that exists. If it is set and the object has
	// another policy, opening fails.
	Policy Policy
	// Repair, if set, is called by this process's Lock, LockContext, LockUpgradable,
	// LockUpgradableContext, RLock and RLockContext when they find that a writer died. They
	// hold the lock while it runs. If it returns nil, they return with the lock; otherwise
	// they fail with ErrNotRecoverable, as Recover does. It belongs to this handle and is
	// not stored.
	Repair func() error
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from what has paid off; if it is negative, they never spin.
	// See RWMutex.SetSpin.
	Spin time.Duration
}

var rwmutexKind = arenakernel.KindOf("RWMX")

const rwmutexVersion = 1

// rwmutexHooks makes every call take its slow path, where the race detector and
// the crash points have their hooks.
const rwmutexHooks = race.Enabled || crashpoint.Enabled

// OpenRWMutex finds the RWMutex of that name in the arena or creates it. An
// empty name makes a fresh anonymous one. It takes 128 bytes for each participant
// that the arena can have. It panics if opts.Policy is not a valid
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
	if err := opt.Policy.withoutLog("rwmutex.open", name, "an RWMutex"); err != nil {
		return nil, err
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: rwmutexKind, Version: rwmutexVersion, Name: name, Size: rwmutexBytes(a.MaxParticipants()),
		Init: func(body []byte) { initRWMutex(rwmutexBody(body), &opt) },
	}, "rwmutex.open", newRWMutex(&opt), func(m *RWMutex) string { return m.policy.differs(opt.Policy) })
}

// RWMutexAt opens the RWMutex at an offset. Another process got the offset from the method
// Offset.
func RWMutexAt(a *arena.Arena, off arena.Offset) (*RWMutex, error) {
	return handleAt(a, off, "rwmutex.open", rwmutexKind, rwmutexVersion, rwmutexBytes((*arenakernel.Arena)(a).MaxParticipants()), newRWMutex(&RWMutexOptions{}))
}

func initRWMutex(w *rwmutexWords, opt *RWMutexOptions) {
	w.policy = opt.Policy.stored()
	initMutexWords(&w.writers, &MutexOptions{Policy: PolicyRelease, Spin: opt.Spin})
}

func newRWMutex(opt *RWMutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*RWMutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*RWMutex, error) { return buildRWMutex(a, o, opt) }
}

func buildRWMutex(a *arenakernel.Arena, o arenakernel.Object, opt *RWMutexOptions) (*RWMutex, error) {
	w, err := rwmutexAt(a, o)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	mine := w.line(a.Self().Slot())
	m := &RWMutex{
		own: raw64(mine), shut: wordPtr(&w.gate), mine: mine, gate: &w.gate, words: w, name: a.Self(),
		a: a, object: o, policy: policyOf(w.policy), repair: opt.Repair,
		wrote: race.KeyOf(dev, ino, uint64(o.Offset)), read: race.KeyOf(dev, ino, uint64(o.Offset)+1),
		opening: newOpening(a, o),
	}
	m.registry = common[readerRegistry](m.opening)
	m.opening.shut, m.opening.end = m.endCalls, m.end
	// The Repair is for bytes that were never initialized, where the policy of
	// the writers' mutex reads as PolicyReport: what a death leaves is told by the gate.
	m.writers = buildMutexAt(a, o, o.Body, &MutexOptions{Repair: func() error { return nil }})
	m.writers.internal = true // the gate guards the data
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

// moveIn makes the reader word of this process's slot its own, and has writers
// look at it.
func (m *RWMutex) moveIn() {
	for fresh := readerWord(m.name.Generation()); ; {
		w := readerWord(m.mine.Load())
		if w.generation() == m.name.Generation() {
			break // it has had the object open before, and may hold it
		}
		if m.mine.CompareAndSwap(uint64(w), uint64(fresh)) {
			m.wakeWordWriter.Release() // the dead may have been waited for
			break
		}
	}
	for {
		h := m.words.high.Load()
		if h >= uint32(m.name.Slot()) || m.words.high.CompareAndSwap(h, uint32(m.name.Slot())) {
			return
		}
	}
}

// RLock locks m for reading, and waits until it can. It panics with an
// *[shmsync.Error] when the lock is owner-dead or not recoverable, or when this
// process closes the arena meanwhile.
func (m *RWMutex) RLock() {
	if !rwmutexHooks {
		atomic.AddUint64(m.own, uint64(readerOne))
		if atomic.LoadUint32(m.shut) == 0 {
			return
		}
	}
	m.rlockOrPanic()
}

// RLockContext locks m for reading, and waits until it can or ctx ends. An error means that
// m is not held: ctx.Err(), or an error that Is ErrOwnerDead or ErrNotRecoverable by the
// policy of m, ErrCorrupt, or ErrClosed. If there is no writer, ctx is not looked at.
func (m *RWMutex) RLockContext(ctx context.Context) error {
	if !rwmutexHooks {
		atomic.AddUint64(m.own, uint64(readerOne))
		if atomic.LoadUint32(m.shut) == 0 {
			return nil
		}
	}
	return m.rlockSlow(ctx)
}

// RUnlock gives one read hold back. It panics when this process has none.
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

// RLocker gives a Locker whose Lock and Unlock are RLock and RUnlock of m.
func (m *RWMutex) RLocker() sync.Locker { return (*rlocker)(m) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }

// Offset is where the RWMutex lies in its arena, for RWMutexAt in another
// process.
func (m *RWMutex) Offset() arena.Offset { return m.object.Offset }

// Close closes the handle, and no other handle on the RWMutex. Calls that wait by it
// end with an error that Is ErrClosed. Holds of this process stay, and are given back
// through another handle. A second Close is an error that Is ErrClosed.
func (m *RWMutex) Close() error { return m.opening.close("rwmutex.close") }

func (m *RWMutex) queues() []*park.Queue {
	return []*park.Queue{m.writers.queue, m.readers, m.writer}
}

// end takes the words away from the fast paths, as Mutex.end does.
func (m *RWMutex) end() {
	for _, q := range m.queues() {
		q.Close()
	}
	takeWords(&m.writers.own, &m.writers.wake)
	redirect(&m.shut, &closedGate)
	redirect(&m.own, &closedReader)
}

// Policy is what becomes of m when its writer dies.
func (m *RWMutex) Policy() Policy { return m.policy }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, they
// learn the bound; if d is negative, they never spin.
func (m *RWMutex) SetSpin(d time.Duration) {
	m.opening.use()
	m.words.writers.spin.Store(spinField(d))
}

// Spin is what SetSpin set.
func (m *RWMutex) Spin() time.Duration {
	m.opening.use()
	return spinOf(m.words.writers.spin.Load())
}

// RWMutexState is what State tells.
type RWMutexState struct {
	Held    bool              // a process writes, or repairs
	Owner   *shmsync.Identity // the process that writes, waits for the readers to leave, has the upgradable hold, or died with it; nil when none or unknown
	Readers int               // read holds of all living processes
	Waiting int               // goroutines of all living processes that wait to read
	Closed  bool              // a writer, or an Upgrade, waits for the readers to leave
	// Upgradable says that a process has the upgradable hold. It is also true for the
	// moment in which a writer has its turn and has not closed the gate yet, or has
	// opened the gate and still has its turn.
	Upgradable bool
	Queued     bool   // writers may be waiting for a writer
	Err        error  // why nobody can lock it: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word       string // the gate in words
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
	for i := 1; i <= m.words.used(); i++ {
		if w := readerWord(m.words.line(i).Load()); m.a.Current(w.name(i)) {
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
	case !g.valid():
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

// used is the highest slot whose word has to be looked at.
func (w rwmutexAll) used() int { return int(min(w.high.Load(), uint32(w.slots))) }

func (m *RWMutex) diedName() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(m.words.died.Load() & arenakernel.ParticipantIDMask)
}

func (m *RWMutex) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return &shmsync.Error{Op: op, Object: objectName(m.object), Err: err, Who: who, Detail: detail}
}

func (m *RWMutex) closed(op string) error {
	return m.fail(op, shmsync.ErrClosed, nil, closedHandle)
}

// trouble is why a gate will not open by itself, or nil.
func (m *RWMutex) trouble(op string, g gateWord) error {
	switch {
	case !g.valid():
		return m.fail(op, shmsync.ErrCorrupt, nil, g.String())
	case g.kind() == gateOwnerDead:
		return m.fail(op, shmsync.ErrOwnerDead, m.a.Who(g.participant()), "")
	case g == gateNotRecoverable:
		return m.fail(op, shmsync.ErrNotRecoverable, m.a.Who(m.diedName()), "")
	}
	return nil
}
