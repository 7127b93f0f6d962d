package prims

import (
	"context"
	"errors"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("multilock.recover.taken")
	_ = crashpoint.Register("multilock.recover.repaired")
)

// Recover makes a key usable again after it became owner-dead or not recoverable. It takes the key, runs repair,
// and unlocks the key. If repair returns an error or panics, the key becomes not recoverable until a later Recover
// succeeds, and this Recover returns the error. Other callers wait while repair runs. If this process dies before
// repair returns, the key is owner-dead again. When Recover calls repair, no system call of the dead process can
// write to the data of the key any more.
//
// If the key is neither owner-dead nor not recoverable, Recover waits for it, unlocks it and does not run repair.
// Recover returns the errors of LockContext except ErrOwnerDead. If repair is nil, Recover panics and leaves the
// key as it is.
func (x *MultiLock) Recover(key uint64, repair func() error) error {
	return x.RecoverContext(context.Background(), key, repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If RecoverContext need not
// wait, it calls repair even though ctx has ended.
func (x *MultiLock) RecoverContext(ctx context.Context, key uint64, repair func() error) error {
	mustHaveRepair(repair != nil, fmt.Sprintf("key %d of multilock %s", key, objectName(x.object)))
	// stayToRun keeps the object open until the result of the repair is stored in the words of the object. Close of
	// the handle does not wait until then, because a repair may take long. Close of the arena waits.
	if !x.opening.stayToRun() {
		return x.closed("multilock.recover")
	}
	defer x.opening.leaveStay(x.queue)
	k := x.bucket(key)
	if k == nil {
		return x.closed("multilock.recover") // the arena is being unmapped
	}
	for {
		if h, died, err := k.beginRecover(ctx, key); err != nil {
			return err
		} else if died != 0 {
			return k.runRepair(h, died, repair)
		}
		switch h, err := x.lock(ctx, key); {
		case err == nil:
			h.Unlock()
			return nil
		case !isOwnerDead(err) && !errors.Is(err, shmsync.ErrNotRecoverable):
			return err
		}
	}
}

// beginRecover marks the key as being recovered by this process, if the key is owner-dead or not recoverable. The
// result died is the participant whose death made the repair necessary, or 0 if the key needs no recovery.
// beginRecover waits until the dead holder is gone, that is, until no system call of the dead process can write any
// more.
func (k *multiBucket) beginRecover(ctx context.Context, key uint64) (h Hold, died arenakernel.ParticipantID, err error) {
	for {
		// The loop repeats only after a wait for the end of the dead process, or after another call has changed
		// the key.
		h, died, await, err := k.takeToRecover(key)
		if err != nil || await == 0 {
			return h, died, err
		}
		dead := makeKeyState(kindOwnerDead, await)
		if err := awaitGone(ctx, k.a, k.queue, await, func() bool { return h.at.has(key) && h.at.state() == dead }); err == errClosing {
			return Hold{}, 0, k.of.closed("multilock.recover")
		} else if err != nil {
			return Hold{}, 0, err
		}
	}
}

// takeToRecover does what beginRecover does, but does not wait. If the dead holder is not gone, it returns that holder
// as the result await.
func (k *multiBucket) takeToRecover(key uint64) (h Hold, died, await arenakernel.ParticipantID, err error) {
	if !k.queue.EnterStay() {
		return h, 0, 0, k.of.closed("multilock.recover")
	}
	defer k.queue.ExitLasting()
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	for {
		// The loop repeats only if another call has changed the bucket. So the loop is lock-free.
		if err := k.begin(x, b); err != nil {
			return h, 0, 0, err
		}
		i, found, err := k.find(key)
		if err != nil {
			return h, 0, 0, err
		}
		if found {
			k.focus(i)
			v := keyHold(k.entry.hold.Load())
			h = makeHold(k, k.entry, key, i, v.tag()+1)
			if s := keyStateOf(v); s.valid() && k.lost(ownerWord(s)) {
				if died = s.participant(); s.kind() == kindOwnerDead && !k.a.Gone(died) && k.load() == x.c {
					return h, 0, died, nil
				}
				k.setOwner(x, makeOwner(kindRecovering, k.name))
			}
		}
		took := x.n > 0
		switch ok, err := k.commitLock(x, b); {
		case err != nil:
			return h, 0, 0, err
		case ok && took:
			race.Acquire(k.raceKey(key))
			crashpoint.Hit("multilock.recover.taken")
			return h, died, 0, nil
		case ok:
			return h, 0, 0, nil
		}
		died = 0
	}
}

// runRepair runs repair while this process recovers the key of the hold h. died is the participant whose death made
// the repair necessary. If repair fails, the key becomes not recoverable.
func (k *multiBucket) runRepair(h Hold, died arenakernel.ParticipantID, repair func() error) (err error) {
	next, kind := makeKeyState(kindNotRecoverable, died), arenakernel.EventNotRecoverable
	defer func() {
		e := k.endRecover(h, next)
		if e == nil {
			k.a.Happened(kind, k.object, &h.key, died, err)
		}
		if err == nil {
			err = e
		}
	}()
	defer k.of.opening.repairing(&h.key, false).end()
	if err := repair(); err != nil {
		return k.fail("multilock.recover", h.key, shmsync.ErrNotRecoverable, died, "the repair failed: "+err.Error())
	}
	crashpoint.Hit("multilock.recover.repaired")
	next, kind = keyFree, arenakernel.EventRepaired
	return nil
}

// endRecover ends the recovery of the hold h by this process: the key gets the state next.
func (k *multiBucket) endRecover(h Hold, next keyState) error {
	if !k.queue.EnterStay() {
		return k.of.closed("multilock.recover")
	}
	defer k.queue.ExitLasting()
	if err := k.commitRecover(h, next); err != nil {
		return err
	}
	k.of.turns.KeyHoldEnded(h.key)
	return nil
}

func (k *multiBucket) commitRecover(h Hold, next keyState) error {
	race.ReleaseMerge(k.raceKey(h.key))
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	for {
		// The loop repeats only after this call has taken a wait off the queue, or after another call has changed
		// the bucket.
		if err := k.begin(x, b); err != nil {
			return err
		}
		k.focus(h.index())
		if v := keyHold(k.entry.hold.Load()); v.tag() != h.tag() || keyStateOf(v) != makeKeyState(kindRecovering, k.of.name) {
			if k.load() != x.c {
				continue
			}
			return k.fail("multilock.recover", h.key, shmsync.ErrCorrupt, 0, "it was overwritten: "+keyStateOf(v).String())
		}
		switch done, err := k.settle(x, b, ownerWord(next)); {
		case err != nil:
			return err
		case done:
			k.serve(x, b) // an error here concerns the waits, not this call
			return nil
		}
	}
}
