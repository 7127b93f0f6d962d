//go:build linux

package prims

// get returns the value that a word will have after the change r.
func (r *cnRecord) get(s *cnState, w uint8) uint8 {
	for e := range r.entry {
		if r.entry[e].word == w {
			return r.entry[e].to
		}
	}
	return s.word[w].v
}

func (r *cnRecord) set(s *cnState, w, v uint8) {
	for e := range r.entry {
		switch e := &r.entry[e]; {
		case e.word == w:
			e.to = v
			return
		case e.word == 0 && s.word[w].v == v:
			return
		case e.word == 0:
			*e = cnEntry{w, v, s.word[w]}
			return
		}
	}
	panic("a record is full")
}

// nodes returns the queue after the change r.
func (r *cnRecord) nodes(s *cnState) [cnThreads]uint8 {
	if r.queue {
		return r.to
	}
	return s.queue.node
}

func (r *cnRecord) setNodes(s *cnState, to [cnThreads]uint8) {
	r.queue, r.was, r.to = true, s.queue.tag, to
}

// detach makes the record r take the wait of node k off the queue. outcome is the new state of the wait.
func (m *condModel) detach(s *cnState, r *cnRecord, k, outcome uint8) {
	var left [cnThreads]uint8
	at, behind := 0, uint8(0)
	nodes := r.nodes(s)
	for n, q := range nodes {
		switch {
		case q == k+1 && n+1 < cnThreads:
			behind = nodes[n+1]
		case q != 0 && q != k+1:
			left[at] = q
			at++
		}
	}
	r.setNodes(s, left)
	r.set(s, cnNext+k, outcome)
	if r.get(s, cnBoundary) == k+1 && m.bug != cnBoundaryStays {
		r.set(s, cnBoundary, behind)
	}
}

// give makes the record r wake the wait of node k by a Signal. extra has the bound of the Signal.
func (m *condModel) give(s *cnState, r *cnRecord, k, extra uint8) {
	m.detach(s, r, k, cnOwes)
	r.set(s, cnExtra+k, extra)
}

// turns makes the record r wake the first waits if a Broadcast has covered them. In this model a record has room for
// two such wakes.
func (m *condModel) turns(s *cnState, r *cnRecord, limit uint8) {
	for range 2 {
		first, flying := r.nodes(s)[0], r.get(s, cnFlying)
		if first == 0 || first == r.get(s, cnBoundary) || flying >= limit || s.ownerDead(first-1) {
			return
		}
		m.detach(s, r, first-1, cnOwes)
		if m.bug != cnTurnUncounted {
			r.set(s, cnFlying, flying+1)
		}
	}
}

// serve makes the record r wake covered waits, or remove the first wait if its owner is dead. It reports false if
// there is nothing to do.
func (m *condModel) serve(s *cnState, r *cnRecord, limit uint8) bool {
	if first := s.queue.node[0]; first != 0 && first != s.word[cnBoundary].v && s.ownerDead(first-1) {
		m.detach(s, r, first-1, cnRemoved)
		return true
	}
	m.turns(s, r, limit)
	return *r != cnRecord{}
}

// settle makes the record r end the wait of node k, which owes a Signal or a turn. outcome is the new state of the
// wait.
func (m *condModel) settle(s *cnState, r *cnRecord, k, outcome uint8) (did uint8) {
	extra := s.word[cnExtra+k].v
	if extra&cnSignal == 0 {
		r.set(s, cnNext+k, outcome)
		if flying := r.get(s, cnFlying); flying > 0 && (m.bug != cnKeepsFlying || outcome == cnLeft) {
			r.set(s, cnFlying, flying-1)
		}
		if m.bug != cnNoTurns {
			m.turns(s, r, m.batch)
		}
		return cnSettled
	}
	if m.bug == cnTwoRecords {
		r.set(s, cnNext+k, outcome)
		return cnHandsOn
	}
	if to := m.heir(s, extra); to != 0 {
		if s.ownerDead(to - 1) {
			m.detach(s, r, to-1, cnRemoved)
			return cnAgain
		}
		if m.bug == cnNewBound {
			extra = cnSignal | s.version
		}
		m.give(s, r, to-1, extra)
	}
	r.set(s, cnNext+k, outcome)
	return cnSettled
}

// heir returns the wait at the boundary, as the number of its node plus 1, if it may get a Signal that passes
// on. Otherwise it returns 0.
func (m *condModel) heir(s *cnState, extra uint8) uint8 {
	to := s.word[cnBoundary].v
	if to != 0 && (s.number[to-1] <= extra&^cnSignal || m.bug == cnNoBound) {
		return to
	}
	return 0
}

// reap writes the next change of a reap by the thread t into the record r. If the present phase of the reap has no
// more changes, ok is false.
func (m *condModel) reap(s *cnState, r *cnRecord, t *cnThread) (did uint8, ok bool) {
	switch t.phase {
	case cnRemoving:
		for _, q := range s.queue.node {
			if q != 0 && s.ownerDead(q-1) {
				m.detach(s, r, q-1, cnRemoved)
				return cnAgain, true
			}
		}
	case cnSettling:
		if k, ok := m.debtor(s); ok {
			t.saw = s.dead
			if did = m.settle(s, r, k, cnRemoved); did == cnSettled {
				did = cnAgain
			}
			return did, true
		}
	default:
		limit := m.batch
		if t.phase == cnForcing {
			limit = cnThreads
		}
		if !t.fresh || m.serve(s, r, limit) {
			return cnAgain, true
		}
	}
	return cnOver, false
}

