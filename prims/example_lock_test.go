//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shmsync/shmsync/prims"
)

// A place in the queue is taken now and waited for later.
func ExampleFairMutex_LockAsync() {
	a := openExample()
	defer closeExample(a)
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
	a := openExample()
	defer closeExample(a)
	accounts, err := prims.OpenMultiLock(a, "accounts", nil)
	if err != nil {
		log.Fatal(err)
	}
	from, to := uint64(4711), uint64(42)
	both, err := accounts.LockAllContext(context.Background(), from, to)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(accounts)
	both.Unlock()
	fmt.Println(accounts)
	// Output:
	// multilock accounts: 2 keys are not free, of 64 buckets
	// multilock accounts: 0 keys are not free, of 64 buckets
}
