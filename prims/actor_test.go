//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// actor is an actor that uses Mutexes, Futexes and RWMutexes.
type actor struct{ conversation[order] }

// order is an order for an actor.
type order struct {
	ID     int
	Op     string
	Object string
	N      int
	Token  uint64
	Policy prims.Policy
	Limit  time.Duration // limit of a context with a deadline
	Done   bool          // the context has ended before the order begins
}

func (o order) number() int { return o.ID }
func (o order) op() string  { return o.Op }

func (o order) numbered(n int) order {
	o.ID = n
	return o
}

// answer is the result of an order.
type answer struct {
	ID    int
	Err   string
	Is    []string // names of the errors that errors.Is finds in the error of the order; see fill
	Who   *shmsync.Identity
	Panic string // the value of a panic of the order, as text
	OK    bool
	N     uint64
	Text  string
	Took  time.Duration
	Sum   time.Duration // how long the order waited in all, if it makes several waits
}

func (a answer) String() string {
	return fmt.Sprintf("{err %q %v, panic %q, ok %v, n %d, %q, %v}", a.Err, a.Is, a.Panic, a.OK, a.N, a.Text, a.Took)
}

// stage is the stage of an actor: the objects that the actor uses.
type stage struct {
	a *arena.Arena
	contexts

	mu      sync.Mutex
	mutexes map[string]actorMutex
	futexes map[string]*prims.Futex
	repairs int // how many repairs have run
}

func newStage(a *arena.Arena) *stage {
	return &stage{a: a, mutexes: map[string]actorMutex{}, futexes: map[string]*prims.Futex{}}
}

func init() {
	registerActor("actor", func(a *arena.Arena) stageOf[order] { return newStage(a) })
}

// localActor returns an actor in this process.
func localActor(a *arena.Arena) *actor { return &actor{withLocal[order](a, newStage(a))} }

// remoteActor returns an actor in a process of its own.
func remoteActor(t testing.TB, a *arena.Arena, label string, opts ...proctest.Option) *actor {
	t.Helper()
	return actorOf(t, a, "actor", label, append(opts, asCohortHere())...)
}

// actorOf returns an actor in a helper process of the registered name process.
func actorOf(t testing.TB, a *arena.Arena, process, label string, opts ...proctest.Option) *actor {
	t.Helper()
	return &actor{withRemote[order](t, a, process, label, opts...)}
}

// op does an order that has no arguments.
func (x *actor) op(t testing.TB, op, object string) answer {
	t.Helper()
	return x.do(t, order{Op: op, Object: object})
}

// blocked starts an order, waits until one more waiter waits for the object, and returns the ID of the order.
func (x *actor) blocked(t testing.TB, o order) int {
	t.Helper()
	count := order{Op: "waiters", Object: o.Object, Policy: o.Policy}
	if o.Op[0] == 'f' {
		count.Op = "fwaiters"
	}
	if strings.HasPrefix(o.Op, "rw") {
		count.Op = "rwwaiters"
	}
	waiters := func() int { return int(x.must(t, count).N) }
	n := mostWaits(waiters)
	id := x.start(o)
	eventually(t, fmt.Sprintf("%s of %s waits", o.Op, o.Object), x.dump, func() bool { return waiters() > n })
	return id
}

// sentinels has the errors that tests look for in an answer. Its keys are their names in answer.Is.
var sentinels = map[string]error{
	"owner-dead": shmsync.ErrOwnerDead, "not-recoverable": shmsync.ErrNotRecoverable, "corrupt": shmsync.ErrCorrupt,
	"incompatible": shmsync.ErrIncompatible, "canceled": shmsync.ErrCanceled, "closed": shmsync.ErrClosed,
}

func (a *answer) fill(err error) {
	if err == nil {
		return
	}
	a.Err = err.Error()
	for name, s := range sentinels {
		if errors.Is(err, s) {
			a.Is = append(a.Is, name)
		}
	}
	// After the end of a context, the error must be the context's own error, not an error that
	// wraps it.
	switch err {
	case context.Canceled:
		a.Is = append(a.Is, "ctx-canceled")
	case context.DeadlineExceeded:
		a.Is = append(a.Is, "ctx-deadline")
	}
	var e *shmsync.Error
	if errors.As(err, &e) {
		a.Who = e.Who
	}
}

var errRepair = errors.New("the repair gives up")

