package prims

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("cond.wait.queued")
	_ = crashpoint.Register("cond.wait.unlocked")
	_ = crashpoint.Register("cond.wait.woken")
	_ = crashpoint.Register("cond.wait.relocked")
)

// Cond is a condition variable between processes: goroutines wait for a condition that a lock guards, and the
// goroutine that makes the condition true wakes one of them or all.
//
//	l.Lock()
//	for !condition() {
//		c.Wait()
//	}
//	... // the condition holds, and l is held
//	l.Unlock()
//
// The lock is any sync.Locker: a Mutex, a FairMutex, the RLocker of an RWMutex, or even a sync.Mutex, if only
// goroutines of one process use the data that the lock guards. A Cond does not know which lock other processes use.
//
// A wait ends by a Signal, a Broadcast, or the end of its context, and by nothing else: there are
// no spurious wakeups. Test the condition in a loop all the same, since others may get the lock
// before the goroutine that was woken.
//
// Only a Wait that returns without an error uses up a Signal. If a woken process dies before its Wait returns, the
// Signal passes to the next goroutine that was waiting when Signal was called. The same happens if the Wait cannot
// get the lock because the owner of the lock died. If a process dies while it holds the lock, the lock reports the
// death.
//
// In the terminology of the Go memory model, and across processes: a call of Signal
// or Broadcast synchronizes before the return of each Wait that it ends.
type Cond struct {
	// L is the lock. Hold it while you test or change the condition. L must not be changed after
	// the first use.
	L sync.Locker

	core *condCore
}

// CondOptions says how a Cond is created. A nil *CondOptions means the zero value.
type CondOptions struct {
	// Batch bounds how many of the waiters that a Broadcast wakes compete for the lock at a time, if this call
	// creates the Cond. A waiter that has locked the lock wakes the next waiter. 0 means 16. A negative number
	// means that all waiters compete at once, which suits locks that many goroutines can hold together.
	Batch int
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var condKind = arenakernel.KindOf("COND")

const (
	condVersion = 2
	condAll     = math.MaxUint32 // the stored batch of a Cond whose Broadcast wakes all waiters at once
)

// condBatch is the default for CondOptions.Batch.
const condBatch = 16

// OpenCond finds the Cond of that name in the arena or creates it, for use with l in this process. An empty name
// makes a new anonymous Cond. OpenCond panics if l is nil. A Cond takes 128 bytes. A slot is the place of one process
// in the arena. For each slot, a Cond takes 192 bytes more as soon as a process in this slot has opened it. If the
// arena has not enough room for these bytes, the error Is [shmsync.ErrNoSpace].
func OpenCond(a *arena.Arena, name string, l sync.Locker, opts *CondOptions) (*Cond, error) {
	return openCond((*arenakernel.Arena)(a), name, l, opts, false)
}

func openCond(a *arenakernel.Arena, name string, l sync.Locker, opts *CondOptions, attach bool) (*Cond, error) {
	if l == nil {
		panic(fmt.Sprintf("shmsync: OpenCond %q without a lock", name))
	}
	var opt CondOptions
	if opts != nil {
		opt = *opts
	}
	k, err := openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: condKind, Version: condVersion, Name: name, Size: condBytes(a),
		Init: func(body []byte) {
			w := condBody(body)
			w.batch.Store(batchField(opt.Batch))
			w.spin.Store(spinField(opt.Spin))
		},
	}, "cond.open", newCond, func(k *condCore) string {
		has := k.words.batch.Load()
		if opt.Batch == 0 || has == batchField(opt.Batch) {
			return ""
		}
		return fmt.Sprintf("its batch is %d, asked for %d", batchOf(has), opt.Batch)
	})
	if err != nil {
		return nil, err
	}
	return &Cond{L: l, core: k}, nil
}

// CondAt opens the Cond at an offset that another process got from the method Offset, for use
// with l in this process.
func CondAt(a *arena.Arena, off arena.Offset, l sync.Locker) (*Cond, error) {
	if l == nil {
		panic(fmt.Sprintf("shmsync: CondAt %v without a lock", off))
	}
	k, err := handleAt(a, off, "cond.open", condKind, condVersion, condBytes((*arenakernel.Arena)(a)), newCond)
	if err != nil {
		return nil, err
	}
	return &Cond{L: l, core: k}, nil
}

