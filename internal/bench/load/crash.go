//go:build linux

package load

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// crashSlot returns the slot in which the process with the number proc reports: 0 for the survivor, 1 for every victim.
func crashSlot(proc int) int { return min(proc, 1) }

// workCrash runs the survivor in process 0, and a victim, which will be killed, in every other process.
func workCrash(t *thread) error {
	l, err := as[bench.Locker](t)
	if err != nil {
		return err
	}
	t.slot.State.Store(control.SlotReady)
	t.Ready.Add(1)
	if t.Shape.Role != bench.RoleHolder {
		if err := t.crashRole(l); err != nil {
			return err
		}
		t.end()
		return nil
	}
	if t.Proc != 0 {
		control.WaitRound(&t.VictimGo, uint32(t.Proc))
		l.Lock()
		control.Announce(&t.Held, uint32(t.Proc))
		for { // until the kill
			shmsync.Wait(new(uint32), 0, 0)
		}
	}
	inherit := func() (bench.Succession, error) { l.Lock(); return bench.Succession{Owned: shmsync.Monotonic()}, nil }
	if h, ok := l.(bench.Successor); ok {
		inherit = h.Inherit
	}
	dead := reaped{t: t, waitLimit: reapTime}
	t.begin()
	for round := uint32(1); ; round++ {
		control.WaitRound(&t.SurvivorGo, round)
		if t.Phase.Load() == control.PhaseStop {
			break
		}
		control.Announce(&t.Trying, round)
		s, err := inherit()
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if killed := t.KilledNs.Load(); killed == 0 || s.Owned < killed {
			t.violate("round %d: owned a lock whose owner lives", round)
		} else {
			stats.Record(t.counts, s.Owned-killed)
			if s.Told > 0 {
				stats.Record(t.others, s.Told-killed)
			}
		}
		l.Unlock()
		t.slot.Ops++
		t.slot.Total++
		if round == 1 {
			dead.look(1)
		}
		control.Announce(&t.Owned, round)
	}
	dead.look(t.slot.Ops)
	t.end()
	return nil
}
