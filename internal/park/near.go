package park

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// NodeNow gives the NUMA node of the CPU that the caller runs on, and false where
// that is not known without a system call. Tests say otherwise.
var NodeNow = func() (node uint32, ok bool) {
	_, node, ok = asm.CPU()
	return node, ok
}

// nearBits is the bitset of the sleepers on a node. Nodes 32 apart share a bit.
func nearBits(node uint32) uint32 { return 1 << (node % 32) }

// anyEvery is how often a wake of a near WaitList is for the first in the queue, so that
// sleepers on other nodes are not only woken when a node has none left.
const anyEvery = 64

// wakeOne wakes one sleeper of the kernel's queue, if there is any, and reports
// how many it woke. For a near WaitList it prefers those on this CPU's node.
//
// A sleeper that does not sleep near is on every node, for the kernel: another process, a
// waiter with a context, a peer in C. And a wake that is not near, such as that of the
// kernel after a death, is for all bits. So the second wake at the latest wakes a sleeper,
// and it makes no difference to the owed wakes whether there was a first: it found nobody,
// or woke one.
//
//	waker                              sleeper on another node
//	bump the word
//	                                   (asleep on the word before the bump)
//	wake(node): nobody
//	                                   a new one announces, looks, sleeps on the
//	                                   word after the bump: the next release's
//	wake(any): one of the two          as between a bump and its wake, always
func (l *WaitList) wakeOne(turn uint32) int {
	if l.Near && turn>>1%anyEvery != anyEvery-1 {
		if node, ok := NodeNow(); ok {
			if n := shmsync.WakeBitset(l.Raw, 1, nearBits(node)); n != 0 {
				return n
			}
		}
	}
	return shmsync.Wake(l.Raw, 1)
}

// nearSleepSpec gives the bits that a thread sleeps with so that wakes can prefer it, and
// false where it sleeps for all of them: for several words at once the kernel knows
// no bits.
func (q *Queue) nearSleepSpec(b *SleepSpec, c *Cancel) (bits uint32, ok bool) {
	if !q.Near || c.ctx != nil || b.Other != nil {
		return 0, false
	}
	node, ok := NodeNow()
	return nearBits(node), ok
}
