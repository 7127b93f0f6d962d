//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	registerSilent("sequencer/syscalls", func(a *arena.Arena) (func(string), error) {
		x, err := openLitmus(a)
		return func(how string) {
			for range 100_000 {
				v := x.s.Increment() // all other waits are for later tokens
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
			if how == "wake" {
				x.s.Advance(1 << 62)
			}
		}, err
	})
}

func TestSequencerNoSyscalls(t *testing.T) {
	for _, how := range []string{"busy", "wake"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			s, err := prims.OpenSequencer(a, "s", nil)
			require.NoError(t, err)
			for range 100 {
				s.WaitAsync(1 << 62)
			}
			silent(t, a, "sequencer/syscalls", how, how == "wake")
		})
	}
}
