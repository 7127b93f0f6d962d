//go:build linux

package load

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// reapTime is the longest time that a dead process may stay a participant of the arena. After that time, another
// process must have recovered what the dead one left.
const reapTime = time.Minute

// crashRole runs the survivor, or a victim (a process that will be killed) that does not hold the lock exclusively.
func (t *thread) crashRole(l bench.Locker) error {
	take, leave := l.Lock, l.Unlock
	if t.Shape.Role == bench.RoleReader {
		rw, err := as[bench.RWLocker](t)
		if err != nil {
			return err
		}
		take, leave = rw.RLock, rw.RUnlock
	}
	if t.Proc != 0 {
		k := uint32(t.Proc)
		control.WaitRound(&t.VictimGo, k)
		if t.Shape.Role == bench.RoleWaiter {
			control.Announce(&t.Trying, k)
			take()
			t.violate("round %d: owned a lock that another holds", k)
		} else {
			take()
			control.Announce(&t.Trying, k)
		}
		for { // until the kill
			shmsync.Wait(new(uint32), 0, 0)
		}
	}
	dead := reaped{t: t, waitLimit: reapTime}
	t.begin()
	for round := uint32(1); ; round++ {
		control.WaitRound(&t.SurvivorGo, round)
		if t.Phase.Load() == control.PhaseStop {
			break
		}
		take()
		owned := make(chan int64)
		go func() {
			control.WaitRound(&t.SecondGo, round)
			control.Announce(&t.Queued, round)
			l.Lock()
			now := shmsync.Monotonic()
			l.Unlock()
			owned <- now
		}()
		control.Announce(&t.Held, round)
		control.WaitRound(&t.KilledGo, round)
		left := shmsync.Monotonic()
		leave()
		at, killed := <-owned, t.KilledNs.Load()
		if killed == 0 || at < killed || at < left {
			t.violate("round %d: owned a lock that others had", round)
		} else {
			stats.Record(t.counts, at-killed)
			stats.Record(t.others, at-left)
		}
		t.slot.Ops++
		t.slot.Total++
		if round == 1 {
			dead.look(1)
		}
		control.Announce(&t.Owned, round)
	}
	dead.look(t.slot.Ops)
	return nil
}
