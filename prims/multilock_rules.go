package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// stateIn returns the state that the key of the chosen entry has after the change x. It closes the word hold, so that
// Lock and Unlock do not change that state meanwhile.
func (k *multiBucket) stateIn(x *recordedChange) keyState {
	closeKey(&k.entry.hold)
	return keyState(x.get(&k.entry.hold))
}

// setState adds to the change x that the key of the chosen entry gets the state s. The word hold gets a new tag, even
// if its value stays the same. If nobody waits for the key after the change, and s is free or held, the word is open.
func (k *multiBucket) setState(x *recordedChange, s keyState) {
	v := uint32(s)
	if k.mayOpen() && k.empty(x) {
		v = s.opened()
	}
	x.renew(multiHold, k.recordQueue.at, &k.entry.hold, v)
}

// setKey adds to the change x that the chosen entry gets the key.
func (k *multiBucket) setKey(x *recordedChange, key uint64) {
	x.set(multiKeyLow, k.recordQueue.at, &k.entry.keyLow, uint32(key))
	x.set(multiKeyHigh, k.recordQueue.at, &k.entry.keyHigh, uint32(key>>32))
}

// removed adds to the change x that the word hold of the chosen entry is open, if the key is free and nobody waits
// for it after x. While the key has a holder the word stays as it is, because a record would change the tag, which
// names the hold.
func (k *multiBucket) removed(x *recordedChange) {
	if k.mayOpen() && k.empty(x) && keyState(x.get(&k.entry.hold)).free() {
		x.set(multiHold, k.recordQueue.at, &k.entry.hold, keyFree.opened())
	}
}

// commitKey makes the change x take effect, as recordQueue.end does.
func (k *multiBucket) commitKey(x *recordedChange, b *wakes) (ok bool, err error) {
	if x.n > 0 {
		k.removed(x)
	}
	return k.end(x, b)
}

// takeWithRoom does what the method take does. If all entries of the bucket are in use, it adds a block to the bucket
// and tries again.
func (k *multiBucket) takeWithRoom(ctx context.Context, key uint64, s *park.WaitNode) (Hold, fairResult, error) {
	for {
		// The loop repeats only after it has added four entries to the bucket.
		h, r, err := k.take(ctx, key, s)
		if r != fairNoRoom || err != nil {
			return h, r, err
		}
		if err := k.addBlock(); err != nil {
			return Hold{}, fairNotNow, err
		}
	}
}

// take locks the key with a record if the key is free and nobody waits for it. Otherwise, if s is not nil, it queues
// the wait of the prepared wait node s. If take returns fairQueued with an error, the wait may be queued. If s is nil,
// take changes nothing while a living process holds the key.
func (k *multiBucket) take(ctx context.Context, key uint64, s *park.WaitNode) (Hold, fairResult, error) {
	b := takeWakes()
	defer k.wake(b) // runs after k.private is released
	k.private.Lock()
	defer k.private.Unlock()
	x, served := &k.scratch, false
	for {
		// The loop repeats only after a change by another call, or after this call has made a change that it
		// makes only once. So the loop is lock-free.
		if err := k.begin(x, b); err != nil {
			return Hold{}, fairNotNow, err
		}
		i, found, err := k.find(key)
		if err != nil {
			return Hold{}, fairNotNow, err
		}
		if !found {
			var room bool
			if i, room = k.vacant(x.c); !room {
				if k.load() != x.c {
					continue
				}
				return Hold{}, fairNoRoom, nil
			}
			k.focus(i)
			k.setKey(x, key)
		} else if k.focus(i); s == nil {
			n := keyStateOf(keyHold(k.entry.hold.Load())).holder()
			if n != 0 && !k.absent(n) && !k.a.Dead(n) && k.load() == x.c {
				return Hold{}, fairNotNow, nil
			}
		}
		o := k.stateIn(x)
		n := o.holder()
		enough := o.free() && k.empty(x)
		if !found && !enough {
			if k.load() != x.c {
				continue
			}
			return Hold{}, fairNotNow, k.corrupt("an entry of a free key")
		}
		var refused error
		switch {
		case !served && (k.reapDue() || o.free() && !enough || o.lost() && !k.empty(x) || n != 0 && k.a.Dead(n)):
			served = true
			if err := k.tidy(x, b, n); err != nil {
				return Hold{}, fairNotNow, err
			}
			continue
		case enough:
			k.setState(x, makeKeyState(kindHeld, k.of.name))
		case o.lost():
			refused = k.refusal("multilock.lock", key, o)
		case s == nil:
		case ctx != nil && ctx.Err() != nil:
			refused = ctx.Err()
		default:
			k.join(x, s)
		}
		joins := refused == nil && !enough && s != nil
		tag := keyHold(k.entry.hold.Load()).tag() + 1
		switch ok, err := k.commitKey(x, b); {
		case err != nil && x.made && joins:
			return Hold{}, fairQueued, err
		case err != nil:
			return Hold{}, fairNotNow, err
		case !ok:
		case enough:
			crashpoint.Hit("multilock.lock.taken")
			race.Acquire(k.raceKey(key))
			k.counts.holds(false)
			return makeHold(k, k.entry, key, i, tag), fairTaken, nil
		case joins:
			k.counts.add(countContended)
			k.of.turns.AppendKey(s, key)
			return makeHold(k, k.entry, key, i, 0), fairQueued, nil
		default:
			return Hold{}, fairNotNow, refused
		}
	}
}

