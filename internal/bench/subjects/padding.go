//go:build linux

package subjects

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// paddingSubjects have a counter for each thread. They measure how much the counters slow each other down.
var paddingSubjects = []*bench.Subject{
	{By: "go", Prim: "counters", Scenarios: []string{"padding"}, Open: openCounter},
	{By: "test", Prim: "lossy-counters", Scenarios: []string{"padding"}, Hidden: true, Open: openRecounted},
}

// paddingFirst is the offset of the first counter. It is the start of a page. Some prefetchers fetch cache lines in
// pairs, and the first two lines of a page are such a pair.
const paddingFirst = 4096

// openCounter returns the counter of a thread. The counters lie in the order of the threads, process by process.
func openCounter(w *bench.Worker, thread int) (any, error) {
	index := w.Proc*int(w.Control.Threads) + thread
	return control.WordAt(w.Mem, paddingFirst+index*int(w.Shape.Pad)), nil
}

// openRecounted returns a counter that is wrong on purpose: it begins at 1, so its last value is not the number of
// increments.
func openRecounted(w *bench.Worker, thread int) (any, error) {
	v, err := openCounter(w, thread)
	if err == nil {
		v.(*atomic.Uint32).Add(1)
	}
	return v, err
}
