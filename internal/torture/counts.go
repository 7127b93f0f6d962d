//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

const semJobPermits = 5

// semJob uses Semaphores. For each permit there is a place in shared memory, and each holder occupies a place. If a
// Semaphore grants too many permits, a holder finds no free place.
type semJob struct {
	*party
	scarce, ample *prims.Semaphore
}

func openSemJob(p *party) (jobWorker, error) {
	scarce, err := prims.OpenSemaphore(p.a, "sem-scarce", semJobPermits, nil)
	if err != nil {
		return nil, err
	}
	ample, err := prims.OpenSemaphore(p.a, "sem-ample", 1000, nil)
	return &semJob{p, scarce, ample}, err
}

func (j *semJob) turn(g int, r *rand.Rand) error {
	n := int64(1 + r.IntN(semJobPermits))
	switch r.IntN(8) {
	case 0:
		if j.scarce.TryAcquire(n) {
			return j.holding(n, r)
		}
		return nil
	case 1:
		if err := ends(r, func(ctx context.Context) error { return j.ample.AcquireContext(ctx, n) }); err != nil {
			return forgive(err)
		}
		j.ample.Release(n)
		return nil
	}
	if err := ends(r, func(ctx context.Context) error { return j.scarce.AcquireContext(ctx, n) }); err != nil {
		return forgive(err)
	}
	return j.holding(n, r)
}

func (j *semJob) holding(n int64, r *rand.Rand) error {
	var mine [semJobPermits]int
	for k := range n {
		place, err := j.enterOne(j.page.board.permits[:])
		if err != nil {
			return fmt.Errorf("%v: %w", j.scarce, err)
		}
		for i := range j.page.board.permits {
			if place == &j.page.board.permits[i] {
				mine[k] = i
			}
		}
	}
	for range r.IntN(100) {
	}
	for _, i := range mine[:n] {
		j.page.board.permits[i].Store(0)
	}
	j.scarce.Release(n)
	return nil
}

func (j *semJob) rest() error {
	for _, s := range []*prims.Semaphore{j.scarce, j.ample} {
		st := s.State()
		if err := leftOver(st.Free != st.Size || st.Mine != 0 || st.Waiting, st); err != nil {
			return err
		}
	}
	return nil
}

// groupJob uses WaitGroups. A goroutine either adds to a counter and subtracts the same number again, or waits for
// the counter. The counter is 0 while all goroutines wait, so each wait ends.
type groupJob struct{ groups [2]*prims.WaitGroup }

