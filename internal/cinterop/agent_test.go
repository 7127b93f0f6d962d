//go:build linux

package cinterop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// goAgent is the agent in Go. The agent in C is testdata/agent.c.
type goAgent struct {
	a    *arena.Arena
	name string

	mu     sync.Mutex
	leases []prims.Lease[uint64]
	holds  prims.Holds
	stale  prims.Hold
	out    sync.Mutex
}

func runAgent(name, label string) {
	a, err := arena.Attach(name, &arena.Options{Label: label})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	x := &goAgent{a: a, name: name}
	fmt.Println("ready 0 0")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			os.Exit(4)
		}
		if f[1] == "close" {
			x.answer(f[0], errnoOf(a.Close()), 0)
			os.Exit(0)
		}
		go func() {
			n, err := x.act(order{f[1], f[2], f[3:]})
			if err != nil {
				fmt.Fprintln(os.Stderr, f[1], f[2], err)
			}
			x.answer(f[0], errnoOf(err), n)
		}()
	}
	os.Exit(4)
}

func (x *goAgent) answer(id string, e syscall.Errno, n uint64) {
	x.out.Lock()
	defer x.out.Unlock()
	fmt.Println(id, int(e), n)
}

// errnoOf returns the errno value by which the C library reports the error err.
func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	case errors.Is(err, shmsync.ErrOwnerDead):
		return syscall.EOWNERDEAD
	case errors.Is(err, shmsync.ErrNotRecoverable):
		return syscall.ENOTRECOVERABLE
	case errors.Is(err, shmsync.ErrCanceled):
		return syscall.ECANCELED
	case errors.Is(err, shmsync.ErrCorrupt):
		return syscall.EPROTO
	case errors.Is(err, shmsync.ErrIncompatible), errors.Is(err, syscall.EINVAL):
		return syscall.EINVAL
	case errors.Is(err, syscall.ENOENT):
		return syscall.ENOENT
	case errors.Is(err, shmsync.ErrNoSpace):
		return syscall.ENOSPC
	case errors.As(err, &e):
		return e
	}
	return syscall.EIO
}

// order is one command for an agent: a verb, the name of an object, and arguments.
type order struct {
	verb, name string
	args       []string
}

func (o order) arg(i int) int64 {
	if i >= len(o.args) {
		return 0
	}
	n, _ := strconv.ParseInt(o.args[i], 10, 64)
	return n
}

// ctx returns a context with a timeout of as many milliseconds as argument i says. If this argument is missing or
// negative, the context never ends.
func (o order) ctx(i int) context.Context {
	if i >= len(o.args) || o.arg(i) < 0 {
		return context.Background()
	}
	d := time.Duration(o.arg(i)) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), d)
	time.AfterFunc(d+time.Minute, cancel) // release the timer long after the timeout
	return ctx
}

func yes(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// try converts the result of a Try method to an error: EBUSY if ok is false.
func try(ok bool) error {
	if ok {
		return nil
	}
	return syscall.EBUSY
}

// act carries out an order. If the order makes the library panic, act returns an error: EPERM for an order that
// releases or converts a hold, and EINVAL for any other order.
func (x *goAgent) act(o order) (n uint64, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			fmt.Fprintln(os.Stderr, r)
			err = syscall.EINVAL
			for _, verb := range []string{"unlock", "ack", "nack", "release", ".up", "uptry", "u2r", "w2u"} {
				if strings.HasSuffix(o.verb, verb) {
					err = syscall.EPERM
				}
			}
		}
	}()
	if o.verb == "waiters" {
		(*arenakernel.Arena)(x.a).EachNode(arena.Offset(o.arg(0)), func(_ arena.Offset, node *arenakernel.Node) {
			if s := node.State(); s == arenakernel.NodeAsleep || s == arenakernel.NodeParked {
				n++
			}
		})
		// Other waiters have no node in such a queue: they sleep on words of the object, or have poller nodes in its
		// lists. The numbers below are offsets of these words and lists: 64 and 88 in a WaitGroup or Latch, 0 and 24 in
		// a Once, 16, 40, 32 and 56 in a Queue, 320 and 344 in a Barrier. In a Sequencer, 128 and above are the cells.
		off := arena.Offset(o.arg(0))
		for _, w := range (*arenakernel.Arena)(x.a).WaitsOf(arenakernel.Object{Offset: off}) {
			in := slices.Contains([]arena.Offset{64, 88, 0, 24, 16, 40, 32, 56, 320, 344}, w.At)
			if w.Want == nil && (in || x.isSequencer(off) && w.At >= 128) {
				n += w.Count
			}
		}
		return n, nil
	}
	kind, rest, _ := strings.Cut(o.verb, ".")
	if kind == "closing" {
		return x.closing(order{rest, o.name, o.args})
	}
	f := verbs[kind]
	if f == nil {
		return 0, syscall.ENOSYS
	}
	return f(x, o)
}

