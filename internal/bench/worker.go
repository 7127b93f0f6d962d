//go:build linux

package bench

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// End returns the index of the thread in its pair, 0 or 1. A pair is two threads that pass values to each other. They
// belong to two processes with one thread each, or to one process with two threads.
func End(w *Worker, thread int) int { return (w.Proc + thread) % 2 }

// Worker has what the threads of one measuring process share.
type Worker struct {
	*control.Page
	Proc    int
	Subject *Subject
	Segment *os.File // the memory of the subject
	Mem     []byte   // the part of the segment that primitives of the host use

	Mu    sync.Mutex
	local any // state of the subject that the threads of this process share
}

// Shared returns the state of the subject that the threads of this process share. The first call creates this state.
func (w *Worker) Shared(create func() (any, error)) (any, error) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.local == nil {
		v, err := create()
		if err != nil {
			return nil, err
		}
		w.local = v
	}
	return w.local, nil
}

// File returns the descriptor of file i of the subject, which this process has inherited.
func (w *Worker) File(i int) int { return control.FirstSubjectFD + i }

// Word returns the first 32-bit word of a cache line. The parameter line is the number of the cache line in the
// segment.
func (w *Worker) Word(line int) *atomic.Uint32 { return control.WordAt(w.Mem, line*64) }
