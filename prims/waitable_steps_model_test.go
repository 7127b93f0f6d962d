//go:build linux

package prims

import "fmt"

// step executes the next step of thread i, and describes it. It returns "" if there is none.
func (m *waitableModel) step(s *wtState, i int) string {
	t, p, k := &s.thread[i], m.proc(i), uint8(i)
	slot := m.slot(p)
	switch t.pc {
	case wtEnded:
		return ""
	case wtBorn:
		if !m.isDead(s, 0) {
			return ""
		}
		m.start(s, i)
		return "gets the slot of a dead participant"
	case wtLock:
		if s.private[p] != 0 {
			return ""
		}
		s.private[p] = k + 1
		t.pc, t.saw, t.stage = wtBegin, s.gone, wtMain
		if t.mode == wtChecks || t.mode == wtServes {
			t.stage, t.post = wtServe, true
		}
		if m.bug == wtEarlyLook {
			s.known[p] = s.blocks
		}
		if t.mode != wtWithdraws && m.bug != wtNoReap && (s.seen[p] != s.dead || t.mode == wtChecks && s.dead != 0) {
			t.stage, s.seen[p] = wtReap, s.dead
		}
		return "locks the private lock"
	case wtBegin:
		t.c, t.own, t.rec, t.i, t.pc = s.commit, false, rqRecord{}, 0, wtApply
		if n := t.c.slot; n != 0 && s.head[n-1] == t.c.version {
			t.rec = s.rec[n-1]
		}
		return "reads the commit word and its record"
	case wtApply:
		if t.i == t.rec.n {
			t.pc, t.i = wtTell, 0
			return m.step(s, i)
		}
		for {
			m.apply(s, p, t)
			if t.i++; m.fine || t.i == t.rec.n {
				break
			}
		}
		return "carries out an entry"
	case wtTell:
		for t.i < t.rec.n {
			w, to := t.rec.word[t.i], t.rec.to[t.i]
			t.i++
			ends := w >= wtNext && w < wtPrev && (to == rqGranted || to == wtRefused)
			if ends && s.word[w] == (rqWord{to, t.rec.was[t.i-1].tag + 1}) && (t.own || m.bug != wtHelperQuiet) {
				s.resolved |= 1 << (w - wtNext)
				return "resolves a wait"
			}
		}
		t.i = 0
		if t.rec = (rqRecord{}); !t.own {
			t.pc = wtLook
			return m.step(s, i)
		}
		m.made(s, i)
		return "has completed its record"
	case wtLook:
		if now := s.word[wtCurrent]; t.fresh && now != t.from && m.bug != wtNoLook && (m.bug != wtNoLookTag || now.v != t.from.v) {
			t.copyState(s)
			return "the word current has changed"
		}
		t.did = wtNothing
		m.look(s, i)
		t.fresh = false
		return fmt.Sprint("reads the words, stage ", t.stage)
	case wtCopy:
		t.copied[0], t.pc = s.image[t.img][0], wtCopyRest
		return "copies half of an image"
	case wtCopyRest:
		t.copied[1], t.fresh, t.pc = s.image[t.img][1], true, wtBegin
		if m.bug == wtRuleFirst {
			m.seeWhole(s, t)
		}
		return "copies the other half"
	case wtRule:
		m.seeWhole(s, t)
		m.runRule(s, i)
		return fmt.Sprint("runs a rule, stage ", t.stage)
	case wtPush:
		m.push(s, i)
		return "pushes a block"
	case wtPut:
		t.img = 1 + 2*slot
		if m.bug == wtBlindSpare {
			t.img += s.turn[p]
		} else if s.word[wtCurrent].v == t.img {
			t.img++
		}
		if w := s.after(); w[wtCurrent].v == t.img {
			s.wrong = "the valid image is written"
		}
		s.image[t.img][0], t.pc = t.v, wtPutRest
		return "writes half of an image"
	case wtPutRest:
		s.image[t.img][1], t.pc = ^t.v, wtName
		t.rec.set(s.word[:], wtCurrent, t.img)
		return "writes the other half"
	case wtText:
		if s.text[slot] = p + 1; t.did == wtMarked && m.bug == wtTextLate {
			t.stage, t.post, t.pc = wtServe, true, wtBegin
			return "writes the text of the panic"
		}
		t.pc = wtName
		return "writes the text of the panic"
	case wtWalk:
		t.place, t.pc = m.walk(s, i), wtJoin
		return "finds the place of its wait"
	case wtJoin:
		if s.commit != t.c && m.bug != wtStaleWalk {
			t.pc = wtBegin
			return "the commit word has changed"
		}
		m.join(s, t, k)
		t.did, t.pc = wtJoined, wtName
		return "makes a record that queues its wait"
	case wtName:
		if s.commit != t.c {
			t.pc = wtBegin
			return "the commit word has changed"
		}
		m.takesEffect(s, i)
		t.c = rqCommit{t.c.version + 1, slot + 1}
		s.commit, s.head[slot], s.rec[slot] = t.c, t.c.version, t.rec
		t.own, t.i, t.pc = true, 0, wtApply
		if m.bug == wtBlindSpare && t.rec.entry(wtCurrent) >= 0 {
			s.turn[p] ^= 1
		}
		return fmt.Sprint("its change takes effect: ", t.did)
	case wtUnlock:
		s.private[p] = 0
		m.unlocked(s, i)
		return "unlocks the private lock"
	case wtPrepare:
		w := &s.word[wtNext+k]
		*w = rqWord{0, w.tag + 1}
		s.word[wtPrev+k] = rqWord{0, s.word[wtPrev+k].tag + 1}
		t.pc, t.mode = wtLock, wtJoins
		return "prepares its node"
	case wtSleep:
		if m.bug == wtAcceptEarly && m.accept(s, p, m.wants(s, k)) {
			return "accepts a claim"
		}
		if s.resolved&(1<<k) == 0 {
			return ""
		}
		s.resolved &^= 1 << k
		w := &s.word[wtNext+k]
		if granted := w.v == rqGranted; granted {
			t.pc = wtAccept
		} else {
			m.finish(s, i)
		}
		*w = rqWord{0, w.tag + 1}
		return "its wait is over"
	case wtAccept:
		e := m.wants(s, k)
		if !m.accept(s, p, e) {
			s.wrong = "there is no hold for a claim that was granted"
		}
		if s.given[p][e-1] == 0 {
			s.wrong = "a claim is accepted twice"
		}
		s.given[p][e-1]--
		s.got[p][e-1]++
		t.has = true
		m.finish(s, i)
		return "accepts its claim"
	}
	panic(t.pc)
}

