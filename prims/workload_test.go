//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A workload is the work of several processes with the objects of one primitive. The work consists of turns.
// The processes take one turn after another, and are killed one after another. A turn is written so that it
// always ends, even if a process dies. If a turn does not end, a wake, a hold or a wait was lost. So each
// goroutine of the surviving processes has to go on, and at the end nothing may be left over.
type workload struct {
	name string
	// open opens the objects in a process.
	open func(a *arena.Arena) (worker, error)
	// points are the crash points that every process passes if it works long enough. A test kills a process at
	// each of them while it works.
	points []string
	// without are exceptions: crash points that a prefix in the field points includes, but that the workload does not
	// pass. Another test kills a process at each of them.
	without []string
	// nodes is the maximal number of waits that a goroutine has at a time; 0 means 1.
	nodes uint64
	// lists is how many additional lists of poller nodes the objects have, such as the lists of local locks or cells.
	// The first list of each object is not counted. A process that has waited on a list has a poller node in it.
	lists uint64
}

type worker interface {
	// turn takes one turn. g is the number of the goroutine. An error fails the test.
	turn(g int, r *rand.Rand) error
	// rest is called when all work has ended and the dead processes are reaped. It checks that nothing is left
	// over, and closes the objects.
	rest() error
}

// A halting worker has turns that may last until other goroutines take their turns, or until the work ends.
type halting interface {
	// until is called before the first turn. Its argument is a context that ends when the work ends.
	until(halted context.Context)
}

var workloads = map[string]workload{}

func addWorkload(w workload) {
	workloads[w.name] = w
	// All workloads share one helper process.
}

// workers is the number of goroutines that work in a process. It is larger than the number that may sleep in
// the kernel, so that some goroutines wait behind the poller.
const workers = 16

// workerGroupBoard is memory in which the processes of a worker group count their turns.
type workerGroupBoard struct {
	Turns [4][workers]atomic.Uint64 // by process; 0 is the test's own process
	Halt  atomic.Uint32             // 1 when the work ends
}

type workerGroupParams struct {
	Arena, Workload, Label string
	WaitNode               int
	Seed                   uint64
}

