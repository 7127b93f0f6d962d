//go:build linux

package prims_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestWorkerGroupHostile: a peer writes random values into the words of objects. Processes that use the objects
// get errors or wait, and can leave the arena. No call faults or loops for ever.
func TestWorkerGroupHostile(t *testing.T) {
	rounds, length := proctest.Rounds(2, 6), 200*time.Millisecond
	if proctest.Quick() {
		length /= 5
	}
	eachWorkload(t, func(t *testing.T, w workload) {
		for round := range rounds {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			a := newArena(t, &arena.Options{Size: 16 << 20})
			// A process that is ready has created its objects.
			p := proctest.Start(t, "scribbled", proctest.Params(workerGroupParams{Arena: nameOf(a), Workload: w.name, Label: "scribbled", Seed: seed}),
				proctest.Dump(func() string { return words(a) }),
				// If a peer overwrites a lock, mutual exclusion no longer holds, and the race detector reports that.
				proctest.Env("GORACE=exitcode=0 atexit_sleep_ms=0"))
			p.Await(t)
			r := rand.New(rand.NewPCG(seed, 7))
			for end := time.Now().Add(length); time.Now().Before(end); {
				scribble(a, r, round%2 == 0)
			}
			p.Send("end")
			p.WaitExit(t)
		}
	})
}

// scribble writes random values into words of objects and of queued nodes. A body begins with the words that each
// call reads first: a single word, such as a commit word, or the words of a Mutex. While these are corrupt, each call
// fails before it reads the rest of the body. So if firstWords is false, scribble changes only the rest.
func scribble(a *arena.Arena, r *rand.Rand, firstWords bool) {
	word := func() uint64 {
		switch r.IntN(4) {
		case 0:
			return 0
		case 1:
			return 1 << r.IntN(64)
		case 2:
			return uint64(r.IntN(1 << 24))
		}
		return r.Uint64()
	}
	for o := range a.Objects() {
		if o.Kind == arenakernel.KindValue || o.Kind == arenakernel.KindBlock {
			continue
		}
		first := arena.Offset(8)
		if prims.BeginsWithMutex(o.Kind) {
			first = 192
		}
		for range 4 {
			off := o.Body + arena.Offset(8*r.IntN(int(min(o.Size, 1024)/8)))
			if !firstWords && off-o.Body < first {
				continue
			}
			arena.At[atomic.Uint64](a, off).Store(word())
		}
		(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
			switch r.IntN(12) {
			case 0:
				n.Next().Store(word())
			case 1:
				n.Stamp().Store(word())
			case 2:
				n.Extra().Store(word())
			case 3:
				n.Wanted().Store(word())
			case 4:
				n.Word().Store(uint32(word()))
			}
		})
	}
}

// scribbled is true while a peer scribbles on the objects of this process.
var scribbled atomic.Bool

// goOn reports whether a worker that waits in a loop should go on after n rounds. If a peer scribbles on the
// objects of the process, the worker gives up after some rounds, because it may wait for something that never
// happens.
func goOn(n int) bool { return n < 1000 || !scribbled.Load() }

func init() {
	proctest.Register("scribbled", func(c *proctest.Child) {
		var p workerGroupParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: p.Label})
		if err != nil {
			c.Fatal(err)
		}
		w, err := workloads[p.Workload].open(a)
		if err != nil {
			c.Fatal(err)
		}
		scribbled.Store(true)
		var halt atomic.Bool
		var wg sync.WaitGroup
		var busy atomic.Int64
		for g := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(p.Seed, uint64(g)))
				for !halt.Load() {
					// The worker may compute wrong results, because a peer overwrites the words.
					if err := tolerant(func() { w.turn(g, r) }); err != nil {
						c.Fatal(err)
					}
					busy.Add(1)
				}
			})
		}
		c.Ready()
		c.Await()
		halt.Store(true)
		// Wait until all goroutines that are not waiting have ended their turns. A Close during a turn would be
		// a mistake of this test.
		for last, quiet := int64(-1), 0; quiet < 20; {
			if n := busy.Load(); n != last || atTurn() {
				last, quiet = n, 0
			}
			quiet++
			<-after(10 * time.Millisecond)
		}
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
		wg.Wait()
	})
}

// atTurn reports whether a goroutine of this process is in a turn and is not waiting.
func atTurn() bool {
	buf := make([]byte, 1<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, _, _ := strings.Cut(s, "\n")
		if strings.Contains(s, ").turn(") && strings.Contains(head, "[runn") {
			return true
		}
	}
	return false
}

// tolerant runs f. It returns an error if f panics for a reason that damaged words cannot explain.
func tolerant(f func()) (failure error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *shmsync.Error:
		case string:
			if !strings.HasPrefix(p, "shmsync: ") {
				failure = fmt.Errorf("panic: %s\n%s", p, debug.Stack())
			}
		default:
			failure = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

func TestTolerant(t *testing.T) {
	require.NoError(t, tolerant(func() {}))
	require.NoError(t, tolerant(func() { panic("shmsync: no") }))
	require.NoError(t, tolerant(func() { panic(&shmsync.Error{}) }))
	require.Error(t, tolerant(func() { panic("no") }))
	require.Error(t, tolerant(func() { _ = []int{}[len(t.Name())] }))
}
