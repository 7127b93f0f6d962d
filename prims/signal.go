package prims

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

// SignalWaker schedules up to 4096 queues between processes. A producer announces that a queue has something in it.
// A worker finds such a queue and serves it, while no other worker serves the same queue. A worker sleeps while no
// queue is announced. The contents of the queues belong to the user.
//
//	// producer                        // worker
//	queue.push(item)                   for {
//	w.Gate(q).Schedule()                   g, ok := w.Next(near)
//	                                       if !ok {
//	                                           w.Acquire()
//	                                           continue
//	                                       }
//	                                       queues[g.Queue()].drain()
//	                                       g.Finish()
//	                                   }
//
// Each queue has a [Gate] that is idle, scheduled, or executed by one worker. The gates alone say which queues
// have to be served. An index of two levels helps to find them. A [Signal] has a bit for each of 64 queues, and
// the summary has a bit for each signal that may have a set bit. When a summary bit goes from 0 to 1, a permit
// is issued, and sleeping workers wait for permits. The index may have a bit too many, which costs one check.
// It lacks a bit only while a process is in the middle of an operation.
//
// In the terminology of the Go memory model, and across processes: a Schedule that changes the gate synchronizes
// before the return of the Begin, Next or TryBeginInline that takes the queue next. Schedule changes the gate if it
// returns true, or if it finds the queue executing and marks it as scheduled again. Each Finish synchronizes in the
// same way. A Schedule that finds the queue already scheduled changes nothing and does not synchronize.
//
// No worker misses an item because of such a Schedule, if the producer publishes the item by an atomic store and the
// worker looks for it by an atomic load. Schedule executes a fence after the store of the item, and then loads the
// gate. If the queue is still scheduled, no worker has changed the gate yet. So the store of the item came before the
// worker's change of the gate, and thus before the worker's load of the queue.
//
// When a process dies, the queues that it executed are scheduled again, and every announcement that it had begun is
// completed. The permits that it had taken, or had not issued yet, are issued. Its registrations as worker and
// sleeper are removed; see docs/design/0009. A stopped process keeps the queues that it executes, but blocks no other
// queue. If it was stopped in the middle of an announcement, other processes complete the announcement. For this,
// every process that waits for permits, or calls Next, examines the next 256 gates ten times a second. So such a
// queue waits at most 0.1 seconds longer for every 256 queues that the waker has.
type SignalWaker struct {
	signalView
	name     arenakernel.ParticipantID
	wakeWord park.WakeWord
	key      race.Key
	counting bool
	cursor   atomic.Uint32 // index of the next group of gates for sweep to examine
	swept    atomic.Bool   // Next has made a sweep less than 0.1 seconds ago
	timer    *time.Timer   // clears swept 0.1 seconds after a sweep
}

// SignalWakerOptions says how a SignalWaker is created. A nil *SignalWakerOptions means the
// zero value. If Signals is set and an existing object has another number, opening fails.
type SignalWakerOptions struct {
	// Signals is the number of signals, 1 to 64. Each signal has 64 queues. 0 means 64 for a new object, and any
	// number for an existing one. A queue takes 128 bytes.
	Signals int
	// Count makes a new object count its operations, for all processes; see Stats. Counting costs some nanoseconds
	// for each operation.
	Count bool
	// Spin bounds how long a waiter of a new object spins before it sleeps. If it is 0,
	// waiters learn the bound from earlier spins; if it is negative, they never spin.
	Spin time.Duration
}

var signalKind = arenakernel.KindOf("SIGW")

const signalVersion = 1

// OpenSignalWaker finds the SignalWaker of that name in the arena or creates it,
// with all queues idle. An empty name makes a fresh anonymous one.
func OpenSignalWaker(a *arena.Arena, name string, opts *SignalWakerOptions) (*SignalWaker, error) {
	return openSignalWaker((*arenakernel.Arena)(a), name, opts, false)
}

func openSignalWaker(a *arenakernel.Arena, name string, opts *SignalWakerOptions, attach bool) (*SignalWaker, error) {
	var opt SignalWakerOptions
	if opts != nil {
		opt = *opts
	}
	if opt.Signals < 0 || opt.Signals > signalBits {
		panic(fmt.Sprintf("shmsync: signal waker %q of %d signals: 1 to 64 are possible", name, opt.Signals))
	}
	signals := opt.Signals
	if signals == 0 {
		signals = signalBits
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: signalKind, Version: signalVersion, Name: name,
		Size: signalBytes(signals, a.MaxParticipants()), AnySize: true,
		Init: func(body []byte) {
			h := signalBody(body)
			h.config, h.rows = uint32(signals), uint32(a.MaxParticipants())
			if opt.Count {
				h.config |= signalCounts
			}
			h.spin.Store(spinField(opt.Spin))
		},
	}, "signalwaker.open", buildSignalWaker, func(w *SignalWaker) string {
		if opt.Signals == 0 || opt.Signals == w.Signals() {
			return ""
		}
		return fmt.Sprintf("it has %d signals, asked for %d", w.Signals(), opt.Signals)
	})
}

