//go:build linux

package subjects

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// paddingSubjects are counters of which each thread has one.
var paddingSubjects = []*bench.Subject{
	{By: "go", Prim: "counters", Scenarios: []string{"padding"}, Open: openCounter},
	{By: "test", Prim: "lossy-counters", Scenarios: []string{"padding"}, Hidden: true, Open: openRecounted},
}

// paddingFirst is where the counters begin: at the beginning of a page, so that the first two lines are a
// pair for a prefetcher.
const paddingFirst = 4096

// openCounter returns the counter of a thread. Threads of different processes are neighbours.
func openCounter(w *bench.Worker, thread int) (any, error) {
	index := w.Proc*int(w.Control.Threads) + thread
	return control.WordAt(w.Mem, paddingFirst+index*int(w.Shape.Pad)), nil
}

// openRecounted returns a counter that has been counted before.
func openRecounted(w *bench.Worker, thread int) (any, error) {
	v, err := openCounter(w, thread)
	if err == nil {
		v.(*atomic.Uint32).Add(1)
	}
	return v, err
}
