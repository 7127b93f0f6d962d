//go:build crashpoint && linux

package arenakernel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestDyingJoinersDoNotKeepAFirstOut: a participant has died with a lock held. A joiner wants to begin
// an epoch. Each time that it reaps, or each time that it has taken the gate, a further joiner joins
// and dies. The further joiner takes over the slot of the dead participant if it can. The first joiner
// must still become the first participant of an epoch.
func TestDyingJoinersDoNotKeepAFirstOut(t *testing.T) {
	for _, point := range []string{"arena.gate.preparing", "arena.gate.taken"} {
		for _, dies := range []string{"arena.enter.joining", "arena.enter.live", "arena.inherit.repaired"} {
			for _, slots := range []int{2, 4} {
				t.Run(point+"/"+dies+map[int]string{2: "/its slot only", 4: "/others"}[slots], func(t *testing.T) {
					ta := newTestArena(t, slots)
					v := ta.join(t, "victim")
					v.must(t, order{Do: "lock", Text: "held"})
					v.Signal(t, unix.SIGKILL)
					v.WaitSignal(t, unix.SIGKILL)
					ctx, cancel := context.WithTimeout(t.Context(), bound())
					defer cancel()
					const most = 5 * mostNews
					rounds := 0
					var die func()
					die = func() {
						if rounds++; rounds > most {
							cancel()
							return
						}
						j := ta.start(t)
						j.must(t, order{Do: "arm", Text: dies})
						if dies == "arena.inherit.repaired" {
							j.must(t, order{Do: "arm", Text: "arena.enter.joining", N: 2})
							j.must(t, order{Do: "arm", Text: "arena.enter.live"})
						}
						j.die(order{Do: "open", Arena: ta.name, Opts: &ta.opts})
						j.WaitSignal(t, unix.SIGKILL)
						crashpoint.ArmFunc(point, 1, die)
					}
					crashpoint.ArmFunc(point, 1, die)
					defer crashpoint.Disarm()
					opts, firsts := ta.opts, 0
					opts.OnFirst = func(a *Arena, e Epoch) error {
						firsts++
						crashpoint.Disarm()
						l, err := openTestLock(a, "held")
						require.NoError(t, err)
						require.True(t, l.tryLock(), "the lock is held by %v", ParticipantID(l.owner.Load()))
						require.False(t, e.Clean)
						require.Contains(t, labels(e.Dead), "victim")
						return nil
					}
					a, err := OpenContext(ctx, ta.name, &opts)
					require.NoError(t, err, "after %d deaths of joiners: %s", rounds, dumpWords(ta.name))
					require.Equal(t, 1, firsts)
					require.LessOrEqual(t, rounds, most, "the joiner was admitted only after the others had stopped dying")
					require.NoError(t, a.Close())
				})
			}
		}
	}
}
