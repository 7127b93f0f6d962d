//go:build linux

package park

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
)

// waitNode returns a wait node that is the n'th wait in a queue of o.
func (b *rig) waitNode(o arenakernel.Object, n uint64) *WaitNode {
	s := b.takeNode()
	s.join(b.t, o, n)
	return s
}

func (b *rig) takeNode() *WaitNode {
	s, err := lotOf(b.Arena).nodePool.take()
	require.NoError(b.t, err)
	return s
}

func (s *WaitNode) join(t testing.TB, o arenakernel.Object, n uint64) {
	w := s.Node.Load()
	require.Equal(t, arenakernel.NodeIdle, w.State())
	s.Node.SetObject(o.Offset)
	require.True(t, s.Node.Swap(w, w.With(arenakernel.NodeQueued)))
	s.Node.Stamp().Store(n)
}

// resolve resolves a wait as a record does, but wakes no waiter.
func (s *WaitNode) resolve(t testing.TB) {
	w := s.Node.Load()
	require.True(t, s.Node.Swap(w, w.With(arenakernel.NodeResolved)))
	s.Node.Stamp().Store(0)
}

// withdraws is a Withdrawer that takes a wait off its queue. Its users make sure that no wait is resolved meanwhile.
type withdraws struct{}

func (withdraws) Withdraw(s *WaitNode) bool {
	s.Node.Stamp().Store(0)
	s.Withdrawn()
	return true
}

// comes waits until the node of s has the given state.
func (p *place) comes(s *WaitNode, to arenakernel.NodeState) {
	p.b.t.Helper()
	until(p.b.t, func() bool { return s.Node.State() == to })
}

// sleeps starts a goroutine that waits in s, and returns a channel for the result.
func (p *place) sleeps(s *WaitNode, ctx context.Context) <-chan Result {
	done := make(chan Result, 1)
	require.True(p.b.t, p.Enter())
	go func() {
		defer p.Exit()
		c := CancelBy(ctx)
		defer c.Stop()
		s.Withdrawer = withdraws{}
		done <- s.Sleep(p.Queue, &c)
	}()
	return done
}

func (b *nodePool) counts() (all, free int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of), len(b.free)
}

func (s *WaitNode) isOwed() bool {
	s.nodePool.mu.Lock()
	defer s.nodePool.mu.Unlock()
	return s.owed
}

// TestCheckFindsWhatNobodyTold checks that the next periodic check wakes the waiter of a wait that was resolved, but
// whose granter has died or is stopped before it has sent the wake. The waiters are a thread, a parked goroutine and
// a Watch.
func TestCheckFindsWhatNobodyTold(t *testing.T) {
	b := newNodePool(t)
	lotOf(b.Arena).procs = DirectMax
	o := b.object()
	p := b.place(o)
	// The second wait parks, because all announce records are taken when it begins. The third wait sleeps on a
	// thread, because the records are free again.
	watched, told := b.waitNode(o, 1), make(chan struct{})
	watched.Watch(p.Queue, sync.OnceFunc(func() { close(told) }))
	var slots []int
	for {
		k, ok := b.Announce(o.Offset, o.Body, 0, DirectMax)
		if !ok {
			break
		}
		slots = append(slots, k)
	}
	parked := b.waitNode(o, 2)
	byPoller := p.sleeps(parked, nil)
	p.comes(parked, arenakernel.NodeParked)
	for _, k := range slots {
		b.Retract(k)
	}
	asleep := b.waitNode(o, 3)
	byThread := p.sleeps(asleep, nil)
	p.comes(asleep, arenakernel.NodeAsleep)
	for _, s := range []*WaitNode{watched, parked, asleep} {
		s.resolve(t)
	}
	lotOf(b.Arena).nodePool.check()
	p.await("the watch", told)
	require.Equal(t, Again, <-byPoller)
	require.Equal(t, Again, <-byThread)
}

