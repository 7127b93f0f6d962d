//go:build linux

package arenakernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// without starts an agent that behaves as if the kernel lacked the given features.
func without(features string) proctest.Option { return proctest.Env("SHMSYNC_DISABLE=" + features) }

// fallbacks are sets of features that a kernel may lack.
var fallbacks = []string{
	"", "robust", "waitv", "membarrier", "ofd", "threads",
	"robust,waitv", "robust,membarrier", "waitv,membarrier", "ofd,waitv", "ofd,membarrier",
	"robust,waitv,membarrier", "ofd,waitv,membarrier", "robust,threads", "membarrier,threads",
}

// TestFallbacks: deaths are noticed whatever features are missing, whether they are missing in the
// process that dies or in the process that has to notice.
func TestFallbacks(t *testing.T) {
	for _, missing := range fallbacks {
		for side, on := range map[string][2]string{
			"both": {missing, missing}, "the watchers": {missing, ""}, "the watched": {"", missing},
		} {
			if testing.Short() && side != "both" || missing == "" && side != "both" {
				continue
			}
			t.Run(fmt.Sprintf("without %s on %s", missing, side), func(t *testing.T) {
				t.Parallel()
				if strings.Contains(missing, "ofd") && !shmsync.FeatureRobustList.Have() {
					t.Skip("needs robust lists to notice a death without byte locks; TestNoWayToTellADeath tests that case")
				}
				testFallback(t, without(on[0]), without(on[1]), on[1])
			})
		}
	}
}

func testFallback(t *testing.T, ours, theirs proctest.Option, missing string) {
	ta := newTestArena(t, 4)
	s := ta.join(t, "survivor", ours)
	v, w := ta.join(t, "victim", theirs), ta.join(t, "leaver", theirs)
	notice := "robust"
	if strings.Contains(missing, "robust") || !shmsync.FeatureRobustList.Have() {
		notice = "ofd"
	}
	for _, p := range s.participants(t)[1:] {
		require.Equal(t, "live", p.State)
		require.Equal(t, notice, p.Notice)
		if strings.Contains(missing, "membarrier") {
			require.False(t, p.Fenced)
		}
	}
	v.must(t, order{Do: "lock", Text: "held"})
	v.must(t, order{Do: "use", Text: "x"})
	w.must(t, order{Do: "lock", Text: "held too"})
	w.close(t)
	s.must(t, order{Do: "lock", Text: "held too"})

	begin := shmsync.Monotonic()
	v.Signal(t, unix.SIGKILL)
	d := s.deaths(t, 1)[0]
	took := requireWithin(t, bound(), begin, d.At, "death without "+missing)
	require.Equal(t, v.self, d.Name())
	s.must(t, order{Do: "lock", Text: "held"})
	s.alone(t, 1)
	s.stats(t)

	// The arena fills up, all participants die, and the next joiner recovers everything.
	members := []*remote{s}
	for i := range 3 {
		members = append(members, ta.join(t, fmt.Sprint("late ", i), theirs))
	}
	for _, m := range members {
		m.Signal(t, unix.SIGKILL)
	}
	for _, m := range members {
		m.Wait(t)
	}
	n := ta.join(t, "newcomer", ours)
	n.alone(t, 1)
	n.must(t, order{Do: "lock", Text: "held"})
	n.must(t, order{Do: "lock", Text: "held too"})
	n.stats(t)
	t.Logf("told after %v", took.Round(10*time.Microsecond))
}

// TestNoWayToTellADeath: a process cannot join if no peer could notice its death.
func TestNoWayToTellADeath(t *testing.T) {
	ta := newTestArena(t, 2)
	s := ta.join(t, "s")
	v := ta.start(t, without("robust,ofd"))
	for range 3 {
		a := v.try(t, order{Do: "open", Arena: ta.name, Opts: &ta.opts})
		require.Equal(t, []string{"unsupported"}, a.Is, a.Err)
		require.Contains(t, a.Err, ta.path())
		require.Contains(t, a.Err, "nobody could tell")
	}
	// The process that was refused has left nothing behind.
	s.alone(t, 1)
	n := ta.join(t, "n")
	s.alone(t, 2)
	n.must(t, order{Do: "use", Text: "x"})
}

// TestJoinersWithoutALock: joiners without a byte lock join and leave while other participants
// check byte locks.
func TestJoinersWithoutALock(t *testing.T) {
	rounds := proctest.Rounds(3, 12)
	ta := newTestArena(t, 4)
	s := ta.join(t, "survivor")
	for i := range rounds {
		v := ta.join(t, "victim", without("ofd"))
		v.must(t, order{Do: "use", Text: "x"})
		if i%2 == 0 {
			v.close(t)
		} else {
			v.Kill(t)
			require.Len(t, s.deaths(t, i/2+1), i/2+1)
		}
		s.alone(t, 1)
	}
}
