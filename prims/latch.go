package prims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// Latch is a counter that goes down to 0 once. Goroutines of any number of processes wait until the counter is 0.
// The methods are those of C++'s std::latch, and Claim. A Latch does not know which processes have to count down.
// If a process dies before it has counted down, and has not called Claim, the waits go on. A wait without a context
// then never ends.
//
// A process that calls Claim says how much it will count down. If it dies before it has done so, all waits end with
// an error that Is ErrOwnerDead and names that process. Waits fail in this way until another process claims or
// counts down what is left, or until Reset forgets the claim. What a process counted down before it died stays
// counted.
//
// In the terminology of the Go memory model, and across processes: every CountDown
// synchronizes before the return of every Wait, and every TryWait that is true.
type Latch struct {
	counter *counter
	size    uint64
}

// LatchOptions says how a Latch is created. A nil *LatchOptions means the zero value.
type LatchOptions struct {
	// Spin bounds how long a waiter spins before it sleeps, if this call creates the object. If Spin is 0, waiters
	// learn the bound from earlier spins; if Spin is negative, they never spin.
	Spin time.Duration
}

var latchKind = arenakernel.KindOf("LTCH")

// OpenLatch finds the Latch of that name in the arena or creates it, with its counter at n. An empty name makes a
// new anonymous Latch. If an existing Latch was created with another number, the error Is ErrIncompatible. If n is
// below 1 or above 2^31-1, the error Is [fs.ErrInvalid]. A process that does not know the number calls AttachLatch.
func OpenLatch(a *arena.Arena, name string, n int64, opts *LatchOptions) (*Latch, error) {
	if err := needs("Latch", name, "a count", n); err != nil {
		return nil, err
	}
	if n > counterMax {
		return nil, &shmsync.Error{Op: "latch.open", Object: name, Err: fs.ErrInvalid, Detail: fmt.Sprintf("the highest count is %d, not %d", int64(counterMax), n)}
	}
	return openLatch((*arenakernel.Arena)(a), name, n, opts, false)
}

func openLatch(a *arenakernel.Arena, name string, n int64, opts *LatchOptions, attach bool) (*Latch, error) {
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: latchKind, Version: counterVersion, Name: name, Size: counterBytes(a),
		Init: func(body []byte) {
			w := counterBody(body)
			w.size.Store(uint64(n))
			w.commit.Store(uint64(counterOf(uint64(n), 0)))
			if opts != nil {
				w.spin.Store(spinField(opts.Spin))
			}
		},
	}, "latch.open", newLatch, func(l *Latch) string {
		if attach || uint64(n) == l.size {
			return ""
		}
		return fmt.Sprintf("it began with %d, asked for %d", l.size, n)
	})
}

// LatchAt opens the Latch at an offset that another process got from the method Offset.
func LatchAt(a *arena.Arena, off arena.Offset) (*Latch, error) {
	return handleAt(a, off, "latch.open", latchKind, counterVersion, counterBytes((*arenakernel.Arena)(a)), newLatch)
}

func newLatch(a *arenakernel.Arena, o arenakernel.Object) (*Latch, error) {
	t, err := newCounter(a, o, "latch.wait")
	if err != nil {
		return nil, err
	}
	return &Latch{t, t.words.size.Load()}, nil
}

// Claim says that this process will count down n. If the process dies before it has done so, waits fail. From now
// on, CountDown by this process reduces its own claim first.
//
// Claim first takes over what dead processes had claimed, and then claims from what no process has claimed. It
// panics if n is negative, or more than the part of the counter that no living process has claimed. If a process is
// just dying, Claim waits until the claim of that process can be taken over. So a parent that has waited for the
// end of its child can at once claim what the child had claimed.
//
// A Claim that takes over the claims of dead processes may take effect in several steps. If other processes count
// down between the steps, less than n may be left; then Claim panics. This process keeps what it has claimed so
// far. The field Own of State has that number.
func (l *Latch) Claim(n int64) {
	l.positive("Claim", n)
	if !l.counter.claim(uint64(n), false) {
		panic(fmt.Sprintf("shmsync: Claim of %d of latch %s: more than are left", n, objectName(l.counter.object)))
	}
}

// CountDown subtracts n from the counter, and ends all waits when the counter is 0. It does not block. If n is
// negative or more than the counter, it panics and changes nothing. If the Latch is damaged or the handle is
// closed, it panics with an error that Is ErrCorrupt or ErrClosed.
func (l *Latch) CountDown(n int64) {
	if err := l.countDown(n); err != nil {
		panic(err)
	}
}