func init() {
	proctest.Register("worker group", func(c *proctest.Child) {
		var p workerGroupParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: p.Label})
		if err != nil {
			c.Fatal(err)
		}
		board, err := arena.Value[workerGroupBoard](a, "board")
		if err != nil {
			c.Fatal(err)
		}
		w, err := workloads[p.Workload].open(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := work(w, board, p.WaitNode, p.Seed); err != nil {
			c.Fatal(err)
		}
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// work makes the goroutines of a process take turns until the board says that the work ends.
func work(w worker, board *workerGroupBoard, waitNode int, seed uint64) error {
	if h, ok := w.(halting); ok {
		ctx, cancel := context.WithCancel(context.Background())
		ended, watched := make(chan struct{}), make(chan struct{})
		defer func() {
			close(ended)
			<-watched // the board may be unmapped from now on
		}()
		go func() {
			defer close(watched)
			defer cancel()
			for board.Halt.Load() == 0 {
				select {
				case <-after(10 * time.Millisecond):
				case <-ended:
					return
				}
			}
		}()
		h.until(ctx)
	}
	var wg sync.WaitGroup
	errs := make(chan error, workers)
	for g := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(waitNode*workers+g)))
			for board.Halt.Load() == 0 {
				if err := w.turn(g, r); err != nil {
					errs <- fmt.Errorf("goroutine %d: %w", g, err)
					board.Halt.Store(1)
					return
				}
				board.Turns[waitNode][g].Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// workerGroupTest is the label of the test's own process.
const workerGroupTest = "the test"

// workerGroup consists of the test's own process and a partner, which both stay, and of processes that join
// them and are killed.
type workerGroup struct {
	t       *testing.T
	w       workload
	a       *arena.Arena
	own     worker
	board   *workerGroupBoard
	partner *proctest.Proc
	done    chan error
	seed    uint64
}

func newWorkerGroup(t *testing.T, w workload) *workerGroup {
	t.Helper()
	x := &workerGroup{t: t, w: w, a: newArena(t, &arena.Options{Size: 16 << 20, Label: workerGroupTest}), seed: rand.Uint64(), done: make(chan error, 1)}
	t.Logf("seed %#x", x.seed)
	var err error
	x.board, err = arena.Value[workerGroupBoard](x.a, "board")
	require.NoError(t, err)
	x.own, err = w.open(x.a)
	require.NoError(t, err)
	x.partner = x.join("partner", 1)
	seed := x.seed // later launches change x.seed
	go func() { x.done <- work(x.own, x.board, 0, seed) }()
	t.Cleanup(func() { x.board.Halt.Store(1) })
	return x
}

// join starts a process that takes part in the work, and waits until the process works.
func (x *workerGroup) join(label string, waitNode int) *proctest.Proc {
	p := x.launch(label, waitNode)
	p.Await(x.t)
	return p
}

// launch does what join does, but does not wait until the process works.
func (x *workerGroup) launch(label string, waitNode int, opts ...proctest.Option) *proctest.Proc {
	x.seed++
	// On a busy machine a process may need more than a minute until it has passed a point 20 times. See also
	// reapLimit.
	opts = append(opts, proctest.Limit(8*proctest.DefaultTimeout),
		proctest.Params(workerGroupParams{Arena: nameOf(x.a), Workload: x.w.name, Label: label, WaitNode: waitNode, Seed: x.seed}),
		proctest.Dump(func() string { return words(x.a) + park.DescribeWaitNodes((*arenakernel.Arena)(x.a)) + x.stacks() }))
	return proctest.Start(x.t, "worker group", opts...)
}

// stacks returns the stacks of the working goroutines of this process.
func (x *workerGroup) stacks() string {
	buf := make([]byte, 1<<20)
	var b strings.Builder
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(s, ").turn(") || strings.Contains(s, "internal/park") {
			b.WriteString(s + "\n\n")
		}
	}
	return b.String()
}

// goesOn requires that every goroutine of the surviving processes takes more turns.
func (x *workerGroup) goesOn(what string) {
	x.t.Helper()
	var before [2][workers]uint64
	for s := range before {
		for g := range workers {
			before[s][g] = x.board.Turns[s][g].Load()
		}
	}
	behind := func() (late []string) {
		for s := range before {
			for g := range workers {
				if x.board.Turns[s][g].Load() < before[s][g]+2 {
					late = append(late, fmt.Sprintf("%d/%d", s, g))
				}
			}
		}
		return late
	}
	eventually(x.t, what+": all go on", func() string {
		return "late are " + strings.Join(behind(), " ") + "\n" + words(x.a)
	}, func() bool {
		if x.board.Halt.Load() != 0 {
			x.failed(what)
		}
		return len(behind()) == 0
	})
}

// failed ends the test after a goroutine has reported an error and has made the others halt. If that goroutine
// is in this process, failed reports its error. Otherwise the cleanup reports the error of the other process.
func (x *workerGroup) failed(what string) {
	x.t.Helper()
	select {
	case err := <-x.done:
		require.NoError(x.t, err, what)
		x.t.Fatalf("%s: another process failed", what)
	case <-after(timeout()):
		x.t.Fatalf("%s: somebody failed, and the test's own goroutines do not end\n%s%s", what, words(x.a), x.stacks())
	}
}

// end ends the work of all processes, and checks that nothing is left over.
func (x *workerGroup) end() {
	x.t.Helper()
	x.board.Halt.Store(1)
	select {
	case err := <-x.done:
		require.NoError(x.t, err)
	case <-after(timeout()):
		x.t.Fatalf("the test's own goroutines do not end\n%s", words(x.a))
	}
	x.partner.WaitExit(x.t)
	alone(x.t, x.a, 1)
	require.NoError(x.t, x.own.rest())
	sound(x.t, x.a)
	// The number of nodes is the largest number that was ever in use at a time. A node that is about to be
	// freed counts as in use.
	st := x.a.Stats()
	x.t.Logf("%d nodes of waits, %d of pollers", st.Nodes-st.PollerNodes, st.PollerNodes)
	// A node that its waiter does not use any more may still be on the ready stack. So on a busy machine a goroutine
	// may have several nodes. Measurements gave 0 to 27. If each turn left a node, there would be thousands.
	require.LessOrEqual(x.t, st.Nodes-st.PollerNodes, 10*max(x.w.nodes, 1)*workers, "nodes of waits, of this process alone")
	// The next process that needs a poller node takes over one that a dead process has left. Only the nodes of the
	// process that died last may stay unused.
	require.LessOrEqual(x.t, st.PollerNodes, (st.Objects+x.w.lists)*workerGroupMost+2*workerGroupMost, "poller nodes")
}

// workerGroupMost is how many processes work at a time, including dead processes that are not fully reaped.
const workerGroupMost = 5

// erase closes a handle of a new object at off. Then it deletes the object, unless another process has it open
// at the moment.
func erase(a *arena.Arena, off arena.Offset, handle interface{ Close() error }) error {
	o, err := (*arenakernel.Arena)(a).ObjectAt(off)
	if err != nil {
		return err
	}
	(*arenakernel.Arena)(a).CloseObject(o)
	if err := handle.Close(); err != nil {
		return err
	}
	a.DeleteObject(arena.Object(o))
	return nil
}

// The function ends calls f, either with a context that ends soon, or with one that does not end.
func ends(r *rand.Rand, f func(ctx context.Context) error) error {
	ctx, cancel := context.Background(), func() {}
	switch r.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(300))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(ctx)
	}
	defer cancel()
	return f(ctx)
}

