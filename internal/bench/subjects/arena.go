//go:build linux

package subjects

import (
	"fmt"
	"os"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/child"
	"github.com/shmsync/shmsync/internal/bench/control"
	"github.com/shmsync/shmsync/shm"
)

var noFence = child.Without("membarrier")

const (
	arenaPerEach = 3 << 10 // bytes for an object, its wait node, and its share of the directory and the heap

	// fenceTime is how long the library may take to register a process for membarrier(2), which it needs for fences.
	fenceTime = 2 * time.Minute
	// biasPairs is the number of pairs of Lock and Unlock by one process after which a lock must be biased toward this
	// process. Otherwise the measurement fails.
	biasPairs = 1 << 20
)

// newArena creates an arena that is large enough for the objects of the measurement.
func newArena(c *bench.Cell) (*os.File, error) {
	size := int64(bench.ArenaLeast)
	if c.Scenario.Name == "waiters" || c.Scenario.Name == "seq" {
		size += int64(c.N) * arenaPerEach
	}
	format := func(s *shm.Segment) error { return arena.Format(s, &arena.Options{Size: s.Size()}) }
	create := func() (*shm.Segment, error) { return shm.CreateMemfd("shmbench-arena", size, format, nil) }
	if c.Arena != "" {
		create = func() (*shm.Segment, error) { return control.NewSegmentIn(c.Arena, size, format) }
	}
	seg, err := create()
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	return seg.Reopen()
}

// JoinArena makes this process a participant of the arena in which the subject of the measurement lies.
func JoinArena(w *bench.Worker) (*arena.Arena, error) {
	v, err := w.Shared(func() (any, error) {
		seg, err := shm.FromFile(w.Segment, nil)
		if err != nil {
			return nil, err
		}
		return arena.FromSegment(seg, &arena.Options{Label: fmt.Sprintf("shmbench %d", w.Proc)})
	})
	if err != nil {
		return nil, err
	}
	return v.(*arena.Arena), nil
}

// awaitFence waits until the library has registered this process for membarrier(2), if the kernel has that call. The
// registration takes place once, in the background. Before it, the library biases no lock toward this process, and
// takes longer to prove the death of this process.
func awaitFence(a *arena.Arena) error {
	if !shmsync.FeatureMembarrier.Have() {
		return nil
	}
	for end := time.Now().Add(fenceTime); !a.Fenced(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not registered for fences after %v", fenceTime)
		}
	}
	return nil
}
