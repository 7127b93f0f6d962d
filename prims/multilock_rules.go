package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// setOwner adds to the change x that the key of the chosen entry gets the state o. The hold word gets a new tag, even
// if its value stays the same. If nobody waits for the key after the change, and o is free or held, x opens the word.
func (k *multiBucket) setOwner(x *recordedChange, o ownerWord) {
	if k.mayOpen() && k.empty(x) {
		o = ownerOpened(o)
	}
	x.renew(multiHold, k.recordQueue.at, &k.entry.hold, uint32(o))
}

// setKey adds to the change x that the chosen entry gets the key.
func (k *multiBucket) setKey(x *recordedChange, key uint64) {
	x.set(multiKeyLow, k.recordQueue.at, &k.entry.keyLow, uint32(key))
	x.set(multiKeyHigh, k.recordQueue.at, &k.entry.keyHigh, uint32(key>>32))
}

// removed adds to the change x that the hold word of the chosen entry becomes open. It does so only if x leaves the key
// free and without waits. While the key has a holder, the word must keep its tag, which names the hold, and a record
// would change the tag.
func (k *multiBucket) removed(x *recordedChange) {
	if k.mayOpen() && k.empty(x) && keyState(x.get(&k.entry.hold)).free() {
		x.set(multiHold, k.recordQueue.at, &k.entry.hold, keyFree.opened())
	}
}

// focusOn makes the change x concern a key for which a wait is queued. While a wait is queued, its key has an entry.
func (k *multiBucket) focusOn(x *recordedChange, key uint64) (ok bool, err error) {
	i, ok, err := k.find(key)
	switch {
	case err != nil:
		return false, err
	case ok:
		k.focus(i)
	case k.load() == x.c:
		return false, k.corrupt("a wait for a key without an entry")
	}
	return ok, nil
}

// The next four methods, and setOwner, tidy, focusOn, lockError and closedError, implement lockHooks for a bucket.

func (k *multiBucket) closeOwner() recordedWord { return closeKey(&k.entry.hold) }

func (k *multiBucket) valid(o ownerWord) bool { return keyState(o).valid() }

func (k *multiBucket) died(o ownerWord) arenakernel.ParticipantID {
	if o.kind() != kindNotRecoverable {
		return 0
	}
	return o.participant()
}

func (k *multiBucket) lockKey() *uint64 {
	key := k.entry.key()
	return &key
}

// takeWithRoom does what the method take does. If all entries of the bucket are in use, it adds a block to the
// bucket and calls take again.
func (k *multiBucket) takeWithRoom(ctx context.Context, key uint64, s *park.WaitNode) (Hold, lockResult, error) {
	for {
		// The loop repeats only after this call has added a block of four entries to the bucket, or another call
		// has added a block or a slot record to the MultiLock.
		head := k.of.slots.head.Load()
		h, r, err := k.take(ctx, key, s)
		if r != lockNoRoom || err != nil {
			return h, r, err
		}
		if err := k.addBlock(head); err != nil {
			return Hold{}, lockNotNow, err
		}
	}
}

// take locks the key with a record if the key is free and nobody waits for it. Otherwise, if s is not nil, it
// queues the wait of the wait node s, which the caller has prepared. If s is nil, take changes nothing while a
// living process holds the key.
func (k *multiBucket) take(ctx context.Context, key uint64, s *park.WaitNode) (Hold, lockResult, error) {
	b := takeWakes()
	defer k.wake(b) // runs after k.private is released
	k.private.Lock()
	defer k.private.Unlock()
	x, t := &k.scratch, lockCall{ctx: ctx, s: s, wanted: key}
	for {
		// The loop repeats only after a change by another call, or after a change that this call does not make
		// again. So the loop is lock-free.
		if err := k.begin(x, b); err != nil {
			return Hold{}, lockNotNow, err
		}
		r, err := k.chooseEntry(x, key)
		if r == lockReady {
			r, err = k.tryLock(x, b, &t)
		}
		var h Hold
		switch {
		case r == lockAgain:
			continue
		case r == lockTaken:
			crashpoint.Hit("multilock.lock.taken")
			race.Acquire(k.raceKey(key))
			// The tag of the hold word stays the same until the key is unlocked.
			h = makeHold(k, k.entry, key, k.recordQueue.at, keyHold(k.entry.hold.Load()).tag())
			k.hint(key, h.index())
		case r == lockQueued:
			k.of.turns.AppendKey(s, key)
			h = makeHold(k, k.entry, key, k.recordQueue.at, 0)
		}
		return h, r, err
	}
}

// chooseEntry makes the change x concern the entry of a key, and then returns lockReady. If the key has no entry, it
// adds to x that the key gets the entry of a free key.
func (k *multiBucket) chooseEntry(x *recordedChange, key uint64) (lockResult, error) {
	i, found, err := k.find(key)
	switch {
	case err != nil:
		return lockNotNow, err
	case found:
		k.focus(i)
		return lockReady, nil
	}
	i, room := k.vacant(x.c)
	switch {
	case room:
		k.focus(i)
		k.setKey(x, key)
		return lockReady, nil // tryLock checks that the entry is still that of a free key
	case k.load() != x.c:
		return lockAgain, nil
	}
	return lockNoRoom, nil
}

// tidy reaps if a participant has died since the last reap, or if the parameter holder names a dead one. After a reap,
// tidy serves the queues of all keys of the bucket. Without a reap, it serves only the queue of the chosen entry.
func (k *multiBucket) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if !k.reapDue() && !k.absent(holder) {
		return k.serve(x, b)
	}
	i, key := k.recordQueue.at, k.chosen
	if err := k.reap(x, b); err != nil {
		return err
	}
	if err := k.serveAll(x, b); err != nil {
		return err
	}
	if k.focus(i); k.chosen != key {
		return nil // the entry has got another key
	}
	return k.serve(x, b) // returns an error if a peer has overwritten the queue of this key
}

// give unlocks the key of the hold h with a record, which grants the key to the first wait in its queue. If this
// process does not have the hold h, held is false, and the first result is the state of the key.
func (k *multiBucket) give(h Hold) (not keyState, held bool, err error) {
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
			return 0, true, err
		}
		k.focus(h.index())
		v := keyHold(k.entry.hold.Load())
		if v == makeRecorded(k.of.open, h.tag()) {
			v = k.closeOwner()
		}
		if v.tag() != h.tag() || k.stateOf(v) != makeOwner(kindHeld, k.name) {
			if k.load() != x.c {
				continue
			}
			return keyStateOf(v), false, nil
		}
		switch done, err := k.settle(x, b, ownerFree); {
		case err != nil:
			return 0, true, err
		case done:
			crashpoint.Hit("multilock.unlock.committed")
			return 0, true, nil
		}
	}
}
