//go:build linux

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
)

// A crash cell has one survivor, process 0, and a fresh victim for each round:
// the victim locks, the survivor queues up and falls asleep, the parent stamps
// the page and kills the victim, the survivor stamps when it owns. Process k is
// the victim of round k. The words of the control page count rounds.
//
// There is nobody else: whoever else had joined would be woken by the death
// too, and run beside the survivor.
const (
	crashSlots   = 2                       // of the survivor and of the victim
	crashAsleep  = 1500 * time.Microsecond // from queueing up until the kill
	crashHandful = 50 * time.Millisecond   // how often waits look at the processes
)

// crashSlot is the slot of process proc.
func crashSlot(proc int) int { return min(proc, 1) }

// workCrash is the survivor in process 0 and a victim in every other.
func workCrash(t *thread) error {
	l, err := as[locker](t)
	if err != nil {
		return err
	}
	t.slot.state.Store(slotReady)
	t.ready.Add(1)
	if t.shape.Role != roleHolder {
		if err := t.crashRole(l); err != nil {
			return err
		}
		t.end()
		return nil
	}
	if t.proc != 0 {
		waitRound(&t.victimGo, uint32(t.proc))
		l.Lock()
		announce(&t.held, uint32(t.proc))
		for { // until the kill
			shmsync.Wait(new(uint32), 0, 0)
		}
	}
	inherit := func() (int64, error) { l.Lock(); return shmsync.Monotonic(), nil }
	if h, ok := l.(heir); ok {
		inherit = h.Inherit
	}
	dead := buried{t: t, patience: burialTime}
	t.begin()
	for round := uint32(1); ; round++ {
		waitRound(&t.survivorGo, round)
		if t.phase.Load() == phaseStop {
			break
		}
		announce(&t.trying, round)
		owned, err := inherit()
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if killed := t.killedNs.Load(); killed == 0 || owned < killed {
			t.violate("round %d: owned a lock whose owner lives", round)
		} else {
			record(t.counts, owned-killed)
		}
		l.Unlock()
		t.slot.ops++
		t.slot.total++
		if round == 1 {
			dead.look(1)
		}
		announce(&t.owned, round)
	}
	dead.look(t.slot.ops)
	t.end()
	return nil
}

// waitRound sleeps until w counts at least round.
func waitRound(w *atomic.Uint32, round uint32) {
	for v := w.Load(); v < round; v = w.Load() {
		shmsync.Wait(futexWord(w), v, 0)
	}
}

// announce sets w to round and wakes who waits for it.
func announce(w *atomic.Uint32, round uint32) {
	w.Store(round)
	shmsync.Wake(futexWord(w), 1<<20)
}

// control runs the parent's part of a crash cell.
func (r *run) controlCrash() error {
	if err := r.spawn(0); err != nil {
		return err
	}
	if err := r.awaitWord(&r.page.setup, 1); err != nil {
		return err
	}
	for k := 1; k <= r.cell.N; k++ {
		if err := r.spawn(k); err != nil {
			return err
		}
		victim := r.procs[len(r.procs)-1]
		if err := r.killRound(victim, uint32(k)); err != nil {
			return fmt.Errorf("round %d of %d: %w", k, r.cell.N, err)
		}
		<-victim.done
	}
	r.finish()
	announce(&r.page.survivorGo, uint32(r.cell.N+1))
	return r.awaitExit(r.procs[0])
}

// killRound has the victim lock and the survivor queue up behind it, and kills.
func (r *run) killRound(victim *process, k uint32) error {
	p := r.page
	p.killedNs.Store(0)
	if r.cell.Role != roleHolder {
		return r.killRole(victim, k)
	}
	announce(&p.victimGo, k)
	if err := r.awaitWord(&p.held, k); err != nil {
		return err
	}
	announce(&p.survivorGo, k)
	if err := r.awaitWord(&p.trying, k); err != nil {
		return err
	}
	time.Sleep(crashAsleep)
	if err := r.kill(victim); err != nil {
		return err
	}
	return r.awaitWord(&p.owned, k)
}

// kill stamps the page and kills the victim.
func (r *run) kill(victim *process) error {
	victim.expected = endKilled
	r.page.killedNs.Store(shmsync.Monotonic())
	return victim.cmd.Process.Signal(os.Kill)
}
