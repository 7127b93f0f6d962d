package prims

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// multiBucket is a bucket of keys as this process uses it. It implements the interface rules for the bucket's
// monitor.
type multiBucket struct {
	of     *MultiLock
	number int
	words  *multiLockBucket
	mon    *monitor
	// last and cached are values that this process leaves in the low half of the hold of an entry. It leaves last
	// if the key becomes free, and cached if the key becomes cached.
	last, cached uint32
	turns        *park.Turns // the line in which this process's waits stand; nil in a handle that only recovers
	mayBeBiased  atomic.Bool // this process has had a hold in the bucket that it ends by a CAS (a biased hold)
}

func newMultiBucket(x *MultiLock, i int) *multiBucket {
	off := multiBucketAt(x.object, i)
	k := &multiBucket{of: x, number: i, words: arenakernel.At[multiLockBucket](x.a, off)}
	k.last, k.cached = uint32(makeOwner(keyFree, x.name)), uint32(makeOwner(keyCached, x.name))
	k.mon = buildMonitor(x.a, x.object, off, k, x.bare)
	if !x.bare {
		k.turns = x.turns.of(i)
	}
	k.mon.opening, k.mon.queueLock.opening = x.opening, x.opening
	k.mon.mine = func(w wait) bool { return k.isWait(w.Node) }
	for i := range k.words.entries {
		// Another handle of this process may have left a cached key in the entry.
		if uint32(k.words.entries[i].hold.Load()) == k.cached {
			k.mayBeBiased.Store(true)
		}
	}
	return k
}

// take puts a free key into the unused entry s and locks the key. If this process had the key last, the hold
// becomes biased. From then on the process locks and unlocks the key by CAS. A biased key is more costly for other
// processes. So a key becomes biased only when the process takes it for the second time in a row.
func (k *multiBucket) take(s *multiLockEntry, key uint64) Hold {
	kind := kindHeld
	if s.key.Load() != key {
		storeWord(&s.key, key)
	} else if !race.Enabled && k.mon.counts == nil && uint32(s.hold.Load()) == k.last {
		kind = keyBiased
		if !k.mayBeBiased.Load() {
			k.mayBeBiased.Store(true)
		}
	}
	h := k.newHold(kind)
	k.mon.counts.took()
	storeWord(&s.queue, 0)
	// lin: the key is taken here.
	storeWord(&s.hold, uint64(h))
	crashpoint.Hit("multilock.lock.taken")
	return Hold{k, s, key, h}
}

// newHold returns the word of a new hold of this process, with the next stamp of the bucket.
func (k *multiBucket) newHold(kind ownerKind) keyHold {
	arrivals := &k.words.mon.arrivals
	stamp := arrivals.Load() + 1
	storeWord(arrivals, stamp)
	return makeKeyHold(kind, k.of.name, uint32(stamp))
}

// multiTurns has the lines in which waits of this process stand, one park.Turns for each bucket in which the
// process has waited.
type multiTurns struct {
	mu  sync.Mutex
	all map[int]*park.Turns // guarded by: mu
}

// of returns the park.Turns of the bucket with the given index, and makes it if necessary.
func (m *multiTurns) of(bucket int) *park.Turns {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[int]*park.Turns{}
	}
	t := m.all[bucket]
	if t == nil {
		t = new(park.Turns)
		m.all[bucket] = t
	}
	return t
}

// spareNode is a wait node that a call has taken from the pool before it takes the queue lock. The call needs the
// node if the bucket has no room for the record of the key.
type spareNode struct {
	off  arenakernel.Offset
	node *arenakernel.Node
}

func (s *spareNode) claim(a *arenakernel.Arena) (err error) {
	if s.off, err = a.ClaimNode(); err == nil {
		s.node, err = a.NodeAt(s.off)
	}
	return err
}

func (s *spareNode) giveBack(a *arenakernel.Arena) {
	if s.off != 0 {
		a.FreeNode(s.off)
	}
}

