// Command workers is a pool of worker processes that crash and lose no job.
//
// Each tenant has a Queue for its jobs. A SignalWaker tells the workers which queues have jobs. A worker sleeps
// while there is no work, and only one worker at a time serves a tenant. A worker has a job on lease until the
// job is done. If the worker dies, the job goes back to the front of its queue. So each job is done at least
// once, and may begin twice.
//
// Every hundredth job crashes the worker that first gets it. Other workers are killed at random.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const (
	tenants = 8
	workers = 3
	jobs    = 500
)

type job struct{ ID uint32 }

// ledger is the data that the jobs change. Each job increments its own counter.
type ledger struct {
	Done  [jobs]atomic.Uint32
	Again atomic.Uint32 // the number of jobs that were begun again
}

type pool struct {
	arena  *arena.Arena
	queues [tenants]*prims.Queue[job]
	waker  *prims.SignalWaker
	done   *prims.Sequencer // counts finished jobs
	ledger *ledger
}

func join(name string) *pool {
	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	p := &pool{arena: a}
	for t := range tenants {
		p.queues[t], err = prims.OpenQueue[job](a, fmt.Sprintf("jobs of %d", t), 64, nil)
		workergroup.Check(err)
	}
	p.waker, err = prims.OpenSignalWaker(a, "workers", &prims.SignalWakerOptions{Signals: 1})
	workergroup.Check(err)
	p.done, err = prims.OpenSequencer(a, "done", nil)
	workergroup.Check(err)
	p.ledger, err = arena.Value[ledger](a, "ledger")
	workergroup.Check(err)
	return p
}

// work is the main function of a worker.
func work() {
	p := join(os.Args[1])
	// A process may die after it has put a job into a queue, and before it has scheduled this queue. So each death
	// schedules all queues. This is cheap if they are empty.
	p.arena.OnDeath(func(arena.Participant) {
		for t := range tenants {
			p.waker.Gate(t).Schedule()
		}
	})
	for near := 0; ; {
		gate, ok := p.waker.Next(near)
		if !ok {
			if p.waker.AcquireContext(workergroup.Context()) != nil {
				return
			}
			continue
		}
		near = gate.Queue()
		q := p.queues[near]
		for l, ok := q.TryLease(); ok; l, ok = q.TryLease() {
			p.do(l)
			l.Ack()
		}
		if q.State().Out > 0 || q.Len() > 0 {
			// No job is available now, but jobs may follow: a job of a dead worker has not come back yet, or a call of
			// another process has not ended. So schedule the queue again.
			gate.FinishAndSchedule()
		} else {
			gate.Finish()
		}
	}
}

func (p *pool) do(l prims.Lease[job]) {
	if l.Attempts > 0 {
		p.ledger.Again.Add(1)
	} else if l.Item.ID%100 == 99 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	p.ledger.Done[l.Item.ID].Add(1)
	p.done.Increment()
}

func boss() {
	name := fmt.Sprintf("example-workers-%d", os.Getpid())
	defer arena.Remove(name)
	p := join(name)
	defer p.arena.Close()

	var group []*workergroup.Kept // each worker is started again when it dies
	for i := range workers {
		group = append(group, workergroup.Keep(fmt.Sprintf("worker %d", i), "worker", []string{name}))
	}
	go func() {
		for id := range uint32(jobs) {
			t := int(id % tenants)
			workergroup.Check(p.queues[t].Put(job{id}))
			p.waker.Gate(t).Schedule()
		}
	}()
	for k := range workergroup.Kills() {
		n := uint64(jobs * (k + 1) / (workergroup.Kills() + 1))
		workergroup.Check(p.done.Wait(n))
		w := group[workergroup.Random(workers)]
		w.Kill()
		fmt.Printf("%s killed when %d jobs were done\n", w.Name, n)
	}
	// A job that was begun twice may have been counted twice, so a count of all jobs does not show that all jobs are
	// done.
	for n := uint64(jobs); !p.ledger.whole(); n++ {
		workergroup.Check(p.done.Wait(n))
	}
	deaths := 0
	for _, w := range group {
		deaths += w.Stop()
	}
	fmt.Printf("%d jobs of %d tenants: all done, none lost\n", jobs, tenants)
	fmt.Printf("%d workers died, %d jobs were begun again\n", deaths, p.ledger.Again.Load())
}

func (l *ledger) whole() bool {
	for i := range l.Done {
		if l.Done[i].Load() == 0 {
			return false
		}
	}
	return true
}

func main() { workergroup.Main(boss, map[string]func(){"worker": work}) }
