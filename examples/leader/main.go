// Command leader elects a leader among processes, and another one when the leader is killed.
//
// The leader is the process that holds a Mutex. When the leader dies, LockContext returns an error in the other
// processes. Each of them calls RecoverContext. One of these calls repairs the data of the dead leader, and then
// a process can get the Mutex again. OnDeath tells each process about every death, also of a process that is not
// the leader.
//
// A leader writes each entry in two steps. The example kills leaders between the two steps.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const candidates = 3

// office is the data that only the leader changes. The Mutex guards it.
type office struct {
	Term int64 // the number of the present leader, from 1

	// A leader increments Begun before it writes an entry, and Written afterwards. Both counters are atomic,
	// although the Mutex guards them: the compiler may delay or omit plain stores, so after the kill of a leader the
	// counters would not show whether an entry is unfinished.
	Begun, Written atomic.Int64
}

func stand() {
	a, err := arena.Open(os.Args[1], &arena.Options{Label: workergroup.Name()})
	workergroup.Check(err)
	mu, err := prims.OpenMutex(a, "leader", nil)
	workergroup.Check(err)
	o, err := arena.Value[office](a, "office")
	workergroup.Check(err)
	a.OnDeath(func(p arena.Participant) { workergroup.Say("heard: %s died", p.Label) })
	workergroup.Say("ready")
	for {
		err := mu.LockContext(workergroup.Context())
		switch {
		case errors.Is(err, shmsync.ErrOwnerDead):
			// Each process that gets this error calls Recover, but only one process executes repair. Then all
			// processes compete for the Mutex again.
			workergroup.Check(mu.RecoverContext(workergroup.Context(), o.repair))
		case err != nil:
			return
		default:
			o.lead()
			mu.Unlock()
			return
		}
	}
}

// repair undoes what a dead leader has left half done.
func (o *office) repair() error {
	if begun, written := o.Begun.Load(), o.Written.Load(); begun != written {
		workergroup.Say("repaired: entry %d taken back", begun)
		o.Begun.Store(written)
	}
	return nil
}

func (o *office) lead() {
	o.Term++
	workergroup.Say("leads: %d", o.Term)
	for {
		line := workergroup.Hear() // ends this process when the boss wants it to end
		o.Begun.Add(1)
		if line == "half" {
			workergroup.Say("half")
			continue
		}
		workergroup.Say("wrote: %d", o.Written.Add(1))
	}
}

func boss() {
	name := fmt.Sprintf("example-leader-%d", os.Getpid())
	defer arena.Remove(name)
	start := func(i int) *workergroup.Proc {
		p := workergroup.Start(fmt.Sprintf("candidate %d", i), "candidate", []string{name})
		workergroup.Await(p, "ready")
		return p
	}
	var procs [candidates]*workergroup.Proc
	// The first candidate starts alone, so it becomes the leader.
	procs[0] = start(0)
	leader, term := procs[0], 1
	workergroup.Await(leader, "leads: 1")
	for i := 1; i < candidates; i++ {
		procs[i] = start(i)
	}
	entry := 0
	for kill := range workergroup.Kills() {
		leader.Tell("write")
		entry++
		if got := workergroup.Await(leader, "wrote:"); got != strconv.Itoa(entry) {
			log.Fatalf("entry %s, want %d", got, entry)
		}
		fmt.Printf("term %d: %s leads, and wrote entry %d\n", term, leader.Name, entry)
		i := workergroup.Random(candidates)
		if kill == 0 {
			i = 0 // kill the leader
		}
		victim := procs[i]
		if victim == leader {
			leader.Tell("half")
			workergroup.Await(leader, "half")
		}
		victim.Kill()
		fmt.Printf("%s killed\n", victim.Name)

		// Wait until all other candidates know of the death and there is a leader.
		leads := victim != leader
		for heard := 0; heard < candidates-1 || !leads; {
			e := workergroup.Next()
			switch {
			case e.Line == "heard: "+victim.Name+" died":
				heard++
			case e.Line == fmt.Sprintf("leads: %d", term+1):
				leader, leads = e.From, true
				term++
			case e.Ended && e.From != victim:
				log.Fatalf("%s ended", e.From.Name)
			default:
				if e.Line != "" {
					fmt.Printf("%s: %s\n", e.From.Name, e.Line)
				}
			}
		}
		procs[i] = start(i)
	}
	for _, p := range procs {
		p.Stop()
	}
	fmt.Printf("%d terms, %d entries, all whole\n", term, entry)
}

func main() { workergroup.Main(boss, map[string]func(){"candidate": stand}) }
