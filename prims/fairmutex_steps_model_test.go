//go:build linux

package prims

import (
	"fmt"
	"testing"
)

// step makes the next step of thread i and returns what it does. It returns "" if there is no next
// step.
func (m *fairMutexModel) step(s *fmState, i int) string {
	t, p := &s.thread[i], uint8(m.proc(i))
	switch t.pc {
	case fmEnded:
		return ""
	case fmFast:
		return m.fast(s, i)
	case fmLock:
		if s.private[p] != 0 {
			return ""
		}
		s.private[p] = uint8(i + 1)
		t.pc = fmBegin
		return "locks the private lock"
	case fmBegin:
		t.c, t.own, t.rec, t.i = s.commit, false, fmRecord{}, 0
		t.pc = fmApply
		if t.c.slot != 0 && s.head[t.c.slot-1] == t.c.version && !(m.bug == fmTryStale && t.mode == fmTries) {
			t.rec = s.rec[t.c.slot-1]
		}
		return "reads the commit word and its record"
	case fmApply:
		if t.i == 3 {
			t.pc = fmTell
			return m.step(s, i)
		}
		s.apply(&t.rec, t.i, m.bug == fmNoTags)
		t.i++
		return "carries out an entry"
	case fmTell:
		if k := t.rec.node - 1; t.rec.node != 0 && s.node[k] == (fmNode{t.rec.nodeTo, t.rec.nodeWas.tag + 1}) && (t.rec.nodeTo == fmGrant || t.rec.nodeTo == fmRefused) {
			s.resolved |= 1 << k
		}
		if t.pc = fmClose; t.own {
			m.made(s, i)
		}
		t.rec, t.i = fmRecord{}, 0
		return "resolves the wait of the record"
	case fmClose:
		if s.owner.kind == fmOpen && m.bug != fmNoClose {
			s.owner = fmOwner{fmClosed, s.owner.name, s.owner.tag + 1}
		}
		t.pc = fmRule
		return "closes the owner word"
	case fmRule:
		t.saw = s.dead
		t.rec, t.did = m.rule(s, i)
		t.pc = fmName
		return fmt.Sprint("reads the words, change ", t.did)
	case fmName:
		if s.commit != t.c {
			t.pc, t.rec = fmBegin, fmRecord{}
			return "the commit word has changed"
		}
		if m.op(s, i) == 'T' && t.did == fmOver {
			if x := s.after(); x.owner.name == 0 && x.owner.kind < fmGranted && x.queue.node[0] == 0 {
				s.wrong = "TryLock fails although the lock is free"
			}
		}
		if t.rec == (fmRecord{}) {
			m.made(s, i)
			return "the words belong together"
		}
		t.c = rqCommit{t.c.version + 1, p + 1}
		s.commit, s.head[p], s.rec[p] = t.c, t.c.version, t.rec
		t.own, t.i, t.pc = true, 0, fmApply
		switch t.did {
		case fmTook:
			m.enter(s, i)
		case fmGave:
			s.inside &^= 1 << i
		}
		return "its change takes effect"
	case fmUnlock:
		s.private[p] = 0
		switch {
		case t.did == fmJoined || t.mode == fmChecks:
			*t = fmThread{at: t.at, pc: fmSleep}
		case t.did == fmEnds:
			t.pc = fmSleep
		default:
			m.finish(s, i)
		}
		return "unlocks the private lock"
	case fmSleep:
		if s.resolved&(1<<i) == 0 {
			return ""
		}
		s.resolved &^= 1 << i
		n := &s.node[i]
		if granted := n.next == fmGrant; granted {
			t.pc = fmAccept
		} else {
			m.finish(s, i)
		}
		*n = fmNode{fmNone, n.tag + 1}
		return "its wait is over"
	case fmAccept:
		if m.bug != fmNoAccept {
			s.accepted = fmOwner{name: p + 1, tag: s.owner.tag}
		}
		if s.owner.kind != fmGranted || s.owner.name != p+1 {
			s.wrong = "the lock that was granted is not that of the waiter"
		}
		m.enter(s, i)
		m.finish(s, i)
		return "accepts the lock"
	}
	panic(t.pc)
}

