//go:build linux

package load

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// conveyor is the interface that queue and cond measurements need of their subject: a bounded queue with the capacity
// of the plan. Any number of threads may call Put and Get.
type conveyor interface {
	Put(items []uint64)
	// Get waits for an item. It stores the available items into buf, as many as fit, and returns their number. It
	// returns 0 when no more items will come.
	Get(buf []uint64) int
	// Shut is called once, after the last Put. Consumers can still get the remaining items.
	Shut(consumers int)
}

// An item is a number that consists of the number of its producer and a number that the producer counts from 1.
const (
	itemBits = 48
	itemMask = 1<<itemBits - 1
)

// tripStride is the distance between timed items: one of every tripStride items of a producer is timed. It is so large
// that at most ScratchTrips timed items of a producer can be in the queue at the same time.
const tripStride = 64

// itemPrint returns a fingerprint of an item. The sum of the fingerprints shows whether an item was lost or came
// twice.
func itemPrint(item uint64) uint64 {
	item ^= item >> 29
	item *= 0xbf58476d1ce4e5b9
	return item ^ item>>32
}

// These are the indices of metrics in the slot of a thread of a queue measurement. A fingerprint has 64 bits, so it is
// stored in two halves.
const (
	metricMoved = iota
	metricPrintLow
	metricPrintHigh
)

// workQueue moves items from the first half of the threads to the second half. Each consumer checks that it gets the
// items of each producer in order. The sums over all threads show that each item came once.
func workQueue(t *thread) error {
	q, err := as[conveyor](t)
	if err != nil {
		return err
	}
	n := int(t.Procs * t.Control.Threads)
	producers := max(n/2, 1)
	if t.index == 0 {
		t.Scratch().Putting.Store(int64(producers))
	}
	t.await()
	var print, moved uint64
	if t.index < producers {
		print, moved = t.produce(q)
		t.Mu.Lock() // only for the race detector: it does not see the order that the atomic words of the page give
		last := t.Scratch().Putting.Add(-1) == 0
		t.Mu.Unlock()
		if last {
			q.Shut(n - producers)
		}
	} else {
		print, moved = t.consume(q)
	}
	t.end()
	m := &t.slot.Metrics
	m[metricMoved] = float64(moved)
	m[metricPrintLow], m[metricPrintHigh] = float64(uint32(print)), float64(print>>32)
	return nil
}

func (t *thread) produce(q conveyor) (print, moved uint64) {
	lane := &t.Scratch().Trips[t.index%control.ScratchLanes]
	items := make([]uint64, t.Shape.Batch)
	think := t.thinkSteps()
	x := uint64(t.index)
	for t.next() {
		if t.ThinkNs > 0 {
			x = control.Work(think[moved%control.Thinks], x)
		}
		for i := range items {
			moved++
			items[i] = uint64(t.index)<<itemBits | moved
			print += itemPrint(items[i])
			if moved%tripStride == 0 {
				lane[moved/tripStride%control.ScratchTrips].Store(shmsync.Monotonic())
			}
		}
		q.Put(items)
	}
	t.sink = x
	return print, moved
}

func (t *thread) consume(q conveyor) (print, moved uint64) {
	s := t.Scratch()
	buf := make([]uint64, t.Shape.Batch)
	var last [control.ScratchLanes]uint64
	for {
		n := q.Get(buf)
		if n == 0 {
			return print, moved
		}
		t.next()
		for _, item := range buf[:n] {
			print += itemPrint(item)
			lane, k := item>>itemBits, item&itemMask
			if lane >= control.ScratchLanes || k <= last[lane] {
				t.violate("item %d of producer %d came after its item %d", k, lane, last[lane%control.ScratchLanes])
				continue
			}
			last[lane] = k
			if k%tripStride == 0 {
				t.sample(t.counts, shmsync.Monotonic()-s.Trips[lane][k/tripStride%control.ScratchTrips].Load())
			}
		}
		moved += uint64(n)
		t.count(uint64(n))
	}
}

func collectQueue(rep *bench.Repetition, a *bench.Account) {
	producers := max(a.Slots()/2, 1)
	var put, got, printed, seen uint64
	for i := range a.Slots() {
		s, _ := a.Slot(i)
		print := uint64(s.Metrics[metricPrintHigh])<<32 | uint64(s.Metrics[metricPrintLow])
		if i < producers {
			put += uint64(s.Metrics[metricMoved])
			printed += print
		} else {
			got += uint64(s.Metrics[metricMoved])
			seen += print
		}
	}
	if put != got || printed != seen {
		rep.Violate("%d items were put and %d came, sums %x and %x", put, got, printed, seen)
	}
	a.Shares = a.Shares[producers:]
	rep.Throughput(a)
}
