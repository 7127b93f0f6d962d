package park

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// resting describes a queue with waiters that the periodic checker need not check now. It points to two words of the
// arena: a word of the object, which changes before a wake becomes due, and the word of the queue's poller node. While
// both words have the same values as at the last check, a check would find nothing. So the checker reads only these
// words, and not the queue, its locks and its list.
type resting struct {
	q     *Queue
	word  *atomic.Uint64
	node  *atomic.Uint32
	value uint64
	state arenakernel.NodeWord
	until uint32 // in this tick of the checker, the queue is checked whatever its words are
	phase uint32 // differs between queues, so that they are not all read in the same tick
}

// A queue rests for restTicks to 2*restTicks reads of its words, which is 6 to 13 seconds if each tick reads them. Then
// the queue is checked, to find out whether releasers can still find its poller node: a peer may have overwritten the
// list.
const restTicks = 64

// nodeTicks says how often the checker reads the word of the poller node of a resting queue: once in nodeTicks reads of
// the word of the object. This is enough even if a releaser is stopped after it has made the node ready. Before the
// next wake becomes due, the word of the object changes, and then the checker checks the queue.
const nodeTicks = 8

const (
	// lookMost is approximately how many resting queues the checker reads in a tick. The words of each queue are in
	// cache lines of their own, so the checker needs 50 to 100 ns for each queue. That makes 1 % of a CPU for
	// lookMost queues.
	lookMost = 1 << 13
	// lapMost is the maximum number of ticks that the checker takes to read every resting queue once
	// (a lap). The number of ticks of a lap is always a power of two.
	lapMost = 8
)

// checker is the state of the periodic checker of a lot between ticks.
type checker struct {
	tick    uint32
	rests   uint32             // how many times any queue has begun to rest
	resting [lapMost][]resting // by phase, modulo lapMost
}

// check checks the queues with waiters, and those resting queues whose words have changed. It returns the queues
// that must be checked at the next tick.
func (c *checker) check(queues []*Queue) (kept []*Queue) {
	c.tick++
	lap := c.lap()
	for k := c.tick % lap; k < lapMost; k += lap {
		queues = c.look(&c.resting[k], lap, queues)
	}
	kept = queues[:0]
	for _, q := range queues {
		switch waits, rest := q.check(); {
		case !waits:
		case rest.q != nil:
			c.rests++
			rest.phase = c.rests
			rest.until = c.tick + (restTicks+c.rests%restTicks)*lap
			k := rest.phase % lapMost
			c.resting[k] = append(c.resting[k], rest)
		default:
			kept = append(kept, q)
		}
	}
	return kept
}

// look reads the words of the resting queues in the list *at. It moves the queues that have to be checked to the list
// queues.
func (c *checker) look(at *[]resting, lap uint32, queues []*Queue) []*Queue {
	all, rest := *at, 0 // rest counts the queues that still rest
	for i := range all {
		r := &all[i]
		nodeToo := (c.tick/lap+r.phase/lapMost)%nodeTicks == 0
		if r.word.Load() != r.value || int32(c.tick-r.until) >= 0 || nodeToo && r.node.Load() != uint32(r.state) {
			queues = append(queues, r.q)
			continue
		}
		if rest < i {
			all[rest] = *r
		}
		rest++
	}
	clear(all[rest:])
	*at = all[:rest]
	return queues
}

// rest returns how many queues rest, that is, need no check while their words do not change.
func (c *checker) rest() (n int) {
	for k := range c.resting {
		n += len(c.resting[k])
	}
	return n
}

// lap returns the number of ticks in which the checker reads every resting queue once. It is 1
// unless there are more than lookMost queues.
func (c *checker) lap() uint32 {
	lap := uint32(1)
	for n := c.rest(); n > lookMost && lap < lapMost; n /= 2 {
		lap *= 2
	}
	return lap
}

// check checks the queue q for lost wakes. The result waits is true if a goroutine waits in the queue. The result
// rest has the words to read instead of a check; it is zero if the queue must be checked each time.
func (q *Queue) check() (waits bool, rest resting) {
	if q.Waiting() == 0 {
		q.listed.Store(false)
		// A waiter that entered before this store found that the queue was listed, and did not put it on the list of
		// the checker. So look for waiters once more.
		if q.Waiting() == 0 || q.listed.Swap(true) {
			return false, resting{}
		}
	}
	q.alive(func() {
		q.config.Check()
		if q.config.Rest != nil {
			rest = q.rest()
		}
	})
	if !q.recover() {
		return true, resting{}
	}
	return true, rest
}

// rest returns the words that the periodic checker reads instead of checking q. It returns the zero value if q must
// be checked each time. The caller has just checked the object.
func (q *Queue) rest() resting {
	word, value, ok := q.config.Rest()
	if !ok {
		return resting{}
	}
	q.mu.Lock()
	off := q.node
	q.mu.Unlock()
	n, err := q.Arena.NodeAt(off)
	if off == 0 || err != nil {
		return resting{}
	}
	state := n.Load()
	if state.State() != arenakernel.NodeWaiting {
		return resting{}
	}
	return resting{q: q, word: word, value: value, node: n.Word(), state: state}
}

// Resting returns how many queues of this process need no periodic check at present. It is for tests.
func Resting(a *arenakernel.Arena) int { return int(lotOf(a).resting.Load()) }
