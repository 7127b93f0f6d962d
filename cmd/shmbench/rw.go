//go:build linux

package main

import (
	"fmt"

	"github.com/shmsync/shmsync"
)

// rwLocker is what readers and rw cells need. TryLock fails while anybody
// holds the lock.
type rwLocker interface {
	locker
	RLock()
	RUnlock()
	TryLock() bool
	// ReadPairs takes and releases the lock for reading n times, and gives how
	// often what it guards was not what it was at first.
	ReadPairs(n int, guarded *uint64) (torn int)
}

// metricWrites is the place of a thread's number of writes in its slot.
const metricWrites = 0

// workReaders times batches of shared lock and unlock, by as many processes as
// the cell has. Before, each reader sees that its hold keeps writers out.
func workReaders(t *thread) error {
	l, err := as[rwLocker](t)
	if err != nil {
		return err
	}
	l.RLock()
	if l.TryLock() {
		t.violate("a writer got the lock that a reader held")
		l.Unlock()
	}
	l.RUnlock()
	t.await()
	for t.next() {
		t0 := shmsync.Monotonic()
		torn := l.ReadPairs(int(t.batch), &t.scratch().first)
		t.sample(t.counts, shmsync.Monotonic()-t0)
		if torn != 0 {
			t.violate("%d reads saw a write that nobody made", torn)
		}
		t.count(t.batch)
	}
	t.end()
	return nil
}

func collectReaders(rep *repetition, a *account) {
	rep.throughput(a)
	rep.Div = uncontendedBatch
}

// workRW mixes readers and writers. A writer changes one word before its work
// and another after it; a reader must find both alike, before its work and
// after it.
func workRW(t *thread) error {
	l, ok := t.view.(rwLocker)
	plain, isLock := t.view.(locker)
	if !ok && !isLock {
		return fmt.Errorf("%s does not implement %T", t.subject.Name(), (*rwLocker)(nil))
	}
	take, leave := plain.Lock, plain.Unlock // a lock that readers have no advantage from
	if ok {
		take, leave = l.RLock, l.RUnlock
	}
	s := t.scratch()
	cs, think := steps(t.csNs, t.perNs), t.thinkSteps()
	writes, credit := 0.0, uint64(t.index)*37%100
	x := uint64(t.index)
	t.await()
	for i := uint64(t.index) * lockStride; t.next(); i++ {
		if t.thinkNs > 0 {
			x = work(think[i%thinks], x)
		}
		// Of a hundred holds in a row, Read are shared, spread evenly.
		credit += t.shape.Read
		reads := credit >= 100
		if reads {
			credit -= 100
		}
		sampled := i%lockStride == 0 || !reads
		t0 := int64(0)
		if sampled {
			t0 = shmsync.Monotonic()
		}
		if reads {
			take()
			if sampled {
				t.sample(t.counts, shmsync.Monotonic()-t0)
			}
			before := s.first
			if cs > 0 {
				x = work(cs, x)
			}
			if after := s.second; after != before {
				t.violate("a reader saw %d and then %d", before, after)
			}
			leave()
		} else {
			plain.Lock()
			t.sample(t.others, shmsync.Monotonic()-t0)
			v := s.first + 1
			s.first = v
			if cs > 0 {
				x = work(cs, x)
			}
			s.second = v
			plain.Unlock()
			writes++
		}
		t.count(1)
	}
	t.end()
	t.slot.metrics[metricWrites] = writes
	t.sink = x
	return nil
}

func collectRW(rep *repetition, a *account) {
	s, writes := a.scratch(), uint64(a.sum(metricWrites))
	if s.first != writes || s.second != writes {
		rep.violate("the words under the lock are %d and %d after %d writes", s.first, s.second, writes)
	}
	rep.throughput(a)
	rep.second("write", a)
}
