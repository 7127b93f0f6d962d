package prims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/internal/topology"
)

// CohortMutex is a [Mutex] for hosts with several NUMA nodes. While many goroutines compete for the lock, goroutines
// on one node get it one after another for a while. So the cache line of the lock, and the data that the lock guards,
// stay on that node for this time. Use a CohortMutex for a lock that many CPUs of several nodes want at the same
// time. For any other lock a Mutex is as good, and on a host with one node a CohortMutex works as a Mutex.
//
// Each node has a local lock. If a goroutine finds the CohortMutex held, it first waits for the local lock of its
// node. Only the holder of a local lock waits for the CohortMutex itself.
//
// While the node of the last holder has waiters, waiters of other nodes let them go first, up to 64 times in a row,
// and each time only for a bounded time. As with a Mutex, a new caller may get the lock before a goroutine that was
// woken. A goroutine that has waited in vain for some milliseconds (three, and one more for each node) is handed the
// lock at the next release.
//
// A caller learns from the CPU, without a system call, on which node it runs. Where that is not possible, as on
// arm64, a CohortMutex works as a Mutex.
//
// A process holds a CohortMutex: one goroutine may lock it and another goroutine of the same
// process may unlock it. If a process dies while it waits, its place passes to the next waiter. If
// the holder dies, the policy says what happens to its hold, as with a Mutex.
//
// In the terminology of the Go memory model, and across processes: for n < m the n'th call of Unlock synchronizes
// before the m'th call of Lock returns. If a holder dies, its death counts as an Unlock: it synchronizes before the
// call that reports the death, and before the call that gets the lock because of the death.
//
// A CohortMutex is a cohort lock (Dice, Marathe and Shavit, PPoPP 2012), with one difference. In that paper, a
// holder passes the global lock to the next goroutine of its node. Here each holder unlocks the global lock, and
// the next one locks it again.
type CohortMutex struct {
	// The compiler must inline the fast paths. See Mutex.

	own  *uint32 // the word that names the holder; it belongs to the field global
	self *uint32 // what Lock stores in *own; it belongs to the field global
	turn *uint32 // a cohortTurn; it names the node whose waiters go first, if there is one

	global     *Mutex
	localLocks []cohortLocalLock // one for each NUMA node; empty if there is only one node
	// prefers is true if callers of this process use the local locks. It is false if there are no local locks, or if
	// callers cannot learn on which node they run.
	prefers      bool
	unresponsive atomic.Int64 // see isUnresponsive; CLOCK_MONOTONIC ns
	words        *cohortWords
	nodes        int
	a            *arenakernel.Arena
	object       arenakernel.Object
	opening      *opening
}

// CohortMutexOptions says how a CohortMutex is created, and what this process does
// with it. A nil *CohortMutexOptions means the zero value.
type CohortMutexOptions struct {
	// Policy, Repair, Spin, Checked and Contention are as in MutexOptions. Contention applies to waiters that hold
	// the local lock of their node, and to waiters that have waited for long. If Spin or MaxSpinners keeps all
	// waiters from spinning, waiters of one node do not let waiters of another node go first.
	Policy Policy
	Repair func() error
	Spin   time.Duration
	// Checked applies to this process only, as in MutexOptions.
	Checked    bool
	Contention Contention
	// Nodes is the number of nodes, 1 to 32, that a new CohortMutex tells apart. 0 means as many as this host has, at
	// most 32. Each of these nodes has a local lock, unless there is only one node. If the host has more nodes than
	// Nodes, some nodes share a local lock. If Nodes is set and an existing CohortMutex has another number, opening
	// fails.
	Nodes int
}

// cohortMostNodes bounds the number of nodes.
const cohortMostNodes = 32

var cohortKind = arenakernel.KindOf("COHM")

const cohortVersion = 2

