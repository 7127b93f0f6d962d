//go:build linux

package cinterop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// A groupKind is the work of a group of agents on one object. Any of the agents may be killed.
type groupKind struct {
	kind   string
	open   []any    // arguments of the verb that opens the object
	points []string // prefixes of the names of crash points that the work passes
	// The function rest checks the state at the end. The parameter killed is the number of processes that were killed.
	rest func(t *testing.T, x *agent, killed int)
}

var groups = []groupKind{
	{"queue", []any{16}, []string{"queue."}, func(t *testing.T, x *agent, killed int) {
		// Each thread puts an item before it takes one. So each killed thread leaves at most one item.
		left := 0
		eventually(t, "nobody has an item on lease", x.arena, func() bool {
			for x.start(t, "queue.get", "x", 1).wait(t).err == 0 {
				left++
			}
			return x.do(t, "queue.len", "x") == 0
		})
		require.LessOrEqual(t, left, killed*groupThreads)
	}},
	{"event", []any{1}, []string{"event."}, nil},
	{"seq", nil, []string{"sequencer."}, func(t *testing.T, x *agent, _ int) { x.do(t, "seq.reset", "x", 0) }},
	{"fair", nil, []string{"fairmutex.", "record.", "park.waitnode."}, nil},
	{"multi", []any{0, 1}, []string{"multilock.", "record.", "park.waitnode."}, func(t *testing.T, x *agent, _ int) { allKeysFree(t, x) }},
	{"rw", nil, []string{"rwmutex."}, nil},
	{"spin", nil, []string{"spinlock."}, nil},
	{"rwspin", nil, []string{"rwspinlock."}, nil},
	{"cond", nil, []string{"cond.", "record.", "park.waitnode."}, nil},
	{"wg", nil, []string{"counter."}, func(t *testing.T, x *agent, killed int) {
		if killed == 0 {
			require.Zero(t, x.do(t, "wg.count", "x"))
		}
	}},
	{"barrier", []any{2}, []string{"barrier.", "counter.commit.", "eventcount."}, nil},
	{"future", nil, []string{"future.", "eventcount."}, nil},
	{"once", nil, []string{"once."}, nil},
	{"sig", []any{2, 1}, []string{"signal."}, func(t *testing.T, x *agent, killed int) {
		var left uint64
		eventually(t, "every gate is idle", x.arena, func() bool {
			x.do(t, "sig.drain", "x")
			left = x.do(t, "sig.left", "x")
			return left>>32 == 0 && x.do(t, "sig.reserved", "x") == 0 && x.do(t, "sig.sleepers", "x") == 0
		})
		// Each thread puts an item and then announces it. So each killed thread leaves at most one item that is not
		// announced.
		require.LessOrEqual(t, int(left), killed*groupThreads)
	}},
	{"sync", nil, []string{"synchronized."}, func(t *testing.T, x *agent, _ int) {
		require.Equal(t, x.do(t, "sync.commits", "x"), x.do(t, "sync.load", "x"))
	}},
	{"sem", []any{3}, []string{"semaphore.", "record.", "park.waitnode."}, func(t *testing.T, x *agent, _ int) {
		eventually(t, "all permits are back", x.arena, func() bool { return x.do(t, "sem.free", "x") == 3 })
	}},
}

const (
	groupThreads = 2
	groupTurnsN  = 60
)

// The ways in which the first process of a group dies, if no crash point in its environment kills it.
const (
	dieAsTold   = iota
	dieAlone    // before the others begin their work
	dieRandomly // after a random time
)

// run makes a group of three agents work on an object. The first agent gets the environment env. run reports
// whether that agent died.
func (k groupKind) run(t *testing.T, langs [3]string, how int, env ...string) (died bool) {
	name := newArena(t)
	b, c := newAgent(t, langs[1], name, "b"), newAgent(t, langs[2], name, "c")
	open := b.start(t, k.kind+".open", "x", k.open...).wait(t)
	if open.err == 0 {
		open.err = c.start(t, k.kind+".open", "x", k.open...).wait(t).err
	}
	require.Zero(t, open.err)
	a := newAgent(t, langs[0], name, "a", env...)
	a.mortal = len(env) > 0
	var work []pending
	var own []pending
	for range groupThreads {
		own = append(own, a.start(t, "group."+k.kind, "x", groupTurnsN))
	}
	if how == dieAlone {
		died = a.dies(t, own)
		own = nil
	}
	for range groupThreads {
		work = append(work, b.start(t, "group."+k.kind, "x", groupTurnsN), c.start(t, "group."+k.kind, "x", groupTurnsN))
	}
	if how == dieRandomly {
		pause := syscall.NsecToTimespec(rand.Int64N(20e6))
		syscall.Nanosleep(&pause, nil)
		a.kill(t)
	}
	for _, w := range work {
		require.EqualValues(t, groupTurnsN, w.must(t), w.what)
	}
	killed := 0
	if died = a.dies(t, own) || died; died {
		killed = 1
	}
	eventually(t, "nobody waits", name, func() bool { return c.do(t, "waiters", "-", open.n) == 0 })
	if k.rest != nil {
		k.rest(t, c, killed)
	}
	return died
}

