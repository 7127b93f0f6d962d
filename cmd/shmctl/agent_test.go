//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

func TestMain(m *testing.M) {
	diagnose.LongLock, diagnose.LongWork = time.Hour, time.Hour // so no wait of a test is a wedge
	if os.Getenv("SHMCTL_TEST_MAIN") != "" {                    // the test binary runs as shmctl; see pasted
		os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr))
	}
	proctest.Main(m)
}

// agentOrder is a task for an agent. The agent answers when it has done the task. If Later is set, it answers at once
// and does the task in the background.
type agentOrder struct {
	Op    string
	Name  string
	N     int64
	Later bool
}

type agentParams struct {
	Arena string
	Label string
}

func init() {
	proctest.Register("shmctl/agent", func(c *proctest.Child) {
		var p agentParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, &arena.Options{Label: p.Label})
		if err != nil {
			c.Fatal(err)
		}
		c.Say(a.Self().String())
		for {
			var o agentOrder
			c.Recv(&o)
			f, err := agentDeed(a, o)
			if err != nil {
				c.Fatal(o, err)
			}
			if o.Later {
				go f()
			} else {
				f()
			}
			c.Ready()
		}
	})
}

type locker interface {
	LockContext(ctx context.Context) error
	Unlock()
}

// agentDeed opens the object of an order, and returns a function that does the task.
func agentDeed(a *arena.Arena, o agentOrder) (func(), error) {
	verb, kind, _ := strings.Cut(o.Op, " ")
	ctx := context.Background()
	lock := func(l locker, err error) (func(), error) {
		if verb == "unlock" {
			return func() { l.Unlock() }, err
		}
		return func() { l.LockContext(ctx) }, err
	}
	if verb == "open" { // only opens the object
		_, err := agentDeed(a, agentOrder{Op: "wait " + kind, Name: o.Name})
		return func() {}, err
	}
	if f, err, ok := rareDeed(a, verb+" "+kind, o); ok {
		return f, err
	}
	switch kind {
	case "end": // the process continues after SIGTERM
		return func() { signal.Ignore(syscall.SIGTERM) }, nil
	case "mutex":
		if verb == "spin" {
			m, err := prims.OpenMutex(a, o.Name, nil)
			return func() {
				for {
					m.Lock()
					//lint:ignore SA2001 the agent only passes the lock on
					m.Unlock()
				}
			}, err
		}
		if verb == "break" { // a repair that fails
			m, err := prims.OpenMutex(a, o.Name, nil)
			return func() { m.Recover(func() error { return errors.New("the data is lost") }) }, err
		}
		return lock(prims.OpenMutex(a, o.Name, nil))
	case "cohort": // two local locks, even on a host with one NUMA node
		return lock(prims.OpenCohortMutex(a, o.Name, &prims.CohortMutexOptions{Nodes: 2}))
	case "fair":
		return lock(prims.OpenFairMutex(a, o.Name, nil))
	case "spin":
		return lock(prims.OpenSpinLock(a, o.Name, nil))
	case "rwspin":
		l, err := prims.OpenRWSpinLock(a, o.Name, nil)
		if verb == "rlock" {
			return func() { l.RLockContext(ctx) }, err
		}
		return lock(l, err)
	case "rw":
		l, err := prims.OpenRWMutex(a, o.Name, nil)
		switch verb {
		case "rlock":
			return func() { l.RLockContext(ctx) }, err
		case "ulock":
			return func() { l.LockUpgradableContext(ctx) }, err
		}
		return lock(l, err)
	case "multi":
		l, err := prims.OpenMultiLock(a, o.Name, nil)
		return func() { l.LockContext(ctx, uint64(o.N)) }, err
	case "semaphore":
		s, err := prims.OpenSemaphore(a, o.Name, 3, nil)
		return func() { s.AcquireContext(ctx, o.N) }, err
	case "event":
		e, err := prims.OpenEvent(a, o.Name, nil)
		if verb == "then" { // waits for the Event with a mutex held
			m, err := prims.OpenMutex(a, o.Name+"-lock", nil)
			return func() {
				m.Lock()
				e.WaitContext(ctx)
			}, err
		}
		return func() { e.WaitContext(ctx) }, err
	case "sequencer":
		s, err := prims.OpenSequencer(a, o.Name, nil)
		return func() { s.WaitContext(ctx, uint64(o.N)) }, err
	case "futex":
		f, err := prims.OpenFutex(a, o.Name, nil)
		return func() { f.WaitContext(ctx, uint64(o.N)) }, err
	case "future":
		f, err := prims.OpenFuture(a, o.Name, nil)
		if verb == "claim" {
			return func() { f.Claim() }, err
		}
		return func() { f.WaitContext(ctx) }, err
	case "latch":
		l, err := prims.OpenLatch(a, o.Name, 2, nil)
		if verb == "claim" {
			return func() { l.Claim(2) }, err
		}
		return func() { l.WaitContext(ctx) }, err
	case "group":
		g, err := prims.OpenWaitGroup(a, o.Name, nil)
		if verb == "add" {
			return func() { g.Add(int(o.N)) }, err
		}
		return func() { g.WaitContext(ctx) }, err
	case "once":
		x, err := prims.OpenOnce(a, o.Name, nil)
		return func() { x.Do(func() { select {} }) }, err
	case "queue":
		q, err := prims.OpenQueue[uint64](a, o.Name, 4, nil)
		switch verb {
		case "put":
			return func() { q.Put(uint64(o.N)) }, err
		case "drain":
			return func() {
				for {
					q.GetContext(ctx)
				}
			}, err
		case "lease":
			return func() { q.LeaseContext(ctx) }, err
		}
		return func() { q.GetContext(ctx) }, err
	case "barrier": // with two parties
		b, err := prims.OpenBarrier(a, o.Name, 2, nil)
		if verb == "join" {
			return func() { b.Register(o.N) }, err
		}
		return func() { b.ArriveAndWaitContext(ctx) }, err
	case "cond":
		m, err := prims.OpenMutex(a, "", nil)
		if err != nil {
			return nil, err
		}
		c, err := prims.OpenCond(a, o.Name, m, nil)
		return func() {
			m.Lock()
			c.WaitContext(ctx)
		}, err
	case "waitable":
		type memory struct{ free int64 }
		w, err := prims.OpenWaitable(a, o.Name, memory{8}, prims.Rules[memory, int64]{
			Claim: func(s *memory, n int64) bool {
				if n > s.free {
					return false
				}
				s.free -= n
				return true
			},
			Release: func(s *memory, n int64) { s.free += n },
		}, nil)
		return func() { w.WaitContext(ctx, o.N) }, err
	case "synchronized":
		s, err := prims.OpenSynchronized(a, o.Name, [2]int64{}, nil)
		return func() { s.Update(func(*[2]int64) error { select {} }) }, err
	case "mutexes": // many, each locked once
		return func() {
			for i := range o.N {
				if m, err := prims.OpenMutex(a, fmt.Sprintf("%s%d", o.Name, i), nil); err == nil {
					m.LockContext(ctx)
				}
			}
		}, nil
	case "locks": // many locks at once
		return func() {
			var wg sync.WaitGroup
			for range o.N {
				wg.Go(func() {
					if m, err := prims.OpenMutex(a, o.Name, nil); err == nil {
						m.LockContext(ctx)
					}
				})
			}
			wg.Wait()
		}, nil
	}
	return nil, fmt.Errorf("no agent knows the task %q", o.Op)
}

