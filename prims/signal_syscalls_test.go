//go:build linux

package prims_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("signal/syscalls", func(c *proctest.Child) {
		var p struct{ Arena, How string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		w, err := prims.OpenSignalWaker(a, "w", nil)
		if err != nil {
			c.Fatal(err)
		}
		for !a.Fenced() {
			runtime.Gosched()
		}
		if err := forbid(a); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for k := range 50_000 {
			w.Gate(k % 4096).Schedule()
			g, _ := w.Next(k % 4096)
			g.FinishAndSchedule()
			g.Begin()
			g.Finish()
			w.Release(2)
			w.Acquire()
			w.TryAcquire()
		}
		if p.How == "asleep" {
			for w.TryAcquire() {
			}
			w.Acquire() // sleeps
		}
		c.Say(true)
		c.Await()
	})
}

// Where nobody sleeps there is no system call: the kernel would kill for one.
func TestSignalNoSyscalls(t *testing.T) {
	for _, how := range []string{"busy", "asleep"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			p := proctest.Start(t, "signal/syscalls", proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
			p.Await(t)
			if how == "busy" {
				var done bool
				p.Recv(t, &done)
				p.Kill(t)
				return
			}
			p.WaitSignal(t, syscall.SIGSYS) // the trap works
		})
	}
}
