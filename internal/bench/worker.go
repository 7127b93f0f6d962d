//go:build linux

package bench

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench/control"
)

// End is the index of the thread in its pair: workers of one thread each, or
// one worker of two.
func End(w *Worker, thread int) int { return (w.Proc + thread) % 2 }

// Worker is one process under measurement, as its threads see it.
type Worker struct {
	*control.Page
	Proc    int
	Subject *Subject
	Segment *os.File // what the subject lives in
	Mem     []byte   // the part of it that peers use

	Mu    sync.Mutex
	local any // state that the threads of this process share
}

// Shared gives the process's own state of the subject, made by the first
// thread that asks.
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

// File gives inherited descriptor i of the subject.
func (w *Worker) File(i int) int { return control.FirstSubjectFD + i }

// Word gives a 32-bit word of the segment, a cache line each.
func (w *Worker) Word(line int) *atomic.Uint32 { return control.WordAt(w.Mem, line*64) }
