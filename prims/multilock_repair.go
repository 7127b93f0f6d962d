package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("multilock.recover.taken")
	_ = crashpoint.Register("multilock.recover.repaired")
)

func init() {
	arenakernel.RegisterKind(arenakernel.KindOps{
		Kind: multiLockKind, Version: multiLockVersion, Repair: repairMultiLock, Wake: wakeMultiLock, Check: checkMultiLock, Inspect: inspectMultiLock,
	})
}

// Recover makes a key usable again after it became owner-dead or not recoverable. It takes the key, runs repair,
// and unlocks the key. If repair returns an error or panics, the key becomes not recoverable until a later Recover
// succeeds, and this Recover returns the error. Other callers wait while repair runs. If this process dies before
// repair returns, the key is owner-dead again. When Recover calls repair, no system call of the dead process can
// write to its data any more.
//
// If the key is neither owner-dead nor not recoverable, Recover waits for it, unlocks it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// key as it is.
func (x *MultiLock) Recover(key uint64, repair func() error) error {
	return x.RecoverContext(context.Background(), key, repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends before repair is called.
func (x *MultiLock) RecoverContext(ctx context.Context, key uint64, repair func() error) error {
	mustHaveRepair(repair != nil, fmt.Sprintf("key %d of multilock %s", key, objectName(x.object)))
	if err := x.opening.error("multilock.recover"); err != nil {
		return err
	}
	// stayIfOpen keeps the words of the object valid until the result of the repair is stored in them. Close does
	// not wait for that.
	if !x.opening.stayIfOpen() {
		return x.closed("multilock.recover")
	}
	k := x.bucket(key)
	if k == nil {
		return x.closed("multilock.recover") // the arena is being unmapped
	}
	defer k.mon.leaveStay()
	for {
		if err := k.mon.enter(ctx); err != nil {
			return err
		}
		e := k.find(key)
		if e.there() {
			was := e.hold()
			if o := was.owner(); o.kind() == kindOwnerDead && o.valid() || o == ownerNotRecoverable {
				died := was.died()
				if o.kind() == kindOwnerDead && !x.a.Gone(died) {
					k.mon.leave(nil)
					if err := k.mon.awaitGone(ctx, died, func() bool { return e.is(was) }); err != nil {
						return err
					}
					continue
				}
				h := k.newHold(kindRecovering)
				e.set(h)
				crashpoint.Hit("multilock.recover.taken")
				k.mon.leave(nil)
				return k.runRepair(Hold{k, nil, key, h}, died, repair)
			}
		}
		switch h, err := k.lockSlow(ctx, key); {
		case err == nil:
			h.Unlock()
			return nil
		case !isOwnerDead(err) && !errors.Is(err, shmsync.ErrNotRecoverable):
			return err
		}
	}
}

// runRepair runs repair while this process recovers the key. The argument h is the hold of this recovery, and the
// participant died is the one whose data repair has to repair. If repair fails, the key becomes not recoverable.
func (k *multiBucket) runRepair(h Hold, died arenakernel.ParticipantID, repair func() error) (err error) {
	next, kind := makeKeyHold(kindNotRecoverable, 0, uint32(died)), arenakernel.EventNotRecoverable
	defer func() {
		e := k.endRecover(h, next)
		if e == nil {
			k.of.a.Happened(kind, k.of.object, &h.key, died, err)
		}
		if err == nil {
			err = e
		}
	}()
	if err := repair(); err != nil {
		return k.of.fail("multilock.recover", shmsync.ErrNotRecoverable, k.of.a.Who(died), fmt.Sprintf("key %d: the repair failed: %v", h.key, err))
	}
	crashpoint.Hit("multilock.recover.repaired")
	next, kind = h.hold.passing(), arenakernel.EventRepaired
	return nil
}

// endRecover ends the recovery h of a key by this process. It changes the hold of the key to next.
func (k *multiBucket) endRecover(h Hold, next keyHold) error {
	if err := k.mon.enter(nil); err != nil {
		return err
	}
	e := k.find(h.key)
	if !e.is(h.hold) {
		k.mon.leave(nil)
		return k.of.fail("multilock.recover", shmsync.ErrCorrupt, nil, fmt.Sprintf("key %d was overwritten", h.key))
	}
	e.set(next)
	b := takeWakes()
	k.resolveEntry(b, e)
	k.mon.leave(b)
	return nil
}

// refusal returns the error of a wait for a key with the hold h, or nil if a wait can succeed.
func (k *multiBucket) refusal(key uint64, h keyHold) error {
	result, who := h.result()
	if result == lockGranted {
		return nil
	}
	return k.failure(key, result, who)
}

// MultiLockState is the state of a key, as State returns it.
type MultiLockState struct {
	Held    bool              // a process holds or recovers the key, or its waiter was granted the key
	Owner   *shmsync.Identity // that process, or a dead one that left the key locked; nil if there is none or unknown
	Waiting bool              // there are waiters
	Err     error             // why no call can lock the key: nil, ErrOwnerDead, ErrNotRecoverable or ErrCorrupt
	Word    string            // the hold, rendered for people
}

// State reads the state of a key without locking anything. The answer may be out of date when it
// returns.
func (x *MultiLock) State(key uint64) MultiLockState {
	x.opening.use()
	h, waiting := x.bucketOr(x.index(key)).peek(key)
	s := MultiLockState{Held: h.taken(), Waiting: waiting, Word: h.String()}
	if n := h.died(); n != 0 {
		s.Owner = x.a.Who(n)
	}
	switch result, _ := h.claimed().result(); result {
	case lockOwnerDead:
		s.Err = shmsync.ErrOwnerDead
	case lockNotRecoverable:
		s.Err = shmsync.ErrNotRecoverable
	case lockCorrupt:
		s.Err = shmsync.ErrCorrupt
	}
	return s
}

// String renders the state on one line.
func (x *MultiLock) String() string {
	x.opening.use()
	held, spilled := 0, 0
	for i := range x.all {
		k := x.bucketOr(i)
		for j := range k.words.entries {
			if !keyHold(k.words.entries[j].hold.Load()).free() {
				held++
			}
		}
		k.peekSpilled(func(keyEntry) { spilled++ })
	}
	return fmt.Sprintf("multilock %s: %d keys are not free, of %d buckets", objectName(x.object), held+spilled, len(x.all))
}

// bucketOr returns bucket i. If this process has not used the bucket yet, bucketOr makes a multiBucket for this
// call only.
func (x *MultiLock) bucketOr(i int) *multiBucket {
	if k := x.all[i].Load(); k != nil {
		return k
	}
	off := multiBucketAt(x.object, i)
	return &multiBucket{of: x, number: i, words: arenakernel.At[multiLockBucket](x.a, off)}
}

// quiet reports whether the queue lock of a bucket is free and no key of the bucket is held or waited for. Then no
// dead process can have left anything there.
func (b *multiLockBucket) quiet() bool {
	if b.mon.queueLock.owner.Load() != 0 || b.mon.queueLock.starving.Load() != 0 || b.spilled.Load() != 0 {
		return false
	}
	for i := range b.entries {
		if !keyHold(b.entries[i].hold.Load()).free() {
			return false
		}
	}
	return true
}

// repairMultiLock takes back what the dead participant has. It skips the buckets for which the method quiet is
// true, because there a dead process has left nothing. Such a bucket has no waits either, because each key that is
// waited for has a record, and then the bucket is not quiet.
func repairMultiLock(a *arenakernel.Arena, o arenakernel.Object, dead arenakernel.ParticipantID) {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return
	}
	for i := range x.all {
		if w := arenakernel.At[multiLockBucket](a, multiBucketAt(o, i)); !w.quiet() {
			repairMonitor(newMultiBucket(x, i).mon, dead)
		}
	}
}

func wakeMultiLock(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return
	}
	for i := range x.all {
		wakeMonitor(a, o, multiBucketAt(o, i), owed)
	}
}

func checkMultiLock(a *arenakernel.Arena, o arenakernel.Object) error {
	x, err := buildMultiLock(a, o, true)
	if err != nil {
		return err
	}
	for i := range x.all {
		w := arenakernel.At[multiLockBucket](a, multiBucketAt(o, i))
		if err := checkMutexWords(o, &w.mon.queueLock); err != nil {
			return err
		}
		for j := range w.entries {
			e := &w.entries[j]
			h := keyHold(e.hold.Load())
			if key := e.key.Load(); !h.valid() || h != 0 && keyHold(e.hold.Load()) == h && x.index(key) != i {
				return x.fail("multilock.check", shmsync.ErrCorrupt, nil, fmt.Sprintf("bucket %d: key %d is %v", i, key, h))
			}
		}
	}
	return nil
}
