//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	// "work" uses the arena again and again. If N is not 0, it leaves and joins once in N rounds. It ends only
	// if something is wrong.
	agentOrders["work"] = func(s *agent, o order, a *answer) error {
		x := s.arena
		for i := 1; ; i++ {
			if err := useArena(x, fmt.Sprint("own ", x.self)); err != nil && !errors.Is(err, shmsync.ErrNoSpace) {
				panic(err)
			}
			l, err := openTestLock(x, "contended")
			if err != nil {
				panic(err)
			}
			for !l.tryLock() {
				runtime.Gosched()
			}
			l.owner.Store(0)
			if o.N > 0 && i%o.N == 0 {
				if err := x.Close(); err != nil {
					panic(err)
				}
				if x, err = Open(o.Arena, nil); err != nil {
					panic(err)
				}
			}
		}
	}
}

// TestRandomKills: processes use all features, join and leave. At random times they are stopped, or
// killed and replaced. In the end only the living participants are left, and there is no trace of the
// dead participants.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	limit := proctest.Rounds(time.Second, 6*time.Second)
	const workers = 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	// There is one slot more than there are processes at a time.
	ta := newTestArena(t, workers+2)
	ta.opts.Size = 32 << 20 // because the blocks that dead participants have allocated stay
	s := ta.join(t, "survivor", proctest.Limit(2*proctest.DefaultTimeout))
	start := func() *remote {
		w := ta.join(t, "worker")
		w.Send(order{Do: "work", Arena: ta.name, N: []int{0, 7, 50}[rng.IntN(3)]})
		return w
	}
	all := make([]*remote, workers)
	for i := range all {
		all[i] = start()
	}
	kills, stops := 0, 0
	for end := time.Now().Add(limit); time.Now().Before(end); {
		for range rng.IntN(8) { // let some time pass
			s.must(t, order{Do: "use", Text: "survivor's own"})
		}
		i := rng.IntN(workers)
		switch rng.IntN(4) {
		case 0: // stopped for a while
			all[i].Stop(t)
			for range 20 {
				s.must(t, order{Do: "use", Text: "survivor's own"})
			}
			all[i].Cont(t)
			stops++
		case 1: // several at once
			j := (i + 1 + rng.IntN(workers-1)) % workers
			all[i].Signal(t, unix.SIGKILL)
			all[j].Signal(t, unix.SIGKILL)
			all[i].WaitSignal(t, unix.SIGKILL)
			all[j].WaitSignal(t, unix.SIGKILL)
			all[i], all[j] = start(), start()
			kills += 2
		default:
			all[i].Signal(t, unix.SIGKILL)
			all[i].WaitSignal(t, unix.SIGKILL)
			all[i] = start()
			kills++
		}
	}
	for _, w := range all {
		w.Signal(t, unix.SIGKILL)
		w.WaitSignal(t, unix.SIGKILL)
	}
	s.alone(t, 1)
	told := map[ParticipantID]bool{}
	for _, d := range s.deaths(t, 1) { // the survivor reports a death after it has freed the slot
		require.False(t, told[d.Name()], "%v died twice", d.Name())
		told[d.Name()] = true
	}
	require.NotEmpty(t, told)
	require.LessOrEqual(t, len(told), kills+workers)
	// A participant that leaves cannot free a block that another participant guards. This block is freed when
	// the next participant in the slot leaves. So a process joins and leaves in each slot once more.
	next := make([]*remote, workers+1)
	for i := range next {
		next[i] = ta.join(t, "next")
	}
	for _, w := range next {
		w.close(t)
	}
	s.must(t, order{Do: "use", Text: "x"})
	s.must(t, order{Do: "clean"})
	a := s.must(t, order{Do: "stats"})
	require.Zero(t, a.Stats.Raw+a.Stats.Objects+a.Stats.Claimed+a.Stats.Nodes, "%+v\n%s%s", a.Stats, a.Text, dumpWords(ta.path()))
	t.Logf("%d kills, %d deaths told, %d stops", kills+workers, len(told), stops)
}
