//go:build linux

package stopstorm

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/shmsync/shmsync/prims"
)

// giveUp is the time limit of those operations that give up instead of waiting as long as necessary.
const giveUp = time.Millisecond

// lane is a goroutine of a worker, which repeats one operation.
type lane struct {
	name string
	// needs is true if the operation may have to wait for something that another worker visibly holds. If that worker
	// is stopped, this lane has an excuse for a delay. needs is false if the operation gives up, or if enough other
	// processes can end its wait.
	needs bool
	op    func(l *lanePage, r *rand.Rand) error
}

// prim is the test of one primitive: it opens objects and gives the operations that workers repeat with them.
type prim struct {
	name string
	open func(w *worker) ([]lane, error)
}

var workloads = append([]prim{
	{"mutex", openMutex},
	{"fairmutex", openFairMutex},
	{"cohortmutex", openCohortMutex},
	{"spinlock", openSpinLock},
	{"rwmutex", openRWMutex},
	{"rwspinlock", openRWSpinLock},
	{"multilock", openMultiLock},
	{"semaphore", openSemaphore},
	{"sequencer", openSequencer},
	{"event", openEvent},
	{"event-auto", openAutoEvent},
	{"futex", openFutex},
	{"future", openFuture},
	{"waitany", openWaitAny},
	{"cond", openCond},
	{"queue", openQueue},
	{"waitgroup", openWaitGroup},
	{"latch", openLatch},
	{"barrier", openBarrier},
	{"once", openOnce},
	{"signal", openSignal},
	{"waitable", openWaitable},
	{"synchronized", openSynchronized},
	{"objects", openObjects},
}, madeUp...)

// sound is the number of workloads that test the library. The later workloads in the list are made up: they test
// this package.
var sound = len(workloads) - len(madeUp)

// madeUp are workloads that test this package, because the result of each is known.
var madeUp = []prim{
	{"test:frozen", openFrozen},
	{"test:held", openHeld},
	{"test:refused", openRefused},
}

// openRefused returns an error in each worker, but not in the parent.
func openRefused(w *worker) ([]lane, error) {
	if w.page.magic == pageMagic {
		return nil, errors.New("the objects of this workload cannot be opened")
	}
	return nil, nil
}

// openFrozen takes a lock that the arena does not show.
func openFrozen(w *worker) ([]lane, error) {
	return []lane{plain("secret", true, func(r *rand.Rand) error {
		for !w.page.secret.CompareAndSwap(0, 1) {
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(3 * time.Millisecond)
		w.page.secret.Store(0)
		time.Sleep(3 * time.Millisecond) // the other workers take the lock meanwhile
		return nil
	})}, nil
}

// openHeld opens a Mutex that lanes hold nearly all the time. A lane is a goroutine that repeats one operation.
func openHeld(w *worker) ([]lane, error) {
	x, err := prims.OpenMutex(w.a, "held", nil)
	return []lane{{"lock", true, func(at *lanePage, r *rand.Rand) error {
		at.at.Store(atAcquiring)
		x.Lock()
		at.at.Store(atHolding)
		time.Sleep(time.Millisecond)
		at.at.Store(atReleasing)
		x.Unlock()
		return nil
	}}}, err
}

// Names returns the names of the primitives, for a help text.
func Names() string {
	var names []string
	for _, p := range workloads[:sound] {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

// limited calls f with a context that ends after the time giveUp. If f returns the error of that context, limited
// returns nil.
func limited(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// plain returns a lane, that is, a goroutine that repeats the operation f. The operation holds nothing when it returns.
func plain(name string, needs bool, f func(r *rand.Rand) error) lane {
	return lane{name, needs, func(_ *lanePage, r *rand.Rand) error { return f(r) }}
}

// within returns a lane, that is, a goroutine that repeats the operation f. Each operation gives up after the time
// giveUp.
func within(name string, f func(ctx context.Context) error) lane {
	return plain(name, false, func(*rand.Rand) error { return limited(f) })
}