// tidy reaps if a participant has died since the last reap, or if the participant holder is dead, and then serves the
// queues of all keys of the bucket. Otherwise it serves the queue of the chosen entry.
func (k *multiBucket) tidy(x *recordedChange, b *wakes, holder arenakernel.ParticipantID) error {
	if !k.reapDue() && !k.absent(holder) {
		return k.serve(x, b)
	}
	if err := k.reap(x, b); err != nil {
		return err
	}
	return k.serveAll(x, b)
}

// give unlocks the key of the hold h with a record, which grants the key to the first wait in its queue. If this
// process does not have the hold h, held is false and the result named not is the state of the key.
func (k *multiBucket) give(h Hold) (not keyState, held bool, err error) {
	race.ReleaseMerge(k.raceKey(h.key))
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x := &k.scratch
	for {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the
		// bucket.
		if err := k.begin(x, b); err != nil {
			return 0, true, err
		}
		k.focus(h.index())
		v := keyHold(k.entry.hold.Load())
		if v == makeRecorded(k.of.open, h.tag()) {
			v = closeKey(&k.entry.hold)
		}
		if v.tag() != h.tag() || k.entry.stateOf(v) != makeKeyState(kindHeld, k.of.name) {
			if k.load() != x.c {
				continue
			}
			return keyStateOf(v), false, nil
		}
		granted, ok := k.passOn(x)
		if !ok {
			if err := k.dropFirst(x, b); err != nil {
				return 0, true, err
			}
			continue
		}
		switch ok, err := k.commitKey(x, b); {
		case err != nil:
			return 0, true, err
		case ok:
			k.handedOn(granted)
			crashpoint.Hit("multilock.unlock.committed")
			return 0, true, nil
		}
	}
}

// passOn adds to the change x that the key of the chosen entry is granted to the first wait, or becomes free if there
// is no wait. If the owner of the first wait is dead, passOn returns false and adds nothing to x. If a peer has
// overwritten the queue, the key becomes free.
func (k *multiBucket) passOn(x *recordedChange) (granted arenakernel.ParticipantID, ok bool) {
	y := *x
	w, waits := k.head(&y)
	if waits && !k.waiting(w) {
		return 0, false
	}
	if waits {
		if granted = k.grant(&y, w); !y.torn && !y.tooMany {
			*x = y
			return granted, true
		}
	}
	k.setState(x, keyFree)
	return 0, true
}

// grant adds to the change x that the first wait, w, is granted the key of the chosen entry. It returns the
// participant of that wait.
func (k *multiBucket) grant(x *recordedChange, w wait) arenakernel.ParticipantID {
	n := w.Owner() & arenakernel.ParticipantIDMask
	k.setState(x, makeKeyState(kindReserved, n))
	k.detach(x, w, arenakernel.RecordedGranted)
	return n
}