// SignalWakerAt opens the SignalWaker at an offset that another process got from the method
// Offset.
func SignalWakerAt(a *arena.Arena, off arena.Offset) (*SignalWaker, error) {
	return handleAt(a, off, "signalwaker.open", signalKind, signalVersion, 0, buildSignalWaker)
}

func buildSignalWaker(a *arenakernel.Arena, o arenakernel.Object) (*SignalWaker, error) {
	v, err := viewSignals(a, o)
	if err != nil {
		return nil, err
	}
	dev, ino := a.Segment().ID()
	w := &SignalWaker{
		signalView: v, name: a.Self(), wakeWord: v.wakeWakeWord(), counting: v.head.config&signalCounts != 0,
		key: race.KeyOf(dev, ino, uint64(o.Offset)),
	}
	w.queue = park.NewQueue(park.Config{
		WaitList: w.wakeWord.WaitList, Object: o, Word: o.Body + signalWakeOff, Check: w.check, Miss: w.passOn,
	})
	w.opening.waitsIn(w.queue)
	w.opening.end, w.opening.owed = w.queue.Close, w.wakeOwed
	w.timer = time.AfterFunc(time.Hour, func() { w.swept.Store(false) })
	w.timer.Stop()
	return w, nil
}

// serve begins a call of several steps, each of which may let a worker go on. The worker may close the handle, so Close
// waits for the call.
func (w *SignalWaker) serve() served { return w.opening.serve(w.queue) }

// wakeOwed is a part of Close. It wakes the waiters that calls of this handle could not wake after Close had begun; see
// enterLate.
func (w *SignalWaker) wakeOwed() {
	if w.wakeWord.Announced() && w.head.permits.Load() != 0 {
		w.wakeWord.Release()
	}
}

func (v *signalView) wakeWakeWord() park.WakeWord {
	h := v.head
	return park.WakeWord{WaitList: park.WaitList{Arena: v.a, Word: &h.wake, Raw: wordPtr(&h.wake), Poller: &h.poller}}
}

func (w *SignalWaker) tuning() park.Tuning {
	h := w.head
	return park.Tuning{Budget: &h.spin, Pays: &h.pays, LastCPU: &h.lastCPU, Slot: w.a.Self().Slot()}
}

// Signals returns the number of signals.
func (w *SignalWaker) Signals() int { return len(w.lines) }

// Queues returns the number of queues: 64 for each signal. They are numbered from 0.
func (w *SignalWaker) Queues() int { return len(w.gates) }

// Offset returns the place of the SignalWaker in its arena, for SignalWakerAt in another process.
func (w *SignalWaker) Offset() arena.Offset { return w.object.Offset }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters
// learn the bound from experience; if d is negative, they never spin.
func (w *SignalWaker) SetSpin(d time.Duration) {
	w.opening.use()
	w.head.spin.Store(spinField(d))
}

// Spin returns the value of the last SetSpin.
func (w *SignalWaker) Spin() time.Duration {
	w.opening.use()
	return spinOf(w.head.spin.Load())
}

// Close closes this handle on the SignalWaker, and no other. The queues that this process executes and its
// registrations stay. Calls that wait through the handle end with an error that Is ErrClosed. A second Close is
// an error that Is ErrClosed.
func (w *SignalWaker) Close() error { return w.opening.close("signalwaker.close") }

// String renders the state on one line.
func (w *SignalWaker) String() string {
	return fmt.Sprintf("signal waker %s: %v", objectName(w.object), w.Health())
}

func (v *signalView) fail(op string, err error, detail string) error {
	return failed(v.a, v.object, op, err, nil, detail)
}

// mistake panics because the caller has made a mistake.
func (v *signalView) mistake(format string, args ...any) {
	panic("shmsync: signal waker " + objectName(v.object) + ": " + fmt.Sprintf(format, args...))
}

func (v *signalView) checkSignal(i int) {
	if i < 0 || i >= len(v.lines) {
		v.mistake("signal %d of %d", i, len(v.lines))
	}
}

func (v *signalView) checkQueue(q int) {
	if uint(q) >= uint(len(v.gates)) {
		v.noSuchQueue(q)
	}
}

//go:noinline
func (v *signalView) noSuchQueue(q int) { v.mistake("queue %d of %d", q, len(v.gates)) }