// fast makes the step in which a call tries its fast path.
func (m *fairMutexModel) fast(s *fmState, i int) string {
	t, name := &s.thread[i], uint8(m.proc(i)+1)
	switch open := s.owner.kind == fmOpen; {
	case m.op(s, i) == 'X':
		// The operation X has only this step.
		if n := s.owner.name; open && n != 0 && m.isDead(s, n-1) {
			s.owner = fmOwner{fmDead, n, s.owner.tag + 1}
		} else if s.kills == 0 {
			return ""
		} else if m.bug == fmPlainTake {
			for p := range uint8(fmProcs) {
				if m.isDead(s, p) {
					s.owner = fmOwner{fmDead, p + 1, s.owner.tag + 1}
				}
			}
		}
		m.finish(s, i)
		return "takes an open lock from the dead"
	case open && t.mode != fmUnlocks && s.owner.name == 0:
		s.owner.name = name
		m.enter(s, i)
		m.finish(s, i)
		return "locks by one CAS"
	case open && t.mode == fmUnlocks && s.owner.name == name:
		s.owner.name = 0
		s.inside &^= 1 << i
		m.finish(s, i)
		return "unlocks by one CAS"
	}
	t.pc = fmLock
	return "has no fast path"
}

// made sets the next step of thread i, whose change is complete or not needed.
func (m *fairMutexModel) made(s *fmState, i int) {
	t := &s.thread[i]
	switch t.did {
	case fmAgain:
		t.pc = fmBegin
	default:
		t.pc = fmUnlock
	}
}

func (r *fmRecord) setOwner(s *fmState, kind, name uint8) {
	r.owner, r.ownerWas, r.ownerTo = true, s.owner, fmOwner{kind: kind, name: name}
}

func (r *fmRecord) setQueue(s *fmState, node [fmThreads]uint8) {
	r.queue, r.queueWas, r.queueTo = true, s.queue, fmQueue{node: node}
}

// end adds two changes to r: node k leaves the queue, and its field next gets a new value.
func (r *fmRecord) end(s *fmState, k, next uint8) {
	var left [fmThreads]uint8
	at := 0
	for _, q := range s.queue.node {
		if q != 0 && q != k+1 {
			left[at] = q
			at++
		}
	}
	r.setQueue(s, left)
	r.node, r.nodeWas, r.nodeTo = k+1, s.node[k], next
}

// opens makes r open the owner word, if r leaves the queue empty, and leaves the lock free or held.
func (m *fairMutexModel) opens(s *fmState, r *fmRecord) {
	queue, owner := s.queue.node, s.owner
	if r.queue {
		queue = r.queueTo.node
	}
	if r.owner {
		owner = r.ownerTo
	}
	if (queue[0] == 0 || m.bug == fmOpensWait) && owner.kind == fmClosed && (r.queue || r.owner) {
		r.setOwner(s, fmOpen, owner.name)
	}
}

// passOn makes r grant the lock to the first wait, or free the lock if no thread waits.
func (m *fairMutexModel) passOn(s *fmState, r *fmRecord) {
	if first := s.queue.node[0]; first != 0 && m.bug != fmDrops {
		n := uint8(m.proc(int(first-1)) + 1)
		r.setOwner(s, fmGranted, n)
		if m.bug == fmSameTag && s.owner.kind == fmGranted && s.owner.name == n {
			r.ownerTo.tag = 1
		}
		r.end(s, first-1, fmGrant)
		return
	}
	r.setOwner(s, fmClosed, 0)
}

func (m *fairMutexModel) isAccepted(s *fmState) bool {
	return s.accepted == fmOwner{name: s.owner.name, tag: s.owner.tag}
}

