//go:build linux

package prims

import (
	"fmt"
	"slices"
)

// step makes the next step of thread i and returns what it does. It returns "" if there is no next step.
func (m *condModel) step(s *cnState, i int) string {
	t, k := &s.thread[i], s.thread[i].node
	switch t.pc {
	case cnEnded:
		return ""
	case cnIdle, cnLock:
		return m.lock(s, i)
	case cnApply:
		if m.applies(s, &t.rec, t.i) {
			s.carryOut(&t.rec, t.i)
		}
		t.i++
		m.skip(s, i)
		return "carries out an entry"
	case cnTell:
		if e := &t.rec.entry[t.i]; m.tells(s, e, t.own) {
			if node := e.word - cnNext; e.to == cnOwes {
				s.resolved |= 1 << node
			} else {
				s.free(node)
			}
		}
		t.i++
		m.skip(s, i)
		return "resolves a wait, or frees the node of a dead process"
	case cnRule:
		if !t.fresh && t.phase == cnNoPhase {
			m.begin(s, i)
			return "begins again"
		}
		t.rec, t.did = m.rule(s, i)
		switch did := t.did; {
		case t.rec != (cnRecord{}):
			t.pc = cnName
			return fmt.Sprint("reads the words, change ", did)
		case did == cnAgain:
			m.begin(s, i)
		default:
			m.made(s, i)
		}
		return "reads the words, and has nothing to change"
	case cnName:
		if !t.fresh {
			m.begin(s, i)
			return "the commit word has changed"
		}
		m.takesEffect(s, i)
		s.version++
		s.rec = t.rec
		for j := range m.threads {
			s.thread[j].fresh = false
		}
		t.own, t.i, t.pc = true, 0, cnApply
		m.skip(s, i)
		return "its change takes effect"
	case cnSleep:
		if s.resolved&(1<<k) == 0 {
			return ""
		}
		t.pc = cnWoken
		return "its wait is over"
	case cnWoken:
		return m.woken(s, i)
	}
	panic(t.pc)
}

// woken is the step in which the waiter of thread i has the lock again, or finds that it cannot get the lock.
func (m *condModel) woken(s *cnState, i int) string {
	t, p, k := &s.thread[i], m.proc(i), s.thread[i].node
	next, signal := &s.word[cnNext+k], s.word[cnExtra+k].v&cnSignal != 0
	if s.left&(1<<p) != 0 {
		// The code compares tags to find out whether the node still belongs to this wait. The model asks instead
		// whether the node still belongs to the process.
		own := s.owner[k] == p+1
		if late := m.bug == cnLandsLate && own || m.bug == cnLandsBlind && !own; !late || !signal || next.v != cnOwes {
			m.finish(s, i)
			return "its process has left"
		}
	}
	if !signal || m.op(s, i) == 'F' {
		t.pc, t.mode = cnLock, cnSettles
		return "settles its wait"
	}
	if s.signalled&(1<<k) == 0 {
		s.wrong = "a Signal ends two waits"
	}
	s.signalled &^= 1 << k
	s.eligible[k] = 0
	*next = rqWord{cnLeft, next.tag + 1}
	m.finish(s, i)
	return "has the lock, and lands"
}

// lock is the step in which thread i takes the private lock of its process and begins its work.
func (m *condModel) lock(s *cnState, i int) string {
	t, p, op, idle := &s.thread[i], m.proc(i), m.op(s, i), s.thread[i].pc == cnIdle
	if s.private[p] != 0 || (op == 'R' || op == 'X') && s.dead == 0 || op == 'Q' && !m.mayLeave(s, i) {
		return ""
	}
	s.private[p] = uint8(i + 1)
	switch {
	case idle && t.mode == cnJoins:
		// If a reaper has freed a node, the thread takes that node and not its own one.
		if k := slices.Index(s.owner[:len(m.threads)], 0); k >= 0 {
			s.owner[k], t.node = p+1, uint8(k)
		}
	case op == 'Q':
		m.leave(s, p)
	}
	due := t.mode == cnSignals || t.mode == cnBroadcasts || t.mode == cnChecks
	if (t.mode == cnReaps || due && s.reaped[p] != s.dead) && m.bug != cnNoReap {
		s.reaped[p] = s.dead
		if t.phase = cnRemoving; m.bug == cnNodesFirst {
			t.phase = cnSettling
		}
	}
	m.begin(s, i)
	return "locks the private lock and begins"
}

// nextPhase returns the phase that follows a phase.
func (m *condModel) nextPhase(phase uint8) uint8 {
	switch {
	case phase == cnForcing, phase == cnServing:
		return cnNoPhase
	case m.bug != cnNodesFirst:
		return phase + 1
	case phase == cnSettling:
		return cnRemoving
	}
	return cnServing
}

// mayLeave reports whether the process of thread i may leave the arena. The process first waits for the calls of its
// other threads, except for waiters that were woken and do not have the lock of the Cond yet.
func (m *condModel) mayLeave(s *cnState, i int) bool {
	for j := range m.threads {
		if pc := s.thread[j].pc; j != i && m.proc(j) == m.proc(i) && pc != cnEnded && pc != cnIdle && pc != cnWoken {
			return false
		}
	}
	return true
}

