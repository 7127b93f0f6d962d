// Command death kills a process in the middle of a change, and shows what other processes see. They see the data as it
// was before the change. No process has to repair the data, and no reader waits.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
)

// ledger is the data that the processes share. The accounts have 100 in total.
type ledger struct{ Accounts [2]int64 }

func join(name string) (*arena.Arena, *prims.Synchronized[ledger]) {
	a, err := arena.Open(name, &arena.Options{Label: workergroup.Name()})
	workergroup.Check(err)
	books, err := prims.OpenSynchronized(a, "ledger", ledger{[2]int64{60, 40}}, nil)
	workergroup.Check(err)
	return a, books
}

// move moves money between the accounts. It calls the function half between the two stores.
func move(books *prims.Synchronized[ledger], amount int64, half func()) error {
	return books.Update(func(l *ledger) error {
		l.Accounts[0] -= amount
		half()
		l.Accounts[1] += amount
		return nil
	})
}

// teller begins to move money, and never completes the move.
func teller() {
	a, books := join(os.Args[1])
	for !a.Fenced() { // in the first 50 ms after a join, other processes notice a death later
		time.Sleep(time.Millisecond)
	}
	move(books, 30, func() {
		workergroup.Say("")
		workergroup.Hear() // the boss sends nothing, but kills this process here
	})
}

// auditor reads the accounts, and then changes them.
func auditor() {
	_, books := join(os.Args[1])
	workergroup.Say("%v", books.Load().Accounts)
	workergroup.Check(move(books, 5, func() {}))
	changed := time.Now()
	workergroup.Say("%d", changed.UnixNano())
	workergroup.Say("%v", books.Load().Accounts)
}

func boss() {
	name := fmt.Sprintf("example-death-%d", os.Getpid())
	defer arena.Remove(name)
	shared, books := join(name)
	defer shared.Close()
	for range workergroup.Kills() {
		books.Store(ledger{[2]int64{60, 40}})
		t := workergroup.Start("teller", "teller", []string{name})
		workergroup.Await(t, "")
		fmt.Printf("teller  (pid %d) is half way through a transfer of 30\n", t.Pid())
		a := workergroup.Start("auditor", "auditor", []string{name})
		fmt.Printf("auditor (pid %d) reads %s, without waiting\n", a.Pid(), workergroup.Await(a, ""))
		for !books.State().Waiting {
			time.Sleep(time.Millisecond)
		}
		fmt.Printf("auditor (pid %d) wants to transfer 5, and waits for %v\n", a.Pid(), books.State().Owner)
		fmt.Printf("$ kill -9 %d\n", t.Pid())
		killed := time.Now()
		t.Kill()
		changed, err := strconv.ParseInt(workergroup.Await(a, ""), 10, 64)
		workergroup.Check(err)
		fmt.Printf("auditor has done so after %.2f ms\n", time.Unix(0, changed).Sub(killed).Seconds()*1e3)
		fmt.Printf("  accounts %s: nothing of the transfer of 30 is left\n", workergroup.Await(a, ""))
		workergroup.Check(a.Wait())
		if l := books.Load(); l.Accounts != [2]int64{55, 45} {
			log.Fatalf("the accounts are %v", l.Accounts)
		}
	}
}

func main() { workergroup.Main(boss, map[string]func(){"teller": teller, "auditor": auditor}) }
