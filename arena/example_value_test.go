//go:build linux

package arena_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

// Value returns a variable of any type without pointers. If the variable exists with another type, the
// result is an error.
func ExampleValue() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	p, err := arena.Value[struct{ Low, High int32 }](a, "limits")
	if err != nil {
		log.Fatal(err)
	}
	p.High = 7
	_, err = arena.Value[int64](a, "limits")
	fmt.Println(p.High, errors.Is(err, shmsync.ErrIncompatible))
	// Output: 7 true
}

// Slice returns an array whose length is known at run time. If the array exists with another length,
// the result is an error.
func ExampleSlice() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	size := 3 // for instance from a configuration
	hits, err := arena.Slice[atomic.Int64](a, "hits", size)
	if err != nil {
		log.Fatal(err)
	}
	hits[2].Add(1)
	_, err = arena.Slice[atomic.Int64](a, "hits", size+1)
	fmt.Println(len(hits), hits[2].Load(), errors.Is(err, shmsync.ErrIncompatible))
	// Output: 3 1 true
}

// Block returns bytes whose number is known at run time.
func ExampleArena_Block() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	frame, err := a.Block("frame", 640*480)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(frame), frame[0])
	// Output: 307200 0
}

// Participants iterates over the processes in the arena.
func ExampleArena_Participants() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	for p := range a.Participants() {
		fmt.Println(p.Label, p.State, p.PID == os.Getpid())
	}
	// Output: example live true
}

// Delete does not delete a value that a living process has open.
func ExampleArena_Delete() {
	name := fmt.Sprint("example-", os.Getpid()) // a real program uses a fixed name
	a, err := arena.Open(name, &arena.Options{Size: 1 << 20, Label: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove(name)
	defer a.Close()
	if _, err := arena.Value[int64](a, "counter"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(a.Delete("counter"), syscall.EBUSY))
	// Output: true
}
