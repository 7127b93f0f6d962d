//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// SetTickets makes the next ticket n+1.
func (g *WaitGroup) SetTickets(n uint64) { g.counter.words.tickets.Store(n) }

// Period returns the current period; shares with another period are void.
func (g *WaitGroup) Period() uint64 { return valueOf(&g.counter.words.period) }

// ShareOf returns the share of the participant in a slot.
func (g *WaitGroup) ShareOf(slot int) uint64 {
	if s := g.counter.slotOf(slot); s != nil {
		return g.counter.has(s)
	}
	return 0
}

// SetCommit overwrites the commit word, as a hostile peer does.
func (g *WaitGroup) SetCommit(v uint64) { g.counter.words.commit.Store(v) }

// LostWhileFolded folds the share of a slot in part: it stops after the first word has changed, as a stopped
// process would. It then returns the result of lostAt.
func (g *WaitGroup) LostWhileFolded(slot int) (died, current bool, err error) {
	t := g.counter
	c := t.load()
	if err := t.complete(c); err != nil {
		return false, false, err
	}
	s := t.slotOf(slot)
	var ch recordChange
	ch.set(counterOwed, t.has(s))
	ch.set(counterDeadID, uint64(s.holder()))
	ch.set(shareAt(slot, shareOwn), 0)
	version, err := t.version(&ch)
	if err != nil {
		return false, false, err
	}
	me := t.own
	me.head.Store(version)
	for i := range ch.n {
		me.entries[i].Store(uint64(ch.index[i])<<32 | uint64(ch.value[i]))
	}
	me.entries[ch.n].Store(0)
	t.words.commit.Store(uint64(counterNames(version, t.name.Slot(), 0)))
	t.words.owed.Store(uint64(makeTagged(ch.value[0], uint32(version))))
	n, current, err := t.lostAt(c)
	return n != 0, current, err
}

// ClaimHalfway is Claim, but it calls f after its first change. It reports whether it claimed all n
// units.
func (g *WaitGroup) ClaimHalfway(n uint64, f func()) bool {
	t := g.counter
	k := claiming{n: n, rest: n, fromOthers: true, reaped: true}
	for first := true; k.rest > 0; first = false {
		next, _, err := t.claimLogged(t.load(), &k)
		if err != nil {
			panic(err)
		}
		if next == claimFails {
			return false
		}
		if first {
			f()
		}
	}
	return true
}

// Reap does what a reaper does after some participants have died. The function dead selects the participants by their
// slots. The selected participants may in fact be alive.
func (g *WaitGroup) Reap(dead func(slot int) bool) {
	t := g.counter
	if c := t.load(); c.owner() != 0 && !c.lost() && dead(c.owner().Slot()) && t.swap(c, c|counterDead) {
		t.tell()
		return
	}
	t.reap(func(n arenakernel.ParticipantID) bool { return dead(n.Slot()) })
}

// ReapLate does what a late reaper does: it finds that the owner of the whole count is dead. When it goes on, a living
// participant has the ID of that owner.
func (g *WaitGroup) ReapLate() {
	late := false
	g.counter.reap(func(n arenakernel.ParticipantID) bool {
		if !late {
			late = true
			return true
		}
		return !g.counter.a.Current(n)
	})
}

// PrivateHeld reports whether a goroutine of this process holds the private lock.
func (g *WaitGroup) PrivateHeld() bool {
	if !g.counter.private.TryLock() {
		return true
	}
	g.counter.private.Unlock()
	return false
}

// Restless puts the commit word into the logged form, with a record that is never complete and says
// that the dead owe work.
func (g *WaitGroup) Restless() {
	t := g.counter
	var ch recordChange
	ch.set(counterOwed, 1)
	ch.set(counterDeadID, uint64(t.name))
	version, err := t.version(&ch)
	if err != nil {
		panic(err)
	}
	s := t.own
	s.head.Store(version)
	for i := range ch.n {
		s.entries[i].Store(uint64(ch.index[i])<<32 | uint64(ch.value[i]))
	}
	s.entries[ch.n].Store(0)
	t.words.commit.Store(uint64(counterNames(version, t.name.Slot(), 0)))
}
