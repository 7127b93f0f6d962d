// Command locktable is a container engine that uses a table of numbered locks.
//
// The engine has no daemon: each command is a process. The database of the engine has the number of the lock of
// each container. The table of locks outlives all commands. It can list the holders of its locks. If a command is
// killed, its lock passes to the next waiter. The table is in table.go.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
)

const size = 8

// engine is the main function of a command of the engine. The command works on one container, and holds the lock of
// this container meanwhile.
func engine() {
	t, err := OpenTable(os.Args[1], size)
	workergroup.Check(err)
	number, err := strconv.Atoi(os.Args[2])
	workergroup.Check(err)
	l, err := t.Retrieve(number)
	workergroup.Check(err)
	l.Lock()
	workergroup.Say("locked")
	workergroup.Hear()
	workergroup.Check(l.Unlock())
}

func boss() {
	name := fmt.Sprintf("example-locktable-%d", os.Getpid())
	defer arena.Remove(name)
	t, err := OpenTable(name, size)
	workergroup.Check(err)
	var locks [size]*Lock
	for i := range locks {
		locks[i], err = t.Allocate()
		workergroup.Check(err)
	}
	fmt.Printf("%d of %d locks allocated\n", t.Allocated(), size)
	_, err = t.Allocate()
	say("one more", err, ErrTableFull)

	start := func(n int) *workergroup.Proc {
		p := workergroup.Start(fmt.Sprintf("engine %d", n), "engine", []string{name, strconv.Itoa(n)})
		workergroup.Await(p, "locked")
		return p
	}
	var engines [3]*workergroup.Proc
	for n := range engines {
		engines[n] = start(n)
	}
	for range workergroup.Kills() {
		n := workergroup.Random(len(engines))
		fmt.Printf("%d locks held, ", len(t.Held()))
		engines[n].Kill()
		engines[n] = start(n) // the new command has the lock when start returns
		holder := t.Held()[n]
		if holder == nil || holder.PID != engines[n].Pid() {
			log.Fatalf("lock %d is held by %v", n, holder)
		}
		fmt.Printf("%s killed, and another has its lock\n", engines[n].Name)
	}

	say("free a lock that is held", locks[0].Free(), ErrHeld)
	for _, p := range engines {
		p.Tell("done")
		workergroup.Check(p.Wait())
	}
	fmt.Printf("%d locks held\n", len(t.Held()))
	locks[5].Lock()
	say("unlock", locks[5].Unlock(), nil)
	say("unlock again", locks[5].Unlock(), ErrNotHeld)
	say("free", locks[5].Free(), nil)
	say("free again", locks[5].Free(), ErrNotAllocated)
	_, err = t.Retrieve(5)
	say("retrieve", err, ErrNotAllocated)

	workergroup.Check(t.Close())
	_, err = OpenTable(name, 2*size)
	say("reopen with another size", err, ErrWrongSize)
	t, err = OpenTable(name, size)
	say("reopen", err, nil)
	fmt.Printf("%d of %d locks allocated\n", t.Allocated(), size)
	workergroup.Check(t.Close())
}

// say prints the result of a step. If errors.Is(err, want) is false, it ends the program.
func say(what string, err, want error) {
	if !errors.Is(err, want) {
		log.Fatalf("%s: %v, want %v", what, err, want)
	}
	if err == nil {
		fmt.Printf("%s: ok\n", what)
	} else {
		fmt.Printf("%s: %v\n", what, err)
	}
}

func main() { workergroup.Main(boss, map[string]func(){"engine": engine}) }
