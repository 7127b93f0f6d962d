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
)

var (
	_ = crashpoint.Register("multilock.lock.biased")
	_ = crashpoint.Register("multilock.lock.taken")
	_ = crashpoint.Register("multilock.lock.spilled")
	_ = crashpoint.Register("multilock.unlock.biased")
	_ = crashpoint.Register("multilock.unlock.passing")
	_ = crashpoint.Register("multilock.lock.accepted")
	_ = crashpoint.Register("multilock.grant.granted")
	_ = crashpoint.Register("multilock.lockall.partly")
)

// MultiLock is a mutual exclusion lock for each of 2^64 keys, between processes. One process at a time holds a key,
// and waiters get the key in the order of arrival. Waiters for different keys do not wait for each other. A
// MultiLock takes memory only for keys that are held or waited for now. A process whose waiter was granted a key
// holds the key only when that waiter runs again. If the process dies before then, the next waiter gets the key.
//
// The keys are spread over buckets. Each bucket has its own internal lock, which an operation holds for some
// nanoseconds. If one process takes a key again and again while no other process wants it, the process locks and
// unlocks the key without that internal lock. Five keys of a bucket can be held without more memory; each further
// key costs 64 bytes of the arena. For many thousands of held keys, create the MultiLock with more buckets.
//
// In the terminology of the Go memory model, and across processes: for each key and n < m the n'th Unlock
// synchronizes before the return of the m'th call that locks it. If a holder dies, the release by its death
// synchronizes before the call that reports the death, and before the call that gets the key because of it.
type MultiLock struct {
	a      *arenakernel.Arena
	object arenakernel.Object
	name   arenakernel.ParticipantID
	policy Policy
	log    uint // base-2 logarithm of the number of buckets
	all    []atomic.Pointer[multiBucket]
	mu     sync.Mutex // held while buckets are made
	bare   bool
	turns  *multiTurns // the lines in which waits of this process stand; nil in a handle that only recovers from deaths

	opening *opening
}

// MultiLockOptions says how a MultiLock is created. A nil *MultiLockOptions means
// the zero value.
type MultiLockOptions struct {
	// Policy says what happens to a key when its holder dies. 0 means PolicyReport for a new
	// object, and any policy for an existing object. If Policy is set and an existing object has
	// another policy, opening fails.
	Policy Policy
	// Buckets is the number of parts over which the keys are spread. Each part has its own queue
	// lock and takes 512 bytes. The number is rounded up to a power of two and is at most 65,536. 0
	// means 64 for a new object, and any number for an existing object. If Buckets is set and an
	// existing object has another number, opening fails.
	Buckets int
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var multiLockKind = arenakernel.KindOf("MULT")

const multiLockVersion = 2

// OpenMultiLock finds the MultiLock of that name in the arena or creates it. An empty name makes a new anonymous
// MultiLock.
func OpenMultiLock(a *arena.Arena, name string, opts *MultiLockOptions) (*MultiLock, error) {
	return openMultiLock((*arenakernel.Arena)(a), name, opts, false)
}

func openMultiLock(a *arenakernel.Arena, name string, opts *MultiLockOptions, attach bool) (*MultiLock, error) {
	var opt MultiLockOptions
	if opts != nil {
		opt = *opts
	}
	if opt.Buckets < 0 || opt.Buckets > 1<<multiLogMost {
		panic(fmt.Sprintf("shmsync: OpenMultiLock %q with %d buckets", name, opt.Buckets))
	}
	opt.Policy.mustBeValid("multilock " + strconv.Quote(name))
	if err := opt.Policy.withoutLog("multilock.open", name, "a MultiLock"); err != nil {
		return nil, err
	}
	log := multiLog(opt.Buckets)
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: multiLockKind, Version: multiLockVersion, Name: name, Size: multiLockBytes(1 << log), AnySize: true,
		Init: func(body []byte) {
			head, all := multiLockBody(body, 1<<log)
			head.policy, head.buckets = opt.Policy.stored(), uint32(log)+1
			for _, b := range all {
				b.mon.spin.Store(spinField(opt.Spin))
			}
		},
	}, "multilock.open", newMultiLock, func(x *MultiLock) string {
		if opt.Policy != 0 && opt.Policy != x.policy || opt.Buckets != 0 && log != x.log {
			return fmt.Sprintf("its policy is %v, with %d buckets; asked for %v, %d", x.policy, len(x.all), opt.Policy, opt.Buckets)
		}
		return ""
	})
}

// MultiLockAt opens the MultiLock at an offset that another process got from the method Offset.
func MultiLockAt(a *arena.Arena, off arena.Offset) (*MultiLock, error) {
	return handleAt(a, off, "multilock.open", multiLockKind, multiLockVersion, multiLockBytes(1), newMultiLock)
}

func newMultiLock(a *arenakernel.Arena, o arenakernel.Object) (*MultiLock, error) {
	return buildMultiLock(a, o, false)
}

