//go:build linux

package prims

import "fmt"

// step makes the next step of thread i and returns what it does. It returns "" if there is no next step. If the key of
// the thread can get one of several vacant entries, the parameter pick selects the entry.
func (m *multiLockModel) step(s *mlState, i, pick int) string {
	t, p := &s.thread[i], m.proc(i)
	switch t.pc {
	case mlEnded:
		return ""
	case mlInherit:
		return m.inherit(s, i)
	case mlFast, mlSeeLow, mlSeeHigh, mlSwap:
		return m.fast(s, i)
	case mlLock:
		if s.private[p] != 0 {
			return ""
		}
		s.private[p] = uint8(i + 1)
		m.begin(s, i)
		return "locks the private lock"
	case mlLoad, mlCopy, mlCompare:
		return m.load(s, i)
	case mlApply:
		if t.i = m.nextWord(s, p, t); t.i < 5 {
			s.apply(m, p, t.bucket, &t.rec, m.word(t.i))
		}
		m.skip(s, i)
		return "carries out a word of a record"
	case mlTell:
		if s.tells(&t.rec) {
			s.resolved |= 1 << (t.rec.node - 1)
		}
		m.carriedOut(s, i)
		return "resolves a wait"
	case mlLook:
		s.seen[p] = s.blocks
		if t.pc = mlFind; m.bug == mlLooksFirst {
			t.pc = mlLoad
		}
		return "looks for new blocks"
	case mlFind:
		m.find(s, i, pick)
		if t.pc = mlRule; m.bug == mlFindsFirst {
			t.pc = mlLoad
		}
		return "searches for an entry"
	case mlRule:
		if !m.fine {
			s.seen[p] = s.blocks
			m.find(s, i, pick)
		}
		return m.decide(s, i)
	case mlWriteHead:
		s.head[m.slot(p)] = m.headOf(t)
		t.pc = mlWriteRest
		return "writes the head of its record"
	case mlWriteRest:
		s.rec[m.slot(p)] = t.rec
		t.pc = mlName
		return "writes its record"
	case mlName:
		return m.name(s, i)
	case mlNumber:
		t.scan = s.blocks
		t.pc = mlPush
		return "computes the number of a new block"
	case mlPush:
		return m.push(s, i)
	case mlSleep:
		return m.wakes(s, i)
	}
	panic(t.pc)
}

// begin begins a change.
func (m *multiLockModel) begin(s *mlState, i int) {
	t := &s.thread[i]
	t.i, t.own, t.did, t.rec = 0, false, mlOver, mlRecord{}
	switch {
	case m.fine && m.bug == mlLooksFirst:
		t.pc = mlLook
	case m.fine && m.bug == mlFindsFirst:
		t.pc = mlFind
	case m.fine:
		t.pc = mlLoad
	default:
		t.c = s.commit[t.bucket]
		if slot := t.c.slot; slot != 0 && m.completes(t) && s.head[slot-1] == m.headNamed(t) {
			t.rec = s.rec[slot-1]
		}
		m.apply(s, i)
	}
}

// load makes a step in which a thread reads the commit word and the record that it names.
func (m *multiLockModel) load(s *mlState, i int) string {
	t := &s.thread[i]
	switch t.pc {
	case mlLoad:
		t.c = s.commit[t.bucket]
		if t.pc = mlCopy; t.c.slot == 0 || !m.completes(t) {
			m.apply(s, i)
		}
		return "loads the commit word"
	case mlCopy:
		t.rec = s.rec[t.c.slot-1]
		if t.pc = mlCompare; m.bug == mlNoHead {
			m.apply(s, i)
		}
		return "reads a record"
	}
	if s.head[t.c.slot-1] != m.headNamed(t) {
		t.rec = mlRecord{}
	}
	m.apply(s, i)
	return "reads the head of the record"
}

func (m *multiLockModel) completes(t *mlThread) bool {
	return m.bug != mlNoComplete && (m.bug != mlTryStale || t.mode != mlTries)
}

// headNamed returns the head of the record that the commit word of thread t names.
func (m *multiLockModel) headNamed(t *mlThread) mlHead {
	if m.bug == mlNoBucket {
		return mlHead{t.c.version, 0}
	}
	return mlHead{t.c.version, t.bucket}
}

// headOf returns the head of the record that thread t writes.
func (m *multiLockModel) headOf(t *mlThread) mlHead {
	h := m.headNamed(t)
	h.version++
	return h
}

// apply begins to carry out the record of thread i.
func (m *multiLockModel) apply(s *mlState, i int) {
	s.thread[i].pc, s.thread[i].i = mlApply, 0
	m.skip(s, i)
}

// skip moves thread i to the next word of its record that still has its old contents. If there is none, the thread goes
// on.
func (m *multiLockModel) skip(s *mlState, i int) {
	t := &s.thread[i]
	if t.i = m.nextWord(s, m.proc(i), t); t.i < 5 {
		return
	}
	if s.tells(&t.rec) && (t.own || m.bug != mlHelperQuiet) {
		t.pc = mlTell
		return
	}
	m.carriedOut(s, i)
}

// nextWord returns the number of the next word of the record of t that still has its old contents.
func (m *multiLockModel) nextWord(s *mlState, p uint8, t *mlThread) (i uint8) {
	for i = t.i; i < 5 && !s.applies(m, p, t.bucket, &t.rec, m.word(i)); i++ {
	}
	return i
}

