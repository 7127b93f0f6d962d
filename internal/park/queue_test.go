//go:build linux

package park

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// A rig is an arena for tests. The body of each of its objects is a wake word and, at offset 8, the
// head of a list of poller nodes.
type rig struct {
	*arenakernel.Arena
	t       testing.TB
	objects int
}

var testKind = arenakernel.KindOf("PARK")

func newNodePool(t testing.TB) *rig {
	name := fmt.Sprintf("shmsync-park-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "."))
	a, err := arenakernel.Create(name, &arenakernel.Options{Size: 4 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		shm.Remove(name)
		a.Close()
	})
	return &rig{Arena: a, t: t}
}

// A place is the queue of one object.
type place struct {
	*Queue
	b        *rig
	wakeWord WakeWord
	missed   atomic.Int32
}

func (b *rig) object() arenakernel.Object {
	b.objects++
	o, _, err := b.OpenObject(arenakernel.ObjectSpec{Kind: testKind, Version: 1, Name: fmt.Sprint("o", b.objects), Size: 64})
	require.NoError(b.t, err)
	return o
}

func (b *rig) place(o arenakernel.Object) *place {
	word, err := arenakernel.TryAt[atomic.Uint32](b.Arena, o.Body)
	require.NoError(b.t, err)
	head, err := arenakernel.TryAt[atomic.Uint64](b.Arena, o.Body+8)
	require.NoError(b.t, err)
	p := &place{b: b, wakeWord: WakeWord{WaitList{Arena: b.Arena, Word: word, Raw: wordPtr(word), Poller: head}}}
	p.Queue = NewQueue(Config{WaitList: p.wakeWord.WaitList, Object: o, Word: o.Body, Check: func() {}, Miss: func() { p.missed.Add(1) }})
	return p
}

// enter parks a goroutine. No periodic check runs that could hide a lost wake.
func (p *place) enter() *waiter {
	me := &waiter{wake: make(chan struct{}, 1)}
	require.True(p.b.t, p.enlist(uint32(p.wakeWord.Announce()), me, shmsync.Monotonic()))
	return me
}

func (p *place) state() arenakernel.NodeState {
	n, err := p.b.NodeAt(p.pollerNode())
	require.NoError(p.b.t, err)
	return n.State()
}

func (p *place) pollerNode() arenakernel.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// mark makes the poller node ready, as a releaser does before it pushes the node.
func (p *place) mark() {
	n, err := p.b.NodeAt(p.pollerNode())
	require.NoError(p.b.t, err)
	w := n.Load()
	require.Equal(p.b.t, arenakernel.NodeWaiting, w.State())
	require.True(p.b.t, n.Swap(w, w.With(arenakernel.NodeReady)))
}

// pause makes the poller stop when it has taken a node. A receive from the channel took waits for this, and goOn lets
// the poller continue.
func (b *rig) pause() (took chan struct{}, goOn func()) {
	h := lotOf(b.Arena)
	took, again := make(chan struct{}), make(chan struct{})
	h.took = func() {
		select {
		case took <- struct{}{}:
			<-again
		case <-again:
		}
	}
	return took, sync.OnceFunc(func() { close(again) })
}

func (p *place) await(what string, done <-chan struct{}) {
	p.b.t.Helper()
	select {
	case <-done:
	case <-time.NewTimer(proctest.Scale(proctest.DefaultTimeout)).C:
		p.b.t.Fatalf("%s: not in time; the word is %#x, the node %d", what, p.wakeWord.Word.Load(), p.state())
	}
}

// TestReleasersPassOverAnEmptyQueue checks that releasers no longer choose the poller node of a queue after a wake
// has taken the last parked goroutine off the queue. That goroutine may already have checked the state for the last
// time, and then it would not notice another wake.
func TestReleasersPassOverAnEmptyQueue(t *testing.T) {
	for name, all := range map[string]bool{"one": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			b := newNodePool(t)
			p := b.place(b.object())
			me := p.enter()
			require.Equal(t, arenakernel.NodeWaiting, p.state())
			p.deliver(all)
			<-me.wake
			require.False(t, b.ReadyOne(p.Poller, 0))
		})
	}
}

// TestClosePassesOnWhatThePollerTook checks that Close passes a wake on if the poller has taken the node, but the
// waiter has left before the poller delivers the wake.
func TestClosePassesOnWhatThePollerTook(t *testing.T) {
	b := newNodePool(t)
	took, goOn := b.pause()
	defer goOn()
	p := b.place(b.object())
	me := p.enter()
	require.True(t, b.ReadyOne(p.Poller, 0))
	p.await("the poller takes the node", took)
	require.Equal(t, arenakernel.NodeIdle, p.state())
	p.delist(me)
	p.Close()
	goOn()
	require.EqualValues(t, 1, p.missed.Load())
}

// TestClosePassesOnWhatIsReady checks that Close passes a wake on if the poller node is ready, but the poller has not
// taken the node yet.
func TestClosePassesOnWhatIsReady(t *testing.T) {
	b := newNodePool(t)
	took, goOn := b.pause()
	defer goOn()
	p, other := b.place(b.object()), b.place(b.object())
	other.enter()
	require.True(t, b.ReadyOne(other.Poller, 0))
	p.await("the poller is held", took)
	me := p.enter()
	require.True(t, b.ReadyOne(p.Poller, 0))
	p.delist(me)
	p.Close()
	require.EqualValues(t, 1, p.missed.Load())
}

