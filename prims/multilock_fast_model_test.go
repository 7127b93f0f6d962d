//go:build linux

package prims

// inherit is the first step of a process that has the slot of a dead one. The process finds the record of the dead
// process, and carries it out if a commit word names it.
func (m *multiLockModel) inherit(s *mlState, i int) string {
	t, slot := &s.thread[i], m.slot(m.proc(i))
	s.opened = true
	switch h := s.head[slot]; {
	case m.bug == mlNoInherit, h.version == 0, m.bug == mlInheritsOwn && h.bucket != t.bucket:
	case s.commit[h.bucket] == rqCommit{h.version, slot + 1}, m.bug == mlInheritsAny:
		t.bucket, t.mode, t.rec = h.bucket, mlInherits, s.rec[slot]
		m.apply(s, i)
		return "inherits a record"
	}
	m.start(s, i)
	return "inherits nothing"
}

// fast makes a step of the fast path of a call.
func (m *multiLockModel) fast(s *mlState, i int) string {
	t, p := &s.thread[i], m.proc(i)
	verb, key := m.op(s, i)
	switch {
	case verb == 'X':
		return m.takeFromDead(s, i)
	case t.mode == mlUnlocks:
		has := s.holds[i][key]
		h := &s.entry[has.entry-1].hold
		if h.kind != mlOpen || h.name != p+1 || h.tag != has.tag && m.bug != mlUnlocksAny {
			t.pc = mlLock
			return "cannot unlock by one CAS"
		}
		h.name = 0
		m.leaves(s, i)
		m.finish(s, i)
		return "unlocks by one CAS"
	}
	all, n := m.known(s, t.bucket, p)
	if t.mode == mlRecovers || t.scan == n {
		t.pc, t.scan = mlLock, 0
		return "has no fast path"
	}
	e := &s.entry[all[t.scan]]
	open := e.hold.kind == mlOpen && e.hold.name == 0
	next := mlThread{at: t.at, mode: t.mode, bucket: t.bucket, pc: mlFast, scan: t.scan + 1} // the next entry
	switch {
	case t.pc == mlFast && m.bug == mlKeyFirst:
		t.pc = mlSeeLow
		return "has not read the hold yet"
	case t.pc == mlFast && open, t.pc == mlSwap && open && t.q == mlHold{}:
		t.q = e.hold
		if t.pc == mlFast {
			t.pc = mlSeeLow
		}
		return "reads an open hold"
	case t.pc == mlFast, t.pc == mlSwap && t.q == mlHold{}:
		*t = next
		return "finds no open hold"
	case t.pc == mlSeeLow && e.low.v == mlHalves[key].low && (m.fine || e.high.v == mlHalves[key].high):
		if t.pc = mlSeeHigh; !m.fine || m.bug == mlHalfKey {
			t.pc = mlSwap
		}
		return "reads the key"
	case t.pc == mlSeeHigh && e.high.v == mlHalves[key].high:
		t.pc = mlSwap
		return "reads the other half of the key"
	case t.pc != mlSwap:
		*t = next
		return "finds another key"
	case e.hold != t.q && (m.bug != mlLocksAny || !open):
		t.pc, t.q, t.scan = mlLock, mlHold{}, 0
		return "cannot lock by one CAS"
	}
	e.hold.name = p + 1
	if m.bug != mlKeepsTag {
		e.hold.tag++
	}
	m.enters(s, i, all[t.scan], e.hold.tag)
	m.finish(s, i)
	return "locks by one CAS"
}

// takeFromDead makes a step of a reaper without a record: the reaper finds an open hold of a dead process, and then
// takes the key by a CAS.
func (m *multiLockModel) takeFromDead(s *mlState, i int) string {
	t := &s.thread[i]
	if t.pc == mlFast {
		for x := range m.total(s) {
			if h := s.entry[x].hold; h.kind == mlOpen && m.isDead(s, h.name) {
				t.pc, t.scan, t.q = mlSwap, x, h
				return "reads the hold of a dead process"
			}
		}
		m.finish(s, i)
		return "finds no open hold of a dead process"
	}
	if h := &s.entry[t.scan].hold; *h == t.q || m.bug == mlPlainTake {
		if *h = (mlHold{mlOpen, 0, h.tag + 1}); !m.release {
			h.kind, h.name = mlDead, t.q.name
			m.reports(s, t.scan, h.name)
		}
	}
	m.finish(s, i)
	return "takes an open key from a dead process"
}

// wakes is the step in which thread i finds that its wait is over.
func (m *multiLockModel) wakes(s *mlState, i int) string {
	if s.resolved&(1<<i) == 0 {
		return ""
	}
	s.resolved &^= 1 << i
	p, n := m.proc(i), &s.node[i]
	granted := n.v == mlGrant
	*n = rqWord{mlNone, n.tag + 1}
	if !granted {
		m.finish(s, i)
		return "its wait is refused"
	}
	_, key := m.op(s, i)
	all, known := m.known(s, s.thread[i].bucket, p)
	for _, x := range all[:known] {
		e := &s.entry[x]
		if !e.has(key) || e.hold.kind != mlGranted || e.hold.name != p+1 {
			continue
		}
		switch m.bug {
		case mlNoAccept:
		case mlOldAccept:
			e.accepted = rqWord{p + 1, e.hold.tag - 1}
		default:
			e.accepted = rqWord{p + 1, e.hold.tag}
		}
		m.enters(s, i, x, e.hold.tag)
		m.finish(s, i)
		return "accepts the key"
	}
	s.wrong = mlNotGranted
	return "has not got the key"
}

// push is the step in which thread i puts a new block on the list, unless the list has changed since the thread computed
// the number of the block.
func (m *multiLockModel) push(s *mlState, i int) string {
	t := &s.thread[i]
	if t.scan != s.blocks {
		if t.pc = mlNumber; m.bug == mlOldNumber {
			s.wrong = mlNumbers
		}
		return "finds that the list has changed"
	}
	if int(m.total(s)) == mlEntries {
		panic("the model needs more entries")
	}
	s.of[s.blocks] = t.bucket
	s.blocks++
	t.pc, t.scan = mlLock, 0
	return "adds a block"
}
