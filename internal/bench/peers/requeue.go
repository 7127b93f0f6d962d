//go:build linux

package peers

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// requeuer lets threads rest until they get a permit. Rouse wakes one of the sleeping threads. It moves other sleepers
// to the futex word r.relay, without waking them. Each thread that has taken a permit wakes one sleeper on r.relay. So
// the threads wake one after the other, and not all at once. Older versions of pthread_cond_broadcast do the same.
type requeuer struct{ permits, relay *atomic.Uint32 }

func openRequeue(w *bench.Worker, _ int) (any, error) {
	return requeuer{control.WordAt(w.Mem, 0), control.WordAt(w.Mem, 64)}, nil
}

func (r requeuer) Rouse(n int) {
	r.permits.Add(uint32(n))
	for {
		v := r.permits.Load()
		if v == 0 {
			return // other threads took the permits
		}
		_, o, err := shmsync.Requeue(control.FutexWord(r.permits), v, 1, control.FutexWord(r.relay), n-1)
		Must(err)
		if o != shmsync.Changed {
			return
		}
	}
}

func (r requeuer) Rest() {
	for {
		v := r.permits.Load()
		switch {
		case v == 0:
			_, err := shmsync.Wait(control.FutexWord(r.permits), 0, 0)
			Must(err)
		case r.permits.CompareAndSwap(v, v-1):
			// Rouse has moved at most as many threads to r.relay as there are permits. Each thread that takes a permit
			// wakes one thread on r.relay, so all moved threads are woken.
			shmsync.Wake(control.FutexWord(r.relay), 1)
			return
		}
	}
}
