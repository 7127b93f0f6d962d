//go:build linux

package prims

// total returns how many entries there are.
func (m *multiLockModel) total(s *mlState) uint8 { return m.buckets*m.entries + s.blocks }

// bucketOf returns the bucket of entry x.
func (m *multiLockModel) bucketOf(s *mlState, x uint8) uint8 {
	if inline := m.buckets * m.entries; x >= inline {
		return s.of[x-inline]
	}
	return x / m.entries
}

// where returns the entry that has the number n in bucket b, for a process that knows as many blocks as the parameter
// known says. If the process does not know the entry, ok is false. New blocks come last.
func (m *multiLockModel) where(s *mlState, b, n, known uint8) (x uint8, ok bool) {
	if n < m.entries {
		return b*m.entries + n, true
	}
	n -= m.entries
	for j := range known {
		if m.bug == mlNewFirst {
			j = known - 1 - j
		}
		if s.of[j] != b {
			continue
		}
		if n == 0 {
			return m.buckets*m.entries + j, true
		}
		n--
	}
	return 0, false
}

// numberOf returns the number that entry x has in its bucket.
func (m *multiLockModel) numberOf(s *mlState, x, known uint8) uint8 {
	for n := range uint8(mlEntries) {
		if y, ok := m.where(s, m.bucketOf(s, x), n, known); ok && x == y {
			return n
		}
	}
	return 0
}

// known returns the entries of bucket b that process p knows, in the order in which a call looks at them.
func (m *multiLockModel) known(s *mlState, b, p uint8) (all [mlEntries]uint8, n uint8) {
	for ; n < mlEntries; n++ {
		x, ok := m.where(s, b, n, s.seen[p])
		if !ok {
			break
		}
		all[n] = x
	}
	return all, n
}

func (e *mlEntry) has(key uint8) bool {
	return e.low.v == mlHalves[key].low && e.high.v == mlHalves[key].high
}

// keyOf returns the key of an entry. ok is false if the halves are not those of a key of the bucket.
func (m *multiLockModel) keyOf(s *mlState, x uint8) (key uint8, ok bool) {
	for key := range uint8(mlKeys) {
		if mlHalves[key].bucket == m.bucketOf(s, x) && s.entry[x].has(key) {
			return key, true
		}
	}
	return 0, false
}

// untidy reports whether the entry e needs a change: its first wait is that of a dead process, or a dead process has
// its key. If the parameter serves is true, e also needs a change if its first wait can be refused or granted.
func (m *multiLockModel) untidy(s *mlState, e *mlEntry, serves bool) bool {
	first := e.queue[0]
	due := e.hold.kind == mlDead && m.bug != mlNoRefusal || e.hold.free() && m.bug != mlDrops
	return m.lost(s, e) || first != 0 && (m.ownerDead(s, first) || serves && due)
}

// lost reports whether a dead process holds the key of e, or was granted it.
func (m *multiLockModel) lost(s *mlState, e *mlEntry) bool {
	return m.isDead(s, e.hold.name) && e.hold.kind != mlDead && (e.hold.kind != mlGranted || m.bug != mlKeepsGrant)
}

// vacant reports whether another key may get the entry.
func (m *multiLockModel) vacant(s *mlState, e *mlEntry) bool {
	quiet := e.queue[0] == 0
	switch m.bug {
	case mlEvictsWaits:
		return e.hold.free()
	case mlEvictsGrant:
		return quiet && (e.hold.free() || e.hold.kind == mlGranted)
	case mlEvictsDead:
		return quiet && (e.hold.free() || e.hold.kind == mlDead)
	case mlEvictsHeld:
		return quiet
	}
	return e.hold.free() && quiet
}

// find chooses the entry of the next change of thread i. If the key of the thread can get one of several vacant
// entries, the parameter pick selects the entry.
func (m *multiLockModel) find(s *mlState, i, pick int) {
	t := &s.thread[i]
	_, key := m.op(s, i)
	t.entry, t.why = 0, mlHasKey
	if t.mode == mlUnlocks {
		t.entry = s.holds[i][key].entry
		return
	}
	all, n := m.known(s, t.bucket, m.proc(i))
	if t.mode != mlWithdraws {
		for _, x := range all[:n] {
			e := &s.entry[x]
			if m.untidy(s, e, t.mode == mlChecks || t.mode == mlServes || e.has(key)) {
				t.entry, t.why = x+1, mlTidies
				return
			}
		}
	}
	for _, x := range all[:n] {
		if s.entry[x].has(key) {
			t.entry = x + 1
			return
		}
	}
	if t.mode != mlLocks && t.mode != mlTries {
		return
	}
	for _, x := range all[:n] {
		if !m.vacant(s, &s.entry[x]) {
			continue
		}
		if t.entry, t.why = x+1, mlEvicts; pick == 0 {
			return
		}
		pick--
	}
}

// choices returns how many entries thread i can choose from in its next step, or 1 if the step chooses no entry.
func (m *multiLockModel) choices(s *mlState, i int) int {
	t := &s.thread[i]
	if t.pc != mlFind && (m.fine || t.pc != mlRule) {
		return 1
	}
	x := *s
	m.find(&x, i, 0)
	if x.thread[i].why != mlEvicts {
		return 1
	}
	n := 0
	all, known := m.known(s, t.bucket, m.proc(i))
	for _, x := range all[:known] {
		if m.vacant(s, &s.entry[x]) {
			n++
		}
	}
	return n
}