func newCond(a *arenakernel.Arena, o arenakernel.Object) (*condCore, error) {
	return buildCond(a, o, false)
}

func batchField(n int) uint64 {
	if n < 0 {
		return condAll
	}
	return min(uint64(n), condAll)
}

func batchOf(field uint64) int {
	if field >= condAll {
		return -1
	}
	return int(field)
}

// Wait unlocks c.L, waits until Signal or Broadcast wakes it, and locks c.L again. If Wait cannot lock c.L again,
// for example because the owner of the lock died, it panics with an *[shmsync.Error], and c.L is not held; see
// WaitContext. Wait also panics within an Update of c.L.
func (c *Cond) Wait() {
	if err := c.wait(nil); err != nil {
		panic(err)
	}
}

// WaitContext does what Wait does, but returns ctx.Err() if ctx ends first. A Signal or a Broadcast that came
// before the end of ctx takes precedence.
//
// If WaitContext returns nil, c.L is held again, and a Signal or Broadcast was used. If WaitContext cannot lock c.L
// again, it returns the error of the lock, such as ErrOwnerDead, and c.L is not held. After any other error, c.L is
// held. Such an error is ctx.Err(), or an *[shmsync.Error] whose Op is "cond.wait" and that Is ErrNoSpace, ErrCorrupt
// or ErrClosed. An error of the lock has another Op.
//
// A WaitContext that returns an error has used up no Signal. If ctx has already ended at the call,
// c.L is not unlocked at all.
func (c *Cond) WaitContext(ctx context.Context) error { return c.wait(ctx) }

func (c *Cond) wait(ctx context.Context) error {
	if ctx != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	c.mustNotTearUpdate()
	k := c.core
	// A concurrent Close waits until c.sleep has returned. It does not wait until this call has locked L again. After
	// keepIfOpen, the Close leaves the memory of the Cond in place until this call has returned.
	if !k.opening.keepIfOpen() {
		return k.closed()
	}
	defer k.opening.letGoLate(k.queue)
	s, unlocked, err := c.sleep(ctx)
	if !unlocked {
		return k.waitFailed(err)
	}
	crashpoint.Hit("cond.wait.woken")
	if lockErr := c.relock(s); lockErr != nil {
		return lockErr
	}
	crashpoint.Hit("cond.wait.relocked")
	if s != nil {
		err = k.landed(s)
	}
	return k.waitFailed(err)
}

// waitFailed returns the error of a wait with the Op "cond.wait". An error of c.L has another Op. waitFailed returns
// nil and the error of a context unchanged.
func (k *condCore) waitFailed(err error) error {
	if err == nil {
		return nil // early: the declaration of the variable known allocates
	}
	var known *shmsync.Error
	if !errors.As(err, &known) || known.Op == "cond.wait" {
		return err
	}
	said := *known
	said.Op, said.Object = "cond.wait", objectName(k.object)
	return &said
}

// closed returns the error of a wait that ended because the handle of the Cond was closed.
func (k *condCore) closed() error {
	return failed(k.a, k.object, "cond.wait", shmsync.ErrClosed, nil, closedHandle)
}

// mustNotTearUpdate panics if an Update holds L. Unlocking L would let other goroutines see and
// change data that the Update has not finished.
func (c *Cond) mustNotTearUpdate() {
	switch l := c.L.(type) {
	case *Mutex:
		if l.tx != nil && l.tx.open {
			panic("shmsync: Cond.Wait in an Update of " + l.named("mutex ") + ", which would unlock it")
		}
	case *RWMutex:
		if l.tx != nil && l.tx.open {
			panic("shmsync: Cond.Wait in an Update of rwmutex " + objectName(l.object) + ", which would unlock it")
		}
	}
}

// sleep unlocks L and waits for a wake. If a Signal or a Broadcast has woken the wait, sleep returns the wait node,
// which the caller passes to passOn or landed. Otherwise s is nil. Close waits until sleep has returned.
func (c *Cond) sleep(ctx context.Context) (s *park.WaitNode, unlocked bool, err error) {
	k := c.core
	if !k.queue.Enter() {
		return nil, false, k.closed()
	}
	defer k.queue.Exit()
	if s, err = k.enqueue(); err != nil {
		return nil, false, err
	}
	crashpoint.Hit("cond.wait.queued")
	c.unlock(s)
	crashpoint.Hit("cond.wait.unlocked")
	switch covered, err := k.sleepIn(ctx, s); {
	case covered:
		return nil, true, nil // a Broadcast came before the end of the context
	case err != nil:
		return nil, true, err
	}
	return s, true, nil
}

