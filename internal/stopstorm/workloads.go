//go:build linux

package stopstorm

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// giveUp is how long an operation with a limit waits.
const giveUp = time.Millisecond

// lane is a goroutine of a worker that repeats one operation.
type lane struct {
	name string
	// needs is set if the operation may have to wait for something that another worker visibly
	// holds. A lane without needs has no excuse: its operation gives up, or enough other
	// processes can end it.
	needs bool
	op    func(l *lanePage, r *rand.Rand) error
}

// prim is the workload of one primitive.
type prim struct {
	name string
	// known is why stops of this primitive may freeze other processes today; empty if the
	// tests require that they do not.
	known string
	open  func(w *worker) ([]lane, error)
}

// queueLocked is the reason why stops of most primitives may freeze others.
const queueLocked = "each call takes the queue lock of the object; see docs/design/0005-monitor.md"

// bucketLocked is the reason for a MultiLock.
const bucketLocked = "a call that meets another one takes the queue lock of the bucket of its key"

// arenaLocked is the reason for the calls that open objects and allocate memory.
const arenaLocked = "not a primitive: which locks of the arena these calls take is not examined yet"

var workloads = append([]prim{
	{"mutex", "", openMutex},
	{"fairmutex", queueLocked, openFairMutex},
	{"cohortmutex", "", openCohortMutex},
	{"spinlock", "", openSpinLock},
	{"rwmutex", "", openRWMutex},
	{"rwspinlock", "", openRWSpinLock},
	{"multilock", bucketLocked, openMultiLock},
	{"semaphore", "", openSemaphore},
	{"sequencer", "", openSequencer},
	{"event", "", openEvent},
	{"event-auto", "", openAutoEvent},
	{"futex", "", openFutex},
	{"future", "", openFuture},
	{"waitany", "", openWaitAny},
	{"cond", queueLocked, openCond},
	{"queue", "", openQueue},
	{"waitgroup", "", openWaitGroup},
	{"latch", "", openLatch},
	{"barrier", "", openBarrier},
	{"once", "", openOnce},
	{"signal", "", openSignal},
	{"waitable", queueLocked, openWaitable},
	{"synchronized", "", openSynchronized},
	{"objects", arenaLocked, openObjects},
}, madeUp...)

// sound is the number of workloads of the library. The workloads after them are for tests.
var sound = len(workloads) - len(madeUp)

// madeUp are workloads for which a test knows the result.
var madeUp = []prim{
	{"test:frozen", "", openFrozen},
	{"test:held", "", openHeld},
	{"test:refused", "", openRefused},
}

// openRefused fails in each worker, but not in the parent.
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
		time.Sleep(3 * time.Millisecond) // others get their turn
		return nil
	})}, nil
}

// openHeld holds a Mutex nearly all the time.
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

// Names lists the primitives.
func Names() string {
	var names []string
	for _, p := range workloads[:sound] {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

// Known returns the reason why stops of a primitive may freeze other processes today.
func Known(name string) string {
	for _, p := range workloads {
		if p.name == name {
			return p.known
		}
	}
	return ""
}

// limited runs f with a context that ends soon. The end of the context is no error.
func limited(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// plain makes a lane of an operation that holds nothing when it returns.
func plain(name string, needs bool, f func(r *rand.Rand) error) lane {
	return lane{name, needs, func(_ *lanePage, r *rand.Rand) error { return f(r) }}
}

// within makes a lane of an operation that gives up.
func within(name string, f func(ctx context.Context) error) lane {
	return plain(name, false, func(*rand.Rand) error { return limited(f) })
}

// excuses reports whether a hold of a stopped process excuses a lane that needs what is held.
func excuses(h arenakernel.Hold) bool { return h.Mode != arenakernel.HoldQueueLock }
