//go:build linux

package arena_test

import (
	"fmt"
	"log"
	"structs"
	"sync/atomic"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// All processes that run this code share one counter: they open the same arena by its name, and the
// same value in the arena.
func Example() {
	a, err := arena.Open("example-jobs", &arena.Options{Size: 1 << 20, Label: "worker"})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove("example-jobs")
	defer a.Close()

	type stats struct {
		_    structs.HostLayout
		Done atomic.Uint64
	}
	s, err := arena.Value[stats](a, "stats")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("done:", s.Done.Add(1))
	// Output: done: 1
}

// OnDeath calls a function when another process in the arena dies in any way.
func ExampleArena_OnDeath() {
	a, err := arena.Open("example-watch", &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove("example-watch")
	defer a.Close()

	a.OnDeath(func(p arena.Participant) {
		log.Printf("%v died at %v", p.Identity, p.Died)
	})
}

// An arena can also be in a file at any path, or in a memfd, which has no name.
func ExampleFormat() {
	seg, err := shm.CreateMemfd("jobs", 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 4})
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Other processes inherit seg.File(), or are sent it, and call shm.FromFile.
	a, err := arena.FromSegment(seg, &arena.Options{Label: "first"})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	for p := range a.Participants() {
		fmt.Println(p.Label, p.State, p.Self)
	}
	// Output: first live true
}

// An offset means the same block in every process.
func ExampleArena_Alloc() {
	a, err := arena.Open("example-blocks", &arena.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Remove("example-blocks")
	defer a.Close()

	off, err := a.Alloc(24, 0)
	if err != nil {
		log.Fatal(err)
	}
	arena.At[[3]uint64](a, off)[2] = 7
	fmt.Println(*arena.At[[3]uint64](a, off))
	a.Free(off)
	// Output: [0 0 7]
}
