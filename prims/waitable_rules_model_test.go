//go:build linux

package prims

// A state of the model is a number. It has the free permits in its low three bits, and then how many claims there are for
// 1 and for 2, in two bits each. One half of an image is that number, and the other half is its complement.

func wtHalves(v uint8) [2]uint8 { return [2]uint8{v, ^v} }
func wtFree(v uint8) uint8      { return v & 7 }
func wtTaken(v, e uint8) uint8  { return v >> (2*e + 1) & 3 }

// wtClaim is the rule Claim.
func wtClaim(v, e uint8) (to uint8, ok bool) { return v - e + 1<<(2*e+1), wtFree(v) >= e }

// wtReturn is each of the rules Release, OnDeath and Undo. ok is false if the state has no such claim.
func wtReturn(v, e uint8) (to uint8, ok bool) { return v + e - 1<<(2*e+1), wtTaken(v, e) != 0 }

// wtLabelOf returns the label of a hold of a process.
func wtLabelOf(p, e uint8) uint8 { return (p+1)*4 + e }

// detach takes the wait of node k off the queue, as a part of the record r. It returns false if the words that it has
// read do not belong to one state. In that case the commit word has changed since.
func (s *wtState) detach(r *rqRecord, k, outcome uint8) bool {
	next, prev := r.get(s.word[:], wtNext+k), r.get(s.word[:], wtPrev+k)
	if !rqIsQueued(next) || next >= rqNode+wtThreads || prev > wtThreads {
		return false
	}
	r.detach(s.word[:], rqQueueAt{wtFirst, wtLast, wtNext, wtPrev}, k, outcome)
	return true
}

// before is the rule Before: a wait for 2 is served before a wait for 1.
func (m *waitableModel) before(x, y uint8) bool { return x > y && m.bug != wtLastPlace }

// walk models Waitable.behind: the walk goes on at the place where the earlier one ended, if that wait is queued.
// Otherwise it begins at another wait of the process, or at the last wait.
func (m *waitableModel) walk(s *wtState, i int) (place uint8) {
	t, e := &s.thread[i], m.wants(s, uint8(i))
	at := t.place
	if m.bug == wtStaleWalk && at != 0 {
		return at
	}
	if at == 0 || !rqIsQueued(s.word[wtNext+at-1].v) {
		at = s.word[wtLast].v
		for n := range m.threads { // a mark of the process
			if k := uint8(n); m.proc(n) == m.proc(i) && rqIsQueued(s.word[wtNext+k].v) {
				at = k + 1
				break
			}
		}
	}
	for range 2 * wtThreads { // the words may be of different states, and then the queue may be a circle
		if at == 0 {
			return 0
		}
		if m.before(e, m.wants(s, at-1)) {
			at = s.word[wtPrev+at-1].v
			continue
		}
		next := s.word[wtNext+at-1].v
		if next < rqNode || m.before(e, m.wants(s, next-rqNode)) {
			return at
		}
		at = next - rqNode + 1
	}
	return at
}

// join makes a record that puts the wait of node k behind the node t.place.
func (m *waitableModel) join(s *wtState, t *wtThread, k uint8) {
	r, prev := &t.rec, t.place
	next := rqEnd
	if prev != 0 {
		next = s.word[wtNext+prev-1].v
		r.set(s.word[:], wtNext+prev-1, rqNode+k)
	} else {
		if first := s.word[wtFirst].v; first != 0 {
			next = rqNode + first - 1
		}
		r.set(s.word[:], wtFirst, k+1)
	}
	if next >= rqNode {
		r.set(s.word[:], wtPrev+next-rqNode, k+1)
	} else {
		r.set(s.word[:], wtLast, k+1)
	}
	s.word[wtPrev+k].v = prev // only the owner changes this word now
	r.set(s.word[:], wtNext+k, next)
}

func (m *waitableModel) free(s *wtState, h uint8) bool {
	return (s.word[wtCount+h].v == 0 || m.bug == wtLabelsUsed) && s.word[wtGrant+h].v == s.accepted[h]
}

// knows returns how many blocks process p knows while it searches for a hold.
func (m *waitableModel) knows(s *wtState, p uint8) uint8 {
	if m.bug == wtEarlyLook || m.bug == wtOwnBlocks || m.bug == wtHelpsKnown {
		return s.known[p]
	}
	return s.blocks
}

// place models waitableCore.place, for a claim of process p. Process by makes the search.
func (m *waitableModel) place(s *wtState, by, p, e uint8) (h uint8, ok bool) {
	if h, ok = m.labelOf(s, by, p, e); ok {
		return h, true
	}
	h = m.slot(p)
	if m.bug == wtWrongSlot {
		h = m.slot(by)
	}
	if m.free(s, h) {
		return h, true
	}
	for n := range m.knows(s, by) {
		if m.free(s, wtSlots+n) {
			return wtSlots + n, true
		}
	}
	return 0, false
}

