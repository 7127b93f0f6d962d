//go:build linux

package bench

import (
	"strconv"

	"github.com/shmsync/shmsync/shm"
)

// Places of the data of a stream cell.
const (
	DataOwn    = "own"    // the data of each thread is on the thread's own node
	DataOne    = "one"    // all on the node of the first thread
	DataFar    = "far"    // all on the farthest other node with memory
	DataSpread = "spread" // on all nodes in turn
)

// DataNames are the choices of --data.
var DataNames = []string{DataOwn, DataOne, DataFar, DataSpread}

// StreamShape has the parameters that only stream cells have. Thread 0 follows a chain of loads, of which each
// address depends on the load before. Each of the other threads streams through its own part of the memory.
type StreamShape struct {
	Data    string
	Policy  shm.Policy
	CPUs    []int // of the threads
	Nodes   []int // NUMA nodes of the memory nearest to the CPUs, in their order
	Missing string
}

// Asked returns the nodes on which the memory of a thread should be.
func (s *StreamShape) Asked(thread int) []int {
	if len(s.Policy.Nodes) > 0 {
		return s.Policy.Nodes
	}
	return s.Nodes[thread : thread+1]
}

// StreamBytes returns the size of the memory of a stream cell: the chain, and a part for each stream.
func (c *Cell) StreamBytes() int64 {
	return int64(c.N)<<20 + int64(c.Threads-1)*int64(c.Part)
}

// streamRefused returns the reason why a stream cell cannot have its memory, or an empty string.
func (c *Cell) streamRefused() string {
	switch {
	case c.Stream == nil || c.Stream.Missing != "":
		return ""
	case len(c.Stream.Policy.Nodes) == 0:
		return ""
	}
	return (&MemShape{Policy: c.Stream.Policy}).refused(0)
}

// streamParams returns the parameters that name a stream cell.
func (c *Cell) streamParams() map[string]string {
	return map[string]string{"data": c.Stream.Data, "duty": strconv.FormatUint(c.Duty, 10),
		"read": strconv.FormatUint(c.Read, 10), "streams": strconv.Itoa(c.Threads - 1)}
}
