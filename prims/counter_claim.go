package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// claim makes this participant responsible for n units of the outstanding work: it adds the units to this
// participant's share. If this participant dies before it has done them, waits fail. claim first takes the units
// that dead participants owe, then units in no share, and then, if fromOthers is set, units in the shares of other
// participants. It reports false if there are fewer than n such units.
//
// A claim may take several changes of the counter. Other participants may do some of the work between two of these
// changes, so that too little is left. Then claim reports false, but this participant keeps the units that it has
// claimed so far. If it dies before it has done them, waits fail.
func (t *counter) claim(n uint64, fromOthers bool) bool {
	defer t.serve().end()
	// The process whose units the caller wants to claim may be dead. If the reaper of that process had no room for
	// a slot record, the share of the process is not yet work that the dead owe. reapDead turns it into such work.
	t.reapDead()
	k := claiming{n: n, rest: n, fromOthers: fromOthers, reaped: true}
	if t.tryClaim(&k) {
		return true
	}
	// A caller may have waited for the end of a process, and now claim the units of that process. For a moment
	// after the end of a process, other processes cannot know yet that all of its threads have ended. So claim
	// waits until no process is dying, and tries once more.
	t.must(t.awaitUntil(func() bool { return !t.a.AnyDying() }))
	k.reaped = false
	return t.tryClaim(&k)
}

// tryClaim does what claim does, but does not wait for processes that are dying.
func (t *counter) tryClaim(k *claiming) bool {
	for {
		// The loop is lock-free for the same reason as the loop of the method add.
		c := t.load()
		switch {
		case c.untold():
			t.tellZero(c)
			continue
		case !c.logged() && c.count() < k.rest && k.reaped:
			return false
		case k.rest == 0:
			return true
		case !c.logged() && c.count() < k.rest:
			t.reapDead()
			k.reaped = true
			continue
		case !c.logged():
			t.must(t.convert(c))
			continue
		}
		next, due, err := t.claimLogged(c, k)
		t.pay(due)
		switch {
		case err != nil:
			panic(err)
		case next == claimReap:
			t.reapDead()
			k.reaped = true
		case next == claimAwait:
			// This participant takes over work of dead participants. Stores that they have begun may still reach
			// the data of that work. So this call waits until the dead participants can store nothing any more.
			t.must(t.awaitAllGone())
		case next == claimFails:
			return false
		}
	}
}

// claiming is the state of a call of Claim.
type claiming struct {
	n          uint64 // how much the caller wants to claim
	rest       uint64 // how much of n is left to claim
	period     uint64 // counterWords.period when rest was computed
	fromOthers bool
	reaped     bool // this call has looked for dead participants
}

// claimStep says what the method tryClaim has to do next.
type claimStep int

const (
	claimAgain claimStep = iota
	claimReap            // look for dead participants, then try again
	claimAwait           // wait until the dead participants are gone, then try again
	claimFails
)

