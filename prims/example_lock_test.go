//go:build linux

package prims_test

import (
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A goroutine takes its place in the queue now and waits for the lock later.
func ExampleFairMutex_LockAsync() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	f, err := prims.OpenFairMutex(a, "printer", nil)
	if err != nil {
		log.Fatal(err)
	}
	f.Lock()
	first, second := f.LockAsync(), f.LockAsync()
	first.Cancel() // gives its place up, so the next waiter need not wait for it
	f.Unlock()
	fmt.Println(second.Wait())
	f.Unlock()
	fmt.Println(f)
	// Output:
	// <nil>
	// fair mutex printer: free, waiting false
}

// Two accounts are locked together. The order in which a caller names them does not matter.
func ExampleMultiLock_LockAll() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
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
	// multilock accounts: 2 keys are not free, of 32 buckets
	// multilock accounts: 0 keys are not free, of 32 buckets
}

// Two accounts change together, or not at all if this process is killed during the change. A note of the last transfer
// is in a block of the arena.
func ExampleMutex_Update() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	m, err := prims.OpenMutex(a, "bank", &prims.MutexOptions{Policy: prims.PolicyRollback})
	if err != nil {
		log.Fatal(err)
	}
	type bank struct {
		Balance [4]int64
		Note    arena.Offset // offset of a note, 0 if there is none
	}
	type note struct{ Text [64]byte }
	b, err := arena.Value[bank](a, "accounts")
	if err != nil {
		log.Fatal(err)
	}
	transfer := func(from, to int, amount int64, text string) error {
		return m.Update(func(tx *prims.Tx) error {
			prims.SaveSlice(tx, b.Balance[:])
			b.Balance[from] -= amount // a kill -9 here: the next Lock, in any process, sees the old balances
			b.Balance[to] += amount
			if b.Note != 0 {
				tx.Free(b.Note) // takes effect if the transaction commits
			}
			prims.Save(tx, &b.Note)
			b.Note = tx.Alloc(64, 0) // is freed unless the transaction commits
			copy(arena.At[note](a, b.Note).Text[:], text)
			if b.Balance[from] < -100 {
				return fmt.Errorf("account %d has too little", from)
			}
			return nil
		})
	}
	fmt.Println(transfer(0, 1, 100, "rent"), b.Balance)
	fmt.Println(transfer(0, 2, 1, "tip"), b.Balance)
	fmt.Printf("%.4s\n", arena.At[note](a, b.Note).Text[:])
	// Output:
	// <nil> [-100 100 0 0]
	// account 0 has too little [-100 100 0 0]
	// rent
}

// The first process after a restart repairs the data that the previous processes left half changed. Until
// then a Lock of that object panics.
func ExampleRecoverAll() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	old, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "worker"})
	if err != nil {
		log.Fatal(err)
	}
	m, err := prims.OpenMutex(old, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	m.Lock()
	old.Close() // with the lock held, which counts as a death

	a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, e arena.Epoch) error {
		lost, err := prims.RecoverAll(a, func(l prims.Lost) error {
			// A real program repairs the data here that the object guards.
			fmt.Println("repair", l.Object.Name, "after the death of", l.Who.Label)
			return nil
		})
		fmt.Println("recovered", len(lost))
		return err
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	again, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	again.Lock()
	again.Unlock()
	fmt.Println(again)
	// Output:
	// repair ledger after the death of worker
	// recovered 1
	// mutex ledger: free
}