// TestClosedQueueTakesNothing checks that a closed queue does not take the wake of the next queue of the object,
// which uses the same poller node.
func TestClosedQueueTakesNothing(t *testing.T) {
	b := newNodePool(t)
	took, goOn := b.pause()
	defer goOn()
	o := b.object()
	p, other := b.place(o), b.place(b.object())
	other.enter()
	require.True(t, b.ReadyOne(other.Poller, 0))
	p.await("the poller is held", took)
	me := p.enter()
	p.mark()
	p.delist(me)
	queues := p.lot.adopted() // the queues that the poller visits after a death
	p.Close()

	next := b.place(o)
	me = next.enter()
	require.Equal(t, arenakernel.NodeWaiting, next.state(), "a node that stays ready could get no further wake")
	next.mark()
	for _, q := range queues {
		if q != other.Queue {
			q.afterDeath()
		}
	}
	require.Equal(t, arenakernel.NodeReady, next.state())
	next.afterDeath()
	next.await("the wake arrives", me.wake)
}

// TestReadyNodeOfAClosedQueue checks that the next queue of an object gets wakes through the poller node of a closed
// queue, even if a releaser has made the node ready and has never pushed it.
func TestReadyNodeOfAClosedQueue(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	me := p.enter()
	p.mark()
	node := p.pollerNode()
	p.delist(me)
	p.Close()
	next := b.place(o)
	me = next.enter()
	require.Equal(t, node, next.pollerNode())
	require.True(t, b.ReadyOne(next.Poller, 0))
	next.await("the wake arrives", me.wake)
}

// TestPollerChecksForWhatFellOffItsStack checks that the poller finds nodes that were lost from the ready stack. A
// node that is pushed twice cuts off the nodes below it in the stack.
func TestPollerChecksForWhatFellOffItsStack(t *testing.T) {
	b := newNodePool(t)
	took, goOn := b.pause()
	defer goOn()
	p, fallen, other := b.place(b.object()), b.place(b.object()), b.place(b.object())
	other.enter()
	require.True(t, b.ReadyOne(other.Poller, 0))
	p.await("the poller is held", took)
	// The poller calls afterDeath after a death. Here it takes the wake of p's node although the node is still on the
	// ready stack. So the poller later finds a node on the stack that is not ready.
	mine, lost := p.enter(), fallen.enter()
	require.True(t, b.ReadyOne(p.Poller, 0))
	p.afterDeath()
	p.await("after a death", mine.wake)
	fallen.mark()
	goOn()
	fallen.await("a wake that fell off the stack", lost.wake)
}

// TestLooseNodeIsKept checks that this process keeps a poller node as long as a releaser may still push the node on
// the ready stack.
func TestLooseNodeIsKept(t *testing.T) {
	b := newNodePool(t)
	o := b.object()
	p := b.place(o)
	me := p.enter()
	b.BeginTell() // a releaser has marked the node and has not pushed it yet
	p.mark()
	p.afterDeath()
	p.await("after a death", me.wake)
	node := p.pollerNode()
	p.Close()
	n, err := b.NodeAt(node)
	require.NoError(t, err)
	require.Equal(t, b.Self(), n.Owner())
	next := b.place(o)
	next.enter()
	require.Equal(t, node, next.pollerNode())
	next.afterDeath() // as the poller does after a death
	next.Close()
	require.Equal(t, b.Self(), n.Owner(), "loose while it may be pushed")
	b.Tell(node, n, b.Self())
	b.EndTell()
	until(t, func() bool { return lotOf(b.Arena).mayRelease(node) })
	last := b.place(o)
	last.enter()
	require.Equal(t, node, last.pollerNode())
	last.Close()
	require.Zero(t, n.Owner())
}

// TestCheckMayReleaseAsOne checks that DeliverOneAsOne never calls Config.Miss, even if the chosen waiter leaves the
// queue at the same time. The test calls DeliverOneAsOne under the lock life of the queue, as Config.Check does. A call
// of Config.Miss would lock life again.
func TestCheckMayReleaseAsOne(t *testing.T) {
	b := newNodePool(t)
	p := b.place(b.object())
	rounds := 200_000
	if testing.Short() {
		rounds /= 10
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			me := p.enter()
			left := make(chan struct{})
			go func() {
				defer close(left)
				p.delist(me)
			}()
			p.alive(func() { p.DeliverOneAsOne(3) })
			<-left
		}
	}()
	p.await("a check that releases", done)
	require.Zero(t, p.missed.Load(), "a wake found no waiter although it chose one")
}

// TestWaitKeepsItsDateOverWakes checks that tools show when a wait began, even if the waiter was woken in vain, for
// example after the death of an unrelated process.
func TestWaitKeepsItsDateOverWakes(t *testing.T) {
	b := newNodePool(t)
	for _, parked := range []bool{false, true} {
		t.Run(fmt.Sprint("parked ", parked), func(t *testing.T) {
			o := b.object()
			p := b.place(o)
			date := func() (since int64) {
				b.StampAnnounced()
				for _, w := range b.WaitsOf(o) {
					since = w.Since
				}
				return since
			}
			done := make(chan Result)
			go func() {
				var c Cancel
				for range 3 {
					done <- p.Sleep(uint32(p.wakeWord.Announce()), SleepSpec{Park: parked}, &c)
				}
			}()
			until(t, func() bool { return date() != 0 })
			first := date()
			for range 2 {
				p.wakeWord.WakeAll()
				require.Equal(t, Again, <-done)
				until(t, func() bool { return date() == first })
			}
			p.wakeWord.WakeAll()
			<-done
		})
	}
}
