//go:build linux

package prims_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// A CohortMutex has the properties of a Mutex. So the tests of a Mutex also run with a CohortMutex
// in its place.

// actorMutex is the interface of a mutex that an actor locks: a Mutex or a CohortMutex.
type actorMutex interface {
	sync.Locker
	TryLock() bool
	LockContext(ctx context.Context) error
	RecoverContext(ctx context.Context, repair func() error) error
	State() prims.MutexState
	String() string
	Close() error
	Policy() prims.Policy
	Offset() arena.Offset
	Waiters() int
	OwnerWord() uint32
	HeldByUs() bool
}

// cohortActor makes a CohortMutex an actorMutex.
type cohortActor struct{ *prims.CohortMutex }

func (c cohortActor) State() prims.MutexState { return c.CohortMutex.State().MutexState }

// cohortVar is an environment variable. If it is set, the mutexes of an actor are CohortMutexes.
// Unless a test chooses the NUMA node, each call in the tests of this package runs on a random
// node.
const cohortVar = "SHMSYNC_TEST_COHORT"

const cohortNodes = 4 // number of NUMA nodes of the host that the tests simulate

var (
	asCohort   atomic.Bool
	cohortNode atomic.Int64 // the NUMA node on which calls of this process run; -1: a random one
)

func init() {
	asCohort.Store(os.Getenv(cohortVar) != "")
	cohortNode.Store(-1)
	if text, ok := os.LookupEnv(nearVar); ok {
		node, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			panic(err)
		}
		cohortNode.Store(int64(node))
	}
	prims.SetKnowsNodes(func() bool { return true })
	park.NodeNow = func() (uint32, bool) {
		if node := cohortNode.Load(); node >= 0 {
			return uint32(node), true
		}
		return rand.Uint32N(cohortNodes), rand.Uint32N(8) != 0
	}
}

// asCohortHere makes an actor use CohortMutexes if this process uses them.
func asCohortHere() proctest.Option {
	if asCohort.Load() {
		return proctest.Env(cohortVar + "=1")
	}
	return proctest.Env()
}

func openActorMutex(a *arena.Arena, name string, opt *prims.MutexOptions) (actorMutex, error) {
	if !asCohort.Load() {
		m, err := prims.OpenMutex(a, name, opt)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	if opt == nil {
		opt = &prims.MutexOptions{}
	}
	c, err := prims.OpenCohortMutex(a, name, &prims.CohortMutexOptions{
		Policy: opt.Policy, Repair: opt.Repair, Spin: opt.Spin, Checked: opt.Checked,
		Contention: opt.Contention, Nodes: cohortNodes,
	})
	if err != nil {
		return nil, err
	}
	return cohortActor{c}, nil
}

// onCohort runs tests of Mutex with CohortMutexes in place of Mutexes.
func onCohort(t *testing.T, tests map[string]func(t *testing.T)) {
	asCohort.Store(true)
	defer asCohort.Store(false)
	for name, test := range tests {
		t.Run(name, test)
	}
}

// onCohortNode makes the calls of this process run on the given NUMA node until the test ends.
func onCohortNode(t testing.TB, node int64) {
	old := cohortNode.Swap(node)
	t.Cleanup(func() { cohortNode.Store(old) })
}
