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
	proctest.Register("sequencer/syscalls", func(c *proctest.Child) {
		var p struct {
			Arena string
			Wake  bool
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		x, err := openLitmus(a)
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
		for range 100_000 {
			v := x.s.Increment() // others wait for more
			x.s.Wait(v)
			x.s.Advance(v + 1)
			x.gate.Set()
			x.gate.Set()
			x.gate.Wait()
			x.gate.IsSet()
			x.gate.Reset()
			x.auto.Set()
			x.auto.IsSet()
			x.auto.Wait()
			x.auto.TryWait()
		}
		if p.Wake {
			x.s.Advance(1 << 62)
		}
		// Without the Close, which wakes others.
		c.Say(true)
		c.Await()
	})
}

// Where nobody waits for it there is no system call: the kernel would kill for one.
func TestSequencerNoSyscalls(t *testing.T) {
	for _, wake := range []bool{false, true} {
		a := newArena(t, nil)
		s, err := prims.OpenSequencer(a, "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			s.WaitAsync(1 << 62)
		}
		p := proctest.Start(t, "sequencer/syscalls", proctest.Params(struct {
			Arena string
			Wake  bool
		}{nameOf(a), wake}))
		p.Await(t)
		if wake {
			p.WaitSignal(t, syscall.SIGSYS) // the trap works
			continue
		}
		var done bool
		p.Recv(t, &done)
		p.Kill(t)
	}
}
