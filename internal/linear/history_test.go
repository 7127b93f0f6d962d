//go:build linux

package linear

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// call is the input of a model: the operation that is called.
type call struct {
	Proc int // the process that calls, or that dies
	Op   string
	Arg  uint64
	// Beside says that another call overlapped this one. If so, a Try may fail because the other call was waiting, or
	// was preempted in the middle.
	Beside bool
}

// result is the output of a model: what the operation returned.
type result struct {
	Out  uint64
	OK   bool
	Err  string // a constant below, or the text of another error
	Open bool   // the call has not returned, and its process is dead
}

// The errors that a history distinguishes.
const (
	ended     = "context ended"
	ownerDead = "owner dead"
)

func wordOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return ended
	case errors.Is(err, shmsync.ErrOwnerDead):
		return ownerDead
	}
	return err.Error()
}

func done(err error) result { return result{OK: err == nil, Err: wordOf(err)} }

const opDies = "dies"

// subject is a primitive whose histories the tests record and check.
type subject struct {
	name  string
	open  func(a *arena.Arena) (client, error)
	model porcupine.Model
	bad   []porcupine.Operation // a history that the model has to refuse
	// steps splits a call into several steps, each of which takes effect by itself. If it is nil, each call is
	// one step.
	steps func(porcupine.Operation) []porcupine.Operation
}

// client makes one random call. Several goroutines of a process may use it. The parameter log is a function that
// records the beginning of the call, calls f, and records the end of the call with the result of f.
type client func(r *rand.Rand, log func(op string, arg uint64, f func() result))

var subjects = map[string]subject{}

// line is one line of the log of a process: the beginning or the end of a call.
type line struct {
	Client int
	Op     string `json:",omitempty"` // only at the beginning of a call
	Arg    uint64 `json:",omitempty"`
	Result *result
	At     int64
}

const (
	goroutines = 2
	callsEach  = 25
)

type workerParams struct {
	Arena, Subject string
	Seed           uint64
}

func init() {
	proctest.Register("worker", func(c *proctest.Child) {
		var p workerParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: "worker"})
		if err != nil {
			c.Fatal(err)
		}
		run, err := subjects[p.Subject].open(a)
		if err != nil {
			c.Fatal(err)
		}
		out := c.File(0)
		var mu sync.Mutex
		say := func(l line) {
			b, err := json.Marshal(l)
			if err != nil {
				c.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if _, err := out.Write(append(b, '\n')); err != nil {
				c.Fatal(err)
			}
		}
		c.Ready()
		c.Await()
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(p.Seed, uint64(g)))
				calls := 0
				for calls < callsEach {
					run(r, func(op string, arg uint64, f func() result) {
						calls++
						// Log the beginning before the call, because this process may be killed in the middle of the call.
						say(line{Client: g, Op: op, Arg: arg, At: shmsync.Monotonic()})
						res := f()
						say(line{Client: g, Result: &res, At: shmsync.Monotonic()})
					})
				}
			})
		}
		wg.Wait()
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// worker is a process that makes calls.
type worker struct {
	id     int
	p      *proctest.Proc
	lines  []line // complete when the channel read is closed
	read   chan struct{}
	killed int64 // the time of the kill; 0 if the process ended by itself
	reaped int64
}

func startWorker(t *testing.T, a *arena.Arena, s string, id int, seed uint64) *worker {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	x := &worker{id: id, read: make(chan struct{})}
	x.p = proctest.Start(t, "worker", proctest.Files(w), proctest.Params(workerParams{filepath.Base(a.Path()), s, seed}))
	go func() {
		defer close(x.read)
		defer r.Close()
		b := bufio.NewReader(r)
		for {
			text, err := b.ReadBytes('\n')
			if err != nil {
				if err != io.EOF {
					panic(err)
				}
				return // ignore a line that was cut off
			}
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				panic(err)
			}
			x.lines = append(x.lines, l)
		}
	}()
	x.p.Await(t)
	return x
}

// operations returns the operations of a worker: it combines the two lines of each call, and adds the death.
func (x *worker) operations() (ops []porcupine.Operation) {
	open := map[int]*line{}
	for i := range x.lines {
		l := &x.lines[i]
		if l.Result == nil {
			open[l.Client] = l
			continue
		}
		b := open[l.Client]
		delete(open, l.Client)
		ops = append(ops, porcupine.Operation{ClientId: x.id*goroutines + l.Client,
			Input: call{Proc: x.id, Op: b.Op, Arg: b.Arg}, Call: b.At, Output: *l.Result, Return: l.At})
	}
	for c, b := range open {
		ops = append(ops, porcupine.Operation{ClientId: x.id*goroutines + c,
			Input: call{Proc: x.id, Op: b.Op, Arg: b.Arg}, Call: b.At, Output: result{Open: true}, Return: x.reaped})
	}
	if x.killed != 0 {
		ops = append(ops, porcupine.Operation{ClientId: 100 + x.id,
			Input: call{Proc: x.id, Op: opDies}, Call: x.killed, Output: result{}, Return: x.reaped})
	}
	return ops
}

