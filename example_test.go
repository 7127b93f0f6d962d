//go:build linux

package shmsync_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/shmsync/shmsync"
)

// A word that one side changes and then wakes, and the other sleeps on.
func ExampleWait() {
	var word uint32 // in shared memory, as a rule
	deadline := shmsync.Monotonic() + int64(time.Millisecond)
	o, err := shmsync.Wait(&word, 0, deadline)
	fmt.Println(o, err)
	o, err = shmsync.Wait(&word, 1, 0) // it is not 1 any more
	fmt.Println(o, err, shmsync.Wake(&word, 1))
	// Output:
	// timed out <nil>
	// changed <nil> 0
}

// The parts of an error: the operation, the object, and the dead process.
func ExampleError() {
	err := error(&shmsync.Error{
		Op: "mutex.lock", Object: "ledger", Err: shmsync.ErrOwnerDead,
		Who: &shmsync.Identity{Slot: 3, Generation: 1, PID: 4711, Label: "teller"},
	})
	var e *shmsync.Error
	if errors.As(err, &e) && errors.Is(err, shmsync.ErrOwnerDead) {
		fmt.Println(e.Object, e.Who.Label, e.Who.PID)
	}
	// Output: ledger teller 4711
}

// The features of the kernel that the library can do without.
func ExampleFeatures() {
	for _, f := range shmsync.Features() {
		if err := f.Check(); err != nil {
			log.Printf("%s: %v; something slower is used", f.Name(), err)
		}
	}
}