// labelOf models waitableCore.labelOf.
func (m *waitableModel) labelOf(s *wtState, by, p, e uint8) (h uint8, ok bool) {
	if h = m.slot(p); s.word[wtLabel+h].v == wtLabelOf(p, e) {
		return h, true
	}
	for n := range m.knows(s, by) {
		if s.word[wtLabel+wtSlots+n].v == wtLabelOf(p, e) {
			return wtSlots + n, true
		}
	}
	return 0, false
}

// findHold makes thread i search for a hold for a claim of process p. If there is none, the thread goes on to push a
// block. If the arena has no room for a block, findHold calls the function over.
func (m *waitableModel) findHold(s *wtState, i int, p, e uint8, over func()) (h uint8, ok bool) {
	t := &s.thread[i]
	if h, ok = m.place(s, m.proc(i), p, e); ok {
		return h, true
	}
	if m.settled(s, i) {
		if m.full || s.blocks == wtBlocks {
			over()
		} else {
			t.head, t.pc = s.blocks, wtPush
		}
	}
	return 0, false
}

// push models waitableCore.addHolds.
func (m *waitableModel) push(s *wtState, i int) {
	t, p := &s.thread[i], m.proc(i)
	t.pc = wtBegin
	if s.blocks != t.head && m.bug != wtPushBlind {
		return
	}
	if s.blocks != t.head {
		s.wrong = "two calls that found no hold at once push two blocks"
	}
	if s.blocks < wtBlocks {
		s.blocks++
	}
	if s.known[p] = s.blocks; m.knows(s, p) == s.blocks && m.bug != wtEarlyLook && m.bug != wtOwnBlocks && m.bug != wtHelpsKnown {
		s.known[p] = 0 // it has no effect
	}
}

// settled reports whether the words that thread i has read are of one state. Otherwise the thread begins again.
func (m *waitableModel) settled(s *wtState, i int) bool {
	if s.commit != s.thread[i].c {
		s.thread[i].pc = wtBegin
		return false
	}
	return true
}

// over ends the main part of a call without a change.
func (m *waitableModel) over(s *wtState, i int, out uint8) {
	if m.settled(s, i) {
		s.thread[i].out, s.thread[i].pc = out, wtUnlock
	}
}

// copyState makes the thread copy the valid image. The thread then completes the record of the commit word, and reads
// the words once more.
func (t *wtThread) copyState(s *wtState) {
	t.from, t.fresh = s.word[wtCurrent], false
	t.img, t.pc = t.from.v, wtCopy
}

// rule makes thread i run a rule for a claim of a process, once it has a copy of the state.
func (m *waitableModel) rule(s *wtState, i int, p, e uint8) {
	switch t := &s.thread[i]; {
	case !t.fresh:
		t.copyState(s)
	case m.settled(s, i):
		t.of, t.e, t.pc = p+1, e, wtRule
	}
}

// look decides what thread i does. The record of its commit word is complete.
func (m *waitableModel) look(s *wtState, i int) {
	t := &s.thread[i]
	t.pc = wtName
	switch t.stage {
	case wtReap:
		m.lookReap(s, i)
	case wtServe:
		m.lookServe(s, i)
	default:
		m.lookMain(s, i)
	}
}

// goOn continues with another stage of the call, if the words are of one state.
func (m *waitableModel) goOn(s *wtState, i int, stage uint8) {
	if m.settled(s, i) {
		s.thread[i].stage, s.thread[i].fresh = stage, false
		m.look(s, i)
	}
}

func (m *waitableModel) lookReap(s *wtState, i int) {
	t, p := &s.thread[i], m.proc(i)
	for k := range m.threads {
		if k := uint8(k); m.isDead(s, m.proc(int(k))) && rqIsQueued(s.word[wtNext+k].v) && m.bug != wtGrantsDead {
			if t.did = wtAgain; !s.detach(&t.rec, k, rqRemoved) {
				t.pc = wtBegin
			}
			return
		}
	}
	if s.word[wtLost].v != 0 {
		if m.settled(s, i) && m.bug != wtReapsLost {
			s.seen[p] = 0 // nothing was undone, so the next call reaps
		}
		m.goOn(s, i, wtServe)
		return
	}
	for h := range wtSlots + m.knows(s, p) {
		label := s.word[wtLabel+h].v
		if of := label/4 - 1; label != 0 && m.isDead(s, of) && !m.free(s, h) {
			t.hold, t.undo = h+1, s.word[wtGrant+h].v != s.accepted[h] && m.bug != wtSwapsRules
			if !t.undo && s.gone&(1<<of) == 0 {
				if m.bug != wtForgetsLate {
					s.seen[p] = 0 // so the next call reaps
				}
				continue
			}
			m.rule(s, i, of, label%4)
			return
		}
	}
	m.goOn(s, i, wtServe)
}

