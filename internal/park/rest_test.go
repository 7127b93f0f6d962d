//go:build linux

package park

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// calm is a queue with a waiter for which no wake is due. The test itself calls the periodic
// checker.
type calm struct {
	*place
	me     *waiter
	word   atomic.Uint64 // the word that Rest returns, instead of a word of the object
	knows  bool          // whether Rest knows a value
	checks int           // how often Check has run
	by     checker
	listed []*Queue
}

func newCalm(t *testing.T) *calm {
	b := newNodePool(t)
	c := &calm{place: b.place(b.object()), knows: true}
	c.config.Check = func() { c.checks++ }
	c.config.Rest = func() (*atomic.Uint64, uint64, bool) { return &c.word, c.word.Load(), c.knows }
	require.True(t, c.Enter())
	t.Cleanup(func() {
		if c.Waiting() > 0 { // Close waits for it
			c.Exit()
		}
	})
	c.me = c.enter()
	c.listed = []*Queue{c.Queue}
	return c
}

// ticks runs n periodic checks, and returns how often Check was called in them.
func (c *calm) ticks(n int) int {
	before := c.checks
	for range n {
		c.listed = c.by.check(c.listed)
	}
	return c.checks - before
}

// TestRestingQueueIsCheckedWhenItsWordChanges checks that a queue rests while its words do not change, and that it is
// checked at the next tick after the word of the object has changed.
func TestRestingQueueIsCheckedWhenItsWordChanges(t *testing.T) {
	c := newCalm(t)
	require.Equal(t, 1, c.ticks(1))
	for range 3 {
		require.Zero(t, c.ticks(restTicks-1))
		c.word.Add(1)
		require.Equal(t, 1, c.ticks(1))
	}
}

// TestRestingQueueIsCheckedWhenItsNodeIsReady checks that a resting queue is checked soon after a releaser has made its
// poller node ready, and from then on in every tick.
func TestRestingQueueIsCheckedWhenItsNodeIsReady(t *testing.T) {
	c := newCalm(t)
	c.ticks(1)
	c.mark()
	require.Positive(t, c.ticks(nodeTicks))
	require.Equal(t, 1, c.ticks(1), "the second check in a row that finds the node ready takes its wake")
	require.Equal(t, arenakernel.NodeIdle, c.state())
	<-c.me.wake
}

// TestRestingQueueIsCheckedNowAndThen checks that a queue does not rest for ever. A peer may have removed its node from
// the list.
func TestRestingQueueIsCheckedNowAndThen(t *testing.T) {
	c := newCalm(t)
	c.ticks(1)
	for range 5 {
		require.Positive(t, c.ticks(2*restTicks))
	}
	c.Poller.Store(0)
	require.Positive(t, c.ticks(2*restTicks+2))
	<-c.me.wake
}

// TestRestingQueuesAreCheckedByTurns checks that queues that begin to rest at the same time are not all checked in the
// same tick later.
func TestRestingQueuesAreCheckedByTurns(t *testing.T) {
	b := newNodePool(t)
	var word atomic.Uint64
	var by checker
	var queues []*Queue
	checks := 0
	for range 4 * restTicks {
		p := b.place(b.object())
		p.config.Check = func() { checks++ }
		p.config.Rest = func() (*atomic.Uint64, uint64, bool) { return &word, 0, true }
		require.True(t, p.Enter())
		t.Cleanup(p.Exit)
		p.enter()
		queues = append(queues, p.Queue)
	}
	queues = by.check(queues)
	require.Empty(t, queues)
	for range 3 * restTicks {
		checks = 0
		queues = by.check(queues)
		require.LessOrEqual(t, checks, 8)
	}
}

// TestManyRestingQueuesAreLookedAtByTurns checks that each tick reads only some of very many resting queues, and that a
// lap reads each queue once.
func TestManyRestingQueuesAreLookedAtByTurns(t *testing.T) {
	for n, want := range map[int]int{lookMost - 1: 1, 3 * lookMost: 4, 9 * lookMost: 8} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			c := newCalm(t)
			c.ticks(1)
			require.Equal(t, 1, c.by.rest())
			var word atomic.Uint64
			var node atomic.Uint32
			for i := range n {
				k := i % lapMost
				c.by.resting[k] = append(c.by.resting[k], resting{word: &word, node: &node, until: c.by.tick + 1<<20, phase: uint32(i)})
			}
			lap := int(c.by.lap())
			require.Equal(t, want, lap)
			c.by.resting[c.by.rests%lapMost][0].until = c.by.tick + 2*uint32(lap)
			require.Equal(t, 1, c.ticks(3*lap), "its rest is over")
			require.Zero(t, c.ticks((restTicks-1)*lap), "the queue begins a new rest of full length")
			c.ticks(2 * restTicks * lap)
			c.word.Add(1)
			require.Equal(t, 1, c.ticks(lap), "its word has changed")
			c.mark()
			require.Positive(t, c.ticks(nodeTicks*lap), "its node is ready")
			require.Positive(t, c.ticks(1), "the second check in a row that finds the node ready takes its wake")
			<-c.me.wake
		})
	}
}

// TestQueueThatMayNotRest checks that a queue does not rest if Rest knows no value, or if a releaser would find none of
// the waiting goroutines through the poller node.
func TestQueueThatMayNotRest(t *testing.T) {
	c := newCalm(t)
	c.knows = false
	require.Equal(t, 10, c.ticks(10))
	c.knows = true
	c.delist(c.me)
	require.Equal(t, 10, c.ticks(10), "its call is on the way to sleep, or back")
	c.Exit()
	require.Zero(t, c.ticks(1))
	require.Empty(t, c.listed)
	require.Zero(t, c.by.rest())
}

// TestRestingQueueWithoutWaiters checks that a resting queue whose waiters have left is removed from the checker.
func TestRestingQueueWithoutWaiters(t *testing.T) {
	c := newCalm(t)
	c.ticks(1)
	c.delist(c.me)
	c.Exit()
	c.ticks(nodeTicks)
	require.Empty(t, c.listed)
	require.Zero(t, c.by.rest())
	require.Equal(t, 1, c.checks)
}
