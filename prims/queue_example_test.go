//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// A job that a worker has on lease is not lost if the worker dies.
func ExampleQueue() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()

	type job struct{ ID, Size uint32 }
	q, err := prims.OpenQueue[job](a, "jobs", 100, nil)
	if err != nil {
		log.Fatal(err)
	}
	for id := range uint32(3) {
		q.Put(job{id, 10 * id})
	}
	q.Shutdown() // no more jobs

	// In any process:
	for failed := false; ; {
		l, err := q.Lease()
		if errors.Is(err, shmsync.ErrCanceled) {
			return
		}
		fmt.Println(l.Item.ID, l.Attempts)
		if l.Item.ID == 1 && !failed {
			failed = true
			l.Nack() // another worker tries again, as it would if this process died
			continue
		}
		l.Ack()
	}
	// Output:
	// 0 0
	// 1 0
	// 1 1
	// 2 0
}