// gaveUp reports whether err says that a context has ended.
func gaveUp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func eachWorkload(t *testing.T, f func(t *testing.T, w workload)) {
	only := os.Getenv("SHMSYNC_TEST_WORKLOAD")
	for name, w := range workloads {
		if only == "" || only == name {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // much of the time is spent on starting and ending processes
				f(t, w)
			})
		}
	}
}

// TestWorkerGroupSurvives: a process of a worker group is killed at a random moment. The others go on.
func TestWorkerGroupSurvives(t *testing.T) {
	kills := proctest.Rounds(4, 6)
	if proctest.Quick() {
		kills = 1
	}
	eachWorkload(t, func(t *testing.T, w workload) {
		x := newWorkerGroup(t, w)
		x.goesOn("at first")
		for k := range kills {
			p := x.join(fmt.Sprintf("victim-%d", k), 2)
			r := rand.New(rand.NewPCG(x.seed, 1))
			<-after(time.Duration(r.IntN(20_000)) * time.Microsecond)
			p.Kill(t)
			x.goesOn(fmt.Sprintf("after kill %d", k))
		}
		x.end()
	})
}

// TestWorkerGroupSurvivesStop: a stopped process delays other processes only if they need something that it
// holds. When it is continued, it goes on.
func TestWorkerGroupSurvivesStop(t *testing.T) {
	stops := 5
	if proctest.Quick() {
		stops = 1
	}
	eachWorkload(t, func(t *testing.T, w workload) {
		x := newWorkerGroup(t, w)
		p := x.join("stopped", 2)
		x.goesOn("at first")
		for range stops {
			p.Stop(t)
			p.Cont(t)
			x.goesOn("after a stop")
		}
		p.Kill(t)
		x.goesOn("after the kill")
		x.end()
	})
}

var errLeft = errors.New("something is left over")

func identityOf(err error) *shmsync.Identity {
	var e *shmsync.Error
	if errors.As(err, &e) {
		return e.Who
	}
	return nil
}
