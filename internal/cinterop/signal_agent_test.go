//go:build linux

package cinterop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_signal.h.

func init() {
	verbs["sig"] = (*goAgent).signalWaker
	groupTurns["group.sig"] = (*goAgent).groupSignal
}

// begun maps a queue to its gate, from the verb sig.begin, sig.inline or sig.next that begins its execution.
var begun struct {
	sync.Mutex
	gates map[int]*prims.Gate
}

// sigBoard is the data of several agents that use one SignalWaker: for each queue, how many items were put into
// the queue, and how many were executed.
type sigBoard struct{ Pushed, Done [4]atomic.Uint64 }

func (x *goAgent) sigBoard(name string) (*sigBoard, error) {
	mem, err := x.a.Block(name+"-board", 64)
	if err != nil {
		return nil, err
	}
	return sigBoardOf(mem), nil
}

// told packs several boolean answers of a verb into one number. The first is bit 0.
func told(all ...bool) (n uint64) {
	for i, b := range all {
		n |= yes(b) << i
	}
	return n
}

func (x *goAgent) signalWaker(o order) (n uint64, err error) {
	var opts *prims.SignalWakerOptions
	if o.verb == "sig.open" {
		opts = &prims.SignalWakerOptions{Signals: int(o.arg(0)), Count: o.arg(1) != 0}
	}
	w, err := prims.OpenSignalWaker(x.a, o.name, opts)
	if err != nil {
		return 0, err
	}
	defer func() { // returns an error if a call panics because of a mistake of the caller
		switch r := recover().(type) {
		case nil:
		case string:
			n, err = 0, syscall.EINVAL
			if strings.Contains(r, "Finish of") || strings.Contains(r, "ReleaseTask of") || strings.Contains(r, "Unregister") {
				err = syscall.EPERM
			}
		default:
			panic(r)
		}
	}()
	switch o.verb {
	case "sig.open":
		return uint64(w.Offset()), nil
	case "sig.at":
		at, err := prims.SignalWakerAt(x.a, arena.Offset(o.arg(0)))
		if err != nil {
			return 0, err
		}
		return uint64(at.Queues()), nil
	case "sig.left":
		return x.sigLeft(w, o.name)
	case "sig.drain":
		return x.sigDrain(w, o.name)
	case "sig.push", "sig.serve":
		return x.sigWork(w, o)
	case "sig.next", "sig.schedule", "sig.state", "sig.executor", "sig.begin", "sig.inline", "sig.finish", "sig.fschedule":
		return sigGate(w, o)
	case "sig.bitset", "sig.bitsetmask", "sig.bittake", "sig.bits", "sig.nearest":
		return sigBits(w, o)
	}
	return x.sigMore(w, o)
}

func sigGate(w *prims.SignalWaker, o order) (n uint64, err error) {
	q := int(o.arg(0))
	keep := func(g *prims.Gate) {
		begun.Lock()
		defer begun.Unlock()
		if begun.gates == nil {
			begun.gates = map[int]*prims.Gate{}
		}
		begun.gates[g.Queue()] = g
	}
	if o.verb == "sig.next" {
		g, ok := w.Next(q)
		if !ok {
			return 0, syscall.EBUSY
		}
		keep(&g)
		return uint64(g.Queue()), nil
	}
	g := w.Gate(q)
	switch o.verb {
	case "sig.schedule":
		return yes(g.Schedule()), nil
	case "sig.state":
		s := g.State()
		return told(s.Scheduled, s.Executing) | uint64(s.Epoch)<<2, nil
	case "sig.executor":
		if s := g.State(); s.Executor != nil {
			n = uint64(s.Executor.PID)
		}
		return n, nil
	case "sig.begin", "sig.inline":
		ok := false
		if o.verb == "sig.begin" {
			ok = g.Begin()
		} else {
			ok = g.TryBeginInline()
		}
		if ok {
			keep(g)
		}
		return 0, try(ok)
	}
	begun.Lock()
	if begun.gates[q] != nil {
		g = begun.gates[q]
	}
	begun.Unlock()
	if o.verb == "sig.finish" {
		return yes(g.Finish()), nil
	}
	g.FinishAndSchedule()
	return 0, nil
}

