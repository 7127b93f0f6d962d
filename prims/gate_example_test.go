//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// Each process adds its own work. A waiter waits until the work of all is done.
func ExampleWaitGroup() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	g, err := prims.OpenWaitGroup(a, "batch", nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		g.Go(func() { /* work */ })
	}
	g.Wait()
	fmt.Println(g)
	// Output: waitgroup batch: 0, 0 of this process, waiting false
}

// Workers make steps together. If a worker learns that another worker died, it begins the next step
// without that worker.
func ExampleBarrier() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	step := 0
	b, err := prims.OpenBarrier(a, "step", 1, &prims.BarrierOptions{Completion: func() { step++ }})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		err := b.ArriveAndWaitContext(context.Background())
		if errors.Is(err, shmsync.ErrOwnerDead) {
			b.ResetTo(1)
		}
	}
	fmt.Println(step, b)
	// Output: 3 barrier step: phase 3, 1 of 1 to arrive, 1 of this process, waiting false
}

// One of many processes runs an initialization once.
func ExampleOnce() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	o, err := prims.OpenOnce(a, "tables", nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		o.Do(func() { fmt.Println("fill the tables") })
	}
	// Output: fill the tables
}
