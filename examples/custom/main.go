// Command custom makes a primitive that the library does not have: a budget of
// memory that processes share, urgent wishes first.
//
// A Waitable needs a state and rules, and does the rest: who waits is served in
// order, by whichever process makes it possible, and what a process has claimed
// comes back when it is killed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/crew"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// budget is the state.
type budget struct {
	Free   int64 // MiB
	Buried int64 // claims of processes that died
}

// wish is what one wait wants.
type wish struct {
	MiB    uint32
	Urgent uint32 // those with more are served first
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
	Bury: func(b *budget, w wish) {
		b.Free += int64(w.MiB)
		b.Buried++
	},
	Before: func(x, y wish) bool { return x.Urgent > y.Urgent },
}

const (
	total   = 1024 // MiB
	workers = 4
	claims  = 200
)

func join(name string) *prims.Waitable[budget, wish] {
	a, err := arena.Open(name, nil)
	crew.Check(err)
	x, err := prims.OpenWaitable(a, "memory", budget{Free: total}, rules, nil)
	crew.Check(err)
	return x
}

// work claims memory, again and again, and gives it back when it is told to.
func work() {
	x := join(os.Args[1])
	for n := uint32(1); ; n++ {
		w := wish{MiB: 100 + n%7*100, Urgent: n % 3}
		if x.Wait(crew.Context(), w) != nil {
			return
		}
		if free := x.State().Free; free < 0 || free > total-int64(w.MiB) {
			log.Fatalf("%d MiB are free while this process has %d", free, w.MiB)
		}
		crew.Say("has %d", w.MiB)
		crew.Hear()
		x.Release(w)
	}
}

func boss() {
	name := fmt.Sprintf("example-custom-%d", os.Getpid())
	x := join(name)
	defer shm.Remove(name)
	var crewed []*crew.Kept // each is started again when it dies
	for i := range workers {
		crewed = append(crewed, crew.Keep(fmt.Sprintf("worker %d", i), "worker", []string{name}))
	}
	killed := 0
	for n := 0; n < claims; {
		e := crew.Next()
		if e.Ended {
			continue
		}
		n++
		if killed < crew.Kills() && crew.Random(claims/(crew.Kills()+1)) == 0 || claims-n < crew.Kills()-killed {
			fmt.Printf("%s %s MiB and is killed\n", e.From.Name, e.Line)
			e.From.Kill()
			killed++
		} else {
			e.From.Tell("release")
		}
	}
	for _, w := range crewed {
		w.Stop()
	}
	// All of it can be had, when the last of the dead has been buried.
	crew.Check(x.Wait(context.Background(), wish{MiB: total}))
	fmt.Printf("%d claims, %d of them of processes that were killed; %d MiB are back\n", claims, killed, total)
	if b := x.State(); b.Free != 0 || b.Buried < int64(killed) {
		log.Fatalf("the budget is %+v", b)
	}
}

func main() { crew.Main(boss, map[string]func(){"worker": work}) }
