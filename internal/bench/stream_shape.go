//go:build linux

package bench

import (
	"strconv"

	"github.com/shmsync/shmsync/shm"
)

// These are the places where the data of a stream measurement can lie, by NUMA node.
const (
	DataOwn    = "own"    // the data of each thread is on the thread's own node
	DataOne    = "one"    // all on the node of the first thread
	DataFar    = "far"    // all on the node with memory that is farthest from the first thread
	DataSpread = "spread" // on all nodes in turn
)

// DataNames are the values of the flag --data, which says on which NUMA nodes data lies.
var DataNames = []string{DataOwn, DataOne, DataFar, DataSpread}

// StreamShape has the parameters that only stream measurements have. In such a measurement, thread 0 follows a chain of
// loads: the address of each load is the result of the previous load. Each of the other threads reads and writes its
// own part of the memory in sequence.
type StreamShape struct {
	Data    string
	Policy  shm.Policy
	CPUs    []int // CPUs of the threads, in the order of the threads
	Nodes   []int // for each thread, the NUMA node whose memory is nearest to the CPU of the thread
	Missing string
}

// Asked returns the NUMA nodes on which the memory of a thread should be.
func (s *StreamShape) Asked(thread int) []int {
	if len(s.Policy.Nodes) > 0 {
		return s.Policy.Nodes
	}
	return s.Nodes[thread : thread+1]
}

// StreamBytes returns the size of the memory of a stream cell: the chain of loads, and a part for each streaming
// thread.
func (c *Cell) StreamBytes() int64 {
	return int64(c.N)<<20 + int64(c.Threads-1)*int64(c.Part)
}

// streamRefused returns the reason why a stream cell cannot get memory with its NUMA policy, or an empty string.
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
