//go:build linux

package prims

// after returns the words as they are when the record of the commit word is complete.
func (s *rqState) after() (w [rqWords]rqWord) {
	w = s.word
	if s.commit.slot == 0 || s.head[s.commit.slot-1] != s.commit.version {
		return w
	}
	r := &s.rec[s.commit.slot-1]
	for i := range r.n {
		if w[r.word[i]] == r.was[i] {
			w[r.word[i]] = rqWord{r.to[i], r.was[i].tag + 1}
		}
	}
	return w
}

func (r *rqRecord) get(s *rqState, w uint8) uint8 {
	for i := range r.n {
		if r.word[i] == w {
			return r.to[i]
		}
	}
	return s.word[w].v
}

func (r *rqRecord) set(s *rqState, w, v uint8) {
	for i := range r.n {
		if r.word[i] == w {
			r.to[i] = v
			return
		}
	}
	if s.word[w].v != v {
		r.word[r.n], r.to[r.n], r.was[r.n] = w, v, s.word[w]
		r.n++
	}
}

func (r *rqRecord) add(s *rqState, w, v uint8) { r.set(s, w, r.get(s, w)+v) }

// rqIsQueued reports whether v, the value of the word next of a node, means that the node is on the queue.
func rqIsQueued(v uint8) bool { return v == rqEnd || v >= rqNode }

func (r *rqRecord) detach(s *rqState, k, outcome uint8) {
	next, prev := r.get(s, rqNext+k), r.get(s, rqPrev+k)
	if next == rqEnd {
		r.set(s, rqLast, prev)
	} else {
		r.set(s, rqPrev+next-rqNode, prev)
	}
	switch {
	case prev != 0:
		r.set(s, rqNext+prev-1, next)
	case next == rqEnd:
		r.set(s, rqFirst, 0)
	default:
		r.set(s, rqFirst, next-rqNode+1)
	}
	r.set(s, rqNext+k, outcome)
}

// wants returns how many permits the wait of node k is for.
func (m *recordQueueModel) wants(s *rqState, k uint8) uint8 {
	_, n := m.op(&s.thread[k], int(k))
	return n
}

func (m *recordQueueModel) isDead(s *rqState, p int) bool { return s.dead&(1<<p) != 0 }

// enough models Semaphore.enough. It returns the share that has to be closed, or rqProcs if there is none.
func (m *recordQueueModel) enough(s *rqState, r *rqRecord, n uint8) (enough bool, did, share uint8) {
	if r.get(s, rqFree) >= n {
		return true, rqNothing, 0
	}
	if r.get(s, rqOpened) == 0 || m.bug == rqJoinsOpen {
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
		r.set(s, rqFast+p, 0)
		r.add(s, rqShare+p, -spare)
		r.add(s, rqFree, spare)
		return false, rqAgain, 0
	}
	r.set(s, rqOpened, 0)
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
			r.set(s, rqFast+p, 0)
			r.set(s, rqShare+p, 0)
			r.add(s, rqFree, had)
			return rqAgain, 0
		}
	}
	first := r.get(s, rqFirst)
	if first == 0 {
		return rqNothing, 0
	}
	k := first - 1
	if m.isDead(s, m.proc(int(k))) {
		if m.bug == rqGrantsDead {
			return rqNothing, 0
		}
		r.detach(s, k, rqRemoved)
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
	r.detach(s, k, rqGranted)
	r.add(s, rqFree, -n)
	r.add(s, rqShare+p, n)
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
		if r.get(s, rqFirst) == 0 || m.bug == rqBarges {
			enough, did, share = m.enough(s, &r, n)
		}
		switch {
		case did != rqNothing:
			return r, did, share
		case enough:
			r.add(s, rqFree, -n)
			r.add(s, rqShare+p, n)
			return r, rqTook, 0
		case t.mode == rqAcquires:
			return r, rqNeedsNode, 0
		}
		last := r.get(s, rqLast)
		s.word[rqPrev+k].v = last // only the owner changes this word now
		if last == 0 {
			r.set(s, rqFirst, k+1)
		} else {
			r.set(s, rqNext+last-1, rqNode+k)
		}
		r.set(s, rqNext+k, rqEnd)
		r.set(s, rqLast, k+1)
		return r, rqJoined, 0
	case rqReleases:
		v := s.word[rqFast+p].v
		if v&rqOpen != 0 {
			return r, rqToShut, p
		}
		if s.last == p+1 && (r.get(s, rqFirst) == 0 || m.bug == rqOpensQueued) {
			r.set(s, rqOpened, 1)
			r.set(s, rqFast+p, (v+n)|rqOpen)
			return r, rqOpens, 0
		}
		s.last = p + 1
		r.set(s, rqFast+p, 0)
		r.add(s, rqShare+p, -v-n)
		r.add(s, rqFree, v+n)
		if first := r.get(s, rqFirst); first != 0 && m.bug != rqNoServe {
			if h := first - 1; !m.isDead(s, m.proc(int(h))) && r.get(s, rqFree) >= m.wants(s, h) {
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
			r.detach(s, k, rqLeft)
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