func sigBits(w *prims.SignalWaker, o order) (uint64, error) {
	s, k := w.Signal(int(o.arg(0))), int(o.arg(1))
	switch o.verb {
	case "sig.bitset":
		return told(s.Set(k)), nil
	case "sig.bitsetmask":
		empty, set := s.SetMask(uint64(o.arg(1)))
		return set<<1 | yes(empty), nil
	case "sig.bittake":
		_, before, ok := s.TryAcquire(k)
		if !ok {
			before = 0
		}
		return before, try(ok)
	case "sig.bits":
		return s.Load(), nil
	}
	return uint64(s.Nearest(k)), nil
}

func (x *goAgent) sigMore(w *prims.SignalWaker, o order) (uint64, error) {
	k := int(o.arg(0))
	switch o.verb {
	case "sig.try":
		return 0, try(w.TryAcquire())
	case "sig.acquire":
		return 0, w.AcquireContext(o.ctx(0))
	case "sig.release":
		w.Release(k)
	case "sig.permits":
		return w.Permits(), nil
	case "sig.sleepers":
		return uint64(w.Sleepers()), nil
	case "sig.workers":
		return uint64(w.WorkerCount()), nil
	case "sig.worker":
		if k > 0 {
			w.RegisterWorker()
		} else {
			w.UnregisterWorker()
		}
	case "sig.sleeper":
		if k > 0 {
			w.RegisterSleeper()
		} else {
			w.UnregisterSleeper()
		}
	case "sig.mark":
		return yes(w.MarkActive(k)), nil
	case "sig.markmask":
		return w.MarkActiveMask(uint64(o.arg(0))), nil
	case "sig.unmarkempty":
		return 0, try(w.TryUnmarkIfEmpty(k))
	case "sig.unmark":
		return 0, try(w.TryUnmark(k))
	case "sig.summary":
		return w.SnapshotSummary(), nil
	case "sig.yield":
		return yes(w.MarkYield()), nil
	case "sig.unyield":
		return 0, try(w.TryUnmarkYield())
	case "sig.tasks":
		return yes(w.MarkTasks()), nil
	case "sig.untasks":
		return 0, try(w.TryUnmarkTasks())
	case "sig.status":
		return told(w.StatusBits()), nil
	case "sig.count":
		w.Count(prims.SignalStat(k), uint64(o.arg(1)))
	case "sig.stat":
		return w.Stats()[k], nil
	case "sig.health":
		h := w.Health()
		return uint64(h.Signals) + 10*uint64(h.Scheduled) + 100*uint64(h.Executing) + 1000*uint64(h.Reserved) + 10000*uint64(h.Sleepers) +
			100000*uint64(h.Workers) + 1000000*yes(h.Yield) + 10000000*yes(h.Tasks) + 100000000*h.Permits, nil
	default:
		return x.sigPartition(w, o)
	}
	return 0, nil
}

func (x *goAgent) sigPartition(w *prims.SignalWaker, o order) (n uint64, err error) {
	k, to := int(o.arg(0)), int(o.arg(1))
	switch o.verb {
	case "sig.sync":
		tree := w
		if o.arg(2) == 0 {
			if tree, err = prims.OpenSignalWaker(x.a, "tree", nil); err != nil {
				return 0, err
			}
		}
		return yes(w.SyncPartitionSummary(k, to, tree)), nil
	case "sig.leaf":
		return yes(w.MarkPartitionLeafActive(k)), nil
	case "sig.clearleaf":
		w.ClearPartitionLeaf(k)
		return 0, nil
	case "sig.haswork":
		return yes(w.PartitionLeafHasWork(k)), nil
	case "sig.partition":
		return w.PartitionSummary(), nil
	case "sig.reserve":
		q, ok := w.ReserveTaskIn(k, to)
		return uint64(q), try(ok)
	case "sig.reserveall":
		for {
			if _, ok := w.ReserveTaskIn(k, to); !ok {
				return n, nil
			}
			n++
		}
	case "sig.unreserve":
		w.ReleaseTask(k)
		return 0, nil
	case "sig.reserved":
		return uint64(w.Tasks()), nil
	}
	return 0, syscall.ENOSYS
}

// execute executes a queue of the group. g is the gate of the queue, whose execution the caller has begun.
func (x *goAgent) execute(name string, b *sigBoard, g *prims.Gate, turn int) error {
	k := g.Queue()/64*2 + g.Queue()%64%2
	seen := b.Pushed[k].Load()
	if err := x.alone(fmt.Sprintf("%s-%d", name, k)); err != nil {
		return err
	}
	b.Done[k].Store(seen)
	if turn%5 == 0 {
		g.FinishAndSchedule()
	} else {
		g.Finish()
	}
	return nil
}