// debtor returns the first node of a dead process that owes a Signal or a turn. The Signals pass on in the order in
// which they were given, because a later Signal may go to waits that an earlier Signal may not wake.
func (m *condModel) debtor(s *cnState) (first uint8, ok bool) {
	for k := range uint8(cnThreads) {
		if !s.ownerDead(k) || s.next(k) != cnOwes {
			continue
		}
		if later := ok && s.word[cnExtra+k].v > s.word[cnExtra+first].v; !ok || later == (m.bug == cnAnyOrder) {
			first, ok = k, true
		}
	}
	return first, ok
}

// handsOn writes the second record of the mistake cnTwoRecords: it gives the Signal to another wait.
func (m *condModel) handsOn(s *cnState, r *cnRecord, t *cnThread) (did uint8) {
	switch to := m.heir(s, t.hand); {
	case !t.fresh:
		return cnAgain
	case to == 0:
		if s.entitled(t.handFor) != 0 {
			s.wrong = "a Signal is lost"
		}
		return cnGives
	case s.ownerDead(to - 1):
		m.detach(s, r, to-1, cnRemoved)
		return cnAgain
	default:
		m.give(s, r, to-1, t.hand)
		return cnGives
	}
}

// rule decides what thread i does when the record of the commit word is complete.
func (m *condModel) rule(s *cnState, i int) (r cnRecord, did uint8) {
	t, k := &s.thread[i], s.thread[i].node
	if t.hand != 0 {
		did = m.handsOn(s, &r, t)
		return r, did
	}
	for ; t.phase != cnNoPhase; t.phase = m.nextPhase(t.phase) {
		if did, ok := m.reap(s, &r, t); ok {
			return r, did
		}
		if t.phase == cnRemoving && m.bug != cnLooksEarly {
			// The last record may have woken a wait of the dead, and may be only partly carried out: the wait is not
			// in the queue, but its node does not owe the Signal or turn yet. So the thread begins again, and
			// carries out the whole record first.
			t.phase = m.nextPhase(t.phase)
			return r, cnAgain
		}
	}
	if !t.fresh {
		return r, cnAgain
	}
	boundary := s.word[cnBoundary].v
	switch t.mode {
	case cnJoins:
		s.number[k] = s.version + 1
		nodes := s.queue.node
		for q := range nodes {
			if nodes[q] == 0 {
				nodes[q] = k + 1
				break
			}
		}
		r.setNodes(s, nodes)
		r.set(s, cnNext+k, cnQueued)
		if boundary == 0 && m.bug != cnJoinsQuietly {
			r.set(s, cnBoundary, k+1)
		}
		return r, cnJoined
	case cnSignals, cnBroadcasts:
		switch {
		case boundary == 0:
			if s.entitled(^uint8(0)) != 0 {
				s.wrong = "a Signal or a Broadcast finds no wait, although there is one"
			}
			return r, cnOver
		case t.mode == cnBroadcasts:
			r.set(s, cnBoundary, 0)
			m.turns(s, &r, m.batch)
			return r, cnCovered
		case s.ownerDead(boundary - 1):
			m.detach(s, &r, boundary-1, cnRemoved)
			return r, cnAgain
		}
		m.give(s, &r, boundary-1, cnSignal|s.version)
		return r, cnSignalled
	case cnSettles:
		if s.next(k) != cnOwes {
			s.wrong = "a wait was settled by another process"
			return r, cnOver
		}
		did = m.settle(s, &r, k, cnLeft)
		return r, did
	case cnServes:
		if m.serve(s, &r, m.batch) {
			return r, cnAgain
		}
	case cnWithdraws:
		return m.withdraw(s, t)
	case cnChecks:
		return m.check(s, t, m.proc(i))
	default: // the thread frees nodes of the dead
		for k := range uint8(cnThreads) {
			owes := s.next(k) == cnOwes && m.bug != cnFreesDebt
			if s.ownerDead(k) && t.saw&(1<<(s.owner[k]-1)) != 0 && s.next(k) != cnQueued && !owes {
				s.free(k)
			}
		}
	}
	return r, cnOver
}

func (m *condModel) withdraw(s *cnState, t *cnThread) (r cnRecord, did uint8) {
	k := t.node
	if s.next(k) == cnOwes {
		if s.resolved&(1<<k) == 0 {
			s.wrong = "a wait that was woken is not resolved when its owner has completed the record"
		}
		return r, cnIsWoken
	}
	boundary := s.word[cnBoundary].v
	t.covered = m.bug != cnForgetsCover && (boundary == 0 || boundary != k+1 && s.number[k] < s.number[boundary-1])
	m.detach(s, &r, k, cnLeft)
	return r, cnWithdrew
}

// check is the part of a periodic check that follows the reap. If the word cnFlying has not changed since the last
// check, the thread wakes all covered waits.
func (m *condModel) check(s *cnState, t *cnThread, p uint8) (r cnRecord, did uint8) {
	if m.serve(s, &r, m.batch) {
		return r, cnAgain
	}
	first, before := s.queue.node[0], uint8(0)
	if first != 0 && first != s.word[cnBoundary].v {
		before = s.word[cnFlying].tag + 1
	}
	same := before != 0 && before == s.before[p]
	if s.before[p] = before; same && m.bug != cnNoForce {
		t.phase = cnForcing
		return r, cnAgain
	}
	return r, cnChecked
}
