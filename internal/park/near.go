package park

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// NodeNow returns the NUMA node of the CPU that the caller runs on, and false if only a system
// call could tell. Tests replace it.
var NodeNow = func() (node uint32, ok bool) {
	_, node, ok = asm.CPU()
	return node, ok
}

// nearBits returns the futex bitset of the sleepers on a NUMA node. Nodes whose numbers differ by a
// multiple of 32 share a bit.
func nearBits(node uint32) uint32 { return 1 << (node % 32) }

// anyEvery is how often a wake of a near WaitList goes to the first sleeper in the queue, wherever
// that sleeper runs: once in that many wakes. Otherwise sleepers on other nodes would wait until
// this node has no sleeper left.
const anyEvery = 64

// wakeOne wakes one sleeper of the kernel's queue, if there is one, and returns how many it woke.
// For a near WaitList it prefers the sleepers on this CPU's node.
//
// Some sleepers do not say on which node they are: those of other processes, waiters with a
// context, and C programs. For the kernel, such a sleeper is on every node. A wake for any node,
// such as the kernel's own after a death, reaches all sleepers. So the first wake, for this node,
// may find no sleeper, but the second one, for any node, finds one if there is one. Together they
// wake at most one sleeper.
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

// nearSleepSpec returns the futex bitset with which a thread sleeps, so that wakes can prefer its
// NUMA node. It returns false if the thread sleeps without one: a sleep on several words has no
// bitset in the kernel.
func (q *Queue) nearSleepSpec(b *SleepSpec, c *Cancel) (bits uint32, ok bool) {
	if !q.Near || c.ctx != nil || b.Other != nil {
		return 0, false
	}
	node, ok := NodeNow()
	return nearBits(node), ok
}