// agent is a process that uses an arena.
type agent struct {
	*proctest.Proc
	t    testing.TB
	name string // the ID of the participant
}

// ownGroup puts agents into another process group than the test. Otherwise a signal to the group of the test, such as
// the SIGCONT of timeout(1), would continue a stopped agent.
var ownGroup = proctest.Attr(&syscall.SysProcAttr{Setpgid: true})

func newAgent(t testing.TB, arenaName, label string) *agent {
	p := &agent{Proc: proctest.Start(t, "shmctl/agent", proctest.Params(agentParams{arenaName, label}), ownGroup), t: t}
	p.Recv(t, &p.name)
	return p
}

// does makes the agent do a task, and waits until it is done.
func (p *agent) does(op, name string, n ...int64) {
	p.t.Helper()
	p.order(op, name, false, n)
}

// begins makes the agent begin a task, without waiting for its end.
func (p *agent) begins(op, name string, n ...int64) {
	p.t.Helper()
	p.order(op, name, true, n)
}

func (p *agent) order(op, name string, later bool, n []int64) {
	p.t.Helper()
	o := agentOrder{Op: op, Name: name, Later: later}
	if len(n) > 0 {
		o.N = n[0]
	}
	p.Send(o)
	p.Await(p.t)
}

// testArena creates an arena that is removed after the test.
func testArena(t testing.TB) (name string) {
	t.Helper()
	name = fmt.Sprintf("shmctl-test.%d.%x", os.Getpid(), rand.Uint64())
	seg, err := shm.Create(name, 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 16})
	}, nil)
	require.NoError(t, err)
	require.NoError(t, seg.Close())
	t.Cleanup(func() { shm.Remove(name) })
	return name
}

// shmctl runs the program in this process.
func shmctl(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = realMain(args, &out, &errs)
	return code, out.String(), errs.String()
}

// shmctlJSON runs the program with --json. It returns the document, and fails the test if the output has unknown
// fields.
func shmctlJSON(t testing.TB, args ...string) (code int, d document) {
	t.Helper()
	code, out, errs := shmctl(append(args, "--json")...)
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&d), "%s %s", out, errs)
	require.Equal(t, schema, d.Schema)
	return code, d
}

// fileBytes returns the bytes of an arena's file.
func fileBytes(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(shm.Dir + "/" + name)
	require.NoError(t, err)
	return b
}

// limit is how long a test waits for anything.
var limit = proctest.Scale(time.Minute)

// eventually waits until f returns true because of what other processes do.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, limit, 10*time.Millisecond, what)
}

// awaitWaits waits until n waits are visible, all asleep or parked.
func awaitWaits(t testing.TB, name string, n int) (d document) {
	t.Helper()
	return awaitThat(t, name, fmt.Sprintf("%d waits", n), n, func(document) bool { return true })
}

// awaitDeadlock is awaitWaits for waits that end in a deadlock. A waiter is awake for a moment at each of its
// periodic checks, and a command that looks at such a moment finds no deadlock.
func awaitDeadlock(t testing.TB, name string, n int) document {
	t.Helper()
	return awaitThat(t, name, fmt.Sprintf("a deadlock of %d waits", n), n, func(d document) bool { return len(d.Findings) > 0 })
}

func awaitThat(t testing.TB, name, what string, n int, is func(document) bool) (d document) {
	t.Helper()
	eventually(t, what, func() bool {
		_, d = shmctlJSON(t, "waits", name)
		settled := len(d.Waits) == n && is(d)
		for _, w := range d.Waits {
			settled = settled && w.How != "awake"
		}
		return settled
	})
	return d
}
