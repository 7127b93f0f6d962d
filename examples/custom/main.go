// Command custom makes a primitive that the library does not have: a budget of memory that processes share, and
// that serves urgent requests first.
//
// The program gives a Waitable a state and rules. The Waitable queues the waiters and serves them in the order of
// urgency when a process frees memory. When a process is killed, its claims return to the budget.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

// budget is the state of the Waitable: the memory that is free now.
type budget struct {
	Free   int64 // MiB
	Reaped int64 // number of claims that were returned because a process died
}

// wish is a request of a process for memory. The process waits until the memory is free.
type wish struct {
	MiB    uint32
	Urgent uint32 // requests with a larger number are served first
}

var rules = prims.Rules[budget, wish]{
	Claim: func(b *budget, w wish) bool {
		if b.Free < int64(w.MiB) {
			return false
		}
		b.Free -= int64(w.MiB)
		return true
	},
	Release: func(b *budget, w wish) { b.Free += int64(w.MiB) },
	OnDeath: func(b *budget, w wish) {
		b.Free += int64(w.MiB)
		b.Reaped++
	},
	Before: func(x, y wish) bool { return x.Urgent > y.Urgent },
}

const (
	total   = 1024 // MiB
	workers = 4
	claims  = 200
)

func join(name string) (*arena.Arena, *prims.Waitable[budget, wish]) {
	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	x, err := prims.OpenWaitable(a, "memory", budget{Free: total}, rules, nil)
	workergroup.Check(err)
	return a, x
}

// work claims memory again and again, and releases it when the boss says so.
func work() {
	_, x := join(os.Args[1])
	for n := uint32(1); ; n++ {
		w := wish{MiB: 100 + n%7*100, Urgent: n % 3}
		if x.WaitContext(workergroup.Context(), w) != nil {
			return
		}
		if free := x.State().Free; free < 0 || free > total-int64(w.MiB) {
			log.Fatalf("%d MiB are free while this process has %d", free, w.MiB)
		}
		workergroup.Say("has %d", w.MiB)
		workergroup.Hear()
		x.Release(w)
	}
}

func boss() {
	name := fmt.Sprintf("example-custom-%d", os.Getpid())
	defer arena.Remove(name)
	a, x := join(name)
	defer a.Close()
	var group []*workergroup.Kept // each worker is started again when it dies
	for i := range workers {
		group = append(group, workergroup.Keep(fmt.Sprintf("worker %d", i), "worker", []string{name}))
	}
	killed := 0
	for n := 0; n < claims; {
		e := workergroup.Next()
		if e.Ended {
			continue
		}
		n++
		if killed < workergroup.Kills() && workergroup.Random(claims/(workergroup.Kills()+1)) == 0 || claims-n < workergroup.Kills()-killed {
			fmt.Printf("%s %s MiB and is killed\n", e.From.Name, e.Line)
			e.From.Kill()
			killed++
		} else {
			e.From.Tell("release")
		}
	}
	for _, w := range group {
		w.Stop()
	}
	// This wait ends when all memory is available again, that is, when the last dead process has been reaped.
	workergroup.Check(x.Wait(wish{MiB: total}))
	fmt.Printf("%d claims, %d of them of processes that were killed; %d MiB are back\n", claims, killed, total)
	if b := x.State(); b.Free != 0 || b.Reaped < int64(killed) {
		log.Fatalf("the budget is %+v", b)
	}
}

func main() { workergroup.Main(boss, map[string]func(){"worker": work}) }