// word returns the word that comes in place i when a process carries a record out.
func (m *multiLockModel) word(i uint8) uint8 {
	if m.bug == mlHoldFirst {
		return [...]uint8{mlHeld, mlLow, mlHigh, mlQueue, mlNext}[i]
	}
	return 1 << i
}

// carriedOut continues thread i after it has carried out a record.
func (m *multiLockModel) carriedOut(s *mlState, i int) {
	t := &s.thread[i]
	t.rec, t.i = mlRecord{}, 0
	switch {
	case t.mode == mlInherits:
		m.start(s, i)
	case t.own:
		t.own = false
		m.made(s, i)
	case !m.fine, t.mode == mlUnlocks, m.bug == mlFindsFirst:
		if t.pc = mlRule; m.bug != mlFindsFirst {
			m.find(s, i, 0)
		}
	case m.bug == mlLooksFirst:
		t.pc = mlFind
	default:
		t.pc = mlLook
	}
}

// decide closes the hold of the entry that thread i has chosen, and decides on a change.
func (m *multiLockModel) decide(s *mlState, i int) string {
	t := &s.thread[i]
	switch {
	case t.mode == mlWithdraws && s.node[i].v != mlQueued:
		t.did = mlEnds
	case t.entry == 0:
		t.did = mlOver
		if t.mode == mlLocks || t.mode == mlTries {
			t.did = mlNeedsBlock
		}
	default:
		e := &s.entry[t.entry-1]
		if t.why == mlEvicts && !m.vacant(s, e) {
			m.begin(s, i)
			return "finds that the entry is in use"
		}
		was := e.hold.kind
		if m.closes(s, i, e) && was == mlOpen {
			if e.hold.kind = mlClosed; m.bug == mlCloseTag {
				e.hold.tag++
			}
		}
		if t.rec, t.did = m.rule(s, i, e); m.bug == mlWasOpen && t.rec.has&mlHeld != 0 {
			t.rec.was.kind = was
		}
		t.rec.where = m.numberOf(s, t.entry-1, s.seen[m.proc(i)])
	}
	if t.rec.has != 0 {
		if t.pc = mlName; m.fine {
			t.pc = mlWriteHead
		}
		return fmt.Sprint("reads the words, change ", t.did)
	}
	t.rec = mlRecord{}
	if s.commit[t.bucket] != t.c || t.did == mlAgain {
		m.begin(s, i)
		return "begins again"
	}
	m.changesNothing(s, i)
	m.made(s, i)
	return fmt.Sprint("has nothing to change, ", t.did)
}

// closes reports whether thread i closes the hold of the entry e, which it has chosen.
func (m *multiLockModel) closes(s *mlState, i int, e *mlEntry) bool {
	t := &s.thread[i]
	_, key := m.op(s, i)
	switch {
	case m.bug == mlNoClose, t.mode == mlWithdraws, t.why == mlEvicts && m.bug == mlEvictsOpen:
		return false
	case t.mode == mlUnlocks:
		return e.hold.tag == s.holds[i][key].tag || m.bug == mlAnyHold
	}
	// A TryLock does not close the hold if a living process has the key.
	lives := e.hold.name != 0 && e.hold.kind != mlDead && !m.isDead(s, e.hold.name)
	return t.mode != mlTries || t.why != mlHasKey || !lives
}

// name makes the change of thread i take effect, if the commit word is still the same.
func (m *multiLockModel) name(s *mlState, i int) string {
	t, slot := &s.thread[i], m.slot(m.proc(i))
	if s.commit[t.bucket] != t.c {
		m.begin(s, i)
		return "the commit word has changed"
	}
	m.takesEffect(s, i)
	if !m.fine {
		s.head[slot], s.rec[slot] = m.headOf(t), t.rec
	}
	t.c = rqCommit{t.c.version + 1, slot + 1}
	s.commit[t.bucket] = t.c
	m.tookEffect(s, i)
	t.own = true
	m.apply(s, i)
	return "its change takes effect"
}

// made sets what thread i does next. Its change is complete, or it had nothing to change.
func (m *multiLockModel) made(s *mlState, i int) {
	t := &s.thread[i]
	switch {
	case t.did == mlRepairs:
		t.mode = mlUnlocks // the second record ends the recovery
		m.begin(s, i)
	case t.did == mlAgain:
		m.begin(s, i)
	case t.did == mlWithdrew, t.did == mlGave && m.bug == mlEvictsWaits:
		if t.mode = mlServes; t.did == mlWithdrew {
			s.node[i] = rqWord{mlNone, s.node[i].tag + 1}
		}
		m.begin(s, i)
	case t.did == mlNeedsBlock:
		m.ends(s, i, mlNumber)
	case t.did == mlJoined, t.did == mlEnds, t.mode == mlChecks:
		m.ends(s, i, mlSleep)
		t.mode = mlLocks
	default:
		s.private[m.proc(i)] = 0
		m.finish(s, i)
	}
}

// The method ends clears what thread i keeps for its change. The next step of the thread is pc.
func (m *multiLockModel) ends(s *mlState, i int, pc uint8) {
	t := &s.thread[i]
	s.private[m.proc(i)] = 0
	*t = mlThread{at: t.at, bucket: t.bucket, mode: t.mode, pc: pc}
}
