//go:build linux

package shm_test

import (
	"fmt"
	"log"
	"os"

	"github.com/shmsync/shmsync/shm"
)

// Every process that opens the segment of this name sees the same bytes.
func ExampleOpenOrCreate() {
	name := fmt.Sprintf("example-segment-%d", os.Getpid())
	seg, created, err := shm.OpenOrCreate(name, 64<<10, func(s *shm.Segment) error {
		copy(s.Bytes(), "made once") // before another process can open it
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer seg.Close()
	defer shm.Remove(name)
	fmt.Println(created, string(seg.Bytes()[:9]))
	// Output: true made once
}

// A segment without a name is passed to other processes as a file descriptor. It cannot be
// truncated, and it vanishes when the last process closes it or dies.
func ExampleCreateMemfd() {
	seg, err := shm.CreateMemfd("frames", 1<<20, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer seg.Close()
	// For a child process, set exec.Cmd.ExtraFiles = []*os.File{seg.File()}. In the child, call
	// shm.FromFile(os.NewFile(3, "frames"), nil).
	fmt.Println(seg.Size())
	// Output: 1048576
}

// ParsePolicy parses a policy, which says on which NUMA nodes the pages of a segment should be.
func ExampleParsePolicy() {
	p, err := shm.ParsePolicy("interleave:0-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Mode, p.Nodes)
	// Output: interleave [0 1]
}

// List returns the segments in /dev/shm, for example those that programs have left.
func ExampleList() {
	for info, err := range shm.List() {
		if err != nil {
			log.Print(err)
			continue
		}
		log.Printf("%s: %d bytes of uid %d", info.Name, info.Size, info.UID)
	}
}