// handedOn is called after a change. granted is the participant that the change has granted a key to, or 0 if there
// is none.
func (k *multiBucket) handedOn(granted arenakernel.ParticipantID) {
	if granted != 0 {
		k.counts.dates()
		k.reconsider(granted)
	}
}

// dropFirst takes the first wait off the queue of the chosen entry, if its owner is dead. Otherwise it does nothing.
func (k *multiBucket) dropFirst(x *recordedChange, b *wakes) error {
	if err := k.begin(x, b); err != nil {
		return err
	}
	w, ok := k.head(x)
	if ok && k.waiting(w) {
		return nil
	}
	if ok {
		k.detach(x, w, arenakernel.RecordedRemoved)
	}
	_, err := k.commitKey(x, b)
	return err
}

// serve grants the key of the chosen entry to the first wait in its queue, if the key is free. If nobody can get the
// key, serve ends all waits for it with an error. If the owner of the first wait is dead, serve takes that wait off
// the queue and goes on with the next. The caller holds k.private.
func (k *multiBucket) serve(x *recordedChange, b *wakes) error {
	for {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the
		// bucket.
		if err := k.begin(x, b); err != nil {
			return err
		}
		w, ok := k.head(x)
		if !ok && !x.torn {
			return nil
		}
		var granted arenakernel.ParticipantID
		if ok {
			switch s := k.stateIn(x); {
			case !k.waiting(w):
				k.detach(x, w, arenakernel.RecordedRemoved)
			case s.lost():
				k.refuse(x, w, s)
			case s.free():
				granted = k.grant(x, w)
			}
		}
		none := x.n == 0
		switch ok, err := k.commitKey(x, b); {
		case err != nil:
			return err
		case !ok:
		case none:
			return nil
		default:
			k.handedOn(granted)
		}
	}
}

// refuse adds to the change x that the first wait, w, ends without the key, because nobody can get a key in the state
// s. It stores the reason in the word extra of the wait node.
func (k *multiBucket) refuse(x *recordedChange, w wait, s keyState) {
	k.detach(x, w, arenakernel.RecordedRefused)
	if !s.valid() {
		s = ^keyState(0)
	}
	x.set(recordPrev, w.index(), w.Extra(), uint32(s))
}

// multiWaits is a bucket as the Withdrawer of a [park.WaitNode], that is, as the object that takes the wait of such a
// node off its queue.
type multiWaits multiBucket

// Withdraw calls the method withdraw.
func (k *multiWaits) Withdraw(s *park.WaitNode) bool { return (*multiBucket)(k).withdraw(s) }

// withdraw ends a wait of this process that gives up. It takes the wait off the queue of its key and off the list of
// waits of this process, and gives its wait node back. It reports false if the wait was already granted or refused.
func (k *multiBucket) withdraw(s *park.WaitNode) bool {
	b := takeWakes()
	defer k.wake(b)
	k.private.Lock()
	defer k.private.Unlock()
	x, w := &k.scratch, wait{s.Off, s.Node}
	for {
		// The loop repeats only if another call has changed the bucket. So it is lock-free.
		err := k.begin(x, b)
		v := x.get(w.Next())
		switch {
		case err != nil:
		case arenakernel.RecordedEnds(v) && s.Resolved():
			return false
		case queuedValue(v):
			var i uint32
			var ok bool
			// While a wait is queued, its key has an entry.
			if i, ok, err = k.find(w.Wanted().Load()); err == nil && ok {
				k.focus(i)
				k.detach(x, w, arenakernel.RecordedLeft)
				ok, err = k.commitKey(x, b)
			} else if err == nil && k.load() == x.c {
				err = k.corrupt("a wait for a key without an entry")
			}
			if err == nil && !ok {
				continue
			}
		case k.load() != x.c:
			continue // the record that ends the wait may be only partly carried out
		default: // a peer has overwritten the node
			dropWait(s)
			return true
		}
		if err != nil { // a peer has overwritten the queue, which may still name the node
			dropWait(s)
			return true
		}
		if s.OnLine() {
			s.LeaveLine(false)
		}
		k.unused(s)
		k.serve(x, b)
		return true
	}
}