// closing carries out an order through a second opening of the arena, and closes this opening. So it closes all handles
// that the order has opened. In C, an order keeps its handles, and the order shut closes them.
func (x *goAgent) closing(o order) (uint64, error) {
	a, err := arena.Attach(x.name, nil)
	if err != nil {
		return 0, err
	}
	n, err := (&goAgent{a: a}).act(o)
	return n, errors.Join(err, a.Close())
}

func (x *goAgent) isSequencer(off arena.Offset) bool {
	for o := range (*arenakernel.Arena)(x.a).Objects() {
		if o.Offset == off {
			return o.Kind == arenakernel.KindOf("SEQR")
		}
	}
	return false
}

var verbs = map[string]func(x *goAgent, o order) (uint64, error){
	"seq": (*goAgent).seq, "event": (*goAgent).event, "queue": (*goAgent).queue,
	"wg": (*goAgent).waitGroup, "latch": (*goAgent).latch, "once": (*goAgent).once, "barrier": (*goAgent).barrier,
}

func (x *goAgent) seq(o order) (uint64, error) {
	s, err := prims.OpenSequencer(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "seq.open":
		return uint64(s.Offset()), nil
	case "seq.value":
		return s.Value(), nil
	case "seq.inc":
		return s.Increment(), nil
	case "seq.advance":
		return yes(s.Advance(uint64(o.arg(0)))), nil
	case "seq.wait":
		return 0, s.WaitContext(o.ctx(1), uint64(o.arg(0)))
	case "seq.stop":
		s.Stop()
	case "seq.cancel":
		s.CancelWaiters()
	case "seq.reset":
		s.ResetTo(uint64(o.arg(0)))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) event(o order) (uint64, error) {
	var opts *prims.EventOptions
	if o.verb == "event.open" {
		opts = &prims.EventOptions{Mode: []prims.EventMode{0, prims.EventAutoReset, prims.EventBidirectional}[o.arg(0)]}
	}
	e, err := prims.OpenEvent(x.a, o.name, opts)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "event.open":
		return uint64(e.Offset()), nil
	case "event.set":
		e.Set()
	case "event.reset":
		e.Reset()
	case "event.isset":
		return yes(e.IsSet()), nil
	case "event.try":
		return 0, try(e.TryWait())
	case "event.wait":
		return 0, e.WaitContext(o.ctx(0))
	case "event.waitreset":
		return 0, e.WaitResetContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) queue(o order) (uint64, error) {
	var q *prims.Queue[uint64]
	var err error
	if o.verb == "queue.open" {
		q, err = prims.OpenQueue[uint64](x.a, o.name, int(o.arg(0)), nil)
	} else {
		q, err = prims.AttachQueue[uint64](x.a, o.name, nil)
	}
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "queue.open":
		return uint64(q.Offset()), nil
	case "queue.len":
		return uint64(q.Len()), nil
	case "queue.shutdown":
		q.Shutdown()
	case "queue.tryput":
		return 0, try(q.TryPut(uint64(o.arg(0))))
	case "queue.tryget":
		v, ok := q.TryGet()
		return v, try(ok)
	case "queue.put":
		return 0, q.PutContext(o.ctx(1), uint64(o.arg(0)))
	case "queue.get":
		return q.GetContext(o.ctx(0))
	case "queue.putbatch":
		var items []uint64
		for i := range o.arg(1) {
			items = append(items, uint64(o.arg(0)+i))
		}
		n, err := q.PutBatchContext(o.ctx(2), items)
		return uint64(n), err
	case "queue.getbatch":
		items := make([]uint64, o.arg(0))
		n, err := q.GetBatchContext(o.ctx(1), items)
		for i := range n {
			if items[i] != items[0]+uint64(i) {
				return 0, syscall.EILSEQ
			}
		}
		if n == 0 {
			return 0, err
		}
		return items[0]<<8 | uint64(n), err
	case "queue.lease":
		l, err := q.LeaseContext(o.ctx(0))
		if err == nil {
			x.mu.Lock()
			x.leases = append(x.leases, l)
			x.mu.Unlock()
		}
		return l.Item, err
	case "queue.ack", "queue.nack":
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.leases) == 0 {
			return 0, syscall.EPERM
		}
		l := x.leases[len(x.leases)-1]
		x.leases = x.leases[:len(x.leases)-1]
		if o.verb == "queue.ack" {
			l.Ack()
		} else {
			l.Nack()
		}
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) waitGroup(o order) (uint64, error) {
	g, err := prims.OpenWaitGroup(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "wg.open":
		return uint64(g.Offset()), nil
	case "wg.add":
		g.Add(int(o.arg(0)))
	case "wg.done":
		g.Done()
	case "wg.count":
		return uint64(g.State().Count), nil
	case "wg.reset":
		g.Reset()
	case "wg.claim":
		g.Claim(int(o.arg(0)))
	case "wg.wait":
		return 0, g.WaitContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) latch(o order) (uint64, error) {
	var l *prims.Latch
	var err error
	if o.verb == "latch.open" {
		l, err = prims.OpenLatch(x.a, o.name, o.arg(0), nil)
	} else {
		l, err = prims.AttachLatch(x.a, o.name, nil)
	}
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "latch.open":
		return uint64(l.Offset()), nil
	case "latch.claim":
		l.Claim(o.arg(0))
	case "latch.down":
		l.CountDown(o.arg(0))
	case "latch.count":
		return uint64(l.State().Count), nil
	case "latch.reset":
		l.Reset()
	case "latch.wait":
		return 0, l.WaitContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}

func (x *goAgent) once(o order) (uint64, error) {
	once, err := prims.OpenOnce(x.a, o.name, nil)
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "once.open":
		return uint64(once.Offset()), nil
	case "once.isdone":
		return yes(once.Done()), nil
	case "once.nothing":
		return 0, once.DoContext(o.ctx(0), func() {})
	case "once.do":
		return 0, once.DoContext(o.ctx(0), func() {
			if s, err := prims.OpenSequencer(x.a, o.name+"-ran", nil); err == nil {
				s.Increment()
			}
			if e, err := prims.OpenEvent(x.a, o.name+"-go", nil); err == nil {
				e.Wait()
			}
		})
	}
	return 0, syscall.ENOSYS
}