// sigLeft returns the work that is left. The upper 32 bits are the number of gates that are not idle. The lower 32 bits
// are the number of queues whose items were not all executed.
func (x *goAgent) sigLeft(w *prims.SignalWaker, name string) (uint64, error) {
	b, err := x.sigBoard(name)
	if err != nil {
		return 0, err
	}
	h := w.Health()
	n := uint64(h.Scheduled+h.Executing) << 32
	for k := range b.Pushed {
		n += yes(b.Pushed[k].Load() != b.Done[k].Load())
	}
	return n, nil
}

// sigDrain executes all queues that are scheduled, and returns the number of executions.
func (x *goAgent) sigDrain(w *prims.SignalWaker, name string) (n uint64, err error) {
	b, err := x.sigBoard(name)
	for err == nil {
		g, ok := w.Next(0)
		if !ok {
			break
		}
		err = x.execute(name, b, &g, 1)
		n++
	}
	return n, err
}

// sigWork carries out the orders sig.push and sig.work. The order sig.push puts o.arg(0) items into the queues of the
// group. The order sig.work executes queues, and sleeps while no queue is scheduled, until the Event NAME-stop is set.
func (x *goAgent) sigWork(w *prims.SignalWaker, o order) (n uint64, err error) {
	b, err := x.sigBoard(o.name)
	if err != nil {
		return 0, err
	}
	stop, err := prims.OpenEvent(x.a, o.name+"-stop", nil)
	if err != nil {
		return 0, err
	}
	if o.verb == "sig.push" {
		for ; n < uint64(o.arg(0)); n++ {
			k := int(n * 7 / 5 % 4)
			b.Pushed[k].Add(1)
			w.Gate(k/2*64 + k%2).Schedule()
			if n%16 == 0 {
				runtime.Gosched()
			}
		}
		return n, nil
	}
	for err == nil && !stop.IsSet() {
		if g, ok := w.Next(0); ok {
			n++
			err = x.execute(o.name, b, &g, int(n%3))
		} else {
			w.Acquire()
		}
	}
	return n, err
}

func (x *goAgent) groupSignal(name string, turn int) (err error) {
	for i := 0; i < 8 && err == nil; i++ {
		err = x.groupSignalRound(name, 8*turn+i)
	}
	return err
}

// groupSignalRound is one round of a group on the queues 0, 1, 64 and 65. It puts an item into a queue, and executes
// queues that are scheduled. The parameter turn selects one of eight variants.
func (x *goAgent) groupSignalRound(name string, turn int) (err error) {
	b, err := x.sigBoard(name)
	if err != nil {
		return err
	}
	w, err := prims.OpenSignalWaker(x.a, name, nil)
	if err != nil {
		return err
	}
	defer w.Close()
	k := turn % 4
	q := k/2*64 + k%2
	g := w.Gate(q)
	b.Pushed[k].Add(1)
	g.Schedule()
	switch turn % 8 {
	case 1, 5:
		if w.Signal(q/64).Acquire(q%64) && g.Begin() {
			err = x.execute(name, b, g, turn)
		}
		w.Signal(q / 64).Set(40) // the bit of a queue that has no work
		w.MarkActive(q / 64)
	case 2:
		if g.TryBeginInline() {
			err = x.execute(name, b, g, 1)
		}
	case 3:
		w.MarkTasks()
		w.MarkPartitionLeafActive(3)
		w.SyncPartitionSummary(0, 2, nil)
		w.ClearPartitionLeaf(0)
		w.TryUnmarkTasks()
	case 4:
		reserved, ok := w.ReserveTaskIn(0, 2)
		if !ok {
			return errors.New("all is reserved")
		}
		w.ReleaseTask(reserved)
	}
	for err == nil {
		g, ok := w.Next(q)
		if !ok {
			break
		}
		if err = x.execute(name, b, &g, turn); turn%5 == 0 {
			return err
		}
	}
	if err != nil {
		return err
	}
	for turn%2 == 0 && w.TryAcquire() { // take permits that are left, because some queues were executed without one
	}
	ctx, cancel := inMs(1)
	defer cancel()
	if err = w.AcquireContext(ctx); errors.Is(err, context.DeadlineExceeded) {
		w.Release(1)
		err = nil
	}
	return err
}
