//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
)

// An actor carries out orders for a test. The actor is in the process of the test or in a separate
// process, so the same test can check both cases. While an order blocks, the actor can carry out
// other orders. A stage holds the objects of an arena that an actor uses, and knows what each order
// does with them. This file has the parts that actors of all kinds share.

// ordered is the constraint for O, the type of the orders of an actor.
type ordered[O any] interface {
	number() int
	numbered(n int) O
	op() string
}

// stageOf carries out orders of type O.
type stageOf[O any] interface {
	perform(o O, a *answer) error
}

// conversation is the test's side of an actor: it sends orders and receives answers.
type conversation[O ordered[O]] struct {
	local stageOf[O]     // the stage, if the actor is in this process; otherwise nil
	proc  *proctest.Proc // the process of the actor, if the actor is in another process; otherwise nil
	next  int
	said  map[int]answer
	inbox chan answer
	dump  func() string
}

// registerActor registers a helper process that is an actor. The process calls open to make its
// stage.
func registerActor[O ordered[O]](process string, open func(a *arena.Arena) stageOf[O]) {
	proctest.Register(process, func(c *proctest.Child) {
		var p struct{ Arena, Label string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: p.Label})
		if err != nil {
			c.Fatal(err)
		}
		s := open(a)
		c.Ready()
		for {
			var o O
			c.Recv(&o)
			if o.op() == "exit" {
				os.Exit(0) // without Close, so for the other processes it dies
			}
			go func() { c.Say(obey(s, o)) }()
		}
	})
}

// withLocal returns a conversation with an actor in this process.
func withLocal[O ordered[O]](a *arena.Arena, s stageOf[O]) conversation[O] {
	return conversation[O]{local: s, said: map[int]answer{}, inbox: make(chan answer, 10_000), dump: func() string { return words(a) }}
}

// withRemote returns a conversation with an actor in a separate process.
func withRemote[O ordered[O]](t testing.TB, a *arena.Arena, process, label string, opts ...proctest.Option) conversation[O] {
	t.Helper()
	x := conversation[O]{said: map[int]answer{}, dump: func() string { return words(a) }}
	opts = append(opts, proctest.Params(struct{ Arena, Label string }{nameOf(a), label}), proctest.Dump(x.dump))
	x.proc = proctest.Start(t, process, opts...)
	x.proc.Await(t)
	return x
}

// start makes the actor begin an order. It returns the ID of the order, with which the method wait waits for the
// answer.
func (x *conversation[O]) start(o O) int {
	x.next++
	o = o.numbered(x.next)
	if x.proc != nil {
		x.proc.Send(o)
	} else {
		go func() { x.inbox <- obey(x.local, o) }()
	}
	return x.next
}

// wait waits for the answer to an order.
func (x *conversation[O]) wait(t testing.TB, id int) answer {
	t.Helper()
	for limit := after(timeout()); ; {
		if a, ok := x.said[id]; ok {
			delete(x.said, id)
			return a
		}
		var a answer
		if x.proc != nil {
			x.proc.Recv(t, &a)
		} else {
			select {
			case a = <-x.inbox:
			case <-limit:
				t.Fatalf("order %d is not done\nwords:\n%s", id, x.dump())
			}
		}
		x.said[a.ID] = a
	}
}

// over reports whether an order is done, without waiting for it.
func (x *conversation[O]) over(t testing.TB, id int) bool {
	t.Helper()
	for more := true; more; {
		var a answer
		if x.proc != nil {
			more = x.proc.Poll(t, &a)
		} else {
			select {
			case a = <-x.inbox:
			default:
				more = false
			}
		}
		if more {
			x.said[a.ID] = a
		}
	}
	_, ok := x.said[id]
	return ok
}

// reaches waits until the process of the actor has stopped or died at its crash point, and returns true. The function
// in the parameter there reports whether that has happened. If the order is done first, reaches kills the process and
// returns false; see untilReached.
func (x *conversation[O]) reaches(t testing.TB, id int, there func() bool) bool {
	t.Helper()
	reached := false
	eventually(t, "the process comes to the point, or its order is done", x.dump, func() bool {
		done := x.over(t, id) // before there(): the order is done only after the process has passed the point
		reached = there()
		return reached || done
	})
	if !reached {
		x.proc.Kill(t)
	}
	return reached
}

// untilReached calls f until f reports that a process has reached a crash point. A call may report false, because
// another process has done the work, or because the scheduler has run other processes first.
func untilReached(t *testing.T, point string, f func() bool) {
	t.Helper()
	for tries := 0; !f(); tries++ {
		require.Less(t, tries, 20, "the process never comes to %s", point)
	}
}

// isStopped reports whether a process is stopped.
func isStopped(p *proctest.Proc) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	return err == nil && strings.Contains(string(stat), ") T ")
}

// do starts an order and waits for its answer.
func (x *conversation[O]) do(t testing.TB, o O) answer {
	t.Helper()
	return x.wait(t, x.start(o))
}

// must is do for an order that has to succeed: it fails the test if the answer has an error or a
// panic.
func (x *conversation[O]) must(t testing.TB, o O) answer {
	t.Helper()
	a := x.do(t, o)
	require.Empty(t, a.Err+a.Panic, "%+v", o)
	return a
}

// unwaited is an operation whose answer no test reads. If the operation panics, obey panics, too, because no test
// would see the panic in the answer.
const unwaited = "barge"

// obey carries out an order and returns the answer.
func obey[O ordered[O]](s stageOf[O], o O) (a answer) {
	a.ID = o.number()
	start := time.Now()
	defer func() {
		a.Took = time.Since(start)
		if r := recover(); r != nil {
			if o.op() == unwaited {
				panic(r)
			}
			a.Panic = fmt.Sprint(r)
			if err, ok := r.(error); ok {
				a.fill(err)
				a.Err = ""
			}
		}
	}()
	a.fill(s.perform(o, &a))
	return a
}

// contexts has the functions that end the contexts of the orders of a stage, by the numbers of the orders.
type contexts struct {
	guard sync.Mutex
	ends  map[int]context.CancelFunc // guarded by: guard
}

// begin makes the context of an order. If limit is not 0, the context ends after this time. If ended is true, the
// context has ended when begin returns.
func (c *contexts) begin(order int, limit time.Duration, ended bool) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if limit != 0 {
		ctx, cancel = context.WithTimeout(context.Background(), limit)
	}
	if ended {
		cancel()
	}
	c.guard.Lock()
	defer c.guard.Unlock()
	if c.ends == nil {
		c.ends = map[int]context.CancelFunc{}
	}
	c.ends[order] = cancel
	return ctx
}

// end ends the context of an order, as a cancellation does.
func (c *contexts) end(order int) {
	c.guard.Lock()
	cancel := c.ends[order]
	c.guard.Unlock()
	cancel()
}