// OpenCohortMutex finds the CohortMutex of that name in the arena or creates it. An empty name makes a new
// anonymous CohortMutex. OpenCohortMutex panics if an option has an invalid value.
//
// For one node, a CohortMutex takes 512 bytes in an arena for up to 511 participants. For several nodes, it takes
// another 256 bytes for each node.
func OpenCohortMutex(a *arena.Arena, name string, opts *CohortMutexOptions) (*CohortMutex, error) {
	return openCohortMutex((*arenakernel.Arena)(a), name, opts, false)
}

func openCohortMutex(a *arenakernel.Arena, name string, opts *CohortMutexOptions, attach bool) (*CohortMutex, error) {
	var opt CohortMutexOptions
	if opts != nil {
		opt = *opts
	}
	what := "cohort mutex " + strconv.Quote(name)
	opt.Policy.mustBeValid(what)
	if err := opt.Policy.withoutLog("cohortmutex.open", name, "a CohortMutex"); err != nil {
		return nil, err
	}
	opt.Contention.mustBeValid(what)
	if opt.Nodes < 0 || opt.Nodes > cohortMostNodes {
		panic(fmt.Sprintf("shmsync: %s: Nodes is %d, which is not within 0..%d", what, opt.Nodes, cohortMostNodes))
	}
	nodes := opt.Nodes
	if nodes == 0 {
		nodes = cohortHostNodes()
	}
	return openAs(a, arenakernel.ObjectSpec{
		Existing: attach, Kind: cohortKind, Version: cohortVersion, Name: name, Size: cohortBytes(nodes), AnySize: true,
		Init: func(body []byte) { initCohort(body, nodes, &opt) },
	}, "cohortmutex.open", newCohortMutex(&opt), func(c *CohortMutex) string {
		how := c.global.policy.differs(opt.Policy)
		if how == "" && opt.Nodes != 0 && opt.Nodes != c.nodes {
			how = fmt.Sprintf("it is for %d nodes, asked for %d", c.nodes, opt.Nodes)
		}
		return how
	})
}

// CohortMutexAt opens the CohortMutex at an offset that another process got from the method
// Offset.
func CohortMutexAt(a *arena.Arena, off arena.Offset) (*CohortMutex, error) {
	return handleAt(a, off, "cohortmutex.open", cohortKind, cohortVersion, cohortHeadBytes, newCohortMutex(&CohortMutexOptions{}))
}

func initCohort(body []byte, nodes int, opt *CohortMutexOptions) {
	w, localLocks := cohortBody(body, nodes)
	w.nodes = uint32(nodes)
	initMutexWords(&w.global, &MutexOptions{Policy: opt.Policy, Spin: opt.Spin})
	for k := range localLocks {
		initMutexWords(&localLocks[k].mutex, &MutexOptions{Policy: PolicyRelease, Spin: opt.Spin})
	}
}

func newCohortMutex(opt *CohortMutexOptions) func(*arenakernel.Arena, arenakernel.Object) (*CohortMutex, error) {
	return func(a *arenakernel.Arena, o arenakernel.Object) (*CohortMutex, error) {
		return buildCohortMutex(a, o, opt)
	}
}

// cohortAt returns the words of a CohortMutex in shared memory, and the number of its nodes.
func cohortAt(a *arenakernel.Arena, o arenakernel.Object) (w *cohortWords, nodes int, err error) {
	if o.Size < cohortHeadBytes {
		return nil, 0, wrongKind("cohortmutex.open", o, cohortKind, cohortVersion)
	}
	if w, err = arenakernel.TryAt[cohortWords](a, o.Body); err != nil {
		return nil, 0, err
	}
	n := atomic.LoadUint32(&w.nodes) // load the number only once, because a peer may overwrite it
	if n > cohortMostNodes || cohortBytes(int(n)) > o.Size {
		return w, 0, &shmsync.Error{Op: "cohortmutex.open", Object: objectName(o), Err: shmsync.ErrCorrupt,
			Detail: fmt.Sprintf("it is for %d nodes, in %d bytes", n, o.Size)}
	}
	return w, int(n), nil
}

