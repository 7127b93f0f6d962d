package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// buildMonitor makes this process's handle on the monitor at off in the body of o. A reaper's
// handle is bare: it cannot wait.
func buildMonitor(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, r rules, bare bool) *monitor {
	return buildMonitorAt(a, o, off, arenakernel.At[monitorWords](a, off).places(), r, bare)
}

// buildMonitorAt is buildMonitor for an object whose words are not together. Its queue lock is at off.
func buildMonitorAt(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, w monitorPlaces, r rules, bare bool) *monitor {
	m := &monitor{a: a, object: o, words: w, at: off, rules: r}
	m.deaths.Store(a.Deaths() - 1) // one less than the count of deaths, so that the first check reaps
	opt := &MutexOptions{Repair: m.replay}
	if bare {
		m.queueLock = buildBareMutex(a, o, off, opt)
	} else {
		m.queueLock = buildMutexAt(a, o, off, opt)
		m.queueLock.queue.ServeToTheEnd()
		m.queueLock.alsoCheck = m.check
	}
	m.queueLock.queueLock, m.queueLock.internal = true, true
	m.setOpening(m.queueLock.opening)
	m.key = m.queueLock.key
	m.counts = countsOf(a, &m.words.queueLock.counts)
	return m
}

// setOpening says to which opening the monitor belongs. If the object has more parts, its maker
// also says how those end.
func (m *monitor) setOpening(p *opening) {
	m.opening, m.queueLock.opening = p, p
	p.waitsIn(m.queueLock.queue)
	p.end = m.queueLock.end
}