// TestCheckOfTheQueueMeetsTheNextWait checks that a periodic check of the queue of a wait does not affect the next
// wait in the same wait node. The first wait ends while the check examines its queue. The next wait is for an object
// that has no Config.Torn, and must go on.
func TestCheckOfTheQueueMeetsTheNextWait(t *testing.T) {
	for name, threads := range map[string]int32{"thread": DirectMax, "parked": 0} {
		t.Run(name, func(t *testing.T) {
			b := newNodePool(t)
			h := lotOf(b.Arena)
			h.procs, h.checking = threads, true // only this test checks
			o, other := b.object(), b.object()
			p, next := b.place(o), b.place(other)
			s := b.waitNode(o, 1)
			first := p.sleeps(s, nil)
			sleeps := func() bool {
				return s.Node.State() == arenakernel.NodeAsleep || s.Node.State() == arenakernel.NodeParked
			}
			until(t, sleeps)
			var second <-chan Result
			p.config.Torn = func(*WaitNode) bool {
				s.resolve(t)
				p.TellOwn(s.Off) // only after this call can a node that was parked be used again
				h.nodePool.prod(s, false)
				require.Equal(t, Again, <-first)
				s.Leave()
				require.Same(t, s, b.takeNode())
				s.join(t, other, 1)
				second = next.sleeps(s, nil)
				until(t, sleeps)
				return true
			}
			h.nodePool.checkQueues()
			require.NotNil(t, second)
			until(t, func() bool { return !s.suspect.Load() }) // the waiter has examined the queue itself
			s.resolve(t)
			next.TellOwn(s.Off)
			h.nodePool.prod(s, false)
			require.Equal(t, Again, <-second)
			s.Leave()
		})
	}
}

// TestTellOwnNeedsNoPoller checks that a process wakes its own parked goroutines and watches without its poller, and
// that their wait nodes can be used again afterwards.
func TestTellOwnNeedsNoPoller(t *testing.T) {
	b := newNodePool(t)
	lotOf(b.Arena).procs = 0
	took, goOn := b.pause()
	defer goOn()
	o := b.object()
	p := b.place(o)
	stuck := b.waitNode(o, 1)
	stuck.Watch(p.Queue, func() {})
	b.BeginTell()
	stuck.resolve(t)
	b.Tell(stuck.Off, stuck.Node, b.Self())
	b.EndTell()
	p.await("the poller stands still", took)

	parked := b.waitNode(o, 2)
	done := p.sleeps(parked, nil)
	p.comes(parked, arenakernel.NodeParked)
	watched, told := b.waitNode(o, 3), make(chan struct{})
	watched.Watch(p.Queue, sync.OnceFunc(func() { close(told) }))
	_, rung := b.Doorbell()
	for _, s := range []*WaitNode{parked, watched} {
		b.BeginTell()
		s.resolve(t)
		p.TellOwn(s.Off)
		b.EndTell()
	}
	require.Equal(t, Again, <-done)
	p.await("the watch", told)
	for _, s := range []*WaitNode{parked, watched} {
		require.False(t, s.isOwed())
		s.Leave()
		require.Equal(t, arenakernel.NodeIdle, s.Node.State(), "it is free")
	}
	_, rungNow := b.Doorbell()
	require.Equal(t, rung, rungNow)
}

// TestWaitNodesParkBeyondThoseThatCanRun checks that no more goroutines sleep in the kernel for one object than can run
// at the same time. The other goroutines park, and their own process wakes them without a system call.
func TestWaitNodesParkBeyondThoseThatCanRun(t *testing.T) {
	b := newNodePool(t)
	lotOf(b.Arena).procs = 2
	o := b.object()
	p, other := b.place(o), b.place(b.object())
	var waitNodes []*WaitNode
	for i, comes := range []arenakernel.NodeState{arenakernel.NodeAsleep, arenakernel.NodeAsleep, arenakernel.NodeParked} {
		s := b.waitNode(o, uint64(i+1))
		p.sleeps(s, nil)
		p.comes(s, comes)
		waitNodes = append(waitNodes, s)
	}
	s := b.waitNode(other.config.Object, 4)
	other.sleeps(s, nil)
	other.comes(s, arenakernel.NodeAsleep)
	for _, s := range append(waitNodes, s) {
		s.resolve(t)
	}
	lotOf(b.Arena).nodePool.check()
	until(t, func() bool { return p.Seated() == 0 && other.Seated() == 0 })
}

