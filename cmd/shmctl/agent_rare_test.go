//go:build linux

package main

import (
	"context"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// rareDeed is like agentDeed, for tasks that only one or two tests need. ok is false if it does not know the task.
func rareDeed(a *arena.Arena, op string, o agentOrder) (f func(), err error, ok bool) {
	switch op {
	case "burn mutex": // holds the mutex, and uses a CPU
		m, err := prims.OpenMutex(a, o.Name, nil)
		return func() {
			m.Lock()
			//lint:ignore SA5002 the agent is ended by a signal
			for {
			}
		}, err, true
	case "lock elsewhere": // locks a mutex in another arena; the name is that of the arena, a space, and that of the mutex
		other, name, _ := strings.Cut(o.Name, " ")
		b, err := arena.Attach(other, &arena.Options{Label: "elsewhere"})
		if err != nil {
			return nil, err, true
		}
		m, err := prims.OpenMutex(b, name, nil)
		return func() { m.LockContext(context.Background()) }, err, true
	case "claim latch":
		l, err := prims.OpenLatch(a, o.Name, 2, nil)
		return func() { l.Claim(o.N) }, err, true
	case "count latch":
		l, err := prims.OpenLatch(a, o.Name, 2, nil)
		return func() { l.CountDown(o.N) }, err, true
	case "set event":
		e, err := prims.OpenEvent(a, o.Name, nil)
		return func() { e.Set() }, err, true
	case "post futex":
		f, err := prims.OpenFutex(a, o.Name, nil)
		return func() { f.Post() }, err, true
	case "advance sequencer":
		s, err := prims.OpenSequencer(a, o.Name, nil)
		return func() { s.Advance(uint64(o.N)) }, err, true
	case "set future":
		f, err := prims.OpenFuture(a, o.Name, nil)
		return func() { f.Set(0) }, err, true
	case "take shared semaphore", "take semaphore": // no participant holds these permits afterwards
		s, err := prims.OpenSemaphore(a, o.Name, 1, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable})
		return func() { s.AcquireContext(context.Background(), 1) }, err, true
	case "store waitable": // leaves the state in the slot record of the agent
		w, err := prims.OpenWaitable(a, o.Name, int64(0), prims.Rules[int64, int64]{
			Claim: func(*int64, int64) bool { return false },
		}, nil)
		return func() { w.Update(func(s *int64) { *s = int64(o.N) }) }, err, true
	case "claim waitable": // makes N claims, from 0 to N-1; the rule panics at the next claim
		w, err := prims.OpenWaitable(a, o.Name, int64(0), prims.Rules[int64, int64]{
			Claim: func(_ *int64, n int64) bool {
				if n == o.N {
					panic(secretText)
				}
				return true
			},
			Release: func(*int64, int64) {},
		}, nil)
		return func() {
			defer func() { recover() }() // the rule's panic
			for n := range o.N + 1 {
				w.WaitContext(context.Background(), n)
			}
		}, err, true
	case "spoil waitable": // a rule that panics
		w, err := prims.OpenWaitable(a, o.Name, int64(0), prims.Rules[int64, int64]{
			Claim: func(*int64, int64) bool { panic("no such claim") },
		}, nil)
		return func() {
			defer func() { recover() }() // the rule's panic
			w.WaitContext(context.Background(), 1)
		}, err, true
	}
	return nil, nil, false
}

// secretText is the text of a panic, which reports leave out.
const secretText = "the word is swordfish"

// The tracer is a debugger that stops a process and does not continue it.
func init() {
	proctest.Register("shmctl/tracer", func(c *proctest.Child) {
		var pid int
		c.Params(&pid)
		runtime.LockOSThread()
		text := ""
		if err := unix.PtraceSeize(pid); err != nil {
			text = err.Error()
		} else if err := unix.PtraceInterrupt(pid); err != nil {
			text = err.Error()
		}
		c.Say(text)
		select {}
	})
}
