//go:build linux

package prims_test

import (
	"fmt"
	"log"
	"os"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// The queue of this example is only a count of items. A worker executes it. Producers and workers may be in
// different processes.
func ExampleSignalWaker() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()

	w, err := prims.OpenSignalWaker(a, "workers", &prims.SignalWakerOptions{Signals: 1})
	if err != nil {
		log.Fatal(err)
	}
	items, err := arena.Value[[64]atomic.Int64](a, "items")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan int64)
	go func() {
		for near := 0; ; {
			g, ok := w.Next(near)
			if !ok {
				w.Acquire()
				continue
			}
			near = g.Queue()
			n := items[near].Swap(0)
			g.Finish()
			done <- n
			return
		}
	}()
	items[5].Add(3)
	fmt.Println(w.Gate(5).Schedule(), <-done)
	// Output: true 3
}
