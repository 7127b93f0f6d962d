package park

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// resting is a queue with waiters for which no wake is due, and two words of the arena: a word that
// changes before a wake becomes due, and the word of the queue's poller node. While both words are
// the same as at the last check, the next check would find nothing. So the checker reads only these
// words, and not the queue, its locks and its list.
type resting struct {
	q     *Queue
	word  *atomic.Uint64
	node  *atomic.Uint32
	value uint64
	state arenakernel.NodeWord
	until uint32 // the queue is checked in this tick, whatever the words are
	phase uint32 // differs between queues, so that many of them are not read in the same tick
}

// A queue rests while its words are read restTicks times, to twice as many: 6 to 13 seconds if they
// are read in each tick. The next check then finds out whether a releaser still finds the poller
// node. Only a peer that overwrites the list can prevent that.
const restTicks = 64

// The word of the poller node of a resting queue is read only every eighth time. If a releaser has
// made the node ready and is stopped, the next change of the first word makes the checker check the
// queue in any case.
const nodeTicks = 8

const (
	// lookMost is about how many resting queues the checker reads in a tick. That takes 50 to 100
	// ns for each queue, because the words of each queue are in cache lines of their own. So this
	// many queues take about 1 % of a CPU.
	lookMost = 1 << 13
	// lapMost is the largest number of ticks in which the checker reads each queue once. It is a
	// power of two, as is each lap.
	lapMost = 8
)

// checker is the state of the periodic checker of a lot between ticks.
type checker struct {
	tick    uint32
	rests   uint32             // how often a queue began to rest
	resting [lapMost][]resting // by phase, modulo lapMost
}

// check checks the queues that have waiters, and the resting queues whose words have changed. It
// returns the queues to be checked at the next tick.
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

// look reads the words of resting queues, and adds the queues that have to be checked to queues.
func (c *checker) look(at *[]resting, lap uint32, queues []*Queue) []*Queue {
	all, rest := *at, 0 // rest: how many queues still rest
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

// rest returns how many queues rest.
func (c *checker) rest() (n int) {
	for k := range c.resting {
		n += len(c.resting[k])
	}
	return n
}

// lap returns in how many ticks the checker reads each resting queue once. That is 1 unless there
// are very many.
func (c *checker) lap() uint32 {
	lap := uint32(1)
	for n := c.rest(); n > lookMost && lap < lapMost; n /= 2 {
		lap *= 2
	}
	return lap
}

// check checks a queue. It returns whether anybody waits there, and how the queue may rest.
func (q *Queue) check() (waits bool, rest resting) {
	if q.Waiting() == 0 {
		q.listed.Store(false)
		// A waiter that entered before the store above still found listed set, and did not put the
		// queue on the list.
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

// rest returns how the queue may rest, or the zero value if it may not. The caller has checked the
// object.
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

// Resting returns how many queues of this process rest, for tests.
func Resting(a *arenakernel.Arena) int { return int(lotOf(a).resting.Load()) }
