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

// TestWorkerGroupCrash: a member of a worker group dies at each crash point that its work passes, when it
// passes the point for the first time or later. The others go on, and nothing is left over.
func TestWorkerGroupCrash(t *testing.T) {
	eachWorkload(t, func(t *testing.T, w workload) {
		require.NotEmpty(t, w.points)
		x := newWorkerGroup(t, w)
		x.goesOn("at first")
		r := rand.New(rand.NewPCG(x.seed, 2))
		for _, point := range pointsOf(t, w) {
			n := 1
			if r.IntN(2) == 0 {
				n += r.IntN(20)
			}
			x.crashAt(point, n)
		}
		x.end()
	})
}

// pointsOf returns the crash points that a workload passes.
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
	for _, p := range w.without {
		require.Contains(t, points, p)
	}
	return slices.DeleteFunc(points, func(p string) bool { return slices.Contains(w.without, p) })
}

// reapLimit bounds how long the test waits for the victim to reap a dead process. The test kills other processes for
// it, one after the other, and the partner or the test may reap them. For some crash points that can take a hundred
// deaths.
func reapLimit() time.Duration { return 5 * timeout() }

// crashAt makes a process die when it passes a point for the n'th time. Some points are passed only by a
// process that reaps or repairs after a death. For such a point, other processes die while the victim works.
func (x *workerGroup) crashAt(point string, n int) {
	x.t.Helper()
	what := fmt.Sprintf("%s:%d", point, n)
	second := slices.ContainsFunc([]string{
		"mutex.recover.", "arena.node.inherited", "fairmutex.recover.", "multilock.recover.", "cond.settle.", "future.reap.", "record.reap.",
	}, func(p string) bool { return strings.HasPrefix(point, p) })
	if !second {
		x.launch(what, 2, proctest.Env("SHMSYNC_CRASHPOINT="+what)).WaitSignal(x.t, syscall.SIGKILL)
		x.goesOn(what)
		return
	}
	// The other process dies at a point where it leaves something to repair for the next process, which may be
	// the victim.
	dies := "mutex.unlock.before_release"
	if kind, ok := strings.CutSuffix(point[:strings.LastIndexByte(point, '.')], ".recover"); ok && kind != "mutex" {
		dies = kind + ".lock.accepted"
	} else if strings.HasPrefix(point, "cond.settle.") {
		dies = "cond.wait.woken"
	} else if strings.HasPrefix(point, "future.reap.") {
		dies = "future.claim.claimed"
	} else if strings.HasPrefix(point, "record.reap.") {
		dies = "record.commit.named" // any death will do: then a call visits the queued waits, and passes these points
	}
	p := x.launch(what, 2, proctest.Env(fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:1", point)))
	begun := time.Now()
	for tries := 0; time.Since(begun) < reapLimit(); tries++ {
		x.launch("first", 3, proctest.Env(fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", dies, 1+tries%7))).WaitSignal(x.t, syscall.SIGKILL)
		select {
		case <-p.Done():
			p.WaitSignal(x.t, syscall.SIGKILL)
			x.goesOn(what)
			return
		case <-after(20 * time.Millisecond):
			x.goesOn(what + " (not passed)")
		}
	}
	x.t.Fatalf("the victim does not pass %s", what)
}