func (s *stage) perform(o order, a *answer) error {
	ctx := s.contextOf(o)
	switch o.Op {
	case "cancel":
		s.contexts.end(o.N)
		return nil
	case "pid":
		a.N = uint64(os.Getpid())
		return nil
	case "close-arena":
		return s.a.Close()
	case "pin": // binds all threads to CPU N
		return pin(o.N)
	case "steps": // increments a number N times under the lock
		m, err := s.mutex(o)
		if err != nil {
			return err
		}
		v, err := arena.Value[int64](s.a, "counter")
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for range int(o.Token) {
			wg.Go(func() {
				for range o.N {
					m.Lock()
					*v++
					m.Unlock()
				}
			})
		}
		wg.Wait()
		return nil
	}
	if o.Op[0] == 'f' {
		return s.performFutex(ctx, o, a)
	}
	if strings.HasPrefix(o.Op, "rw") {
		return s.performRWMutex(ctx, o, a)
	}
	m, err := s.mutex(o)
	if err != nil {
		return err
	}
	switch o.Op {
	case "open":
	case "reopen":
		m2, err := openActorMutex(s.a, o.Object, &prims.MutexOptions{Policy: o.Policy})
		a.OK = m == m2
		return err
	case "lock":
		m.Lock()
	case "lockctx":
		return m.LockContext(ctx)
	case "trylock":
		a.OK = m.TryLock()
	case "unlock":
		m.Unlock()
	case "recover": // the repair succeeds if N is 0, fails if 1, panics if 2, and fails after the end of ctx if 3
		return m.RecoverContext(ctx, func() error {
			s.mu.Lock()
			s.repairs++
			s.mu.Unlock()
			a.OK = true // the repair has run
			switch o.N {
			case 1:
				return errRepair
			case 2:
				panic("the repair panics")
			case 3:
				<-ctx.Done()
				return errRepair
			}
			return nil
		})
	case "waiters":
		a.N = uint64(m.Waiters())
	case "state":
		st := m.State()
		a.Text = st.Word
		a.OK = st.Held
		a.Who = st.Owner
		return st.Err
	case "string":
		a.Text = m.String()
	case "close":
		return m.Close()
	case "barge": // locks and unlocks N times
		holds, err := arena.Value[atomic.Uint64](s.a, "holds of the barger")
		if err != nil {
			return err
		}
		for range o.N {
			m.Lock()
			holds.Add(1)
			for end := time.Now().Add(200 * time.Microsecond); time.Now().Before(end); {
			}
			m.Unlock()
		}
	case "once":
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		m.Unlock()
	case "overtake": // locks N times; a.N is how often an order "barge" got the lock during these N waits
		holds, err := arena.Value[atomic.Uint64](s.a, "holds of the barger")
		if err != nil {
			return err
		}
		for range o.N {
			for m.OwnerWord() == 0 || m.HeldByUs() {
				runtime.Gosched()
			}
			start, before := time.Now(), holds.Load()
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			a.N += holds.Load() - before
			a.Sum += time.Since(start)
			m.Unlock()
		}
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

// pin binds all threads of this process, and the threads that it starts later, to one CPU.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if e := unix.SchedSetaffinity(tid, &set); e != nil && e != unix.ESRCH {
			err = e
		}
	}
	return err
}

func (s *stage) performFutex(ctx context.Context, o order, a *answer) error {
	f, err := s.futex(o)
	if err != nil {
		return err
	}
	switch o.Op {
	case "fopen":
	case "fget":
		a.N = f.Get()
	case "fwait":
		return f.Wait(o.Token)
	case "fnext": // waits for the next post
		return f.Wait(f.Get() + 1)
	case "fwaitctx":
		return f.WaitContext(ctx, o.Token)
	case "fwalk": // waits for every token up to Token, one after another
		for token := uint64(1); token <= o.Token; token++ {
			if err := f.Wait(token); err != nil {
				return err
			}
		}
	case "fpost":
		for range max(o.N, 1) {
			f.Post()
		}
	case "fstop":
		f.Stop()
	case "fstopped":
		a.OK = f.Stopped()
	case "fwaiters":
		a.N = uint64(f.Waiters())
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

func (s *stage) contextOf(o order) context.Context { return s.contexts.begin(o.ID, o.Limit, o.Done) }

func (s *stage) mutex(o order) (actorMutex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mutexes[o.Object]; m != nil {
		return m, nil
	}
	m, err := openActorMutex(s.a, o.Object, &prims.MutexOptions{Policy: o.Policy, Contention: prims.Contention{NearWakes: nearNode()}})
	if err == nil {
		s.mutexes[o.Object] = m
	}
	return m, err
}

func (s *stage) futex(o order) (*prims.Futex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.futexes[o.Object]; f != nil {
		return f, nil
	}
	f, err := prims.OpenFutex(s.a, o.Object, nil)
	if err == nil {
		s.futexes[o.Object] = f
	}
	return f, err
}

// everywhere runs a test three times: with both actors in this process, with one of them in another
// process, and with each of them in a process of its own.
func everywhere(t *testing.T, test func(t *testing.T, holder, other *actor, a *arena.Arena), opts ...proctest.Option) {
	t.Run("one process", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, localActor(a), localActor(a), a)
	})
	t.Run("holder elsewhere", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, remoteActor(t, a, "holder", opts...), localActor(a), a)
	})
	t.Run("both elsewhere", func(t *testing.T) {
		a := newArena(t, nil)
		test(t, remoteActor(t, a, "holder", opts...), remoteActor(t, a, "other", opts...), a)
	})
}