// buildMultiLock makes a handle on the MultiLock o. If the parameter bare is true, the handle is for recovery after
// a death or for a tool, and cannot wait.
func buildMultiLock(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*MultiLock, error) {
	if o.Size < multiLockBytes(1) {
		return nil, wrongKind("multilock.open", o, multiLockKind, multiLockVersion)
	}
	head := arenakernel.At[multiLockHead](a, o.Body)
	x := &MultiLock{a: a, object: o, name: a.Self(), policy: policyOf(head.policy), log: multiLogDefault, bare: bare, opening: newOpening(a, o)}
	x.opening.refuse, x.opening.left, x.opening.end = x.refuse, x.callsLeft, x.end
	if n := head.buckets & 0xff; n != 0 {
		x.log = uint(n - 1)
	}
	if x.log > multiLogMost || o.Size < multiLockBytes(1<<x.log) {
		return nil, x.fail("multilock.open", shmsync.ErrCorrupt, nil, fmt.Sprintf("2^%d buckets in %d bytes", x.log, o.Size))
	}
	x.all = make([]atomic.Pointer[multiBucket], 1<<x.log)
	if !bare {
		x.turns = common[multiTurns](x.opening)
	}
	return x, nil
}

// bucket returns the bucket of a key, and makes this process's multiBucket for it if there is none yet. It returns
// nil if the handle has ended, since the words may then belong to another object.
func (x *MultiLock) bucket(key uint64) *multiBucket {
	i := bucketOf(key, x.log)
	if k := x.all[i].Load(); k != nil {
		return k
	}
	return x.openBucket(i)
}

func (x *MultiLock) index(key uint64) int { return bucketOf(key, x.log) }

func (x *MultiLock) openBucket(i int) *multiBucket {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.all[i].Load(); k != nil {
		return k
	}
	if x.opening.ended.Load() {
		return nil
	}
	// If the handle ends now, the code that ends it waits for mu, and then finds this bucket in the list.
	k := newMultiBucket(x, i)
	if x.opening.closing.Load() {
		park.Refuse(k.mon.queueLock.queue)
	}
	x.all[i].Store(k)
	return k
}

// Hold is one hold of a key by this process. It can unlock the key once. It is a value, and any
// goroutine of the process may use it. The zero Hold holds nothing.
type Hold struct {
	in   *multiBucket
	at   *multiLockEntry // the entry of the key if the key was taken without waiting; otherwise nil
	key  uint64
	hold keyHold
}

// Lock locks a key, and waits until that is possible. It panics with an *[shmsync.Error] if the key
// is owner-dead or not recoverable, if there is no room for the key, or if this process closes the
// arena meanwhile.
func (x *MultiLock) Lock(key uint64) Hold {
	h, err := x.lock(nil, key)
	if err != nil {
		panic(waysOut(err))
	}
	return h
}

// LockContext locks a key, and waits until that is possible or ctx ends. An error means that the key is not held.
// The error is ctx.Err(), or it Is ErrNoSpace, ErrCorrupt or ErrClosed. Depending on the policy, it may also be one
// that Is ErrOwnerDead or ErrNotRecoverable. If the key is free, the call takes it even though ctx has ended.
func (x *MultiLock) LockContext(ctx context.Context, key uint64) (Hold, error) {
	return x.lock(ctx, key)
}

// biased takes a key by one CAS, if the key is cached for this process, that is, reserved for it without being
// held. The key of the entry is read before the CAS, but it cannot have changed if the CAS succeeds. The reason is
// that the key of an entry changes only after its hold was claimed (see keyHold), and no later hold has the same
// word.
func (k *multiBucket) biased(key uint64) (*multiLockEntry, keyHold) {
	for i := range k.words.entries {
		s := &k.words.entries[i]
		// sync(multilock.biased): acquire
		h := s.hold.Load()
		if uint32(h) != k.cached || s.key.Load() != key {
			continue
		}
		// lin: the key is taken here.
		if s.hold.CompareAndSwap(h, h+holdLock) {
			crashpoint.Hit("multilock.lock.biased")
			return s, keyHold(h + holdLock)
		}
	}
	return nil, 0
}

// isBiased reports whether a living participant holds the key in a way that lets it unlock the key without the
// queue lock. isBiased does not need the queue lock. If it is true, TryLock fails and leaves the hold as it is.
func (k *multiBucket) isBiased(key uint64) bool {
	for i := range k.words.entries {
		s := &k.words.entries[i]
		h := keyHold(s.hold.Load())
		if h.kind() == keyBiased && s.key.Load() == key && s.hold.Load() == uint64(h) {
			return !k.of.a.Dead(h.owner().participant())
		}
	}
	return false
}

