package park

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// resting is a queue with waiters to whom nobody owes a wake, and two words of the arena: one that is changed before
// a wake is owed, and the queue's poller node. While the two are what they were at the last check, the next check
// would find nothing. It reads these words, and not the queue, its locks and its list.
type resting struct {
	q     *Queue
	word  *atomic.Uint64
	node  *atomic.Uint32
	value uint64
	state arenakernel.NodeWord
	until uint32 // the queue is checked in this tick whatever the words are
	phase uint32 // differs between queues, so that many of them are not looked at in the same tick
}

// A queue rests for restTicks to twice as many looks at it, 6 to 13 seconds if there is one in each tick. The check after
// that tells whether a releaser still finds the poller node, which only a peer that overwrites the list prevents.
const restTicks = 64

// The poller node of a resting queue is read in every eighth look. If a releaser made it ready and stopped, the next
// change of the word finds the queue by the next look in any case.
const nodeTicks = 8

const (
	// lookMost is about how many resting queues the checker looks at in a tick. A look costs 50 to 100 ns, since the word of
	// each queue is in a cache line of its own. So this many looks take about 1 % of a CPU.
	lookMost = 1 << 13
	// lapMost bounds the number of ticks in which the checker looks at each queue once. It is a power of two, as is
	// each lap.
	lapMost = 8
)

// checker is what the periodic checker of a lot keeps from one tick to the next.
type checker struct {
	tick    uint32
	rests   uint32             // how many queues were put to rest
	resting [lapMost][]resting // by phase, modulo lapMost
}

// check checks the queues that have waiters, and those whose words have changed while they rested. It returns the
// queues that are to be checked at the next tick.
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

// look looks at resting queues, and adds those to be checked to queues.
func (c *checker) look(at *[]resting, lap uint32, queues []*Queue) []*Queue {
	all, rest := *at, 0 // rest: how many still rest
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

// rest is how many queues rest.
func (c *checker) rest() (n int) {
	for k := range c.resting {
		n += len(c.resting[k])
	}
	return n
}

// lap is in how many ticks the checker looks at each resting queue once: one, unless there are very many.
func (c *checker) lap() uint32 {
	lap := uint32(1)
	for n := c.rest(); n > lookMost && lap < lapMost; n /= 2 {
		lap *= 2
	}
	return lap
}

// check checks a queue. It reports whether anybody waits there, and how the queue may rest.
func (q *Queue) check() (waits bool, rest resting) {
	if q.Waiting() == 0 {
		q.listed.Store(false)
		// A waiter that entered before the store above found listed still set, and did not
		// list the queue.
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

// rest returns how the queue may rest, or nothing. The caller has checked the object.
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

// Resting reports how many queues of this process rest, for tests.
func Resting(a *arenakernel.Arena) int { return int(lotOf(a).resting.Load()) }