// claimLogged makes one attempt to claim while the commit word has the logged form, in which it names a record.
// One change takes units that the dead owe, units in no share, and units in the share of one other participant.
func (t *counter) claimLogged(c counterWord, k *claiming) (next claimStep, due counterDue, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return 0, 0, err
	}
	if p := valueOf(&t.words.period); p != k.period {
		k.rest, k.period = k.n, p // the counter was 0 in between, which made the units that this call had claimed void
	}
	count, owed := valueOf(&t.words.count), valueOf(&t.words.owed)
	h, ok := t.mine(count)
	if !ok {
		due, err = t.fold(c, t.name.Slot())
		return claimAgain, due, err
	}
	me, most := t.name.Slot(), 0
	shares, free := h.own, uint64(0)
	places := t.slots.load()
	if places.err != nil {
		return 0, 0, t.corruptShares()
	}
	var victim *counterSlot // of the other participants' slot records, the one with the most claimable units
	for i, s := range places.of {
		if s == nil || i+1 == me {
			continue
		}
		shares += t.has(s)
		if claimable := t.claimable(s); claimable > 0 {
			free += claimable
			if most == 0 || claimable > t.claimable(victim) {
				most, victim = i+1, s
			}
		}
	}
	others := uint64(max(int64(count)-int64(owed)-int64(shares), 0))
	if !k.fromOthers {
		free, most = 0, 0
	}
	free += others + owed
	if k.fromOthers {
		free = min(free, count-h.own) // the shares may add up to more than the count
	}
	switch {
	case t.load() != c:
		return claimAgain, 0, nil
	case k.rest > free && !k.reaped:
		return claimReap, 0, nil
	case k.rest > free:
		return claimFails, 0, nil
	case owed != 0 && !t.a.AllGone():
		return claimAwait, 0, nil
	}
	var ch recordChange
	ofDead := min(k.rest, owed)
	if ofDead > 0 {
		ch.set(counterOwed, owed-ofDead)
	}
	ofNobody := min(k.rest-ofDead, others)
	var ofMost uint64
	if rest := k.rest - ofDead - ofNobody; rest > 0 && most != 0 {
		ofMost = min(rest, t.claimable(victim))
		ch.set(shareAt(most, shareOwn), t.has(victim)-ofMost)
	}
	n := ofDead + ofNobody + ofMost
	if n == 0 {
		if t.load() != c {
			return claimAgain, 0, nil // a share changed after it was read
		}
		return claimFails, 0, nil // a peer has overwritten the shares
	}
	t.put(&ch, h, h.own+n, h.claimed+n)
	ok, err = t.commit(c, &ch)
	if ok {
		k.rest -= n
	}
	return claimAgain, 0, err
}

// reset takes the work that the dead owe out of the count, and reports whether they owed anything.
func (t *counter) reset() bool {
	defer t.serve().end()
	t.reapDead()
	for {
		// The loop is lock-free for the same reason as the loop of the method add.
		c := t.load()
		died, current, err := t.lostAt(c)
		switch {
		case err != nil:
			panic(err)
		case !current:
		case died == 0:
			return false
		case !t.a.AllGone():
			t.must(t.awaitAllGone())
		case !c.logged():
			ok, due := t.zeroLost(c)
			t.pay(due)
			if ok {
				return true
			}
		default:
			r, err := t.resetLogged(c)
			t.pay(r.due)
			t.must(err)
			if r.made {
				return true
			}
		}
	}
}

// zeroLost does what becomeZero does, for a word c of the sole form whose owner is dead. Another participant might get
// the ID of the dead owner, bring the commit word to the value c again, and die, too. So zeroLost changes the word
// only while no other participant can get the ID, and only if the owner is gone.
func (t *counter) zeroLost(c counterWord) (ok bool, due counterDue) {
	zero := func() { ok, due = t.becomeZero(c) }
	if t.a.Current(c.owner()) {
		zero() // a peer has overwritten the word
	} else {
		arenakernel.WhileGone(t.a, c.owner(), &t.words.commit, uint64(c), zero)
	}
	return ok, due
}

func (t *counter) resetLogged(c counterWord) (r attempt, err error) {
	t.private.Lock()
	defer t.private.Unlock()
	if err := t.complete(c); err != nil {
		return r, err
	}
	count, owed := valueOf(&t.words.count), valueOf(&t.words.owed)
	if owed >= count { // other participants have done some of the work that the dead owe
		r.made, r.due = t.becomeZero(c)
		return r, nil
	}
	var ch recordChange
	ch.set(counterCount, count-owed)
	ch.set(counterOwed, 0)
	r.made, err = t.commit(c, &ch)
	return r, err
}

// awaitAllGone waits until all dead participants are gone, that is, until none of them can store to shared
// memory any more.
func (t *counter) awaitAllGone() error { return t.awaitUntil(t.a.AllGone) }

func (t *counter) awaitUntil(done func() bool) error {
	if err := awaitUntil(nil, t.queue, done); err != errClosing {
		return err
	}
	return t.closed()
}
