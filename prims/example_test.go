//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// A counter that any number of processes share, and its lock.
func ExampleMutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)

	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	balance, err := arena.Value[int64](a, "balance")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		m.Lock()
		*balance += 10
		m.Unlock()
	}
	fmt.Println(*balance, m)
	// Output: 30 mutex ledger: free
}

// A wait that ends with its context, or with the news that the holder died.
func ExampleMutex_LockContext() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	m.Lock() // another process has it
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	lock := func() error {
		for {
			err := m.LockContext(ctx)
			if !errors.Is(err, shmsync.ErrOwnerDead) {
				return err // nil: it is ours
			}
			// Its holder died in the middle of something: repair that, and try again.
			if err := m.RecoverContext(ctx, func() error { return nil }); err != nil {
				return err
			}
		}
	}
	fmt.Println(lock())
	// Output: context deadline exceeded
}

// Recover of a healthy lock has nothing to repair.
func ExampleMutex_Recover() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = m.Recover(func() error {
		fmt.Println("never printed: nobody died")
		return nil
	})
	fmt.Println(err, m.State().Word)
	// Output: <nil> free
}

// A condition that is tested without a lock, and waited for.
func ExampleFutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	f, err := prims.OpenFutex(a, "arrivals", nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() { // in another process, as a rule
		for range 3 {
			f.Post()
		}
	}()
	for {
		// The token comes before the test, so that no post is missed.
		token := f.Get() + 1
		if f.Get() >= 3 {
			break
		}
		if err := f.Wait(token); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(f)
	// Output: futex arrivals: counter 3
}

// Stop ends all waits whose token is not reached.
func ExampleFutex_Stop() {
	name := fmt.Sprint("example-", os.Getpid()) // a program has a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer shm.Remove(name)
	f, err := prims.OpenFutex(a, "arrivals", nil)
	if err != nil {
		log.Fatal(err)
	}
	f.Post()
	f.Stop()
	fmt.Println(f.Wait(1))
	fmt.Println(errors.Is(f.Wait(2), shmsync.ErrCanceled))
	// Output:
	// <nil>
	// true
}