// history returns a history of three processes. Two of them may be killed at random moments.
func history(t *testing.T, s subject, seed uint64) []porcupine.Operation {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 99))
	name := fmt.Sprintf("shmsync-test-linear-%d-%d", os.Getpid(), seed)
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	defer a.Close()
	defer shm.Remove(name)
	var workers []*worker
	for id := range 3 {
		workers = append(workers, startWorker(t, a, s.name, id, seed+uint64(id)))
	}
	for _, w := range workers {
		w.p.Send("go")
	}
	for _, w := range workers[1:] {
		if wait := time.Duration(r.IntN(4000)) * time.Microsecond; r.IntN(4) > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-w.p.Done():
			}
			at := shmsync.Monotonic()
			if w.p.Kill(t).Signal != 0 {
				w.killed = at
			}
		}
	}
	for _, w := range workers {
		if w.killed == 0 {
			w.p.WaitExit(t)
		}
	}
	for present := 2; present > 1; {
		present = 0
		for range a.Participants() {
			present++
		}
		runtime.Gosched()
	}
	var ops []porcupine.Operation
	for _, w := range workers {
		<-w.read
		w.reaped = shmsync.Monotonic()
		ops = append(ops, w.operations()...)
	}
	for i := range ops {
		c := ops[i].Input.(call)
		for j := range ops {
			c.Beside = c.Beside || i != j && ops[j].Call <= ops[i].Return && ops[i].Call <= ops[j].Return
		}
		ops[i].Input = c
	}
	return s.inSteps(ops)
}

// inSteps returns the history with each call replaced by its steps.
func (s subject) inSteps(ops []porcupine.Operation) (steps []porcupine.Operation) {
	if s.steps == nil {
		return ops
	}
	for _, o := range ops {
		steps = append(steps, s.steps(o)...)
	}
	return steps
}

func describe(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(x, y porcupine.Operation) int { return int(x.Call - y.Call) })
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "%3d %12d..%12d %+v -> %+v\n", o.ClientId, o.Call-ops[0].Call, o.Return-ops[0].Call, o.Input, o.Output)
	}
	return b.String()
}

// partial returns, as text, the longest legal order of calls that the checker has found.
func partial(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, lists := range info.PartialLinearizationsOperations() {
		for _, l := range lists {
			if len(l) > len(longest) {
				longest = l
			}
		}
	}
	var b strings.Builder
	for _, o := range longest {
		fmt.Fprintf(&b, "%3d %+v -> %+v\n", o.ClientId, o.Input, o.Output)
	}
	return b.String()
}

func TestLinearizable(t *testing.T) {
	rounds := proctest.Rounds(20, 200)
	if n := os.Getenv("SHMSYNC_TEST_LINEAR_ROUNDS"); n != "" {
		_, err := fmt.Sscan(n, &rounds)
		require.NoError(t, err)
	}
	for name, s := range subjects {
		t.Run(name, func(t *testing.T) {
			checked, calls, deaths, unknown := 0, 0, 0, 0
			// On a slow machine the check of a history may take too long. Then another history is recorded.
			for checked < rounds && unknown < 4*rounds {
				seed := rand.Uint64N(math.MaxInt64)
				ops := history(t, s, seed)
				verdict, info := porcupine.CheckOperationsVerbose(s.model, ops, 20*time.Second)
				switch verdict {
				case porcupine.Illegal:
					t.Fatalf("seed %#x: not linearizable:\n%s\nthe longest legal order that was found:\n%s", seed, describe(ops), partial(info))
				case porcupine.Unknown:
					unknown++
					continue
				}
				checked++
				calls += len(ops)
				for _, o := range ops {
					if o.Input.(call).Op == opDies {
						deaths++
					}
				}
			}
			t.Logf("%d histories, %d calls, %d deaths; %d histories took too long to check", checked, calls, deaths, unknown)
			require.Equal(t, rounds, checked)
		})
	}
}

// TestModelsRefuse checks that each model refuses a wrong history, and accepts the same history without its last
// call.
func TestModelsRefuse(t *testing.T) {
	for name, s := range subjects {
		t.Run(name, func(t *testing.T) {
			require.NotEmpty(t, s.bad)
			require.False(t, porcupine.CheckOperations(s.model, s.inSteps(s.bad)), "a wrong history is accepted")
			require.True(t, porcupine.CheckOperations(s.model, s.inSteps(s.bad[:len(s.bad)-1])), "a good history is refused")
		})
	}
}

// bad returns a history of calls that do not overlap.
func bad(steps ...any) (ops []porcupine.Operation) {
	for i := 0; i < len(steps); i += 2 {
		ops = append(ops, porcupine.Operation{ClientId: 0, Input: steps[i], Output: steps[i+1], Call: int64(10 * i), Return: int64(10*i + 5)})
	}
	return ops
}
