// Command pipeline moves blocks through stages, which are processes, in lockstep.
//
// In each phase, a stage reads the block that the previous stage wrote in the previous phase, and writes a block
// of its own. A Barrier ends the phase. Each stage has two blocks and writes them alternately, so that a phase
// can be repeated. When a stage is killed, the Barrier breaks, and all other stages get an error. Then the boss
// starts a new process for the dead stage and begins a new round. The round continues with the first phase that
// has not ended.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

const (
	stages = 4
	phases = 2000
	width  = 256
)

type block struct {
	Items [width]uint64
	Sum   uint64 // only in the last stage: the sum of the items of all blocks so far
}

type line struct {
	Ended  atomic.Int64     // phases that have ended
	Blocks [stages][2]block // two blocks for each stage, written alternately
}

// do does the work of stage k in phase p. It does not write to a block that it reads, so it can be repeated after
// a death.
func (l *line) do(k int, p int64) {
	out := &l.Blocks[k][(p+1)%2]
	if k == 0 {
		for i := range out.Items {
			out.Items[i] = uint64(p) + uint64(i)
		}
		return
	}
	in := &l.Blocks[k-1][p%2]
	for i, v := range in.Items {
		out.Items[i] = v*uint64(k) + 1
	}
	if k == stages-1 {
		out.Sum = l.Blocks[k][p%2].Sum
		for _, v := range out.Items {
			out.Sum += v
		}
	}
}

func open(name string) (*arena.Arena, *line) {
	a, err := arena.Open(name, nil)
	workergroup.Check(err)
	l, err := arena.Value[line](a, "line")
	workergroup.Check(err)
	return a, l
}

func stage() {
	a, l := open(os.Args[1])
	k, err := strconv.Atoi(os.Args[2])
	workergroup.Check(err)
	for {
		round := workergroup.Hear()
		b, err := prims.OpenBarrier(a, "round "+round, stages, &prims.BarrierOptions{
			Completion: func() { l.Ended.Add(1) }, // called at the end of each phase, before any stage continues
		})
		workergroup.Check(err)
		b.Register(1) // from here on, a death of this process breaks the Barrier
		workergroup.Say("joined %s", round)
		workergroup.Hear() // the boss sends a line when all stages have registered
		for p := l.Ended.Load(); p < phases && err == nil; p++ {
			l.do(k, p)
			err = b.ArriveAndWaitContext(workergroup.Context())
			if k == 0 && p%100 == 99 {
				workergroup.Say("phase %d", p+1)
			}
		}
		if errors.Is(err, shmsync.ErrOwnerDead) {
			workergroup.Say("broken")
			continue
		}
		workergroup.Check(err)
		workergroup.Say("done")
	}
}

func boss() {
	name := fmt.Sprintf("example-pipeline-%d", os.Getpid())
	defer arena.Remove(name)
	a, l := open(name)
	defer a.Close()
	var procs [stages]*workergroup.Proc
	start := func(k int) {
		procs[k] = workergroup.Start(fmt.Sprint("stage ", k), "stage", []string{name, strconv.Itoa(k)})
	}
	for k := range procs {
		start(k)
	}
	killed, round := 0, 0
	for over := false; !over; {
		round++
		for _, p := range procs {
			p.Tell(strconv.Itoa(round))
		}
		joined := make(map[*workergroup.Proc]bool)
		for len(joined) < stages {
			if e := workergroup.Next(); e.Ended {
				delete(joined, e.From)
				k := slices.Index(procs[:], e.From)
				start(k)
				procs[k].Tell(strconv.Itoa(round))
			} else if e.Line == fmt.Sprintf("joined %d", round) {
				joined[e.From] = true
			}
		}
		for _, p := range procs {
			p.Tell("go")
		}
		// The loop below ends when each stage has finished the last phase, has got an error because of the death of
		// another stage, or has died itself.
		over = true
		for len(joined) > 0 {
			e := workergroup.Next()
			switch {
			case e.Ended:
				start(slices.Index(procs[:], e.From))
				over = false
			case e.Line == "broken":
				over = false
			case e.Line == "done":
			default: // a phase has ended
				if killed < min(round, workergroup.Kills()) {
					k := workergroup.Random(stages)
					procs[k].Kill()
					killed++
					fmt.Printf("round %d: %s killed\n", round, procs[k].Name)
				}
				continue
			}
			delete(joined, e.From)
		}
	}
	for _, p := range procs {
		p.Stop()
	}
	alone := new(line) // does the same work in one process, for comparison
	for i := range int64(phases * stages) {
		alone.do(int(i%stages), i/stages)
	}
	sum, want := l.Blocks[stages-1][phases%2].Sum, alone.Blocks[stages-1][phases%2].Sum
	if sum != want || l.Ended.Load() != phases {
		log.Fatalf("the sum is %d after %d phases, want %d", sum, l.Ended.Load(), want)
	}
	fmt.Printf("%d stages, %d phases, %d rounds: the sum is %d, as it should be\n", stages, phases, round, sum)
}

func main() { workergroup.Main(boss, map[string]func(){"stage": stage}) }
