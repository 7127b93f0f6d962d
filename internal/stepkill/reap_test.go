//go:build linux && amd64

package stepkill_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/stepkill"
	"github.com/shmsync/shmsync/shm"
)

// reap writes an image to a file of its own, and makes a newcomer join it. The newcomer reaps all participants of the
// image, and is then killed. The parameter after is the longest time from the beginning of the join to the kill. If it
// is negative, the newcomer is killed when the join is over.
//
// reap returns the bytes that the newcomer leaves, and how long the join has run. The newcomer is not single-stepped,
// because a join takes more instructions than an operation.
func (x *stage) reap(image []byte, after time.Duration) ([]byte, time.Duration) {
	t := x.t
	t.Helper()
	name := fmt.Sprintf("shmsync-test-reap-%d-%d", os.Getpid(), time.Now().UnixNano())
	path := "/dev/shm/" + name
	defer shm.Remove(name)
	require.NoError(t, stepkill.WriteImage(path, image))
	ctl, f, err := stepkill.NewControl()
	require.NoError(t, err)
	defer f.Close()
	t.Cleanup(func() { ctl.Close() })
	var successor *proctest.Proc
	if x.s.c != nil {
		successor = x.startC(name, "join", f)
	} else {
		successor = x.startWith("victim", victimParams{Arena: name, Scene: "arena/join", Object: object}, f)
	}
	successor.Await(t)
	ctl.Gate.Store(1)
	for end := time.Now().Add(proctest.Scale(limit)); ctl.Began.Load() == 0; {
		if time.Now().After(end) {
			t.Fatalf("%s: the reap does not begin: %v", x.s.name, successor.Kill(t))
		}
	}
	begun := time.Now()
	for end := begun.Add(proctest.Scale(limit)); ctl.Ended.Load() == 0 && (after < 0 || time.Since(begun) < after); {
		if time.Now().After(end) {
			t.Fatalf("%s: the reap does not end: %v", x.s.name, successor.Kill(t))
		}
	}
	took := time.Since(begun)
	successor.Signal(t, syscall.SIGKILL)
	successor.WaitSignal(t, syscall.SIGKILL)
	bytes, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes, took
}

// stopped begins an operation of a victim, and then stops the victim and the processes whose goroutines wait. The
// parameter after is the longest time from the beginning of the operation to the stop. stopped returns the bytes of the
// arena at the stop, and how long the operation has run. A copy of these bytes is an arena in which all participants
// are dead.
func (x *stage) stopped(after time.Duration) ([]byte, time.Duration) {
	t := x.t
	t.Helper()
	r := x.beginFree()
	procs := []*proctest.Proc{r.victim}
	if x.s.waiters > 0 {
		crowd := x.start("crowd")
		crowd.Await(t)
		procs = append(procs, crowd)
	}
	took := r.runFor(after, false)
	for _, p := range procs {
		p.Stop(t)
	}
	image, err := os.ReadFile(x.a.Path())
	require.NoError(t, err)
	for _, p := range procs {
		p.Signal(t, syscall.SIGKILL)
		p.WaitSignal(t, syscall.SIGKILL)
	}
	dead.Store(true)
	r.free(true)
	what := fmt.Sprintf("killed %v after it began, with a crowd", took)
	x.alone(func() string { return x.s.name + ", " + what })
	x.check(x.own, x.a, what)
	if x.s.fresh {
		require.NoError(t, x.own.close(), "%s, %s", x.s.name, what)
	}
	return image, took
}

// TestReapKills checks an arena in which all participants died during an operation. A joiner is killed while it reaps
// the dead participants, and so is the next joiner. The third joiner must find everything usable.
func TestReapKills(t *testing.T) {
	n, _ := kills()
	eachScene(t, func(x *stage) stats {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 5))
		x.t.Logf("seed %#x", seed)
		died["crowd"] = true
		defer delete(died, "crowd")
		upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d + shortest))) }
		image, operation := x.stopped(3 * time.Millisecond)
		_, reap := x.reap(image, -1)
		for range n {
			image, at := x.stopped(upTo(operation))
			operation = min(operation, at+shortest)
			what := fmt.Sprintf("all died %v after it began, its successors", at)
			for range 2 {
				after := upTo(reap)
				var took time.Duration
				image, took = x.reap(image, after)
				if took < after { // the join was over before the kill
					reap = min(reap, took+shortest)
				}
				x.limit.kills++
				what += fmt.Sprintf(" %v", took)
			}
			x.revive(image, what)
			x.limit.states++
		}
		return x.limit
	})
}
