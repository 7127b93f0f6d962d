//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// What the victims of a crash cell are. Of the others than holders the survivor has two
// goroutines: the first holds the lock, shared if the victims read, until the victim has
// been killed, and the second waits behind it to own the lock.
const (
	roleHolder = uint64(iota)
	roleWaiter // it sleeps in Lock, before the second of the survivor
	roleReader // it has the lock shared, as the first of the survivor has
)

// roleNames are as the user says them; keys of cells leave the first one out.
var roleNames = []string{"holder", "waiter", "reader"}

// burialTime is how long the dead may be among the participants.
const burialTime = 5 * time.Second

// checkRoles reads the roles.
func (o *options) checkRoles(list []string) error {
	for _, text := range list {
		i := slices.Index(roleNames, text)
		if i < 0 {
			return fmt.Errorf("--role %q: want holder, waiter or reader", text)
		}
		o.Roles = append(o.Roles, uint64(i))
	}
	return nil
}

// takesRole: the goroutines of a survivor exclude each other with the library's locks
// only, and not all have readers.
func takesRole(c *cell) bool {
	switch c.Role {
	case roleWaiter:
		return c.Subject.By == libBy
	case roleReader:
		return c.Subject.By == libBy && slices.Contains(c.Subject.Scenarios, "readers")
	}
	return true
}

// crashRole is the survivor, or a victim, that does not hold the lock alone.
func (t *thread) crashRole(l locker) error {
	take, leave := l.Lock, l.Unlock
	if t.shape.Role == roleReader {
		rw, err := as[rwLocker](t)
		if err != nil {
			return err
		}
		take, leave = rw.RLock, rw.RUnlock
	}
	if t.proc != 0 {
		k := uint32(t.proc)
		waitRound(&t.victimGo, k)
		if t.shape.Role == roleWaiter {
			announce(&t.trying, k)
			take()
			t.violate("round %d: owned a lock that another holds", k)
		} else {
			take()
			announce(&t.trying, k)
		}
		for { // until the kill
			shmsync.Wait(new(uint32), 0, 0)
		}
	}
	dead := buried{t: t, patience: burialTime}
	t.begin()
	for round := uint32(1); ; round++ {
		waitRound(&t.survivorGo, round)
		if t.phase.Load() == phaseStop {
			break
		}
		take()
		owned := make(chan int64)
		go func() {
			waitRound(&t.secondGo, round)
			announce(&t.queued, round)
			l.Lock()
			now := shmsync.Monotonic()
			l.Unlock()
			owned <- now
		}()
		announce(&t.held, round)
		waitRound(&t.killedGo, round)
		left := shmsync.Monotonic()
		leave()
		at, killed := <-owned, t.killedNs.Load()
		if killed == 0 || at < killed || at < left {
			t.violate("round %d: owned a lock that others had", round)
		} else {
			record(t.counts, at-killed)
			record(t.others, at-left)
		}
		t.slot.ops++
		t.slot.total++
		if round == 1 {
			dead.look(1)
		}
		announce(&t.owned, round)
	}
	dead.look(t.slot.ops)
	return nil
}

// killRole is killRound for victims that do not hold the lock alone.
func (r *run) killRole(victim *process, k uint32) error {
	p := r.page
	announce(&p.survivorGo, k)
	if err := r.awaitWord(&p.held, k); err != nil {
		return err
	}
	announce(&p.victimGo, k)
	if err := r.awaitWord(&p.trying, k); err != nil {
		return err
	}
	time.Sleep(crashAsleep)
	announce(&p.secondGo, k)
	if err := r.awaitWord(&p.queued, k); err != nil {
		return err
	}
	time.Sleep(crashAsleep)
	if err := r.kill(victim); err != nil {
		return err
	}
	announce(&p.killedGo, k)
	return r.awaitWord(&p.owned, k)
}

// leavings are what the dead may leave in an arena. Nodes on the list of an object are its
// own, and used again.
type leavings struct{ objects, raw, nodes uint64 }

// buried sees after each repetition that the arena of a subject of the library is sound, and
// that nothing is left of the dead in it but what was left of the first.
type buried struct {
	t        *thread
	patience time.Duration
	first    leavings
}

// look waits until so many dead are buried.
func (b *buried) look(deaths uint64) {
	t := b.t
	if t.subject.By != libBy || deaths == 0 {
		return
	}
	a, err := joinArena(t.worker)
	if err != nil {
		t.violate("%v", err)
		return
	}
	var wrong error
	for end := time.Now().Add(b.patience); ; time.Sleep(time.Millisecond) {
		there := 0
		for range a.Participants() {
			there++
		}
		// Each who buries a dead one counts it.
		if wrong = a.Check(); wrong == nil && (uint64(a.Deaths()) < deaths || there > 1) {
			wrong = fmt.Errorf("%d burials of %d dead, and %d participants instead of 1", a.Deaths(), deaths, there)
		}
		if wrong == nil {
			wrong = b.excess(deaths, a.Stats())
		}
		if wrong == nil {
			return
		}
		if time.Now().After(end) {
			t.violate("%v after round %d: %v", b.patience, deaths, wrong)
			return
		}
	}
}

// excess tells what is in the heap beside what the first death left; of that, it keeps
// account.
func (b *buried) excess(deaths uint64, s arena.AllocStats) error {
	left := leavings{s.Objects, s.Raw, s.Nodes - s.HubNodes}
	switch {
	case s.Claimed > 0:
		return fmt.Errorf("%d blocks are neither made nor taken apart", s.Claimed)
	case deaths == 1:
		b.first = left
	case left.objects > b.first.objects || left.raw > b.first.raw || left.nodes > b.first.nodes:
		return fmt.Errorf("%d deaths left %+v, where the first left %+v", deaths, left, b.first)
	}
	return nil
}