// lockSlow is the part of lock that needs the queue lock. The caller holds the queue lock; lockSlow releases it.
func (k *multiBucket) lockSlow(ctx context.Context, key uint64) (Hold, error) {
	m, x := k.mon, k.of
	// This call may be granted the key. Close waits until the call has accepted that grant.
	if err := m.begin(); err != nil {
		m.leave(nil)
		return Hold{}, err
	}
	defer m.finish()
	b := takeWakes()
	var waitNode *park.WaitNode
	var spare spareNode
	defer func() { spare.giveBack(x.a) }()
	done := func(h Hold, err error) (Hold, error) {
		m.leave(b)
		if waitNode != nil {
			waitNode.Return()
		}
		return h, err
	}
	for {
		k.lookAt(b, key)
		e := k.find(key)
		if e.there() {
			if err := k.refusal(key, e.hold()); err != nil {
				return done(Hold{}, err)
			}
			var again bool
			var err error
			if waitNode, again, err = m.waitNode(ctx, waitNode); err != nil {
				m.wake(b)
				return Hold{}, err
			}
			if again {
				continue
			}
			return k.queueUp(ctx, key, waitNode, b)
		}
		_, was := k.seek(key)
		room := k.room(was)
		switch {
		case room != nil:
			return done(k.take(room, key), nil)
		case spare.off != 0:
			h := k.newHold(kindHeld)
			k.spill(spare.off, spare.node, key, h)
			spare = spareNode{}
			return done(Hold{k, nil, key, h}, nil)
		}
		m.leave(b)
		b = takeWakes()
		err := spare.claim(x.a)
		if err == nil {
			err = m.enter(ctx)
		}
		if err != nil {
			m.wake(b)
			if waitNode != nil {
				waitNode.Return()
			}
			return Hold{}, err
		}
	}
}

// queueUp puts the wait for the key in the queue, with the node waitNode, and waits. The caller holds the queue
// lock; queueUp releases it.
func (k *multiBucket) queueUp(ctx context.Context, key uint64, waitNode *park.WaitNode, b *wakes) (Hold, error) {
	k.mon.join(waitNode, 0, key)
	k.turns.AppendKey(waitNode, key)
	h := makeKeyHold(kindHeld, k.of.name, uint32(waitNode.Node.Stamp().Load()))
	k.mon.leave(b)
	end, err := k.mon.await(ctx, waitNode)
	if err == nil {
		err = k.judge(key, end)
	}
	if err == nil {
		if err = k.accept(key, h); err != nil {
			k.turns.KeyHoldEnded(key)
		}
	}
	if err != nil {
		return Hold{}, err
	}
	return Hold{k, nil, key, h}, nil
}

// tryLockSlow is the part of TryLock that needs the queue lock. The caller holds the queue lock; tryLockSlow
// releases it.
func (k *multiBucket) tryLockSlow(key uint64) (h Hold, ok bool) {
	b := takeWakes()
	defer func() { k.mon.leave(b) }()
	e := k.find(key)
	if e.there() {
		k.lookAt(b, key)
		e = k.find(key)
	}
	if e.there() {
		return Hold{}, false
	}
	_, was := k.seek(key)
	if room := k.room(was); room != nil {
		return k.take(room, key), true
	}
	var spare spareNode
	if spare.claim(k.of.a) != nil {
		return Hold{}, false
	}
	hold := k.newHold(kindHeld)
	k.spill(spare.off, spare.node, key, hold)
	return Hold{k, nil, key, hold}, true
}

// lookAt prepares the key for a caller that wants to lock it. It takes back what dead participants hold. If the key
// was unlocked while others waited, it grants the key to the first waiter. The caller holds the queue lock.
func (k *multiBucket) lookAt(b *wakes, key uint64) {
	if e := k.find(key); e.there() {
		if h := e.hold(); h.taken() && k.of.a.Dead(h.owner().participant()) {
			k.mon.sweep(b)
			return
		}
	}
	k.mon.reapIfDue(b)
	if e := k.find(key); e.there() && e.hold().owner().kind() == kindReserved {
		k.resolveEntry(b, e)
	}
}