// TestWaitNodeIsNotReusedBeforeItIsOffTheStack checks that a node that was resolved while it was parked is not used
// again before it has come off the ready stack, however its wait ended.
func TestWaitNodeIsNotReusedBeforeItIsOffTheStack(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	nodePool := &lotOf(b.Arena).nodePool
	s := b.waitNode(o, 1)
	s.Watch(p.Queue, func() {})
	require.True(t, s.isOwed())
	s.resolve(t)
	s.Leave()
	all, free := nodePool.counts()
	require.Equal(t, [2]int{1, 0}, [2]int{all, free})
	require.Equal(t, arenakernel.NodeResolved, s.Node.State())
	other := b.takeNode()
	require.NotEqual(t, s.Off, other.Off)
	other.Withdrawn()
	// A periodic check must not return the node to the pool either.
	nodePool.check()
	require.Equal(t, arenakernel.NodeResolved, s.Node.State())
	b.BeginTell()
	b.Tell(s.Off, s.Node, b.Self())
	b.EndTell()
	p.comes(s, arenakernel.NodeIdle)
	until(t, func() bool { _, free := nodePool.counts(); return free == 2 })
}

// TestChecksVisitOnlyWaits checks that the periodic checks visit few nodes after a crowd of waiters has gone: those of
// the present waits, and those that have not come off the ready stack.
func TestChecksVisitOnlyWaits(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	pool := &lotOf(b.Arena).nodePool
	used := func() (offs []arenakernel.Offset) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		for i, s := range pool.used {
			require.Equal(t, i, s.index)
			offs = append(offs, s.Off)
		}
		return offs
	}
	var crowd []*WaitNode
	for n := range uint64(100) {
		crowd = append(crowd, b.waitNode(o, n+1))
	}
	owed, waits := crowd[20], crowd[50]
	owed.Watch(p.Queue, func() {})
	for _, s := range crowd {
		switch s {
		case waits:
		case owed, crowd[70]:
			s.resolve(t)
			s.Leave()
		case crowd[30]:
			s.Forget()
		default:
			s.Node.Stamp().Store(0)
			s.Withdrawn()
		}
	}
	require.ElementsMatch(t, []arenakernel.Offset{owed.Off, waits.Off}, used())
	again := b.takeNode()
	require.ElementsMatch(t, []arenakernel.Offset{owed.Off, waits.Off, again.Off}, used())
	again.Withdrawn()
	waits.Node.Stamp().Store(0)
	waits.Withdrawn()
	b.BeginTell()
	b.Tell(owed.Off, owed.Node, b.Self())
	b.EndTell()
	p.comes(owed, arenakernel.NodeIdle)
	until(t, func() bool { return len(used()) == 0 })
}

// TestPoolGivesNodesBack checks that wait nodes that no wait has needed for a period go back to the arena, except for
// some that the process keeps. Nodes in use stay, and so do nodes that a wait has needed in the period.
func TestPoolGivesNodesBack(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	pool := &lotOf(b.Arena).nodePool
	const crowd = 2*shrinkMost + 100
	nodes := func() int { return int(b.Stats().Nodes) }
	before := nodes()
	waits := b.waitNode(o, 1)
	come := func(n int) (crowd []*WaitNode) {
		for range n {
			crowd = append(crowd, b.takeNode())
		}
		return crowd
	}
	leave := func(crowd []*WaitNode) {
		for _, s := range crowd {
			s.Withdrawn()
		}
	}
	period := func() {
		for range shrinkTicks {
			pool.shrink()
		}
	}
	const often = freeKept + 50
	present := come(crowd)
	period()
	leave(present)
	require.True(t, pool.shrinks())
	period()
	require.Equal(t, crowd+1, nodes()-before, "the crowd was there in the last period")
	leave(come(often))
	period()
	leave(come(often))
	period()
	require.Equal(t, freeKept+often+1, nodes()-before, "a wait has needed the others in the last period")
	period()
	period()
	require.Equal(t, freeKept+1, nodes()-before)
	require.False(t, pool.shrinks())
	all, free := pool.counts()
	require.Equal(t, [2]int{freeKept + 1, freeKept}, [2]int{all, free})
	require.Equal(t, arenakernel.NodeQueued, waits.Node.State())
	leave(come(crowd)) // these waits get nodes from the arena
	waits.Node.Stamp().Store(0)
	waits.Withdrawn()
}

// orphan pushes a node that is not ready on the ready stack of this process. The poller then
// searches for nodes that were lost from the stack.
func (b *rig) orphan() {
	off, err := b.ClaimNode()
	require.NoError(b.t, err)
	n, err := b.NodeAt(off)
	require.NoError(b.t, err)
	b.Tell(off, n, b.Self())
}

