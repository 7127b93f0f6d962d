//go:build linux

package arenakernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	// "count" increments a count that all processes share. It is the first word of an object.
	agentOrders["count"] = func(s *agent, o order, a *answer) error {
		obj, _, err := s.arena.OpenObject(spec("count"))
		if err != nil {
			return err
		}
		a.N = int64(s.arena.u64(obj.Body).Add(1))
		s.arena.CloseObject(obj)
		return nil
	}
}

// TestRestartStorm checks an arena whose processes are killed, closed and restarted in random order. From time
// to time, new processes ask for another size, so that a new arena replaces the old one. This replacement never
// fails while no process is in the arena, and never happens while a process is in it. No increment of the count
// is lost, except that the count of a new arena begins with 0.
func TestRestartStorm(t *testing.T) {
	const fleet = 5
	steps := proctest.Rounds(200, 2000)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	ta := newTestArena(t, 16)
	ta.opts.Recreate = RecreateIncompatible
	var procs [fleet]*remote
	var started [fleet]*remote // processes that are not in the arena
	in, counted, refused, replaced := 0, int64(0), 0, 0
	var size int64 // size of the present arena
	for step := range steps {
		i := rng.IntN(fleet)
		p := procs[i]
		switch k := rng.IntN(8); {
		case p == nil:
			if started[i] == nil {
				started[i] = ta.start(t)
			}
			opts := ta.opts
			opts.Size = []int64{2 << 20, 4 << 20}[(step/25)%2] // as if a new version of the program needed another size
			a := started[i].try(t, order{Do: "open", Arena: ta.name, Opts: &opts})
			if a.Err != "" {
				require.NotEqual(t, size, opts.Size, "seed %d, step %d: %s", seed, step, a.Err)
				require.NotZero(t, in, "seed %d, step %d: no process is in, and the upgrade fails: %s", seed, step, a.Err)
				require.Regexp(t, "(is|are) in", a.Err, "seed %d, step %d", seed, step)
				refused++
				continue
			}
			if size != opts.Size {
				require.Zero(t, in, "seed %d, step %d: the arena was replaced while %d processes were in", seed, step, in)
				size, counted = opts.Size, 0
				replaced++
			}
			procs[i], started[i] = started[i], nil
			in++
		case k == 0:
			p.Signal(t, unix.SIGKILL)
			p.WaitSignal(t, unix.SIGKILL)
			procs[i] = nil
			in--
		case k == 1:
			p.close(t)
			procs[i], started[i] = nil, p
			in--
		case k == 2 && rng.IntN(2) == 0: // kill all processes
			for j, q := range procs {
				if q != nil {
					q.Signal(t, unix.SIGKILL)
					q.WaitSignal(t, unix.SIGKILL)
					procs[j] = nil
				}
			}
			in = 0
		default:
			counted++
			require.Equal(t, counted, p.must(t, order{Do: "count"}).N, "seed %d, step %d", seed, step)
		}
	}
	t.Logf("seed %d: %d steps, %d replaced, %d refused", seed, steps, replaced, refused)
}
