// Command spin is a program that follows the advice of shmbench about spinning.
//
// A waiter that spins may save the cost of a sleep, but it uses CPU time. shmbench measures what a sleep costs on
// the host, and prints three lines of Go with its advice. The lines of one host are pasted below, after the
// comments that begin with "Pasted". Replace them by the lines that shmbench prints on your host.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const turns = 1000 // how often each worker increments the count

type shop struct {
	arena *arena.Arena
	m     *prims.Mutex
	count *uint64 // guarded by m
}

func join(name string) *shop {
	// Pasted: for an object that is created.
	opts := &prims.MutexOptions{Spin: 25 * time.Microsecond}

	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	m, err := prims.OpenMutex(a, "lock", opts)
	workergroup.Check(err)
	count, err := arena.Value[uint64](a, "count")
	workergroup.Check(err)
	return &shop{a, m, count}
}

// bound sets how long waiters may spin. This depends on the number of workers. The setting applies to the waiters
// of all processes.
func bound(m *prims.Mutex, workers int) {
	if workers > runtime.NumCPU() {
		// Pasted: for more waiters than CPUs. In that case a spinning waiter may keep the holder of the lock from
		// getting a CPU.
		m.SetSpin(-1)
		return
	}
	// Pasted: for an object that already exists.
	m.SetSpin(25 * time.Microsecond)
}

// turn increments the count under the lock. If a process dies in a turn, there is nothing to repair, because a single
// store changes the count.
func (s *shop) turn(hold func()) {
	err := s.m.LockContext(workergroup.Context())
	if errors.Is(err, shmsync.ErrOwnerDead) {
		workergroup.Check(s.m.Recover(func() error { return nil }))
		s.turn(hold)
		return
	}
	workergroup.Check(err)
	hold()
	*s.count++
	s.m.Unlock()
}

// worker increments the count many times. If it has a second argument, it stops in its first turn, with the lock
// held, and waits for the kill.
func worker() {
	s := join(os.Args[1])
	for range turns {
		s.turn(func() {
			if len(os.Args) > 2 {
				workergroup.Say("holds")
				workergroup.Hear()
			}
		})
	}
	workergroup.Check(s.arena.Close())
}

// work starts workers. While they work, it also starts victims, and kills each victim while it holds the lock. It
// returns by how much the count has increased.
func (s *shop) work(name string, workers, kills int) uint64 {
	bound(s.m, workers)
	before := *s.count
	var procs []*workergroup.Proc
	for i := range workers {
		procs = append(procs, workergroup.Start(fmt.Sprintf("worker %d", i), "worker", []string{name}))
	}
	for range kills {
		victim := workergroup.Start("victim", "worker", []string{name, "stay"})
		workergroup.Await(victim, "holds")
		victim.Kill()
		fmt.Println("a worker was killed while it held the lock")
	}
	for _, p := range procs {
		workergroup.Check(p.Wait())
	}
	return *s.count - before
}

func boss() {
	name := fmt.Sprintf("example-spin-%d", os.Getpid())
	defer arena.Remove(name)
	s := join(name)
	for _, workers := range []int{2, 2*runtime.NumCPU() + 1} {
		kills := 0
		if workers == 2 {
			kills = workergroup.Kills()
		}
		if n := s.work(name, workers, kills); n != uint64(workers*turns) {
			log.Fatalf("%d workers of %d turns each made %d turns", workers, turns, n)
		}
		spin := "do not spin"
		if d := s.m.Spin(); d > 0 {
			spin = fmt.Sprintf("spin for %v at most", d)
		}
		fmt.Printf("%d workers %s: all %d turns counted\n", workers, spin, workers*turns)
	}
	workergroup.Check(s.arena.Close())
}

func main() { workergroup.Main(boss, map[string]func(){"worker": worker}) }
