//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// Bank is data that several processes share. The sum of the balances never changes.
type Bank struct{ Balance [3]int64 }

// Several processes change one record. If one of them is killed, the others find the record as it was before
// its Update or after it. No repair code is needed.
func ExampleSynchronized() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	bank, err := prims.OpenSynchronized(a, "bank", Bank{Balance: [3]int64{100, 0, 0}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pay := func(from, to int, amount int64) error {
		return bank.Update(func(b *Bank) error {
			b.Balance[from] -= amount
			b.Balance[to] += amount // kill -9 before this line: no money is lost
			if b.Balance[from] < 0 {
				return errors.New("too little money") // undoes both
			}
			return nil
		})
	}
	fmt.Println(pay(0, 1, 30))
	fmt.Println(pay(0, 2, 80))
	fmt.Println(bank.Load().Balance) // waits for no process, not even for a stopped one
	// Output:
	// <nil>
	// too little money
	// [70 30 0]
}

// One process writes a statistics page. Other processes read a consistent copy of it at any time.
func ExampleSynchronized_LoadInto() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	type stats struct {
		Requests, Errors uint64
		ByStatus         [600]uint64
	}
	page, err := prims.OpenSynchronized(a, "stats", stats{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	page.Store(stats{Requests: 12, Errors: 1})
	var s stats
	page.LoadInto(&s) // no copy on the stack, and no allocation
	fmt.Println(s.Requests, s.Errors, page.State().Commits)
	// Output: 12 1 1
}