// tidy returns the change that one iteration of recordLock.takeBack or recordLock.serve makes.
func (m *fairMutexModel) tidy(s *fmState) (r fmRecord, did uint8) {
	o := s.owner
	if first := s.queue.node[0]; first != 0 && m.ownerDead(s, first-1) {
		r.end(s, first-1, fmRemoved)
		m.opens(s, &r)
		return r, fmAgain
	}
	if o.name != 0 && o.kind != fmDead && m.isDead(s, o.name-1) {
		switch {
		case o.kind == fmGranted && !m.isAccepted(s) && m.bug != fmReports, o.kind == fmGranted && m.bug == fmSilent:
			m.passOn(s, &r)
		default:
			r.setOwner(s, fmDead, o.name)
		}
		m.opens(s, &r)
		return r, fmAgain
	}
	if first := s.queue.node[0]; first != 0 {
		switch {
		case o.kind == fmDead:
			r.end(s, first-1, fmRefused)
			return r, fmAgain
		case o.name == 0 && m.bug != fmDrops:
			m.passOn(s, &r)
			return r, fmAgain
		}
	}
	return r, fmOver
}

// rule decides on the change of thread i, after the record in the commit word has been carried out.
func (m *fairMutexModel) rule(s *fmState, i int) (r fmRecord, did uint8) {
	t, k, name := &s.thread[i], uint8(i), uint8(m.proc(i)+1)
	if t.mode != fmUnlocks && t.mode != fmWithdraws {
		if r, did = m.tidy(s); did != fmOver {
			return r, did
		}
	}
	o := s.owner
	switch t.mode {
	case fmLocks, fmTries:
		switch {
		case o.kind < fmGranted && o.name == 0 && s.queue.node[0] == 0:
			r.setOwner(s, fmOpen, name)
			return r, fmTook
		case o.kind == fmDead || t.mode == fmTries:
			return r, fmOver
		}
		queue := s.queue.node
		for q := range queue {
			if queue[q] == 0 {
				queue[q] = k + 1
				break
			}
		}
		r.setQueue(s, queue)
		r.node, r.nodeWas, r.nodeTo = k+1, s.node[k], fmQueued
		return r, fmJoined
	case fmUnlocks:
		if (o.name != name || o.kind > fmGranted || o.kind == fmGranted && !m.isAccepted(s)) && s.commit == t.c {
			s.wrong = "the holder cannot unlock"
		}
		if first := s.queue.node[0]; first != 0 && m.ownerDead(s, first-1) {
			r.end(s, first-1, fmRemoved)
			return r, fmAgain
		}
		m.passOn(s, &r)
		m.opens(s, &r)
		return r, fmGave
	case fmWithdraws:
		if s.node[k].next == fmQueued {
			r.end(s, k, fmLeft)
			m.opens(s, &r)
			return r, fmWithdrew
		}
		return r, fmEnds
	}
	return r, fmOver
}

// TestModelFairMutex: one thread at a time has the lock, each wait ends, and no change is lost.
func TestModelFairMutex(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, fmModel("0LU", "1LU").explore, []bug{fmNoClose, fmNoAccept, fmDrops}},
		{"two, twice", small, fmModel("0LULU", "1LULU").explore, []bug{fmNoTags}},
		{"a try", small, fmModel("0LU", "1LU", "2TU").explore, []bug{fmTryStale}},
		{"a context", small, fmModel("0LU", "1CU", "1LU").explore, []bug{fmNoClose, fmOpensWait}},
	})
}

// TestModelFairMutexDeath: a process dies at each step. If it was the holder, the death is
// reported. If it was granted the lock and did not accept it, the death is not reported.
func TestModelFairMutexDeath(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, fmModel("0LULU", "1LU").withKills(1).explore, []bug{fmNoClose, fmSilent, fmReports}},
		{"a stranger", small, fmModel("0LU", "1LU", "2X").withKills(1).explore, []bug{fmPlainTake}},
		{"two grants to a process", large, fmModel("0LULU", "1LU", "1LU").withKills(1).explore, []bug{fmSameTag}},
		{"a context", small, fmModel("0LU", "1CU").withKills(1).explore, nil},
	})
}

// TestModelFairMutexStop: a process stops for ever at each step. Other processes wait for it only
// if it has the lock or was granted the lock.
func TestModelFairMutexStop(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, fmModel("0LU", "1LU").withStop().explore, []bug{fmDrops}},
		{"three", large, fmModel("0LU", "1LU", "2CU").withStop().explore, nil},
		{"a stop and a death", small, fmModel("0LU", "1LU").withStop().withKills(1).explore, nil},
	})
}