// result says how a wait ends for a key with the hold h, if the hold keeps every process from getting the key. It
// also returns the participant whose death is the reason. The result lockGranted means that nothing keeps a process
// from getting the key.
func (h keyHold) result() (result uint32, who arenakernel.ParticipantID) {
	switch o := h.owner(); {
	case !h.valid() || h.fast() || h.kind() == keyFree:
		return lockCorrupt, 0 // an invalid state: the entry is in use, and after a claim its hold cannot be a fast one
	case o.kind() == kindOwnerDead:
		return lockOwnerDead, h.died()
	case o == ownerNotRecoverable:
		return lockNotRecoverable, h.died()
	}
	return lockGranted, 0
}

// judge returns nil if the outcome of a wait is a grant, and the error that belongs to the outcome otherwise.
func (k *multiBucket) judge(key uint64, end outcome) error {
	if end.result() == lockGranted {
		return nil
	}
	return k.failure(key, end.result(), arenakernel.ParticipantID(end.aux()&arenakernel.ParticipantIDMask))
}

func (k *multiBucket) failure(key uint64, result uint32, who arenakernel.ParticipantID) error {
	err := shmsync.ErrCorrupt
	switch result {
	case lockOwnerDead:
		err = shmsync.ErrOwnerDead
	case lockNotRecoverable:
		err = shmsync.ErrNotRecoverable
	}
	var id *shmsync.Identity
	if who != 0 {
		id = k.of.a.Who(who)
	}
	return k.of.fail("multilock.lock", err, id, fmt.Sprintf("key %d", key))
}

// badUnlock panics because a caller unlocks a key that it does not hold. The caller holds the queue
// lock; badUnlock releases it.
func (k *multiBucket) badUnlock(h Hold, e keyEntry) {
	is := keyHold(0)
	if e.there() {
		is = e.hold()
	}
	k.mon.leave(nil)
	if !is.valid() {
		panic(k.of.fail("multilock.unlock", shmsync.ErrCorrupt, nil, fmt.Sprintf("key %d: %v", h.key, is)))
	}
	panic(fmt.Sprintf("shmsync: Unlock of key %d of multilock %s, which this Hold does not hold: it is %v", h.key, objectName(k.of.object), is))
}

// resolve calls resolveEntry for the record of every key in use.
func (k *multiBucket) resolve(b *wakes) {
	k.eachEntry(func(e keyEntry) { k.resolveEntry(b, e) })
}

// resolveEntry decides about the waits for the key of e. If the key was unlocked, resolveEntry grants it to the
// first waiter, or frees the record if nobody waits. If no process can get the key, it ends all waits for the key.
func (k *multiBucket) resolveEntry(b *wakes, e keyEntry) {
	for e.waitedFor() {
		h := e.hold()
		result, who := h.result()
		if result == lockGranted && h.owner().kind() != kindReserved {
			return
		}
		w, ok := k.head(e)
		if !ok {
			break
		}
		// The waiter's process may be dead without any process having noticed. If that waiter were granted the key,
		// its process would count as a holder that died.
		if !k.mon.waiting(w) || result == lockGranted && k.of.a.Dead(w.Owner()) {
			k.detach(w)
			k.mon.releaseNode(w)
			continue
		}
		if k.mon.end(b, w, result, uint32(who)) {
			k.account(w)
		}
	}
	if e.hold().owner().kind() == kindReserved {
		k.free(e)
	}
}

func (k *multiBucket) head(e keyEntry) (w wait, ok bool) {
	k.withQueue(e, func(q *fifo) { w, ok = q.head() })
	return w, ok
}

