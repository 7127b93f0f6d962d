package park

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// NodeNow returns the NUMA node of the CPU on which the caller runs. ok is false if only a system call could find
// that out. Tests replace NodeNow.
var NodeNow = func() (node uint32, ok bool) {
	_, node, ok = asm.CPU()
	return node, ok
}

// nearBits returns the futex bitset of threads that sleep on a NUMA node. Nodes whose numbers
// differ by a multiple of 32 share a bit.
func nearBits(node uint32) uint32 { return 1 << (node % 32) }

// anyEvery says how often a wake ignores the preference for the waker's own NUMA node: one in anyEvery wakes goes to
// the first sleeper in the queue, on any NUMA node. If all wakes had the preference, sleepers on other NUMA nodes would
// wait until this NUMA node has no sleeper left.
const anyEvery = 64

// wakeOne wakes one sleeper in the kernel's queue, if there is one, and returns how many it woke. If l.Near is set,
// it prefers sleepers on the NUMA node of this CPU.
//
// Some sleepers do not say on which NUMA node they are: waiters in queues without Near, waiters with a context or a
// second word, and C programs. They sleep with a bitset for all NUMA nodes. A wake for all NUMA nodes, such as the
// kernel's own wake after a death, can reach every sleeper. So wakeOne first makes a wake for this NUMA node and, if
// that finds no sleeper, a second wake for all NUMA nodes. Together, the two wakes wake at most one sleeper. A sleeper
// that comes between the two wakes, such as B, does no harm:
//
//	waker                              sleepers A and B on another NUMA node
//	changes the word
//	                                   A still sleeps on the old value of the word
//	wake(this node): no sleeper
//	                                   B announces itself, checks the state, and sleeps on the
//	                                   new value; the next release has to wake B
//	wake(all nodes): wakes A or B      a single wake for all nodes could wake B instead of A, too
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

// nearSleepSpec returns the futex bitset with which a thread sleeps, so that wakes can prefer its NUMA node. The
// result ok is false if the thread sleeps without a bitset. For example, a sleep on several words has no bitset in
// the kernel.
func (q *Queue) nearSleepSpec(b *SleepSpec, c *Cancel) (bits uint32, ok bool) {
	if !q.Near || c.ctx != nil || b.Other != nil {
		return 0, false
	}
	node, ok := NodeNow()
	return nearBits(node), ok
}