func (m *condModel) leave(s *cnState, p uint8) {
	s.dead |= 1 << p
	s.left |= 1 << p
	for j := range m.threads {
		if t := &s.thread[j]; m.proc(j) == p && t.pc == cnIdle && m.op(s, j) != 'Q' {
			*t = cnThread{}
		}
	}
}

// begin begins a change: the thread reads the commit word, and carries out the record that it names.
func (m *condModel) begin(s *cnState, i int) {
	t := &s.thread[i]
	t.pc, t.i, t.did, t.own, t.fresh, t.rec = cnApply, 0, 0, false, true, s.rec
	if t.saw = 0; t.mode == cnReaps || t.mode == cnFrees {
		t.saw = s.dead
	}
	if m.bug == cnNoComplete {
		t.rec = cnRecord{}
	}
	m.skip(s, i)
}

// skip moves thread i to the next entry of its record that has an effect. If there is none, the record is complete, and
// the thread decides what it does next.
func (m *condModel) skip(s *cnState, i int) {
	t := &s.thread[i]
	for t.pc == cnApply {
		if t.i > cnEntries {
			t.pc, t.i = cnTell, 0
		} else if m.applies(s, &t.rec, t.i) {
			return
		} else {
			t.i++
		}
	}
	for ; t.i < cnEntries; t.i++ {
		if m.tells(s, &t.rec.entry[t.i], t.own) {
			return
		}
	}
	own := t.own
	t.pc, t.i, t.own, t.rec = cnRule, 0, false, cnRecord{}
	if own {
		m.made(s, i)
	}
}

// applies reports whether entry e of a record changes its word. Entry 0 is the change of the queue.
func (m *condModel) applies(s *cnState, r *cnRecord, e uint8) bool {
	if e == 0 {
		return r.queue && s.queue.tag == r.was
	}
	x := &r.entry[e-1]
	return x.word != 0 && (s.word[x.word] == x.was || m.bug == cnNoTags && s.word[x.word].v == x.was.v)
}

func (s *cnState) carryOut(r *cnRecord, e uint8) {
	if e == 0 {
		s.queue = cnQueue{r.to, r.was + 1}
		return
	}
	x := &r.entry[e-1]
	s.word[x.word] = rqWord{x.to, s.word[x.word].tag + 1}
}

// tells reports whether a thread that has carried out an entry then resolves a wait, or frees the node of a removed
// wait of a dead process.
func (m *condModel) tells(s *cnState, x *cnEntry, own bool) bool {
	if x.word < cnNext || x.word >= cnExtra || s.word[x.word] != (rqWord{x.to, x.was.tag + 1}) {
		return false
	}
	k := x.word - cnNext
	if s.ownerDead(k) {
		return x.to == cnRemoved
	}
	return x.to == cnOwes && s.resolved&(1<<k) == 0 && (own || m.bug != cnHelperQuiet)
}

// free makes the node of a dead process free.
func (s *cnState) free(k uint8) {
	s.owner[k] = 0
	s.renew(k)
}

// renew makes a node ready for its next wait. Its words get new tags.
func (s *cnState) renew(k uint8) {
	s.number[k] = 0
	s.resolved &^= 1 << k
	next, extra := &s.word[cnNext+k], &s.word[cnExtra+k]
	*next, *extra = rqWord{cnNone, next.tag + 1}, rqWord{0, extra.tag + 1}
}

// made decides what thread i does after its change is complete, or after it had nothing to change.
func (m *condModel) made(s *cnState, i int) {
	t := &s.thread[i]
	switch t.did {
	case cnAgain, cnHandsOn:
		m.begin(s, i)
		return
	case cnCovered, cnSettled:
		if t.mode = cnServes; m.bug == cnNoTurns && t.did == cnSettled {
			break
		}
		m.begin(s, i)
		return
	case cnGives:
		t.hand, t.handFor = 0, 0
		if t.mode == cnSettles {
			t.mode = cnServes
		}
		m.begin(s, i)
		return
	}
	s.private[m.proc(i)] = 0
	switch t.did {
	case cnJoined, cnIsWoken, cnChecked:
		*t = cnThread{at: t.at, node: t.node, pc: cnSleep}
	default:
		m.finish(s, i)
	}
}

// finish ends the call of thread i.
func (m *condModel) finish(s *cnState, i int) {
	t, k := &s.thread[i], s.thread[i].node
	switch m.op(s, i) {
	case 'W', 'C', 'F':
		if s.left&(1<<m.proc(i)) != 0 {
			*t = cnThread{} // a reaper frees the node
			return
		}
		s.covered &^= 1 << k
		s.renew(k)
		if m.bug == cnTagsAgain {
			s.word[cnNext+k].tag, s.word[cnExtra+k].tag = 0, 0
		}
	}
	t.at++
	m.start(s, i)
}
