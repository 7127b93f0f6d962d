//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Reset of a Future waits until the dead producer is gone, but only while the state word of the Future names this
// producer. After a change of the word, another participant may have the ID of the producer. Reset must not wait for
// that participant.
func TestFutureResetWaitsWhileTheWordNamesTheDead(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			const begun = 2 // round 1 has begun: another process has reset the Future
			name := newArena(t)
			x, victim := newAgent(t, lang, name, "survivor"), newAgent(t, "c", name, "victim", asynchronousIO)
			off := x.do(t, "future.open", "f")
			victim.do(t, "future.open", "f")
			victim.do(t, "future.claim", "f")
			victim.do(t, "gone.fork", "f")
			if err := victim.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			victim.ends(t)
			x.start(t, "future.wait", "f").fails(t, syscall.EOWNERDEAD)
			reset := x.start(t, "future.reset", "f")
			x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
			overwrite(t, name, off, func(uint64) []uint64 { return []uint64{begun} })
			reset.fails(t, syscall.EBUSY)
			victim.in.Close() // ends the child that keeps the byte lock of the victim
		})
	}
}

// RecoverAll waits until the dead producer of a Future is gone. Meanwhile another process resets the Future, claims it
// and sets it. RecoverAll keeps the result of that process.
func TestRecoverAllKeepsTheNextResult(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			const set, decided, result = 2 | 1, 1 << 33, 7 // of round 1
			name := newArena(t)
			x, victim := newAgent(t, lang, name, "survivor"), newAgent(t, "c", name, "victim", asynchronousIO)
			off := x.do(t, "future.open", "f")
			victim.do(t, "future.open", "f")
			victim.do(t, "future.claim", "f")
			victim.do(t, "gone.fork", "f")
			if err := victim.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			victim.ends(t)
			x.start(t, "future.wait", "f").fails(t, syscall.EOWNERDEAD)
			recovers := x.start(t, "future.recoverall", "f")
			x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
			overwrite(t, name, off, func(uint64) []uint64 { return []uint64{set, 0, decided | result} })
			recovers.must(t)
			require.EqualValues(t, result, x.do(t, "future.wait", "f"))
			victim.in.Close() // ends the child that keeps the byte lock of the victim
		})
	}
}

// After a Reset the word contains only the number of the next round, whatever a peer has written into bit 34.
func TestFutureResetClearsReservedBits(t *testing.T) {
	for _, lang := range []string{"go", "c"} {
		t.Run(lang, func(t *testing.T) {
			const set, reserved, decided = 1, 1 << 34, 1 << 33
			name := newArena(t)
			x := newAgent(t, lang, name, "resets")
			off := x.do(t, "future.open", "f")
			overwrite(t, name, off, func(uint64) []uint64 { return []uint64{set | reserved, decided} })
			x.do(t, "future.reset", "f")
			overwrite(t, name, off, func(state uint64) []uint64 {
				require.EqualValues(t, 2, state)
				return []uint64{state}
			})
		})
	}
}