func (l *Latch) countDown(n int64) error {
	l.positive("CountDown", n)
	if n > 0 && l.counter.countAtOnce(uint64(n)) {
		return nil
	}
	ok, err := l.counter.tryFinish(uint64(n))
	if errors.Is(err, shmsync.ErrClosed) {
		return l.notCounted()
	}
	if err == nil && !ok {
		panic(fmt.Sprintf("shmsync: CountDown of %d of latch %s: more than are left", n, objectName(l.counter.object)))
	}
	return err
}

// notCounted returns the error of a call that has not counted down because the handle is closed.
func (l *Latch) notCounted() error {
	return l.counter.fail("latch.count_down", shmsync.ErrClosed, nil, closedHandle)
}

func (l *Latch) positive(verb string, n int64) {
	if n < 0 {
		panic(fmt.Sprintf("shmsync: %s of %d of latch %s", verb, n, objectName(l.counter.object)))
	}
}

// TryWait reports whether the counter is 0.
func (l *Latch) TryWait() bool {
	l.counter.opening.use()
	return l.counter.zero()
}

// Wait waits until the counter is 0. Where WaitContext returns an error, Wait panics with that error, which is an
// *[shmsync.Error].
func (l *Latch) Wait() {
	if l.counter.left.Load()>>32 != 0 || race.Enabled {
		l.counter.waitOrPanic()
	}
}

// WaitContext is like Wait, but ends early with ctx.Err() when ctx ends, or with an error that Is ErrOwnerDead,
// ErrCorrupt or ErrClosed. If the counter is 0, WaitContext returns nil even if one of these errors applies.
func (l *Latch) WaitContext(ctx context.Context) error {
	if l.counter.left.Load()>>32 == 0 && !race.Enabled {
		return nil
	}
	return l.counter.wait(ctx)
}

// ArriveAndWait calls CountDown and then Wait.
func (l *Latch) ArriveAndWait(n int64) {
	if err := l.ArriveAndWaitContext(nil, n); err != nil {
		panic(err)
	}
}

// ArriveAndWaitContext calls CountDown and then WaitContext. If it returns an error, the call has counted down
// nevertheless, with two exceptions. If the Op of the *[shmsync.Error] is "latch.count_down", the handle was closed
// already, and the call has not counted down. After an error that Is ErrCorrupt, the call may or may not have
// counted down.
func (l *Latch) ArriveAndWaitContext(ctx context.Context, n int64) error {
	// As soon as the counter is 0, another waiter may close the handle. Then Close waits for this call.
	t := l.counter
	if t.enter() != nil {
		return l.notCounted()
	}
	defer t.leave()
	if err := l.countDown(n); err != nil {
		return err
	}
	return t.waitEntered(ctx)
}

// Reset forgets what dead processes had claimed and not counted down. It reports whether there was anything to
// forget. It does not start the counter of the Latch again, because a Latch is used once.
func (l *Latch) Reset() bool { return l.counter.reset() }

// Offset is the place of the Latch in its arena, for LatchAt in another process.
func (l *Latch) Offset() arena.Offset { return l.counter.object.Offset }

// Close closes this handle on the Latch, and no other handle. Calls that wait through this handle
// end with an error that Is ErrClosed. What this process has claimed stays claimed. A second Close
// returns an error that Is ErrClosed.
func (l *Latch) Close() error {
	t := l.counter
	return t.opening.close("latch.close")
}

// LatchState is the result of State.
type LatchState struct {
	Size    int64             // the number at which the counter began
	Count   int64             // the counter
	Own     int64             // what this process has claimed and not counted down
	Waiting bool              // there are waiters
	Err     error             // why waits fail: nil or ErrOwnerDead
	Who     *shmsync.Identity // the process that died; nil if its name is not known any more
}

// State reads l without locking it. The answer may be out of date when it returns.
func (l *Latch) State() LatchState {
	l.counter.opening.use()
	t := l.counter
	v := t.view()
	who, err := t.trouble(v)
	return LatchState{Size: int64(l.size), Count: int64(v.count), Own: int64(v.own), Waiting: t.waiting(v), Err: err, Who: who}
}

// String renders the state on one line.
func (l *Latch) String() string {
	st := l.State()
	s := fmt.Sprintf("latch %s: %d of %d, %d claimed by this process, waiting %v", objectName(l.counter.object), st.Count, st.Size, st.Own, st.Waiting)
	if st.Err != nil {
		s += ", " + st.Err.Error()
	}
	return s
}
