//go:build linux

package load

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// metricWrites is the index of a metric in a thread's slot: how often the thread locked for writing.
const metricWrites = 0

// workReaders times batches of lock and unlock for reading, in all processes of the measurement at the same time.
// Before that, each reader checks that writers are kept out while it holds the lock.
func workReaders(t *thread) error {
	l, err := as[bench.RWLocker](t)
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
		torn := l.ReadPairs(int(t.Batch), &t.Scratch().First)
		t.sample(t.counts, shmsync.Monotonic()-t0)
		if torn != 0 {
			t.violate("%d reads saw a write that nobody made", torn)
		}
		t.count(t.Batch)
		t0 = shmsync.Monotonic()
		torn = l.ReadPairs(1, &t.Scratch().First)
		t.sample(t.others, shmsync.Monotonic()-t0)
		if torn != 0 {
			t.violate("a read saw a write that nobody made")
		}
		t.count(1)
	}
	t.end()
	return nil
}

func collectReaders(rep *bench.Repetition, a *bench.Account) {
	rep.Throughput(a)
	rep.Div = bench.UncontendedBatch
}

// workRW mixes readers and writers of two words that are equal while no writer holds the lock. A writer changes one
// word before its work and the other word after it. A reader reads the first word before its work and the second
// word after it, and checks that they are equal.
func workRW(t *thread) error {
	l, ok := t.view.(bench.RWLocker)
	plain, isLock := t.view.(bench.Locker)
	if !ok && !isLock {
		return fmt.Errorf("%s does not implement %T", t.Subject.Name(), (*bench.RWLocker)(nil))
	}
	take, leave := plain.Lock, plain.Unlock // used if the lock has no mode that readers can share
	if ok {
		take, leave = l.RLock, l.RUnlock
	}
	s := t.Scratch()
	cs, think := control.Steps(t.CSNs, t.perNs), t.thinkSteps()
	writes, credit := 0.0, uint64(t.index)*37%100
	x := uint64(t.index)
	t.await()
	for i := uint64(t.index) * lockStride; t.next(); i++ {
		if t.ThinkNs > 0 {
			x = control.Work(think[i%control.Thinks], x)
		}
		// Of 100 holds, t.Shape.Read are for reading. They are distributed evenly.
		credit += t.Shape.Read
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
			before := s.First
			if cs > 0 {
				x = control.Work(cs, x)
			}
			if after := s.Second; after != before {
				t.violate("a reader saw %d and then %d", before, after)
			}
			leave()
		} else {
			plain.Lock()
			t.sample(t.others, shmsync.Monotonic()-t0)
			v := s.First + 1
			s.First = v
			if cs > 0 {
				x = control.Work(cs, x)
			}
			s.Second = v
			plain.Unlock()
			writes++
		}
		t.count(1)
	}
	t.end()
	t.slot.Metrics[metricWrites] = writes
	t.sink = x
	return nil
}

func collectRW(rep *bench.Repetition, a *bench.Account) {
	s, writes := a.Scratch(), uint64(a.Sum(metricWrites))
	if s.First != writes || s.Second != writes {
		rep.Violate("the words under the lock are %d and %d after %d writes", s.First, s.Second, writes)
	}
	rep.Throughput(a)
	rep.Second("write", a)
}
