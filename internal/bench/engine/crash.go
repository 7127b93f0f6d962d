//go:build linux

package engine

import (
	"fmt"
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// checkEvery is how often the parent checks its processes while it waits until one of them changes a word.
const checkEvery = 50 * time.Millisecond

// controlCrash does what the parent has to do in a crash measurement, which kills a process in each round.
func (r *run) controlCrash() error {
	if err := r.spawn(0); err != nil {
		return err
	}
	if err := r.awaitWord(&r.page.Setup, 1); err != nil {
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
	control.Announce(&r.page.SurvivorGo, uint32(r.cell.N+1))
	return r.awaitExit(r.procs[0])
}

// killRound does one round of a crash cell. It lets the victim lock and the survivor queue up, and then kills the
// victim.
func (r *run) killRound(victim *process, k uint32) error {
	p := r.page
	p.KilledNs.Store(0)
	if r.cell.Role != bench.RoleHolder {
		return r.killRole(victim, k)
	}
	control.Announce(&p.VictimGo, k)
	if err := r.awaitWord(&p.Held, k); err != nil {
		return err
	}
	control.Announce(&p.SurvivorGo, k)
	if err := r.awaitWord(&p.Trying, k); err != nil {
		return err
	}
	time.Sleep(bench.CrashAsleep)
	if err := r.kill(victim); err != nil {
		return err
	}
	return r.awaitWord(&p.Owned, k)
}

// kill writes the time into the control page and kills the victim.
func (r *run) kill(victim *process) error {
	victim.expected = endKilled
	r.page.KilledNs.Store(shmsync.Monotonic())
	return victim.cmd.Process.Signal(os.Kill)
}

// killRole does the work of killRound if the process that is killed does not hold the lock exclusively.
func (r *run) killRole(victim *process, k uint32) error {
	p := r.page
	control.Announce(&p.SurvivorGo, k)
	if err := r.awaitWord(&p.Held, k); err != nil {
		return err
	}
	control.Announce(&p.VictimGo, k)
	if err := r.awaitWord(&p.Trying, k); err != nil {
		return err
	}
	time.Sleep(bench.CrashAsleep)
	control.Announce(&p.SecondGo, k)
	if err := r.awaitWord(&p.Queued, k); err != nil {
		return err
	}
	time.Sleep(bench.CrashAsleep)
	if err := r.kill(victim); err != nil {
		return err
	}
	control.Announce(&p.KilledGo, k)
	return r.awaitWord(&p.Owned, k)
}