// unlock unlocks L. If the Unlock of L panics, unlock removes the wait from the queue of the Cond.
func (c *Cond) unlock(s *park.WaitNode) {
	done := false
	defer func() {
		if !done {
			c.core.takeBack(s)
		}
	}()
	switch c.L.(type) {
	case *Mutex, *RWMutex, *rlocker, *FairMutex, *CohortMutex, *SpinLock, *RWSpinLock, *rwSpinReader, *sync.Mutex, *sync.RWMutex:
		c.L.Unlock() // runs no function of the program
	default:
		c.unlockOther()
	}
	done = true
}

// unlockOther unlocks L, whose Unlock is a function of the program. It records that this goroutine runs the function.
// If the function calls Close, Close then panics. Otherwise Close would wait for ever until the function has returned.
func (c *Cond) unlockOther() {
	k := c.core
	if k.unlocking.tryBegin() {
		defer k.unlocking.end()
	} else {
		running := &runningFunc{what: "the Unlock of the lock of " + k.opening.title(nil), a: k.a, handle: k.opening}
		running.begin()
		defer running.end()
	}
	c.L.Unlock()
}

// contextLocker is a lock whose LockContext can fail with an error.
type contextLocker interface {
	LockContext(ctx context.Context) error
}

// relock locks L again. s is the wait node if a Signal or a Broadcast has woken the wait, and nil otherwise. If
// relock cannot lock L, a Signal that has woken the wait passes on to the next waiter.
func (c *Cond) relock(s *park.WaitNode) (err error) {
	done := false
	defer func() {
		if !done && s != nil {
			c.core.passOn(s)
		}
	}()
	if l, ok := c.L.(contextLocker); ok {
		err = l.LockContext(context.Background()) // a panic continues: it is not an error of the lock
	} else {
		err = lockOrError(c.L)
	}
	done = err == nil
	return err
}

// lockOrError locks l, which has no LockContext. If its Lock panics with an *Error, lockOrError returns that error. Any
// other panic continues.
func lockOrError(l sync.Locker) (err error) {
	defer func() {
		r := recover()
		var known *shmsync.Error
		switch e, ok := r.(error); {
		case ok && errors.As(e, &known):
			err = e
		case r != nil:
			panic(r)
		}
	}()
	l.Lock()
	return nil
}

// Signal wakes the goroutine that has waited longest, if any waits. The caller need not hold c.L. If a
// peer has overwritten the Cond, Signal panics with an error that Is ErrCorrupt, as Broadcast does.
func (c *Cond) Signal() {
	c.wake((*condCore).signal)
}

// Broadcast wakes all goroutines that wait now, and none that come later. The caller need not hold c.L. The
// goroutines wake a few at a time, so that they do not all compete for the lock: a goroutine that has locked c.L
// again wakes the next one.
func (c *Cond) Broadcast() {
	c.wake((*condCore).broadcast)
}

func (c *Cond) wake(how func(*condCore) error) {
	k := c.core
	defer k.opening.serve(k.queue).end()
	race.ReleaseMerge(k.key)
	if err := how(k); err != nil {
		panic(err)
	}
}

// Offset returns the place of the Cond in its arena, for CondAt in another process.
func (c *Cond) Offset() arena.Offset { return c.core.object.Offset }

// Close closes this handle on the Cond, and no other. Waits through this handle lock c.L again and then return an
// error that Is ErrClosed. Close does not wait until they have locked c.L. A second Close returns an error that Is
// ErrClosed.
func (c *Cond) Close() error {
	return c.core.opening.close("cond.close")
}

// CondState is the result of State.
type CondState struct {
	Waiting int // goroutines that wait and that no call has woken
	Woken   int // goroutines that were woken and do not have the lock yet, or that a Broadcast will wake
}

// State reads c without locking it. The result may be out of date when State returns.
func (c *Cond) State() CondState {
	c.core.opening.use()
	return c.core.state()
}

// String renders the state on one line.
func (c *Cond) String() string {
	st := c.State()
	return fmt.Sprintf("cond %s: %d waiting, %d woken", objectName(c.core.object), st.Waiting, st.Woken)
}
