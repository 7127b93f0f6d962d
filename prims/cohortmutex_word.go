package prims

import "fmt"

// cohortTurn says which node's turn it is at a CohortMutex while many compete for it.
//
//	bits 0..7    node    index of the local lock of the last holder, + 1; 0: few compete
//	bits 8..15   quiet   how many holders in a row have seen no competitor
//	bits 16..31  passes  how often in a row the lock stayed on this node when it got a new holder
//
//	node  quiet  passes  meaning                                        left by
//	0     0      0       few compete: a newcomer takes a free lock      the last of cohortQuiet holders in a row
//	                                                                    that saw no competitor; all-zero memory
//	k+1   q      p       the turn of node k                             the process that got the lock
//	255   0      0       a waiter sleeps; the next holder says whose    the waiter that went to sleep
//	                     turn it is
//
// Only a faulty peer writes another value. No value can do harm, because the word only decides which node's
// waiters go first, and other waiters let them do so only for a bounded time.
type cohortTurn uint32

const (
	// cohortPasses is how many times in a row a node keeps the lock while other nodes wait. The
	// literature uses 64; see docs/design/0017-cohort.md.
	cohortPasses = 64
	// cohortQuiet is how many holders in a row must have seen no competitor before the word becomes 0. Then new
	// callers take the lock as they take a Mutex.
	cohortQuiet = 8
)

// cohortContended says that a waiter sleeps, and that it is no node's turn.
const cohortContended cohortTurn = 255

func makeCohortTurn(node, quiet, passes int) cohortTurn {
	return cohortTurn(node+1) | cohortTurn(quiet)<<8 | cohortTurn(passes)<<16
}

// node returns the NUMA node whose turn it is, or -1 if it is no node's turn.
func (t cohortTurn) node() int {
	if n := t & 0xff; n != cohortContended {
		return int(n) - 1
	}
	return -1
}
func (t cohortTurn) quiet() int  { return int(t >> 8 & 0xff) }
func (t cohortTurn) passes() int { return int(t >> 16) }

// over reports whether the node has kept the lock so often that its turn is over and waiters of other nodes go
// first.
func (t cohortTurn) over() bool { return t.passes() >= cohortPasses }

// after returns the word to store after a process of the given node has got the lock. If crowded is true, the process
// has seen others compete for the lock. If anew is true and the turn of the node is over, the node begins a new turn.
// The caller sets anew if no waiter of another node wants the lock, or if none took it when it could go first.
func (t cohortTurn) after(node int, crowded, anew bool) cohortTurn {
	passes := 0
	switch {
	case t.node() == node && !t.over():
		passes = t.passes() + 1
	case t.node() == node && !anew:
		passes = cohortPasses // the process decided to take the lock before the turn was over
	}
	switch {
	case crowded:
		return makeCohortTurn(node, 0, passes)
	case t == 0 || t.quiet()+1 >= cohortQuiet:
		return 0
	}
	return makeCohortTurn(node, t.quiet()+1, passes)
}

// String renders the word by the names of its parts.
func (t cohortTurn) String() string {
	switch {
	case t&0xff == cohortContended:
		return "somebody sleeps"
	case t.node() < 0:
		return "few compete"
	}
	return fmt.Sprintf("the turn of node %d, passed on %d times, quiet for %d", t.node(), t.passes(), t.quiet())
}