// apply makes thread t of process p carry out the next entry of its record.
func (m *waitableModel) apply(s *wtState, p uint8, t *wtThread) {
	r, e := &t.rec, t.i
	w, was := &s.word[r.word[e]], r.was[e]
	if m.bug == wtHelpsKnown && !t.own && r.word[e] >= wtLabel && r.word[e] < wtNext && (r.word[e]-wtLabel)%wtHolds >= wtSlots+s.known[p] {
		return
	}
	if *w == was || m.bug == wtNoTags && w.v == was.v {
		*w = rqWord{r.to[e], was.tag + 1}
	}
}

// accept models waitableCore.accept. It reports whether there was a claim to accept.
func (m *waitableModel) accept(s *wtState, p, e uint8) bool {
	h, ok := m.slot(p), false
	for n := range 1 + m.knows(s, p) {
		if n > 0 {
			h = wtSlots + n - 1
		}
		if ok = s.word[wtLabel+h].v == wtLabelOf(p, e) && s.word[wtGrant+h].v != s.accepted[h]; ok {
			s.accepted[h]++
			break
		}
	}
	return ok
}

// seeWhole checks that the copy of a thread is not torn.
func (m *waitableModel) seeWhole(s *wtState, t *wtThread) {
	if t.copied != wtHalves(t.copied[0]) {
		s.wrong = "a rule sees a torn state"
	}
}

// made continues thread i after its record is complete.
func (m *waitableModel) made(s *wtState, i int) {
	t, p := &s.thread[i], m.proc(i)
	t.pc = wtBegin
	switch t.did {
	case wtTook:
		t.out, t.has, t.pc = t.did, true, wtUnlock
	case wtJoined, wtGave, wtUpdated:
		t.out, t.stage, t.post = t.did, wtServe, true
		if t.did == wtGave {
			t.has = false
		}
		// If a wait is queued only after the change, its own process serves the queue.
		if s.word[wtFirst].v == 0 || m.bug == wtNoServe && t.did != wtJoined {
			t.pc = wtUnlock
		}
	case wtMarked:
		if t.stage, t.post = wtServe, true; m.bug == wtTextLate {
			t.pc = wtText
		}
	case wtRecovered:
		t.stage, t.post, s.seen[p] = wtReap, true, s.dead
	case wtWithdrew:
		t.out, t.pc = t.did, wtUnlock
	case wtGranted:
		if m.isDead(s, t.of-1) {
			s.seen[p] = 0 // the next call reaps
		}
	}
}

// unlocked continues thread i after it has released the private lock.
func (m *waitableModel) unlocked(s *wtState, i int) {
	t := &s.thread[i]
	switch {
	case t.out == wtNeedsNode:
		*t = wtThread{at: t.at, pc: wtPrepare}
	case t.out == wtJoined || t.out == wtWasEnded || t.mode == wtChecks:
		*t = wtThread{at: t.at, pc: wtSleep}
	case t.out == wtWithdrew && s.word[wtFirst].v != 0 && m.bug != wtLeavesQuiet:
		*t = wtThread{at: t.at, pc: wtLock, mode: wtServes}
	default:
		m.finish(s, i)
	}
}
