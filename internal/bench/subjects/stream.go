//go:build linux

package subjects

import (
	"os"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/shm"
)

// streamSubjects has subjects for stream cells: memory that the threads of one process read and write.
var streamSubjects = []*bench.Subject{
	{By: "go", Prim: "memory", InProcess: true, Segment: newStreamed, Scenarios: []string{"stream"}, Open: openStreamed},
	{By: "test", Prim: "rotten", InProcess: true, Hidden: true, Segment: newStreamed, Scenarios: []string{"stream"}, Open: openRotten},
}

// newStreamed creates a memfd whose pages lie on the NUMA nodes that the cell asks for. The pages are allocated when
// the threads touch them.
func newStreamed(c *bench.Cell) (*os.File, error) {
	seg, err := shm.CreateMemfd("shmbench-stream", c.StreamBytes(), nil, &shm.Options{NUMA: c.Stream.Policy})
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	if d := seg.Degraded(); len(d) > 0 {
		return nil, d[0]
	}
	return seg.Reopen()
}

// streamed is memory that the threads of one process share.
type streamed struct{ seg *shm.Segment }

func (s streamed) Words() []uint64 { return wordsOf(s.seg.Bytes()) }

func (s streamed) Where(from, n int) ([]shm.Placement, error) {
	return s.seg.Where(int64(from)*8, int64(n)*8)
}

func openStreamed(w *bench.Worker, _ int) (any, error) {
	return w.Shared(func() (any, error) {
		seg, err := shm.FromFile(w.Segment, nil)
		return streamed{seg}, err
	})
}

// openRotten returns memory that is wrong on purpose: again and again, a goroutine sets a word of the first streaming
// thread to 0.
func openRotten(w *bench.Worker, thread int) (any, error) {
	v, err := openStreamed(w, thread)
	if err == nil && thread == 0 {
		words := v.(streamed).Words()[w.N<<20/8:]
		go func() {
			for ; ; time.Sleep(time.Millisecond) {
				words[0] = 0
			}
		}()
	}
	return v, err
}