func (x *goAgent) barrier(o order) (uint64, error) {
	var b *prims.Barrier
	var err error
	switch o.verb {
	case "barrier.open":
		b, err = prims.OpenBarrier(x.a, o.name, o.arg(0), nil)
	case "barrier.hang": // arrive; the completion never returns
		var said *prims.Event
		if said, err = prims.OpenEvent(x.a, "hangs", nil); err != nil {
			return 0, err
		}
		b, err = prims.AttachBarrier(x.a, o.name, &prims.BarrierOptions{Completion: func() { said.Set(); select {} }})
	default:
		b, err = prims.AttachBarrier(x.a, o.name, nil)
	}
	if err != nil {
		return 0, err
	}
	switch o.verb {
	case "barrier.open":
		return uint64(b.Offset()), nil
	case "barrier.arrive", "barrier.hang":
		return uint64(b.Arrive(o.arg(0))), nil
	case "barrier.drop":
		b.ArriveAndDrop()
	case "barrier.join":
		b.Register(o.arg(0))
	case "barrier.leave":
		b.Deregister()
	case "barrier.reset":
		if n := o.arg(0); n != 0 {
			return yes(b.ResetTo(n)), nil
		}
		return yes(b.Reset()), nil
	case "barrier.lost":
		return uint64(b.State().Lost), nil
	case "barrier.wait":
		return 0, b.WaitContext(o.ctx(1), prims.BarrierPhase(o.arg(0)))
	case "barrier.aw":
		return 0, b.ArriveAndWaitContext(o.ctx(0))
	default:
		return 0, syscall.ENOSYS
	}
	return 0, nil
}
