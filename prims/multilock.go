package prims

import (
	"cmp"
	"context"
	"errors"
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
	_ = crashpoint.Register("multilock.lock.taken")
	_ = crashpoint.Register("multilock.lock.accepted")
	_ = crashpoint.Register("multilock.unlock.freed")
	_ = crashpoint.Register("multilock.unlock.committed")
	_ = crashpoint.Register("multilock.block.pushed")
	_ = crashpoint.Register("multilock.lockall.partly")
)

// MultiLock is a mutual exclusion lock for each of 2^64 keys, between processes. One process at a time holds a key,
// and waiters get the key in the order of arrival. Waiters for different keys do not wait for each other. If a
// waiter is granted a key, its process holds the key as soon as the waiter runs again. If the process dies before
// that, the next waiter gets the key.
//
// The keys are spread over buckets. Three keys of a bucket can be held or waited for at the same time without more
// memory; each further key costs 64 bytes of the arena, which stay with the MultiLock for other keys. For many
// thousands of held keys, create the MultiLock with more buckets. A bucket remembers some of the keys that were
// locked last. Lock and Unlock of such a key are quicker than those of other keys.
//
// In the terminology of the Go memory model, and across processes: for each key and n < m the n'th Unlock
// synchronizes before the return of the m'th call that locks it. If a holder dies, the release by its death
// synchronizes before the call that reports the death, and before the call that gets the key because of it.
type MultiLock struct {
	plainRecords
	a       *arenakernel.Arena
	object  arenakernel.Object
	name    arenakernel.ParticipantID
	policy  Policy
	log     uint   // base-2 logarithm of the number of buckets
	open    uint32 // the value of the hold word while it is open and this participant holds the key
	words   *multiLockHead
	counts  *countWords
	all     []atomic.Pointer[multiBucket]
	mu      sync.Mutex    // held while buckets are made, or blocks are looked for
	known   atomic.Uint32 // the latest slot record or block that this handle knows
	bare    bool          // the handle is for a reaper or a tool, and cannot wait
	queue   *park.Queue   // nil in a bare handle
	turns   *park.Turns   // orders the waits of this process; nil in a bare handle
	opening *opening
}

// MultiLockOptions says how a MultiLock is created. A nil *MultiLockOptions means
// the zero value.
type MultiLockOptions struct {
	// Policy says what happens to a key when its holder dies. 0 means PolicyReport for a new object; an existing
	// object may have any policy. If Policy is set and an existing object has another policy, opening fails.
	Policy Policy
	// Buckets is the number of parts over which the keys are spread. Each part takes 192 bytes. The number is
	// rounded up to a power of two and is at most 65,536. 0 means 32 for a new object; an existing object may have
	// any number. If Buckets is set and an existing object has another number, opening fails.
	Buckets int
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var multiLockKind = arenakernel.KindOf("MULT")

const multiLockVersion = 3

// OpenMultiLock finds the MultiLock of that name in the arena or creates it. An empty name makes a new anonymous
// MultiLock. A MultiLock with 32 buckets takes 6,272 bytes, and 192 bytes more for each slot whose participants
// have opened it. If the arena has not enough room for these bytes, the error Is [shmsync.ErrNoSpace].
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
		Existing: attach, Kind: multiLockKind, Version: multiLockVersion, Name: name, Size: multiLockBytes(a, 1<<log), AnySize: true,
		Init: func(body []byte) {
			head := multiLockBody(body)
			head.policy, head.buckets = opt.Policy.stored(), uint32(log)+1
			head.spin.Store(spinField(opt.Spin))
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
	return handleAt(a, off, "multilock.open", multiLockKind, multiLockVersion, multiLockBytes((*arenakernel.Arena)(a), 1), newMultiLock)
}

func newMultiLock(a *arenakernel.Arena, o arenakernel.Object) (*MultiLock, error) {
	return buildMultiLock(a, o, false)
}

// buildMultiLock makes a handle on the MultiLock o. If the parameter bare is true, the handle is for a reaper or for
// a tool, and cannot wait.
func buildMultiLock(a *arenakernel.Arena, o arenakernel.Object, bare bool) (*MultiLock, error) {
	if o.Size < multiLockBytes(a, 1) {
		return nil, wrongKind("multilock.open", o, multiLockKind, multiLockVersion)
	}
	w := arenakernel.At[multiLockHead](a, o.Body)
	x := &MultiLock{a: a, object: o, name: a.Self(), words: w, policy: policyOf(w.policy), log: multiLogDefault, bare: bare}
	x.open = makeKeyState(kindHeld, x.name).opened()
	if n := w.buckets & 0xff; n != 0 {
		x.log = uint(n - 1)
	}
	if x.log > multiLogMost || o.Size < multiLockBytes(a, 1<<x.log) {
		return nil, x.fail("multilock.open", shmsync.ErrCorrupt, nil, fmt.Sprintf("2^%d buckets in %d bytes", x.log, o.Size))
	}
	if a.Counted() {
		x.counts = arenakernel.At[countWords](a, multiBucketAt(o, 1<<x.log))
	}
	x.all = make([]atomic.Pointer[multiBucket], 1<<x.log)
	ok, err := x.openRecords(a, o, !bare)
	if err != nil {
		return nil, err
	}
	if !bare {
		if !ok {
			return nil, x.corrupt("its list of slot records")
		}
		x.opening = newOpening(a, o)
		x.queue = park.NewQueue(park.Config{
			WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller},
			Object:   o, Word: o.Body + multiLockWakeOff, All: true, Check: x.check, Torn: x.torn,
		})
		x.opening.waitsIn(x.queue)
		x.opening.end = x.end
	}
	x.inherit()
	if !bare {
		x.turns = common[park.Turns](x.opening)
	}
	return x, nil
}

