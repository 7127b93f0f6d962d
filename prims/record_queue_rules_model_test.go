//go:build linux

package prims

// after returns the words as they are when the record of the commit word is complete.
func (s *rqState) after() (w [rqWords]rqWord) {
	w = s.word
	if s.commit.slot == 0 || s.head[s.commit.slot-1] != s.commit.version {
		return w
	}
	s.rec[s.commit.slot-1].carryOut(w[:])
	return w
}

var rqQueue = rqQueueAt{rqFirst, rqLast, rqNext, rqPrev}

// wants returns how many permits the wait of node k is for.
func (m *recordQueueModel) wants(s *rqState, k uint8) uint8 {
	_, n := m.op(&s.thread[k], int(k))
	return n
}

func (m *recordQueueModel) isDead(s *rqState, p int) bool { return s.dead&(1<<p) != 0 }

// enough models Semaphore.enough. It returns the share that has to be closed, or rqProcs if there is none.
func (m *recordQueueModel) enough(s *rqState, r *rqRecord, n uint8) (enough bool, did, share uint8) {
	if r.get(s.word[:], rqFree) >= n {
		return true, rqNothing, 0
	}
	if r.get(s.word[:], rqOpened) == 0 || m.bug == rqJoinsOpen {
		return false, rqNothing, 0
	}
	for p := range uint8(rqProcs) {
		v := s.word[rqFast+p].v
		if v == 0 {
			continue
		}
		if v&rqOpen != 0 && m.bug != rqFoldsOpen {
			return false, rqToShut, p
		}
		spare := v &^ rqOpen
		r.set(s.word[:], rqFast+p, 0)
		r.add(s.word[:], rqShare+p, -spare)
		r.add(s.word[:], rqFree, spare)
		return false, rqAgain, 0
	}
	r.set(s.word[:], rqOpened, 0)
	return false, rqNothing, 0
}

// serve models an iteration of Semaphore.serve. It reaps first.
func (m *recordQueueModel) serve(s *rqState, r *rqRecord) (did, share uint8) {
	for p := range uint8(rqProcs) {
		if !m.isDead(s, int(p)) || m.bug == rqNoReap {
			continue
		}
		if v := s.word[rqFast+p].v; v&rqOpen != 0 {
			return rqToShut, p
		} else if had := s.word[rqShare+p].v; had > 0 || v > 0 {
			r.set(s.word[:], rqFast+p, 0)
			r.set(s.word[:], rqShare+p, 0)
			r.add(s.word[:], rqFree, had)
			return rqAgain, 0
		}
	}
	first := r.get(s.word[:], rqFirst)
	if first == 0 {
		return rqNothing, 0
	}
	k := first - 1
	if m.isDead(s, m.proc(int(k))) {
		if m.bug == rqGrantsDead {
			return rqNothing, 0
		}
		r.detach(s.word[:], rqQueue, k, rqRemoved)
		return rqAgain, 0
	}
	enough, did, share := m.enough(s, r, m.wants(s, k))
	if !enough {
		return did, share
	}
	m.grant(s, r, k)
	return rqAgain, 0
}

func (m *recordQueueModel) grant(s *rqState, r *rqRecord, k uint8) {
	n, p := m.wants(s, k), uint8(m.proc(int(k)))
	r.detach(s.word[:], rqQueue, k, rqGranted)
	r.add(s.word[:], rqFree, -n)
	r.add(s.word[:], rqShare+p, n)
}

// rule returns the next change of thread i. The record of the commit word is complete.
func (m *recordQueueModel) rule(s *rqState, i int) (r rqRecord, did, share uint8) {
	t, p := &s.thread[i], uint8(m.proc(i))
	_, n := m.op(t, i)
	k := uint8(i)
	switch t.mode {
	case rqAcquires, rqJoins:
		if did, share = m.serve(s, &r); did != rqNothing {
			return r, did, share
		}
		r.n = 0
		enough := false
		if r.get(s.word[:], rqFirst) == 0 || m.bug == rqBarges {
			enough, did, share = m.enough(s, &r, n)
		}
		switch {
		case did != rqNothing:
			return r, did, share
		case enough:
			r.add(s.word[:], rqFree, -n)
			r.add(s.word[:], rqShare+p, n)
			return r, rqTook, 0
		case t.mode == rqAcquires:
			return r, rqNeedsNode, 0
		}
		last := r.get(s.word[:], rqLast)
		s.word[rqPrev+k].v = last // only the owner changes this word now
		if last == 0 {
			r.set(s.word[:], rqFirst, k+1)
		} else {
			r.set(s.word[:], rqNext+last-1, rqNode+k)
		}
		r.set(s.word[:], rqNext+k, rqEnd)
		r.set(s.word[:], rqLast, k+1)
		return r, rqJoined, 0
	case rqReleases:
		v := s.word[rqFast+p].v
		if v&rqOpen != 0 {
			return r, rqToShut, p
		}
		if s.last == p+1 && (r.get(s.word[:], rqFirst) == 0 || m.bug == rqOpensQueued) {
			r.set(s.word[:], rqOpened, 1)
			r.set(s.word[:], rqFast+p, (v+n)|rqOpen)
			return r, rqOpens, 0
		}
		s.last = p + 1
		r.set(s.word[:], rqFast+p, 0)
		r.add(s.word[:], rqShare+p, -v-n)
		r.add(s.word[:], rqFree, v+n)
		if first := r.get(s.word[:], rqFirst); first != 0 && m.bug != rqNoServe {
			if h := first - 1; !m.isDead(s, m.proc(int(h))) && r.get(s.word[:], rqFree) >= m.wants(s, h) {
				m.grant(s, &r, h)
			}
		}
		return r, rqGave, 0
	case rqWithdraws:
		switch v := s.word[rqNext+k].v; {
		case v == rqGranted:
			if s.node[k].state != rqResolved && s.commit == t.c {
				s.wrong = "a granted wait is not resolved when its owner has completed the record"
			}
			return r, rqWasGranted, 0
		case rqIsQueued(v):
			r.detach(s.word[:], rqQueue, k, rqLeft)
			return r, rqWithdrew, 0
		}
		s.wrong = "a wait that is given up is on no queue"
		return r, rqNothing, 0
	}
	if m.bug == rqNoServe || t.mode == rqServes && m.bug == rqLeavesQuiet && t.gaveUp {
		return r, rqNothing, 0
	}
	did, share = m.serve(s, &r)
	if did == rqNothing {
		r.n = 0
	}
	return r, did, share
}