// lock does what LockContext does, except that ctx may be nil.
func (x *MultiLock) lock(ctx context.Context, key uint64) (Hold, error) {
	if err := x.opening.error("multilock.lock"); err != nil {
		return Hold{}, err
	}
	k := x.bucket(key)
	if k == nil {
		return Hold{}, x.closed("multilock.lock")
	}
	if k.mayBeBiased.Load() {
		if s, h := k.biased(key); s != nil {
			return Hold{k, s, key, h}, nil
		}
	}
	if !k.mon.enterAtOnce() {
		if err := k.mon.enterSlow(ctx); err != nil {
			return Hold{}, err
		}
	}
	if s := k.vacant(key); s != nil {
		h := k.take(s, key)
		k.mon.queueLock.Unlock()
		k.mon.queueLock.yield()
		return h, nil
	}
	return k.lockSlow(ctx, key)
}

// TryLock locks a key if that is possible without waiting, and reports whether it did. If it did not, State tells
// why.
func (x *MultiLock) TryLock(key uint64) (Hold, bool) {
	x.opening.use()
	k := x.bucket(key)
	if k == nil {
		panic(x.opening.refusal)
	}
	if s, h := k.biased(key); s != nil {
		return Hold{k, s, key, h}, true
	}
	if k.isBiased(key) || !k.mon.tryEnter() {
		return Hold{}, false
	}
	if s := k.vacant(key); s != nil {
		h := k.take(s, key)
		k.mon.queueLock.Unlock()
		k.mon.queueLock.yield()
		return h, true
	}
	return k.tryLockSlow(key)
}

// Unlock unlocks the key, and hands it to the first waiter. It panics if this process no longer has the hold h. If
// a peer overwrote the lock, it panics with an error that Is ErrCorrupt.
func (h Hold) Unlock() {
	if err := h.unlock(); err != nil {
		panic(err)
	}
}

// unlock does what Unlock does, except that it returns an error if the call could not begin.
func (h Hold) unlock() error {
	k := h.in
	if k == nil {
		panic("shmsync: Unlock of a Hold that holds nothing")
	}
	k.of.opening.use()
	if h.hold.kind() == keyBiased {
		// lin: the key is let go here.
		// sync(multilock.biased): release
		if h.at.hold.CompareAndSwap(uint64(h.hold), uint64(h.hold)+holdUnlock) {
			crashpoint.Hit("multilock.unlock.biased")
			return nil
		}
		h.hold = h.hold.claimed()
	}
	if !k.mon.enterAtOnce() {
		if err := k.mon.enterSlow(nil); err != nil {
			return err
		}
	}
	// No other hold in this entry has the same stamp. So if the word is unchanged, the entry still has this hold of
	// this key.
	if s := h.at; s != nil && s.hold.Load() == uint64(h.hold) && s.queue.Load() == 0 {
		storeWord(&s.hold, uint64(h.hold)+holdFree)
		k.mon.queueLock.Unlock()
		k.mon.queueLock.yield()
		return nil
	}
	k.unlockSlow(h)
	return nil
}

// unlockSlow is the part of unlock that needs the queue lock. The caller holds the queue lock; unlockSlow releases
// it.
func (k *multiBucket) unlockSlow(h Hold) {
	e := k.find(h.key)
	if !e.is(h.hold) {
		k.badUnlock(h, e)
	}
	e.set(h.hold.passing())
	crashpoint.Hit("multilock.unlock.passing")
	b := takeWakes()
	k.resolveEntry(b, e)
	k.mon.leave(b)
	k.turns.KeyHoldEnded(h.key)
}

// Key returns the key that h holds or held.
func (h Hold) Key() uint64 { return h.key }

// Offset is the place of the MultiLock in its arena, for MultiLockAt in another process.
func (x *MultiLock) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the MultiLock, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. This process keeps the keys that it holds, but a Hold of the closed handle cannot unlock
// them any more. Such keys become free, or owner-dead, only when the process ends. A second Close is an error that
// Is ErrClosed.
func (x *MultiLock) Close() error { return x.opening.close("multilock.close") }

func (x *MultiLock) refuse() { park.Refuse(x.queues()...) }

func (x *MultiLock) callsLeft() bool { return park.Left(x.queues()...) }

func (x *MultiLock) queues() (all []*park.Queue) {
	x.eachBucket(func(k *multiBucket) { all = append(all, k.mon.queueLock.queue) })
	return all
}

func (x *MultiLock) end() {
	x.eachBucket(func(k *multiBucket) {
		k.mon.queueLock.end()
		k.mayBeBiased.Store(false)
	})
}

// eachBucket calls f for each bucket that this process has used through this handle.
func (x *MultiLock) eachBucket(f func(k *multiBucket)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.all {
		if k := x.all[i].Load(); k != nil {
			f(k)
		}
	}
}

// Policy says what happens to a key when its holder dies.
func (x *MultiLock) Policy() Policy { return x.policy }

// closed returns the error for a closed handle. It is not inlined, because that would make the stack frame of each
// Lock larger.
//
//go:noinline
func (x *MultiLock) closed(op string) error { return x.fail(op, shmsync.ErrClosed, nil, closedHandle) }

func (x *MultiLock) fail(op string, err error, who *shmsync.Identity, detail string) error {
	return failed(x.a, x.object, op, err, who, detail)
}
