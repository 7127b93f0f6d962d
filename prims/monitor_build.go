package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// buildMonitor makes a handle of this process on the monitor at off in the body of o. If the parameter bare is
// true, the handle is for recovery after a death only, and cannot wait.
func buildMonitor(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, r rules, bare bool) *monitor {
	return buildMonitorAt(a, o, off, arenakernel.At[monitorWords](a, off).places(), r, bare)
}

// buildMonitorAt does what the function buildMonitor does, for an object whose monitor words are
// not next to each other. The queue lock is at off.
func buildMonitorAt(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, w monitorPlaces, r rules, bare bool) *monitor {
	m := &monitor{a: a, object: o, words: w, at: off, rules: r}
	m.deaths.Store(a.Deaths() - 1) // differs from the present count of deaths, so that the first check calls rules.reap
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

// setOpening sets the opening, that is, the successful open of an object, to which the monitor belongs. An opening
// ends with the function in p.end. If the object has more components, the caller replaces that function.
func (m *monitor) setOpening(p *opening) {
	m.opening, m.queueLock.opening = p, p
	p.waitsIn(m.queueLock.queue)
	p.end = m.queueLock.end
}
