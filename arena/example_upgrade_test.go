//go:build linux

package arena_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"

	"github.com/shmsync/shmsync/arena"
)

type statsV1 struct{ Hits uint64 }

type statsV2 struct{ Hits, Misses uint64 }

// A new version of a program converts the value that the old version has left.
func ExampleUpgrade() {
	name := fmt.Sprint("example-upgrade-", os.Getpid()) // a real program uses a fixed name
	defer arena.Remove(name)
	a, err := arena.Open(name, nil) // the old version
	if err != nil {
		log.Fatal(err)
	}
	v1, err := arena.Value[statsV1](a, "stats")
	if err != nil {
		log.Fatal(err)
	}
	v1.Hits = 7
	a.Close()

	a, err = arena.Open(name, &arena.Options{ // the new version
		OnFirst: func(a *arena.Arena, _ arena.Epoch) error {
			return arena.Upgrade(a, "stats", func(old arena.Stored, v *statsV2) error {
				v1, err := arena.As[statsV1](old)
				if err != nil {
					return err
				}
				v.Hits = v1.Hits
				changes, err := arena.Changes[statsV2](old)
				fmt.Println(changes)
				return err
			})
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	v2, err := arena.Value[statsV2](a, "stats")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*v2)
	// Output:
	// [Misses is new: uint64 at 8]
	// {7 0}
}

// Replace replaces a block that no process has open with a block of another size.
func ExampleReplace() {
	name := fmt.Sprint("example-replace-", os.Getpid()) // a real program uses a fixed name
	defer arena.Remove(name)
	a, err := arena.Open(name, nil) // the old version
	if err != nil {
		log.Fatal(err)
	}
	if _, err := a.Block("frame", 640*480); err != nil {
		log.Fatal(err)
	}
	open := func() ([]byte, error) { return a.Block("frame", 800*600) }
	_, err = arena.Replace(a, "frame", open)
	fmt.Println("in use:", errors.Is(err, syscall.EBUSY))
	a.Close()

	a, err = arena.Open(name, nil) // the new version
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	frame, err := arena.Replace(a, "frame", open)
	fmt.Println(len(frame), err)
	// Output:
	// in use: true
	// 480000 <nil>
}