// account stores the grant of a key for a wait that was resolved. At the time when the wait was resolved, the hold
// was in the state reserved, which means that the key is on its way to a waiter. If the hold has changed since
// then, the grant has been stored already, and the waiter may even have accepted the key.
func (k *multiBucket) account(w wait) {
	if outcome(w.Extra().Load()).result() == lockGranted {
		if e := k.find(w.Wanted().Load()); e.there() && e.hold().kind() == kindReserved {
			e.set(makeKeyHold(keyGranted, w.Owner()&arenakernel.ParticipantIDMask, uint32(w.Stamp().Load())))
			crashpoint.Hit("multilock.grant.granted")
		}
	}
	k.mon.account(w, nil)
}

func (k *multiBucket) detach(w wait) {
	if e := k.find(w.Wanted().Load()); e.there() {
		k.withQueue(e, func(q *fifo) { q.detach(w) })
	}
}

// requeue puts a wait at the end of the queue of its key. Each key that is waited for has a record, unless a peer
// has overwritten the record. In that case requeue makes a new record, in the state reserved: the key is on its way
// to a waiter.
func (k *multiBucket) requeue(w wait) {
	key := w.Wanted().Load()
	e := k.find(key)
	if !e.there() {
		_, was := k.seek(key)
		room := k.room(was)
		h := k.newHold(kindReserved)
		var spare spareNode
		switch {
		case room != nil:
			e = inlineEntry(room)
			storeWord(e.key, key)
			storeWord(e.queue, 0)
			e.set(h)
		case spare.claim(k.of.a) == nil:
			e = k.spill(spare.off, spare.node, key, h)
		default:
			return
		}
	}
	k.withQueue(e, func(q *fifo) { q.requeue(w) })
}

func (k *multiBucket) each(f func(wait) bool) {
	k.eachEntry(func(e keyEntry) {
		for w, ok := k.head(e); ok; {
			var next wait
			var more bool
			k.withQueue(e, func(q *fifo) { next, more = q.after(w) })
			if more && next.Stamp().Load() <= w.Stamp().Load() {
				k.mon.broken.Store(true)
				more = false
			}
			if !f(w) {
				return
			}
			w, ok = next, more
		}
	})
}

// reap takes back the holds of dead participants, as the policy says.
func (k *multiBucket) reap(dead func(arenakernel.ParticipantID) bool) {
	k.eachEntry(func(e keyEntry) {
		h := e.hold()
		if !h.valid() || !h.taken() || !dead(h.owner().participant()) {
			return
		}
		if h.fast() {
			h = k.claim(e)
		}
		next := h.ownerDied(k.of.policy)
		if h.granted() || h.owner().held() && (next.owner().kind() == kindOwnerDead || k.mon.ended(h.owner().participant())) {
			e.set(next)
			if !h.granted() {
				key := e.key.Load()
				tellDied(k.of.a, k.of.object, &key, h.owner().participant(), next.owner().kind() != kindOwnerDead)
			}
		}
	})
}

// holders calls f for the participants that hold a key of this bucket. It does not need the queue lock.
func (k *multiBucket) holders(f func(arenakernel.ParticipantID)) {
	tell := func(e keyEntry) {
		if h := e.hold(); h.valid() && h.taken() {
			f(h.owner().participant())
		}
	}
	for i := range k.words.entries {
		tell(inlineEntry(&k.words.entries[i]))
	}
	k.peekSpilled(tell)
}

// peek returns the hold of a key, and whether waits are queued for the key. It does not need the queue lock.
func (k *multiBucket) peek(key uint64) (h keyHold, waiting bool) {
	check := func(e keyEntry) {
		if now := e.hold(); !now.free() && e.key.Load() == key {
			h, waiting = now, e.waitedFor()
		}
	}
	for i := range k.words.entries {
		check(inlineEntry(&k.words.entries[i]))
	}
	k.peekSpilled(check)
	return h, waiting
}
