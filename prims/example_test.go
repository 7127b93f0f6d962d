//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A lock guards data, and the program repairs the data after a holder has died in the middle of a change. A
// Synchronized holds a record of up to 64 KiB and needs no repair.
func ExampleMutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()

	m, err := prims.OpenMutex(a, "ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	type ledger struct {
		Entries [100]int64
		Used    atomic.Int64 // written last: entries from this number on are not there yet
	}
	l, err := arena.Value[ledger](a, "ledger's data")
	if err != nil {
		log.Fatal(err)
	}
	lock := func(ctx context.Context) error {
		for {
			err := m.LockContext(ctx)
			if !errors.Is(err, shmsync.ErrOwnerDead) {
				return err // nil: this process holds the lock
			}
			log.Print(err) // the error names the process that died
			err = m.RecoverContext(ctx, func() error {
				clear(l.Entries[l.Used.Load():]) // removes the entries that the dead holder had begun
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	for n := range 3 {
		if err := lock(context.Background()); err != nil {
			log.Fatal(err)
		}
		l.Entries[n] = 10
		l.Used.Store(int64(n + 1))
		m.Unlock()
	}
	fmt.Println(l.Used.Load(), m)
	// Output: 3 mutex ledger: free
}

// A wait ends when its context ends, or when the holder dies.
func ExampleMutex_LockContext() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
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
				return err // nil: this process has the lock
			}
			// The holder died in the middle of a change: repair the data, and try again.
			if err := m.RecoverContext(ctx, func() error { return nil }); err != nil {
				return err
			}
		}
	}
	fmt.Println(lock())
	// Output: context deadline exceeded
}

// Recover of a lock that is not owner-dead has nothing to repair.
func ExampleMutex_Recover() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
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

// A goroutine tests a condition without a lock, and waits until it holds.
func ExampleFutex() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
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
		// Read the token before the test, so that no post is missed.
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

// Stop ends the waits for tokens that the counter has not reached.
func ExampleFutex_Stop() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
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
