//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A team member dies at each crash point that its work passes, at the first or a
// later passing; those that stay go on, and nothing is left over.
func TestTeamCrash(t *testing.T) {
	eachWorkload(t, func(t *testing.T, w workload) {
		require.NotEmpty(t, w.points)
		x := newTeam(t, w)
		x.goesOn("at first")
		r := rand.New(rand.NewPCG(x.seed, 2))
		for _, point := range pointsOf(t, w) {
			for k := range 2 {
				n := 1
				if k > 0 {
					n += r.IntN(20)
				}
				x.crashAt(point, n)
			}
		}
		x.end()
	})
}

func pointsOf(t *testing.T, w workload) (points []string) {
	for _, p := range w.points {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			for _, name := range crashpoint.All() {
				if strings.HasPrefix(name, prefix) {
					points = append(points, name)
				}
			}
			continue
		}
		require.Contains(t, crashpoint.All(), p)
		points = append(points, p)
	}
	return points
}

// crashAt has somebody die at the n'th passing of a point. Points that only who
// takes a latch after a death passes need a second victim, which may come too late.
func (x *team) crashAt(point string, n int) {
	x.t.Helper()
	what := fmt.Sprintf("%s:%d", point, n)
	second := slices.ContainsFunc([]string{"monitor.mend.", "monitor.sweep.", "mutex.recover.", "arena.node.inherited", "fairmutex.recover.", "multilock.recover.", "cond.pass.", "future.bury."}, func(p string) bool { return strings.HasPrefix(point, p) })
	if !second {
		x.launch(what, 2, proctest.Env("SHMSYNC_CRASHPOINT="+what)).WaitSignal(x.t, syscall.SIGKILL)
		x.goesOn(what)
		return
	}
	dies := "mutex.unlock.before_release"
	if kind, ok := strings.CutSuffix(point[:strings.LastIndexByte(point, '.')], ".recover"); ok && kind != "mutex" {
		dies = kind + ".lock.taken"
	} else if strings.HasPrefix(point, "cond.pass.") {
		dies = "cond.wait.woken"
	}
	for tries := 0; ; tries++ {
		require.Less(x.t, tries, 300, "no victim comes to %s", what)
		p := x.launch(what, 2, proctest.Env(fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:1", point)))
		first := x.launch("first", 3, proctest.Env(fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", dies, 1+tries%7)))
		first.WaitSignal(x.t, syscall.SIGKILL)
		select {
		case <-p.Done():
			p.WaitSignal(x.t, syscall.SIGKILL)
			x.goesOn(what)
			return
		case <-after(100 * time.Millisecond):
			p.Kill(x.t)
			x.goesOn(what + " (not passed)")
		}
	}
}