func (r *mlRecord) setHold(e *mlEntry, kind, name uint8) {
	r.has |= mlHeld
	r.was, r.to = e.hold, mlHold{kind, name, 1}
}

// end adds to r that the wait of a node leaves the queue.
func (r *mlRecord) end(s *mlState, e *mlEntry, node, next uint8) {
	r.has |= mlQueue | mlNext
	r.queueTag, r.node, r.next, r.nextTo = e.tag, node, s.node[node-1], next
}

// passOn adds to r that the key becomes free or is granted to the first wait.
func (m *multiLockModel) passOn(s *mlState, r *mlRecord, e *mlEntry) {
	first := e.queue[0]
	switch {
	case first == 0, m.bug == mlOpensWait:
		r.setHold(e, mlOpen, 0)
		return
	case m.bug == mlDrops, m.bug == mlEvictsWaits && e.hold.name != 0:
		r.setHold(e, mlClosed, 0)
		return
	}
	n := m.proc(int(first-1)) + 1
	if m.bug == mlGrantsLast {
		for _, q := range e.queue {
			if q != 0 {
				first, n = q, m.proc(int(q-1))+1
			}
		}
	}
	r.setHold(e, mlGranted, n)
	if m.bug == mlSameTag && e.hold.kind == mlGranted && e.hold.name == n {
		r.to.tag = 0
	}
	r.end(s, e, first, mlGrant)
}

func (e *mlEntry) isAccepted() bool { return e.accepted == rqWord{e.hold.name, e.hold.tag} }

// tidy adds to r a change that the entry e needs because of a death, or because a wait was not served.
func (m *multiLockModel) tidy(s *mlState, r *mlRecord, e *mlEntry) bool {
	first := e.queue[0]
	switch {
	case first != 0 && m.ownerDead(s, first):
		r.end(s, e, first, mlRemoved)
		if e.hold.free() && e.queue[1] == 0 {
			r.setHold(e, mlOpen, 0)
		}
	case m.lost(s, e):
		granted := e.hold.kind == mlGranted
		forgets := granted && m.bug == mlSilent || e.hold.kind == mlRecovering && m.bug == mlForgets
		if m.release || granted && !e.isAccepted() && m.bug != mlReports || forgets {
			m.passOn(s, r, e)
		} else {
			r.setHold(e, mlDead, e.hold.name)
		}
	case first != 0 && e.hold.kind == mlDead && m.bug != mlNoRefusal:
		r.end(s, e, first, mlRefused)
	case first != 0 && e.hold.free() && m.bug != mlDrops:
		m.passOn(s, r, e)
	}
	return r.has != 0
}

// setKey adds to r that the entry e gets another key.
func (m *multiLockModel) setKey(r *mlRecord, e *mlEntry, key uint8) {
	if h := mlHalves[key]; e.low.v != h.low {
		r.has |= mlLow
		r.low = rqWord{h.low, e.low.tag}
	}
	if h := mlHalves[key]; e.high.v != h.high {
		r.has |= mlHigh
		r.high = rqWord{h.high, e.high.tag}
	}
}

// isHold reports whether a Hold with the given tag is the present hold of the key in the entry e, and belongs to the
// process with the given name.
func (m *multiLockModel) isHold(e *mlEntry, name, tag uint8) bool {
	o := e.hold
	accepted := o.kind != mlGranted || e.isAccepted() || m.bug == mlNoAccept || m.bug == mlOldAccept
	return o.name == name && (o.tag == tag || m.bug == mlAnyHold) && o.kind != mlDead && accepted
}

// rule decides which change thread i makes. The record that the commit word names is complete. The thread has chosen
// the entry e, and has closed the hold word of e.
func (m *multiLockModel) rule(s *mlState, i int, e *mlEntry) (r mlRecord, did uint8) {
	t, node, name := &s.thread[i], uint8(i+1), m.proc(i)+1
	_, key := m.op(s, i)
	o := e.hold
	switch {
	case t.why == mlTidies:
		m.tidy(s, &r, e)
		return r, mlAgain
	case t.mode == mlChecks, t.mode == mlServes:
		return r, mlOver
	}
	switch t.mode {
	case mlLocks, mlTries:
		switch {
		case t.why == mlEvicts:
			m.setKey(&r, e, key)
			r.setHold(e, mlOpen, name)
			if m.bug == mlEvictsSame {
				r.to.tag = 0
			}
			return r, mlTook
		case o.free() && e.queue[0] == 0:
			r.setHold(e, mlOpen, name)
			return r, mlTook
		case o.kind == mlDead || t.mode == mlTries:
			return r, mlOver
		}
		r.has = mlQueue | mlNext
		r.queueTag, r.node, r.next, r.nextTo = e.tag, node, s.node[node-1], mlQueued
		return r, mlJoined
	case mlUnlocks:
		if !m.isHold(e, name, s.holds[i][key].tag) {
			return r, mlRefusedUnlock
		}
		if first := e.queue[0]; first != 0 && m.ownerDead(s, first) {
			r.end(s, e, first, mlRemoved)
			return r, mlAgain
		}
		m.passOn(s, &r, e)
		return r, mlGave
	case mlWithdraws:
		r.end(s, e, node, mlLeft)
		if m.bug == mlOpensHeld && e.queue[1] == 0 && o.kind == mlClosed {
			r.setHold(e, mlOpen, o.name)
		}
		return r, mlWithdrew
	case mlRecovers:
		if o.kind == mlDead {
			r.setHold(e, mlRecovering, name)
			return r, mlRepairs
		}
	}
	return r, mlOver
}