func (m *waitableModel) lookServe(s *wtState, i int) {
	t := &s.thread[i]
	first := s.word[wtFirst].v
	if first == 0 {
		m.served(s, i)
		return
	}
	k, whole := first-1, true
	switch p := m.proc(int(k)); {
	case m.isDead(s, p) && m.bug == wtGrantsDead:
		m.served(s, i)
		return
	case m.isDead(s, p):
		t.did, whole = wtAgain, s.detach(&t.rec, k, rqRemoved)
	case s.word[wtLost].v != 0:
		t.did, whole = wtAgain, s.detach(&t.rec, k, wtRefused)
	default:
		t.hold = k + 1
		m.rule(s, i, p, m.wants(s, k))
	}
	if !whole {
		t.pc = wtBegin
	}
}

// served ends the stage wtServe, because no queued wait can go on. If post is false, the main part of the call
// follows. Otherwise the call has made its change already, and ends.
func (m *waitableModel) served(s *wtState, i int) {
	if t := &s.thread[i]; !t.post {
		m.goOn(s, i, wtMain)
	} else if m.settled(s, i) {
		t.pc = wtUnlock
	}
}

func (m *waitableModel) lookMain(s *wtState, i int) {
	t, p, k := &s.thread[i], m.proc(i), uint8(i)
	verb, e := m.op(s, i)
	lost := s.word[wtLost]
	switch t.mode {
	case wtReads:
		if t.fresh {
			m.hasRead(s, i)
			return
		}
		if t.lost = lost; verb == 'X' && lost.v == 0 {
			m.finish(s, i)
			return
		}
		t.copyState(s)
		return
	case wtRecovers:
		if lost != t.lost && (m.bug != wtNoLostTag || lost.v != t.lost.v) {
			m.over(s, i, wtNothing)
			return
		}
		t.v, t.did, t.pc = t.copied[0], wtRecovered, wtPut
		t.rec.set(s.word[:], wtLost, 0)
		return
	case wtWithdraws:
		switch v := s.word[wtNext+k].v; {
		case rqIsQueued(v):
			if t.did = wtWithdrew; !s.detach(&t.rec, k, rqLeft) {
				t.pc = wtBegin
			}
		case s.resolved&(1<<k) != 0:
			t.out, t.pc = wtWasEnded, wtUnlock
		case m.settled(s, i):
			s.wrong = "a wait that is given up is on no queue, and its owner was not told"
		}
		return
	}
	switch {
	case lost.v != 0 && (t.mode != wtUpdates || m.bug != wtIgnoresLost):
		if t.mode == wtLoses {
			t.stage, t.post = wtServe, true
			m.look(s, i)
			return
		}
		m.over(s, i, wtNothing)
	case t.mode == wtLoses:
		if t.rec.set(s.word[:], wtLost, p+1); m.bug != wtTextLate {
			t.pc = wtText
		}
		t.did = wtMarked
	case t.mode == wtReleases:
		if h, ok := m.labelOf(s, p, p, e); ok && s.word[wtCount+h].v != 0 {
			t.hold = h + 1
			m.rule(s, i, p, e)
			return
		}
		if m.settled(s, i) {
			s.wrong = "a claim is not found"
		}
	case t.mode > wtJoins || s.word[wtFirst].v == 0 || m.bug == wtBarges:
		m.rule(s, i, p, e)
	case t.mode == wtJoins:
		t.pc = wtWalk
	case !t.served:
		t.served = true
		m.goOn(s, i, wtServe)
	default:
		m.refused(s, i)
	}
}

// hasRead ends State, or the first part of Recover, when the thread has a valid copy of the state.
func (m *waitableModel) hasRead(s *wtState, i int) {
	t := &s.thread[i]
	if m.seeWhole(s, t); t.since[t.copied[0]/8]&(1<<(t.copied[0]%8)) == 0 {
		s.wrong = "State returns a state that there was not during the call"
	}
	if verb, _ := m.op(s, i); verb == 'X' {
		*t = wtThread{at: t.at, pc: wtLock, mode: wtRecovers, has: t.has, lost: t.lost, copied: t.copied}
		return
	}
	m.finish(s, i)
}

// refused ends an attempt to make a claim: others wait, or the rules do not allow the claim.
func (m *waitableModel) refused(s *wtState, i int) {
	t := &s.thread[i]
	switch verb, _ := m.op(s, i); {
	case t.mode == wtJoins:
		t.pc = wtWalk
	case verb == 'T':
		m.over(s, i, wtNothing)
	default:
		m.over(s, i, wtNeedsNode)
	}
}
