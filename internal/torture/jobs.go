//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

var jobs = append([]job{
	{"mutex", openMutexJob},
	{"fairmutex", openFairJob},
	{"cohortmutex", openCohortJob},
	{"spinlock", openSpinJob},
	{"rwmutex", openRWMutexJob},
	{"rwspinlock", openRWSpinJob},
	{"multilock", openMultiJob},
	{"semaphore", openSemJob},
	{"sequencer", openSeqJob},
	{"event", openEventJob},
	{"futex", openFutexJob},
	{"future", openFutureJob},
	{"waitany", openAnyJob},
	{"cond", openCondJob},
	{"queue", openQueueJob},
	{"waitgroup", openGroupJob},
	{"latch", openLatchJob},
	{"barrier", openBarrierJob},
	{"once", openOnceJob},
	{"signal", openSignalJob},
	{"waitable", openWaitableJob},
	{"synchronized", openSynchronizedJob},
	{"tx", openTxJob},
	{"rwtx", openRWTxJob},
	{"objects", openObjectsJob},
}, brokenJobs...)

// soundJobs is the set of jobs that make no mistakes on purpose. These jobs take part unless the user asks for
// others.
var soundJobs = uint64(1)<<(len(jobs)-len(brokenJobs)) - 1

// Indices in tortureBoard.locks for the jobs at which programs in C can work.
const (
	lockSynchronized = 12
	lockTx           = 13
	lockRWTx         = 14
)

// tortureBoard is shared memory outside of the arena, by which the jobs check the results of the library.
type tortureBoard struct {
	locks   [15]witness
	keys    [multiJobKeys]witness
	permits [semJobPermits]atomic.Uint32 // for each permit, the ID of the participant that has the permit
	writers [2]witness                   // holders of the reader/writer locks
	tickets [queueJobTickets]witness
	made    atomic.Uint32 // 1 when the tickets have been put into the queue
	taken   [1 << 12]atomic.Uint64
	item    atomic.Uint64 // number of the last item
	counted [4]atomic.Uint64
	phases  struct{ begun, ended, inside, overlaps atomic.Uint64 }
	cond    struct{ items, round int64 }
	once    struct {
		round atomic.Uint64
		ran   [1 << 12]struct {
			inside atomic.Uint32
			ended  atomic.Uint64 // the last round in which the function of the Once has returned
		}
	}
	queues [signalJobQueues]struct {
		pushed, told, done atomic.Uint64
		inside             atomic.Uint32
		_                  [100]byte
	}
}

// witness shows whether two participants hold a lock at the same time. While a holder works, its ID is in the field
// name. A holder also increments two counts, one after the other. While the lock is free, the counts are equal, unless
// the last holder died while it worked.
type witness struct {
	name   atomic.Uint32
	runs   uint32
	before uint64
	after  uint64
	_      [104]byte
}

// enter stores the ID of this participant in the witness, because the participant begins to work under the lock. It
// returns an error if the witness has the ID of a living participant. It returns true if the last holder died while it
// worked. In that case, the counts may differ.
func (p *party) enter(w *witness) (died bool, err error) {
	was := arena.ParticipantID(w.name.Swap(uint32(p.self)))
	if was != 0 && p.a.Current(was) {
		return false, fmt.Errorf("not alone inside: with %v, this is %v", was, p.self)
	}
	if was == 0 && w.before != w.after {
		return false, fmt.Errorf("the counts are %d and %d", w.before, w.after)
	}
	return was != 0, nil
}

// leave increments both counts and removes the ID of this participant from the witness, because its work under the
// lock is done.
func (p *party) leave(w *witness, r *rand.Rand) error {
	w.before++
	for range r.IntN(100) {
	}
	w.after = w.before
	if was := arena.ParticipantID(w.name.Swap(0)); was != p.self {
		return fmt.Errorf("%v came inside meanwhile, beside %v", was, p.self)
	}
	return nil
}

// inside calls enter and then leave.
func (p *party) inside(w *witness, r *rand.Rand) error {
	if _, err := p.enter(w); err != nil {
		return err
	}
	return p.leave(w, r)
}

// linger makes a victim sleep in the middle of a change for a while, so that it often dies there.
func (p *party) linger(r *rand.Rand) {
	if !p.resident && r.IntN(4) == 0 {
		time.Sleep(time.Duration(r.IntN(2_000)) * time.Microsecond)
	}
}

// enterOne stores the ID of this participant in one of the places. It chooses a place that is free, or that has the ID
// of a dead participant. It returns an error if it finds no such place in many tries.
func (p *party) enterOne(places []atomic.Uint32) (*atomic.Uint32, error) {
	for range 10_000 {
		for i := range places {
			w := &places[i]
			if was := arena.ParticipantID(w.Load()); (was == 0 || !p.a.Current(was)) && w.CompareAndSwap(uint32(was), uint32(p.self)) {
				return w, nil
			}
		}
		runtime.Gosched()
	}
	return nil, errors.New("more are inside than there is room for")
}

// ends calls f with a context that ends soon, later, or never.
func ends(r *rand.Rand, f func(ctx context.Context) error) error {
	ctx, cancel := context.Background(), func() {}
	switch r.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(300))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(ctx)
		if d := r.IntN(4_000); d < 1_000 {
			t := time.AfterFunc(time.Duration(d)*time.Microsecond, cancel)
			defer t.Stop()
		}
	}
	defer cancel()
	return f(ctx)
}

// forgive returns nil for the error of a context that has ended, and other errors unchanged.
func forgive(err error) error {
	if gaveUp(err) {
		return nil
	}
	return err
}

func gaveUp(err error) bool { return err == context.DeadlineExceeded || err == context.Canceled }

// ownerDied reports whether err says that a holder has died, or that a repair after a death has failed.
func ownerDied(err error) bool {
	return errors.Is(err, shmsync.ErrOwnerDead) || errors.Is(err, shmsync.ErrNotRecoverable)
}

var errRepairFails = errors.New("the repair fails")

// leftOver returns nil if the parameter there is false, and otherwise an error that shows the parameter what. A job
// calls it after all operations have ended, to report, for example, an object that still has a waiter.
func leftOver(there bool, what any) error {
	if there {
		return fmt.Errorf("left over: %+v", what)
	}
	return nil
}