// TestWaitNodeThatNobodyTellsIsUsedAgain checks that a node that was lost from the ready stack, or whose granter died
// before it pushed the node, is used again as soon as no process can push it any more.
func TestWaitNodeThatNobodyTellsIsUsedAgain(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	s := b.waitNode(o, 1)
	s.Watch(p.Queue, func() {})
	b.BeginTell()
	s.resolve(t)
	s.Leave()
	for range 10 { // ten times, because on a busy machine the poller may not run during one of them
		b.orphan()
		<-time.NewTimer(10 * orphanCheck).C
		require.Equal(t, arenakernel.NodeResolved, s.Node.State(), "a process may still push the node")
	}
	b.EndTell()
	b.orphan()
	p.comes(s, arenakernel.NodeIdle)
	_, free := lotOf(b.Arena).nodePool.counts()
	require.Equal(t, 1, free)
}

// TestWaitNodeIsKept checks that a wait node can be used again at once if its wait was not parked.
func TestWaitNodeIsKept(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	s := b.waitNode(o, 1)
	was := s.Node.Load().Generation()
	s.resolve(t)
	s.Leave()
	require.Equal(t, arenakernel.NodeIdle, s.Node.State())
	require.Equal(t, was+1, s.Node.Load().Generation())
	require.Same(t, s, b.takeNode())
}

// TestCheckLeavesTheNextWaitAlone checks that a periodic check that has found a resolved wait does not call notify of
// the next wait in the same wait node. The next wait is a Watch, and its user would take the call for the end of the
// arena.
func TestCheckLeavesTheNextWaitAlone(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	s := b.waitNode(o, 1)
	s.resolve(t)
	s.Leave()
	again := b.waitNode(o, 2)
	require.Same(t, s, again)
	var told atomic.Int32
	s.Watch(p.Queue, func() { told.Add(1) })
	s.nodePool.prod(s, false)
	require.Zero(t, told.Load())
	s.resolve(t)
	s.nodePool.prod(s, false)
	s.nodePool.prod(s, false)
	require.EqualValues(t, 1, told.Load(), "once")
}

// TestCloseSendsWaitNodesAway checks that all waits end when the arena is closed, although none of them is resolved.
func TestCloseSendsWaitNodesAway(t *testing.T) {
	b := newNodePool(t)
	lotOf(b.Arena).procs = DirectMax
	o := b.object()
	p := b.place(o)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	byThread := b.waitNode(o, 1)
	first := p.sleeps(byThread, ctx)
	p.comes(byThread, arenakernel.NodeAsleep)
	var slots []int
	for {
		k, ok := b.Announce(o.Offset, o.Body, 0, DirectMax)
		if !ok {
			break
		}
		slots = append(slots, k)
	}
	byPoller := b.waitNode(o, 2)
	second := p.sleeps(byPoller, ctx)
	p.comes(byPoller, arenakernel.NodeParked)
	for _, k := range slots {
		b.Retract(k)
	}
	watched, told := b.waitNode(o, 3), make(chan struct{})
	watched.Watch(p.Queue, sync.OnceFunc(func() { close(told) }))
	require.NoError(t, b.Close())
	p.await("the watch", told)
	require.Equal(t, Closed, <-first)
	require.Equal(t, Closed, <-second)
}

// TestShutEndsTheWaitsOfAQueue checks that Left returns true after the calls that waited in the queue have left it.
func TestShutEndsTheWaitsOfAQueue(t *testing.T) {
	b := newNodePool(t)
	p := b.place(b.object())
	for k := range DirectMax {
		_, ok := b.Announce(p.config.Object.Offset, p.config.Word, 0, DirectMax)
		require.True(t, ok, "record %d", k)
	}
	done := make(chan Result, 1)
	require.True(t, p.Enter())
	go func() {
		defer p.Exit()
		done <- p.Sleep(uint32(p.wakeWord.Announce()), SleepSpec{}, new(Cancel))
	}()
	until(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.first != nil
	})
	endWaits(p.Queue)
	require.Len(t, done, 1, "the call has left the queue of the closed handle")
	require.Equal(t, Closed, <-done)
	require.False(t, p.Enter())
	p.Queue.Close()
	require.NoError(t, b.Arena.Close())
}

// until polls until done returns true.
func until(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(proctest.Scale(proctest.DefaultTimeout)); !done(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "not in time")
	}
}
