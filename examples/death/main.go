// Command death kills a process that holds a lock in the middle of its work, and shows what
// another process sees of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/workergroup"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// ledger is what the lock guards. The accounts have 100 together.
type ledger struct {
	Accounts [2]int64
	// Moving is set before the accounts are touched, and is 0 when they are whole. It is
	// atomic, though the lock guards it: the compiler may delay or drop a plain store, and
	// a teller that is killed would leave torn accounts without a mark.
	Moving atomic.Int64
	Before [2]int64 // what the accounts were
}

func join(name string) (*arena.Arena, *prims.Mutex, *ledger) {
	a, err := arena.Open(name, &arena.Options{Label: workergroup.Name()})
	workergroup.Check(err)
	mu, err := prims.OpenMutex(a, "ledger", nil)
	workergroup.Check(err)
	l, err := arena.Value[ledger](a, "ledger's data")
	workergroup.Check(err)
	return a, mu, l
}

// teller begins to move money, and never finishes.
func teller() {
	a, mu, l := join(os.Args[1])
	for !a.Fenced() { // 50 ms after joining; before that a death is noticed later
		time.Sleep(time.Millisecond)
	}
	mu.Lock()
	const sum = 30
	l.Before = l.Accounts
	l.Moving.Store(sum)
	l.Accounts[0] -= sum
	workergroup.Say("")
	workergroup.Hear() // the other half never comes
}

// auditor waits for the lock.
func auditor() {
	_, mu, l := join(os.Args[1])
	err := mu.LockContext(context.Background())
	told := time.Now()
	if !errors.Is(err, shmsync.ErrOwnerDead) {
		log.Fatalf("LockContext: %v", err)
	}
	workergroup.Say("%d", told.UnixNano())
	workergroup.Say("%v", err)
	workergroup.Say("accounts %v: a repair is due", l.Accounts)
	workergroup.Check(mu.Recover(func() error {
		if l.Moving.Load() != 0 {
			l.Accounts = l.Before
			l.Moving.Store(0)
		}
		return nil
	}))
	mu.Lock()
	workergroup.Say("accounts %v: repaired, and the lock is held again", l.Accounts)
	mu.Unlock()
	workergroup.Say("end")
}

func boss() {
	name := fmt.Sprintf("example-death-%d", os.Getpid())
	_, mu, l := join(name)
	defer shm.Remove(name)
	for range workergroup.Kills() {
		l.Accounts = [2]int64{60, 40}
		t := workergroup.Start("teller", "teller", []string{name})
		workergroup.Await(t, "")
		fmt.Printf("teller  (pid %d) holds the lock, half way through a transfer\n", t.Pid())
		a := workergroup.Start("auditor", "auditor", []string{name})
		for !mu.State().Waiting {
			time.Sleep(time.Millisecond)
		}
		fmt.Printf("auditor (pid %d) waits for the lock\n", a.Pid())
		fmt.Printf("$ kill -9 %d\n", t.Pid())
		killed := time.Now()
		t.Kill()
		told, err := strconv.ParseInt(workergroup.Await(a, ""), 10, 64)
		workergroup.Check(err)
		fmt.Printf("auditor is told after %.2f ms:\n", time.Unix(0, told).Sub(killed).Seconds()*1e3)
		for line := workergroup.Await(a, ""); line != "end"; line = workergroup.Await(a, "") {
			fmt.Printf("  %s\n", line)
		}
		workergroup.Check(a.Wait())
		if l.Accounts != [2]int64{60, 40} {
			log.Fatalf("the accounts are %v", l.Accounts)
		}
	}
}

func main() { workergroup.Main(boss, map[string]func(){"teller": teller, "auditor": auditor}) }