func openGroupJob(p *party) (jobWorker, error) {
	j := &groupJob{}
	for i := range j.groups {
		var err error
		if j.groups[i], err = prims.OpenWaitGroup(p.a, fmt.Sprint("group-", i), nil); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (j *groupJob) turn(g int, r *rand.Rand) error {
	x := j.groups[r.IntN(len(j.groups))]
	if r.IntN(2) == 0 {
		n := 1 + r.IntN(3)
		x.Add(n)
		for range r.IntN(500) {
		}
		x.Add(-n)
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		err := x.WaitContext(ctx)
		if errors.Is(err, shmsync.ErrOwnerDead) {
			x.Reset()
			return nil
		}
		return forgive(err)
	})
}

func (j *groupJob) rest() error {
	for _, x := range j.groups {
		x.Reset()
		st := x.State()
		if err := leftOver(st.Count != 0 || st.Own != 0 || st.Waiting || st.Err != nil, st); err != nil {
			return err
		}
	}
	return nil
}

// barrierJob uses two Barriers of four parties. Any four arrivals end a phase. Goroutine 0 arrives again and again
// without waiting, so the waits of the other goroutines end.
type barrierJob struct {
	*party
	plain, complete *prims.Barrier
}

func openBarrierJob(p *party) (jobWorker, error) {
	plain, err := prims.OpenBarrier(p.a, "barrier-plain", 4, nil)
	if err != nil {
		return nil, err
	}
	b := &p.page.board.phases
	complete, err := prims.OpenBarrier(p.a, "barrier-complete", 4, &prims.BarrierOptions{Completion: func() {
		b.begun.Add(1)
		if n := b.inside.Swap(uint64(p.self)); n != 0 && p.a.Current(arena.ParticipantID(n)) {
			b.overlaps.Add(1)
		}
		b.inside.Store(0)
		b.ended.Add(1)
	}})
	return &barrierJob{p, plain, complete}, err
}

func (j *barrierJob) turn(g int, r *rand.Rand) error {
	x := j.plain
	if r.IntN(2) == 0 {
		x = j.complete
	}
	if g == 0 {
		x.Arrive(1)
		if x.State().Err != nil {
			x.ResetTo(4)
		}
		return nil
	}
	return ends(r, func(ctx context.Context) error {
		err := error(nil)
		if r.IntN(4) == 0 {
			err = x.WaitContext(ctx, x.Arrive(1))
		} else {
			err = x.ArriveAndWaitContext(ctx)
		}
		if errors.Is(err, shmsync.ErrOwnerDead) {
			x.ResetTo(4)
			return nil
		}
		return forgive(err)
	})
}

func (j *barrierJob) rest() error {
	b := &j.page.board.phases
	for _, x := range []*prims.Barrier{j.plain, j.complete} {
		x.ResetTo(4)
		st := x.State()
		if err := leftOver(st.Waiting || st.Completer != nil || st.Err != nil || st.Expected != 4 || st.Pending < 1 || st.Pending > 4, st); err != nil {
			return err
		}
		if x == j.complete && (b.ended.Load() > uint64(st.Phase) || b.overlaps.Load() != 0) {
			return fmt.Errorf("%d completions of %d phases, %d overlaps", b.ended.Load(), st.Phase, b.overlaps.Load())
		}
	}
	return nil
}

// onceJob uses a sequence of Onces, each with a name of its own.
type onceJob struct{ *party }

func openOnceJob(p *party) (jobWorker, error) { return &onceJob{p}, nil }

func onceName(n uint64) string { return fmt.Sprint("once-", n) }

func (j *onceJob) turn(g int, r *rand.Rand) error {
	b := &j.page.board.once
	n := b.round.Load() + 1
	e := &b.ran[n%uint64(len(b.ran))]
	x, err := prims.OpenOnce(j.a, onceName(n), nil)
	if err != nil {
		return err
	}
	overlap := false
	err = ends(r, func(ctx context.Context) error {
		return x.DoContext(ctx, func() {
			if was := arena.ParticipantID(e.inside.Swap(uint32(j.self))); was != 0 && j.a.Current(was) {
				overlap = true
			}
			for range r.IntN(500) {
			}
			e.ended.Store(n)
			e.inside.Store(0)
		})
	})
	switch {
	case overlap:
		return fmt.Errorf("two run %v", x)
	case err == nil && e.ended.Load() < n:
		return fmt.Errorf("%v returned before its function had", x)
	case err != nil && !gaveUp(err):
		return err
	}
	if err := x.Close(); err != nil {
		return err
	}
	if err == nil && b.round.CompareAndSwap(n-1, n) {
		// If another process opens a Once after this process has deleted it, that open creates the Once again. That
		// does no harm.
		for back := uint64(10); back < min(n, 60); back += 10 {
			j.a.Delete(onceName(n - back)) // fails while another process has the Once open; later calls try again
		}
	}
	return nil
}

func (j *onceJob) rest() error {
	b := &j.page.board.once
	n := b.round.Load()
	if n != 0 && b.ran[n%uint64(len(b.ran))].ended.Load() < n {
		return fmt.Errorf("nobody has run number %d", n)
	}
	return nil
}

// workers is the state of a Waitable that serves as a shared lock. Holders is the number of readers, or -1 for a
// writer.
type workers struct{ Holders int32 }

// waitableJob uses a Waitable as a reader/writer lock.
type waitableJob struct {
	*party
	x *prims.Waitable[workers, bool]
	w *witness
}

func openWaitableJob(p *party) (jobWorker, error) {
	x, err := prims.OpenWaitable(p.a, "waitable", workers{}, prims.Rules[workers, bool]{
		Claim: func(s *workers, write bool) bool {
			switch {
			case write && s.Holders == 0:
				s.Holders = -1
			case !write && s.Holders >= 0:
				s.Holders++
			default:
				return false
			}
			return true
		},
		Release: func(s *workers, write bool) {
			if write {
				s.Holders = 0
			} else {
				s.Holders--
			}
		},
	}, nil)
	return &waitableJob{p, x, &p.page.board.writers[0]}, err
}

func (j *waitableJob) turn(g int, r *rand.Rand) error {
	write := r.IntN(3) == 0
	err := ends(r, func(ctx context.Context) error { return j.x.WaitContext(ctx, write) })
	if err != nil {
		return forgive(err)
	}
	if write {
		err = j.inside(j.w, r)
	} else if was := arena.ParticipantID(j.w.name.Load()); was != 0 && j.a.Current(was) {
		err = fmt.Errorf("a reader is inside with %v", was)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", j.x, err)
	}
	j.x.Release(write)
	return nil
}

func (j *waitableJob) rest() error {
	s := j.x.State()
	return leftOver(s.Holders != 0, s)
}

// record is the value of a Synchronized. All its numbers are equal, unless the value is torn.
type record [40]uint64

func (v *record) whole() error {
	for _, n := range v {
		if n != v[0] {
			return fmt.Errorf("a torn record: %d and %d", v[0], n)
		}
	}
	return nil
}

// synchronizedJob increments the numbers of a record one after the other. It reads the record with and without the
// lock.
type synchronizedJob struct {
	*party
	s    *prims.Synchronized[record]
	w    *witness
	last atomic.Uint64 // the highest number that a Load of this process has returned
}

func openSynchronizedJob(p *party) (jobWorker, error) {
	s, err := prims.OpenSynchronized(p.a, "synchronized", record{}, nil)
	return &synchronizedJob{party: p, s: s, w: &p.page.board.locks[lockSynchronized]}, err
}

var errGivenUp = errors.New("given up")

func (j *synchronizedJob) turn(g int, r *rand.Rand) error {
	switch r.IntN(4) {
	case 0, 1:
		last := j.last.Load()
		v := j.s.Load()
		if v[0] < last {
			return fmt.Errorf("%v: a Load gave %d after one had given %d", j.s, v[0], last)
		}
		for n := j.last.Load(); n < v[0] && !j.last.CompareAndSwap(n, v[0]); n = j.last.Load() {
		}
		return v.whole()
	case 2:
		return forgive(ends(r, func(ctx context.Context) error {
			return j.s.ViewContext(ctx, func(v *record) error { return v.whole() })
		}))
	}
	fails := r.IntN(4) == 0
	err := ends(r, func(ctx context.Context) error {
		return j.s.UpdateContext(ctx, func(v *record) error {
			if err := v.whole(); err != nil {
				return err
			}
			for i := range v {
				v[i]++
				if i == len(v)/2 {
					if err := j.inside(j.w, r); err != nil {
						return err
					}
					j.linger(r)
				}
			}
			if fails {
				return errGivenUp
			}
			return nil
		})
	})
	if err == errGivenUp {
		return nil
	}
	return forgive(err)
}

func (j *synchronizedJob) rest() error {
	v := j.s.Load()
	if err := v.whole(); err != nil {
		return err
	}
	st := j.s.State()
	if st.Commits != v[0] {
		return fmt.Errorf("%d commits, and the record says %d", st.Commits, v[0])
	}
	return leftOver(st.Held, st)
}
