//go:build linux

package prims_test

import (
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// A place in the queue is taken now and waited for later.
func ExampleFairMutex_LockAsync() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	f, err := prims.OpenFairMutex(a, "printer", nil)
	if err != nil {
		log.Fatal(err)
	}
	f.Lock()
	first, second := f.LockAsync(), f.LockAsync()
	first.Cancel() // gives its place up, and holds nobody up
	f.Unlock()
	fmt.Println(second.Wait())
	f.Unlock()
	fmt.Println(f)
	// Output:
	// <nil>
	// fair mutex printer: free, waiting false
}

// Two accounts are locked together, in whichever order they are named.
func ExampleMultiLock_LockAll() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	accounts, err := prims.OpenMultiLock(a, "accounts", nil)
	if err != nil {
		log.Fatal(err)
	}
	from, to := uint64(4711), uint64(42)
	both := accounts.LockAll(from, to)
	fmt.Println(accounts)
	both.Unlock()
	fmt.Println(accounts)
	// Output:
	// multilock accounts: 2 keys are not free, of 64 buckets
	// multilock accounts: 0 keys are not free, of 64 buckets
}
