package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// buildMonitor makes a handle of this process on the monitor at off in the body of o.
func buildMonitor(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, r rules) *monitor {
	m := &monitor{a: a, object: o, words: arenakernel.At[monitorWords](a, off).places(), at: off, rules: r}
	m.deaths.Store(a.Deaths() - 1) // differs from the present count of deaths, so that the first check calls rules.reap
	m.queueLock = buildMutexAt(a, o, off, &MutexOptions{Repair: m.replay})
	m.queueLock.queue.ServeToTheEnd()
	m.queueLock.alsoCheck = m.check
	m.queueLock.queueLock, m.queueLock.internal = true, true
	m.opening, m.key = m.queueLock.opening, m.queueLock.key
	m.opening.waitsIn(m.queueLock.queue)
	m.opening.end = m.queueLock.end
	m.counts = countsOf(a, &m.words.queueLock.counts)
	return m
}