func buildCohortMutex(a *arenakernel.Arena, o arenakernel.Object, opt *CohortMutexOptions) (*CohortMutex, error) {
	w, nodes, err := cohortAt(a, o)
	if err != nil {
		return nil, err
	}
	g := buildMutexAt(a, o, o.Body, &MutexOptions{Repair: opt.Repair, Checked: opt.Checked, Contention: opt.Contention})
	g.variant = &mutexVariant{cohort: true, maxSpinners: int32(opt.Contention.MaxSpinners)}
	g.counted()
	c := &CohortMutex{
		own: g.own, self: &g.self, turn: wordPtr(&w.turn), global: g, words: w, nodes: nodes, a: a, object: o,
		opening: g.opening,
	}
	c.opening.refuse, c.opening.left, c.opening.end, c.opening.owed = c.refuse, c.callsLeft, c.end, c.wakeOwed
	locks := cohortLocalLocks(nodes)
	if c.prefers = locks > 0 && knowsNodes(); !c.prefers {
		c.turn = new(uint32) // a private word that stays 0, so the fast paths never wait for a turn
	}
	c.localLocks = make([]cohortLocalLock, locks)
	for k := range c.localLocks {
		c.localLocks[k].mutex = buildLocalLock(a, o, k)
		c.localLocks[k].mutex.opening = g.opening
		c.localLocks[k].mutex.counts = g.counts // sleeps at a local lock count as sleeps at the CohortMutex
	}
	return c, nil
}

// Lock locks c, and waits until it can. It panics with an *[shmsync.Error] if the lock is
// owner-dead or not recoverable, or if this process closes the arena while Lock waits.
func (c *CohortMutex) Lock() {
	if !race.Enabled && atomic.LoadUint32(c.turn) == 0 && atomic.CompareAndSwapUint32(c.own, 0, atomic.LoadUint32(c.self)) {
		return
	}
	c.lockOrPanic()
}

// LockContext locks c, and waits until it can or ctx ends. An error means that c is not held. The error is
// ctx.Err(), or it Is ErrCorrupt or ErrClosed. Depending on the policy of c, it may also be one that Is
// ErrOwnerDead or ErrNotRecoverable. If the lock is free, the call takes it even though ctx has ended.
func (c *CohortMutex) LockContext(ctx context.Context) error {
	if !race.Enabled && atomic.LoadUint32(c.turn) == 0 && atomic.CompareAndSwapUint32(c.own, 0, atomic.LoadUint32(c.self)) {
		return nil
	}
	return c.lockSlow(ctx)
}

// TryLock locks c if that is possible without waiting, and reports whether it did. It does not let
// waiters of other nodes go first. State reports why it failed.
func (c *CohortMutex) TryLock() bool {
	if !race.Enabled && atomic.LoadUint32(c.turn) == 0 && atomic.CompareAndSwapUint32(c.own, 0, atomic.LoadUint32(c.self)) {
		return true
	}
	return c.tryLockSlow()
}

// Unlock unlocks c. It panics if this process does not hold c. If a peer overwrote the lock, it panics with an
// error that Is ErrCorrupt.
//
// If two goroutines unlock the same hold at the same time, one of them may release the hold of another process. A
// handle that was opened with the option Checked prevents that.
func (c *CohortMutex) Unlock() { c.global.Unlock() }

// Recover makes c usable again after it became owner-dead or not recoverable, as
// [Mutex.Recover] does.
func (c *CohortMutex) Recover(repair func() error) error {
	return c.RecoverContext(context.Background(), repair)
}

// RecoverContext is like Recover, but returns ctx.Err() if ctx ends while it waits. If RecoverContext need not
// wait, it calls repair even though ctx has ended.
func (c *CohortMutex) RecoverContext(ctx context.Context, repair func() error) error {
	return c.global.RecoverContext(ctx, repair)
}

// Offset is the place of the CohortMutex in its arena. Another process can pass it to CohortMutexAt.
func (c *CohortMutex) Offset() arena.Offset { return c.object.Offset }