// dies waits until the orders of the agent are done or the agent is dead, and reports whether it is dead.
func (x *agent) dies(t *testing.T, orders []pending) bool {
	for _, p := range orders {
		select {
		case <-x.ended:
			return true
		case a := <-p.c:
			require.Zero(t, a.err, "%s: %v\n%s", p.what, a.err, x.stderr)
		case <-time.After(timeout):
			t.Fatalf("%s is not done\n%s", p.what, describe(x.arena))
		}
	}
	return false
}

// No work is lost when a C or a Go process is killed at any moment.
func TestGroupKilled(t *testing.T) {
	t.Parallel()
	for _, k := range groups {
		t.Run(k.kind, func(t *testing.T) {
			for _, langs := range proctest.Sample([][3]string{{"c", "go", "c"}, {"go", "c", "go"}, {"go", "c", "c"}, {"c", "go", "go"}}, 1) {
				t.Run(strings.Join(langs[:], "-"), func(t *testing.T) { k.run(t, langs, dieRandomly) })
			}
		})
	}
}

var pointCall = regexp.MustCompile(`SHMSYNC_CRASHPOINT\("([^"]+)"\)`)

// groupPoints returns the crash points of the C header.
func groupPoints(t *testing.T) (names []string) {
	parts, err := filepath.Glob(filepath.Join("..", "..", "include", "parts", "*.h"))
	require.NoError(t, err)
	for _, p := range parts {
		src, err := os.ReadFile(p)
		require.NoError(t, err)
		for _, m := range pointCall.FindAllStringSubmatch(string(src), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupRare lists prefixes of crash points that a group may not pass, because another process must die or be stopped
// first.
var groupRare = []string{
	"fairmutex.recover.", "future.reap.", "event.wait.before_pass", "sequencer.reset.",
	"sequencer.stop.", "barrier.complete.", "barrier.reset.", "barrier.reap.", "barrier.tell.", "spinlock.recover.", "spinlock.owner_dead.", "spinlock.lock.leaving", "rwspinlock.drain.given_up", "rwmutex.recover.", "rwmutex.rollback.", "rwmutex.owner_dead.", "rwmutex.lock.leaving", "rwmutex.rlock.leaving", "semaphore.", "multilock.recover.", "signal.reap.",
	"counter.reap.", "counter.wait.", // TestKillWaitGroup
	"once.reap.", "once.wait.", // TestKillOnce
	"queue.reap.", "queue.shutdown.", "queue.wait.", // TestKillQueue
	"future.end.", "eventcount.wait.", // TestKillFuture
	"event.turn.", // TestKillEvent
}

func hasPrefix(prefixes []string, point string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(point, p) })
}

// groupTries is how many groups run after the first two, to reach a crash point that the first two did not pass.
const groupTries = 10

// A C process is killed at each crash point.
func TestGroupCrash(t *testing.T) {
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: it takes a minute")
	}
	all, passed := groupPoints(t), map[string]bool{}
	var ran []string
	for _, k := range groups {
		t.Run(k.kind, func(t *testing.T) {
			ran = append(ran, k.points[0])
			for _, point := range all {
				if !hasPrefix(k.points, point) {
					continue
				}
				t.Run(point, func(t *testing.T) {
					at := fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", point, 1+rand.IntN(3))
					langs := [3]string{"c", "go", "c"}
					if k.run(t, langs, dieAsTold, at) || k.run(t, langs, dieAlone, "SHMSYNC_CRASHPOINT="+point) {
						passed[point] = true
					}
					for try := 0; try < groupTries && !passed[point] && !hasPrefix(groupRare, point); try++ {
						passed[point] = k.run(t, langs, dieAsTold, "SHMSYNC_CRASHPOINT="+point)
					}
				})
			}
		})
	}
	for _, point := range all {
		if hasPrefix(ran, point) && !hasPrefix(groupRare, point) {
			assert.True(t, passed[point], "no group passes %s", point)
		}
	}
}
