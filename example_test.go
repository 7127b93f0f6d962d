//go:build linux

package shmsync_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/shmsync/shmsync"
)

// Wait sleeps while the word has the expected value, here until the deadline. If the word has another value, Wait
// returns at once.
func ExampleWait() {
	var word uint32 // usually in shared memory
	deadline := shmsync.Monotonic() + int64(time.Millisecond)
	o, err := shmsync.Wait(&word, 0, deadline)
	fmt.Println(o, err)
	o, err = shmsync.Wait(&word, 1, 0) // the word is not 1 any more
	fmt.Println(o, err, shmsync.Wake(&word, 1))
	// Output:
	// timed out <nil>
	// changed <nil> 0
}

// An error has several parts: the operation, the object, and the dead process.
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

// These features of the kernel are optional: the library works without them.
func ExampleFeatures() {
	for _, f := range shmsync.Features() {
		if err := f.Check(); err != nil {
			log.Printf("%s: %v; something slower is used", f.Name(), err)
		}
	}
}
