//go:build linux

package prims

// runRule runs a rule on the copy of thread i, and makes the record that the result needs.
func (m *waitableModel) runRule(s *wtState, i int) {
	t, p := &s.thread[i], m.proc(i)
	r, h, ok := &t.rec, t.hold-1, false
	t.pc = wtPut
	switch {
	case t.stage == wtReap:
		if m.bug == wtExtraLate {
			t.e = s.word[wtLabel+h].v % 4
		}
		if t.v, ok = wtReturn(t.copied[0], t.e); !ok {
			s.wrong = "a rule undoes a claim that the state does not have"
		}
		if t.did = wtUndid; m.bug != wtUndoTwice {
			m.less(s, r, h, t.undo)
		}
	case t.stage == wtServe:
		m.grant(s, i)
	case t.mode <= wtJoins:
		if t.v, ok = wtClaim(t.copied[0], t.e); !ok {
			m.overlooks(s, i)
			m.refused(s, i)
			return
		}
		if h, ok = m.findHold(s, i, p, t.e, func() { m.over(s, i, wtNothing) }); !ok {
			return
		}
		t.did = wtTook
		m.more(s, r, h, p, t.e)
	case t.mode == wtReleases:
		if t.v, ok = wtReturn(t.copied[0], t.e); !ok {
			s.wrong = "a rule releases a claim that the state does not have"
		}
		t.did = wtGave
		m.less(s, r, h, false)
	case t.mode == wtUpdates:
		t.v, t.did = t.copied[0]+1, wtUpdated
	case t.mode == wtFails:
		t.mode, t.pc = wtLoses, wtBegin
	}
}

// grant models the part of Waitable.claim for the first wait of the queue.
func (m *waitableModel) grant(s *wtState, i int) {
	t, ok := &s.thread[i], false
	r, of, k := &t.rec, t.of-1, t.hold-1
	if t.v, ok = wtClaim(t.copied[0], t.e); !ok {
		m.served(s, i)
		return
	}
	h, ok := m.findHold(s, i, of, t.e, func() { m.served(s, i) })
	if !ok {
		return
	}
	if m.wide && s.word[wtLabel+h].v != wtLabelOf(of, t.e) {
		r.set(s.word[:], wtLabel+h, wtLabelOf(of, t.e))
		t.did, t.pc = wtAgain, wtName
		return
	}
	m.more(s, r, h, of, t.e)
	if m.bug != wtSplitGrant {
		r.set(s.word[:], wtGrant+h, s.word[wtGrant+h].v+1)
	}
	if t.did = wtGranted; !s.detach(r, k, rqGranted) {
		t.pc = wtBegin
	}
}

// The method more adds a claim to the hold h, as a part of the record r.
func (m *waitableModel) more(s *wtState, r *rqRecord, h, p, e uint8) {
	r.set(s.word[:], wtLabel+h, wtLabelOf(p, e))
	r.set(s.word[:], wtCount+h, s.word[wtCount+h].v+1)
}

// The method less removes a claim from the hold h, as a part of the record r. If undo is true, the claim was not
// accepted.
func (m *waitableModel) less(s *wtState, r *rqRecord, h uint8, undo bool) {
	if r.set(s.word[:], wtCount+h, s.word[wtCount+h].v-1); undo {
		r.set(s.word[:], wtGrant+h, s.word[wtGrant+h].v-1)
	}
}

// overlooks checks that no call fails because of a claim of a dead participant. The check covers the participants whose
// processes had ended when the call locked the private lock, and whose deaths were known to the last reap.
func (m *waitableModel) overlooks(s *wtState, i int) {
	t := &s.thread[i]
	for q := range uint8(wtProcs) {
		if t.saw&s.seen[m.proc(i)]&(1<<q) != 0 && s.got[q] != [2]uint8{} && s.commit == t.c && s.word[wtLost].v == 0 {
			s.wrong = "a call fails because of a claim of the dead"
		}
	}
}

// takesEffect records the effect of the change of thread i in the history.
func (m *waitableModel) takesEffect(s *wtState, i int) {
	t, p := &s.thread[i], m.proc(i)
	for e := range t.rec.n {
		if s.word[t.rec.word[e]] != t.rec.was[e] {
			s.wrong = "a word is not what the record says"
		}
	}
	if t.rec.entry(wtCurrent) >= 0 {
		if t.copied[0] != s.truth {
			s.wrong = "a change is that of an old state"
		}
		if s.word[wtLost].v != 0 && t.did != wtRecovered {
			s.wrong = "the state changes while the Waitable is not recoverable"
		}
		s.truth = t.v
		for j := range m.threads {
			if o := &s.thread[j]; o.mode == wtReads {
				o.since[t.v/8] |= 1 << (t.v % 8)
			}
		}
	}
	switch n := t.e - 1; t.did {
	case wtTook:
		s.got[p][n]++
		for _, q := range s.queue {
			if q != 0 && !m.isDead(s, m.proc(int(q-1))) {
				s.wrong = "a claim is made although others wait"
			}
		}
	case wtGave:
		s.got[p][n]--
	case wtUpdated:
		s.size++
	case wtGranted:
		s.given[t.of-1][n]++
	case wtUndid:
		of := &s.got[t.of-1][n]
		if t.undo {
			of = &s.given[t.of-1][n]
		}
		if *of == 0 {
			s.wrong = "a claim is undone twice, or by the wrong rule"
			return
		}
		*of--
	case wtJoined:
		m.queues(s, uint8(i))
	}
	for e := range t.rec.n {
		w := t.rec.word[e]
		if w < wtNext || w >= wtPrev || rqIsQueued(t.rec.to[e]) {
			continue
		}
		k := w - wtNext
		if t.rec.to[e] == rqGranted && s.queue[0] != k+1 {
			s.wrong = "a wait is granted that is not the first"
		}
		var left [wtThreads]uint8
		at := 0
		for _, q := range s.queue {
			if q != 0 && q != k+1 {
				left[at] = q
				at++
			}
		}
		s.queue = left
	}
}

// queues puts the wait of node k at its place in the queue of the history: behind the last wait that is for at least
// as many permits.
func (m *waitableModel) queues(s *wtState, k uint8) {
	at := 0
	for q, n := range s.queue {
		if n != 0 && m.wants(s, n-1) >= m.wants(s, k) {
			at = q + 1
		}
	}
	copy(s.queue[at+1:], s.queue[at:])
	s.queue[at] = k + 1
}