// inherit completes the change in the slot record of this participant, if it is not complete. An earlier
// participant of the slot, which has died, may have made this change. It must be complete before this participant
// writes a change of its own, in any bucket, to the same record. If a peer has overwritten the record, inherit does
// nothing.
func (x *MultiLock) inherit() {
	r, ok := x.recordAt(x.self)
	if !ok || r.head.Load() == 0 { // 0: the slot has made no change
		return
	}
	if i := r.head.Load() >> recordPartShift; i < uint64(len(x.all)) {
		// completeBare takes no private lock. No lock is needed, because no other goroutine has this handle yet. A
		// wait for a private lock could deadlock: this goroutine may hold the mutex in the variable handles, and the
		// holder of the private lock may wait for that mutex.
		x.bucketAt(int(i)).completeBare()
	}
}

// bucketAt returns bucket i, as this process uses it. It returns nil if the handle has ended, because another
// object may then have the words.
func (x *MultiLock) bucketAt(i int) *multiBucket {
	if k := x.all[i].Load(); k != nil {
		return k
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.makeBucket(i)
}

func (x *MultiLock) makeBucket(i int) *multiBucket { // guarded by: mu
	if k := x.all[i].Load(); k != nil {
		return k
	}
	if x.opening != nil && x.opening.ended.Load() {
		return nil
	}
	k := newMultiBucket(x, i)
	x.all[i].Store(k)
	return k
}

// bucket returns the bucket of a key. It returns nil if the handle has ended.
func (x *MultiLock) bucket(key uint64) *multiBucket { return x.bucketAt(x.index(key)) }

func (x *MultiLock) index(key uint64) int { return bucketOf(key, x.log) }

// Hold is one hold of a key by this process. It can unlock the key once. It is a value, and any
// goroutine of the process may use it. The zero Hold holds nothing. A Hold outlives the handle: Unlock also works
// after Close of the MultiLock, until the opening of the arena is closed. After Close of the MultiLock, each Unlock
// opens the MultiLock again, which costs more.
type Hold struct {
	// The compiler keeps a struct of four fields in registers, but not one of five.

	in  *multiBucket
	at  *multiLockEntry
	key uint64
	id  uint64 // bits 0..31: the tag of the hold word of the entry; bits 32..63: the index of the entry
}

func makeHold(k *multiBucket, e *multiLockEntry, key uint64, index, tag uint32) Hold {
	return Hold{k, e, key, uint64(index)<<32 | uint64(tag)}
}

func (h Hold) index() uint32 { return uint32(h.id >> 32) }
func (h Hold) tag() uint32   { return uint32(h.id) }

// Lock locks a key, and waits until that is possible. It panics with an *[shmsync.Error] if the key
// is owner-dead or not recoverable, if there is no room for the key, or if this process closes the
// arena while the call waits.
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

// lock does what LockContext does, except that ctx may be nil.
func (x *MultiLock) lock(ctx context.Context, key uint64) (Hold, error) {
	if err := x.opening.error("multilock.lock"); err != nil {
		return Hold{}, err
	}
	k := x.all[x.index(key)].Load()
	if k == nil {
		if k = x.bucket(key); k == nil {
			return Hold{}, x.closed("multilock.lock")
		}
	}
	h := k.lockFast(key)
	if h.in == nil {
		h = k.lockFresh(key)
	}
	if h.in != nil {
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
	if h := k.lockFast(key); h.in != nil {
		return h, true
	}
	defer x.opening.serve(x.queue).end()
	h, r, err := k.takeWithRoom(nil, key, nil)
	return h, r == lockTaken && err == nil
}

// Unlock unlocks the key, and hands it to the first waiter. It panics if this process no longer has the hold h. If
// a peer overwrote the lock, it panics with an error that Is ErrCorrupt. If the opening of the arena is closed, it
// panics with an error that Is ErrClosed.
func (h Hold) Unlock() {
	k := h.in
	if k == nil {
		panic("shmsync: Unlock of a Hold that holds nothing")
	}
	if k.of.opening.ended.Load() {
		h.unlockReopened()
		return
	}
	if !k.unlockFast(h) {
		k.unlockSlow(h)
	}
}

// unlockReopened unlocks the key of a hold whose handle is closed, through another handle. The MultiLock exists, because
// nobody can delete a MultiLock with a hold of a living process.
func (h Hold) unlockReopened() {
	old := h.in.of
	x, err := handleAt((*arena.Arena)(old.a), old.object.Offset, "multilock.open", multiLockKind, multiLockVersion, old.object.Size, newMultiLock)
	switch {
	case errors.Is(err, shmsync.ErrClosed):
		panic(old.opening.refusal)
	case err != nil:
		panic(err)
	}
	defer x.opening.close("multilock.close")
	err = x.findBlocks()
	k := x.bucketAt(h.in.number)
	if k == nil || k.at(h.index()) == nil {
		panic(cmp.Or(err, x.opening.error("multilock.unlock"), x.corrupt("the block of a hold")))
	}
	h.in, h.at = k, k.at(h.index())
	h.Unlock()
}

// unlockSlow is the part of Unlock after the fast path has failed.
func (k *multiBucket) unlockSlow(h Hold) {
	call, ok := k.of.opening.tryServe(k.queue)
	if !ok { // another goroutine has closed the handle meanwhile
		h.unlockReopened()
		return
	}
	defer call.end()
	switch s, held, err := k.give(h); {
	case err != nil:
		panic(err)
	case !held:
		k.badUnlock(h, s)
	}
	k.of.turns.KeyHoldEnded(h.key)
}

// Key returns the key that h holds or held.
func (h Hold) Key() uint64 { return h.key }

// Offset is the place of the MultiLock in its arena, for MultiLockAt in another process.
func (x *MultiLock) Offset() arena.Offset { return x.object.Offset }

// Close closes this handle on the MultiLock, and no other handle. Calls that wait through this handle end with an
// error that Is ErrClosed. This process keeps the keys that it holds, and can unlock them as before; see [Hold]. A
// second Close returns an error that Is ErrClosed.
func (x *MultiLock) Close() error { return x.opening.close("multilock.close") }

// end makes the fast paths fail: from now on, they use closedBucket, which has no open hold word. Once the queue is
// closed, no other call uses the buckets in the arena, and the periodic check does not run. end closes the queue before
// it locks x.mu, because the periodic check locks x.mu, too.
func (x *MultiLock) end() {
	x.queue.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.all {
		if k := x.all[i].Load(); k != nil {
			redirect(&k.words, &closedBucket)
			k.blocks.Store(nil)
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
