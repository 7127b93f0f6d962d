//go:build linux

package bench

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// End is the index of the thread in its pair. The pair is two workers of one thread each, or one
// worker of two threads.
func End(w *Worker, thread int) int { return (w.Proc + thread) % 2 }

// Worker is one process under measurement, from the point of view of its threads.
type Worker struct {
	*control.Page
	Proc    int
	Subject *Subject
	Segment *os.File // the memory of the subject
	Mem     []byte   // the part of the segment that peers use

	Mu    sync.Mutex
	local any // state that the threads of this process share
}

// Shared returns the state of the subject that belongs to the process. The first thread that asks
// makes it.
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

// File returns inherited descriptor i of the subject.
func (w *Worker) File(i int) int { return control.FirstSubjectFD + i }

// Word returns a 32-bit word of the segment. Each word has a cache line of its own.
func (w *Worker) Word(line int) *atomic.Uint32 { return control.WordAt(w.Mem, line*64) }
