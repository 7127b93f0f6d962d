//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// Jobs that survive the worker that has them.
func ExampleQueue() {
	a := openExample() // arena.Open("jobs", nil)
	defer closeExample(a)

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
			l.Nack() // another worker tries again; so it would if this process died
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
