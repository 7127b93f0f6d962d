//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

const (
	matrixBatch = 64      // round trips per sample
	matrixMost  = 1 << 30 // most round trips of a repetition: their numbers must fit into 32 bits
)

// shuttle is one of the two ends that pass a cache line back and forth in a matrix measurement.
type shuttle interface {
	// Trips makes n round trips. The parameter from is the number of the first round trip. Trips returns how many round
	// trips it made, which is less than n if the measurement stopped.
	Trips(from, n uint32) uint32
	// Finish tells the other end that no round trip with this number or a higher one will come.
	Finish(number uint32)
	// Answer answers round trips until the other end calls Finish. It returns how many it answered.
	Answer() uint32
}

// workMatrix times batches of round trips at one end, and answers them at the other end.
func workMatrix(t *thread) error {
	if t.N > 0 {
		k, err := as[tourist](t)
		if err != nil {
			return err
		}
		return workTour(t, k)
	}
	k, err := as[shuttle](t)
	if err != nil {
		return err
	}
	t.await()
	if t.index != 0 {
		t.slot.Total = uint64(k.Answer())
		t.end()
		return nil
	}
	number := uint32(0)
	for t.next() && number < matrixMost {
		t0 := shmsync.Monotonic()
		made := k.Trips(number, matrixBatch)
		if made == matrixBatch {
			t.sample(t.counts, shmsync.Monotonic()-t0)
		}
		t.count(uint64(made))
		number += made
	}
	t.end()
	k.Finish(number)
	return nil
}

func collectMatrix(rep *bench.Repetition, a *bench.Account) {
	first, hist := a.Slot(0)
	second, _ := a.Slot(1)
	if first.Total != second.Total {
		rep.Violate("%d round trips were made, and %d answered", first.Total, second.Total)
	}
	rep.Hist, rep.Div = stats.NewHist(hist), 2*matrixBatch
	delete(rep.Metrics, "ctxsw/op")
}
