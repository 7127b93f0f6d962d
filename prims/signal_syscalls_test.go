//go:build linux

package prims_test

import (
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	registerSilent("signal/syscalls", func(a *arena.Arena) (func(string), error) {
		w, err := prims.OpenSignalWaker(a, "w", nil)
		return func(how string) {
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
			if how == "asleep" {
				for w.TryAcquire() {
				}
				w.Acquire() // this call sleeps
			}
		}, err
	})
}

func TestSignalNoSyscalls(t *testing.T) {
	for _, how := range []string{"busy", "asleep"} {
		t.Run(how, func(t *testing.T) { silent(t, newArena(t, nil), "signal/syscalls", how, how == "asleep") })
	}
}