// Close closes this handle on the CohortMutex, and no other handle. Calls that wait through this handle end
// with an error that Is ErrClosed. If this process holds the lock, it still holds it after Close, and can
// release it through another handle. A second Close returns an error that Is ErrClosed.
func (c *CohortMutex) Close() error { return c.opening.close("cohortmutex.close") }

func (c *CohortMutex) refuse() { park.Refuse(c.queues()...) }

func (c *CohortMutex) callsLeft() bool { return park.Left(c.queues()...) }

func (c *CohortMutex) queues() []*park.Queue {
	all := []*park.Queue{c.global.queue}
	for k := range c.localLocks {
		all = append(all, c.localLocks[k].mutex.queue)
	}
	return all
}

// end makes the fast paths of this handle fail, as Mutex.end does.
func (c *CohortMutex) end() {
	c.global.end()
	for k := range c.localLocks {
		c.localLocks[k].mutex.end()
	}
	takeWords(&c.own, &c.turn)
}

func (c *CohortMutex) wakeOwed() {
	c.global.wakeOwed()
	for k := range c.localLocks {
		c.localLocks[k].mutex.wakeOwed()
	}
}

// Policy says what happens to c when its holder dies.
func (c *CohortMutex) Policy() Policy { return c.global.policy }

// Nodes is the number of nodes that c tells apart. Each of them has a local lock, unless there is only one.
func (c *CohortMutex) Nodes() int { return c.nodes }

// SetSpin bounds how long waiters of all processes spin before they sleep. If d is 0, waiters learn the bound from
// earlier spins; if d is negative, they never spin.
func (c *CohortMutex) SetSpin(d time.Duration) {
	c.opening.use()
	c.global.SetSpin(d)
	for k := range c.localLocks {
		c.localLocks[k].mutex.SetSpin(d)
	}
}

// Spin returns the bound that SetSpin, or the creation of the object, has set.
func (c *CohortMutex) Spin() time.Duration { return c.global.Spin() }

// CohortMutexState is the result of State.
type CohortMutexState struct {
	MutexState     // Waiting is also true if goroutines wait at a local lock
	Node       int // the NUMA node whose waiters go first; -1 if no node has this turn
	Passes     int // how often in a row the lock has stayed on this node
}

// State reads c without locking it. The answer may be out of date when it returns.
func (c *CohortMutex) State() CohortMutexState {
	c.opening.use()
	t := cohortTurn(c.words.turn.Load())
	s := CohortMutexState{MutexState: c.global.State(), Node: -1}
	if t.node() < len(c.localLocks) {
		s.Node = t.node()
	}
	if s.Node >= 0 {
		s.Passes = t.passes()
	}
	for k := range c.localLocks {
		s.Waiting = s.Waiting || c.localLocks[k].taken() || c.localLocks[k].mutex.wakeWord.Announced()
	}
	return s
}

// String renders the state on one line.
func (c *CohortMutex) String() string {
	return fmt.Sprintf("cohort mutex %s: %s", objectName(c.object), c.State().Word)
}

// cohortHostNodes returns how many local locks a new object gets on this host: 1 more than the highest number of a
// NUMA node that has CPUs, so that each such node has a local lock of its own. If the file that lists these nodes
// exists but cannot be read, the function returns 1, and its next call reads the file again.
func cohortHostNodes() int {
	cohortHost.Lock()
	defer cohortHost.Unlock()
	if cohortHost.nodes != 0 {
		return cohortHost.nodes
	}
	text, err := os.ReadFile("/sys/devices/system/node/has_cpu")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 1
	}
	cohortHost.nodes = 1 // the result if the file does not exist or has no valid list
	if nodes, err := topology.ParseList(string(text)); err == nil && len(nodes) > 0 {
		cohortHost.nodes = min(nodes[len(nodes)-1]+1, cohortMostNodes)
	}
	return cohortHost.nodes
}

var cohortHost struct {
	sync.Mutex
	nodes int // what cohortHostNodes returns, or 0 if that is not known yet
}

// knowsNodes reports whether callers can learn on which node they run. Tests replace it.
var knowsNodes = func() bool {
	_, ok := park.NodeNow()
	return ok
}
