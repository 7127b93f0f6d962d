//go:build linux

package prims

// mlFault is a violation that the model has found.
type mlFault uint8

const (
	mlTogether mlFault = 1 + iota
	mlPassedOn
	mlOtherKey
	mlBarged
	mlNotGranted
	mlCannotUnlock
	mlStaleUnlock
	mlTryFails
	mlOldWord
	mlUncommitted
	mlUnseen
	mlInUse
	mlNotFirst
	mlTwice
	mlBlamed
	mlQueueOpen
	mlTwoEntries
	mlOtherQueue
	mlLostHold
	mlLostNode
	mlMyHold
	mlNumbers
)

var mlFaults = [...]string{
	mlTogether:     "two have a key",
	mlPassedOn:     "a key is passed on from a holder that died",
	mlOtherKey:     "a key is locked in the entry of another",
	mlBarged:       "a key is locked although others wait for it",
	mlNotGranted:   "a wait was granted, and the entry does not say so",
	mlCannotUnlock: "the holder cannot unlock",
	mlStaleUnlock:  "a Hold that was unlocked has unlocked a later hold",
	mlTryFails:     "TryLock fails although the key is free",
	mlOldWord:      "a word is not what the record says",
	mlUncommitted:  "a record is carried out that no commit word names",
	mlUnseen:       "a record names an entry that the process does not know",
	mlInUse:        "an entry in use gets another key",
	mlNotFirst:     "a wait is granted that is not the first",
	mlTwice:        "a death is reported twice",
	mlBlamed:       "a death is reported of a process that has never held the key",
	mlQueueOpen:    "a hold is open although a wait is queued",
	mlTwoEntries:   "a key is in two entries",
	mlOtherQueue:   "a wait is in the queue of another key",
	mlLostHold:     "a thread has a key, and the entry does not say so",
	mlLostNode:     "a node does not say whether it is queued",
	mlMyHold:       "a key is held, and nobody has it",
	mlNumbers:      "the numbers of the blocks do not fall",
}

// enters updates the history for thread i, which now has the key of entry x.
func (m *multiLockModel) enters(s *mlState, i int, x, tag uint8) {
	_, key := m.op(s, i)
	w := m.after(s)
	switch has, ok := m.keyOf(&w, x); {
	case !ok || has != key:
		s.wrong = mlOtherKey
	case s.inside[key] != 0:
		s.wrong = mlTogether
	case s.died[key] != 0:
		s.wrong = mlPassedOn
	}
	s.inside[key] |= 1 << i
	s.holds[i][key] = mlHas{x + 1, tag}
}

// leaves updates the history for thread i, which has unlocked its key.
func (m *multiLockModel) leaves(s *mlState, i int) {
	_, key := m.op(s, i)
	if s.inside[key]&(1<<i) == 0 {
		s.wrong = mlStaleUnlock
	}
	s.inside[key] &^= 1 << i
	ops := m.threads[i][1:]
	for at := int(s.thread[i].at) + 1; 2*at < len(ops); at++ {
		if ops[2*at] == 'D' && ops[2*at+1]-'a' == key {
			return
		}
	}
	s.holds[i][key] = mlHas{}
}

// reports updates the history for a process whose death was reported. The process had the key of entry x. The
// parameter name is the number of the process, plus 1.
func (m *multiLockModel) reports(s *mlState, x, name uint8) {
	w := m.after(s)
	key, _ := m.keyOf(&w, x)
	bit := uint8(1) << (name - 1)
	if s.told[key]&bit != 0 {
		s.wrong = mlTwice
	}
	s.told[key] |= bit
}

// dies is the death of process p.
func (m *multiLockModel) dies(s *mlState, p uint8) {
	for i := range m.threads {
		if m.proc(i) != p {
			continue
		}
		for key := range s.inside {
			if s.inside[key]&(1<<i) != 0 && !m.release {
				s.died[key] |= 1 << p
			}
			s.inside[key] &^= 1 << i
		}
	}
}

// takesEffect updates the history for the change of thread i. The commit word does not name the record of the change
// yet.
func (m *multiLockModel) takesEffect(s *mlState, i int) {
	t, r := &s.thread[i], &s.thread[i].rec
	x := t.entry - 1
	e := &s.entry[x]
	if m.bug == "" {
		for w := mlLow; w <= mlNext; w <<= 1 {
			if r.has&w != 0 && !s.applies(m, m.proc(i), t.bucket, r, w) {
				s.wrong = mlOldWord
			}
		}
	}
	if r.has&(mlLow|mlHigh) != 0 && (!e.hold.free() || e.queue[0] != 0) {
		s.wrong = mlInUse
	}
	if r.nextTo == mlGrant && e.queue[0] != r.node {
		s.wrong = mlNotFirst
	}
	if r.has&mlHeld != 0 && r.to.kind == mlDead {
		m.reports(s, x, r.to.name)
	}
	switch _, key := m.op(s, i); t.did {
	case mlGave:
		m.leaves(s, i)
	case mlRepairs:
		s.died[key] = 0
	case mlTook:
		if e.queue[0] != 0 {
			s.wrong = mlBarged
		}
	}
}

// tookEffect updates the history for thread i, if the change of the thread has locked a key. The commit word already
// names the record of the change.
func (m *multiLockModel) tookEffect(s *mlState, i int) {
	if t := &s.thread[i]; t.did == mlTook || t.did == mlRepairs {
		m.enters(s, i, t.entry-1, t.rec.was.tag+t.rec.to.tag)
	}
}

// changesNothing checks a call that ends without a change.
func (m *multiLockModel) changesNothing(s *mlState, i int) {
	t := &s.thread[i]
	switch verb, key := m.op(s, i); {
	case t.did == mlRefusedUnlock && s.inside[key]&(1<<i) != 0:
		s.wrong = mlCannotUnlock
	case verb == 'T':
		w := m.after(s)
		for x := range m.total(s) {
			e := &w.entry[x]
			if k, ok := m.keyOf(&w, x); ok && k == key && (!e.hold.free() || e.queue[0] != 0) {
				return
			}
		}
		s.wrong = mlTryFails
	}
}

// after returns the state that results from s when the records that the commit words name are complete.
func (m *multiLockModel) after(s *mlState) mlState {
	x := *s
	for b := range m.buckets {
		c := s.commit[b]
		named := mlHead{c.version, b}
		if m.bug == mlNoBucket {
			named.bucket = 0
		}
		if c.slot == 0 || s.head[c.slot-1] != named {
			continue
		}
		r := &s.rec[c.slot-1]
		for w := mlLow; w <= mlNext; w <<= 1 {
			if x.appliesAt(m, s.blocks, b, r, w) {
				x.carryOut(m, s.blocks, b, r, w)
			}
		}
	}
	return x
}

func (s *mlState) applies(m *multiLockModel, p, b uint8, r *mlRecord, w uint8) bool {
	if r.has&w == 0 {
		return false
	}
	if _, ok := m.where(s, b, r.where, s.seen[p]); !ok && w != mlNext {
		if m.bug == mlBlind {
			s.wrong = mlUnseen
			return false
		}
		s.seen[p] = s.blocks
	}
	return s.appliesAt(m, s.seen[p], b, r, w)
}

// appliesAt reports whether word w of a record of bucket b has still its old contents.
func (s *mlState) appliesAt(m *multiLockModel, known, b uint8, r *mlRecord, w uint8) bool {
	if r.has&w == 0 {
		return false
	}
	if w == mlNext {
		return s.node[r.node-1] == r.next
	}
	x, ok := m.where(s, b, r.where, known)
	if !ok {
		return false
	}
	switch e := &s.entry[x]; w {
	case mlLow:
		return e.low.tag == r.low.tag
	case mlHigh:
		return e.high.tag == r.high.tag
	case mlHeld:
		return e.hold == r.was || m.bug == mlNoTags && e.hold.kind == r.was.kind && e.hold.name == r.was.name
	default:
		return e.tag == r.queueTag
	}
}

// apply carries out word w of a record.
func (s *mlState) apply(m *multiLockModel, p, b uint8, r *mlRecord, w uint8) {
	if m.bug == "" {
		c := s.commit[b]
		if c.slot == 0 || s.rec[c.slot-1] != *r {
			s.wrong = mlUncommitted
		}
	}
	s.carryOut(m, s.seen[p], b, r, w)
}

func (s *mlState) carryOut(m *multiLockModel, known, b uint8, r *mlRecord, w uint8) {
	if w == mlNext {
		s.node[r.node-1] = rqWord{r.nextTo, r.next.tag + 1}
		return
	}
	x, _ := m.where(s, b, r.where, known)
	switch e := &s.entry[x]; w {
	case mlLow:
		e.low = rqWord{r.low.v, r.low.tag + 1}
	case mlHigh:
		e.high = rqWord{r.high.v, r.high.tag + 1}
	case mlHeld:
		e.hold = mlHold{r.to.kind, r.to.name, e.hold.tag + r.to.tag}
	case mlQueue:
		var queue [mlThreads]uint8
		n := 0
		for _, q := range e.queue {
			if q != 0 && q != r.node {
				queue[n] = q
				n++
			}
		}
		if r.nextTo == mlQueued {
			queue[n] = r.node
		}
		e.queue, e.tag = queue, r.queueTag+1
	}
}

// tells reports whether a record has granted or refused a wait whose node is not resolved yet.
func (s *mlState) tells(r *mlRecord) bool {
	ends := r.node != 0 && (r.nextTo == mlGrant || r.nextTo == mlRefused)
	return ends && s.node[r.node-1] == rqWord{r.nextTo, r.next.tag + 1} && s.resolved&(1<<(r.node-1)) == 0
}

func (m *multiLockModel) invariant(s *mlState) {
	w := m.after(s)
	var in [mlKeys]uint8
	queued := uint8(0)
	for x := range m.total(s) {
		e := &w.entry[x]
		key, ok := m.keyOf(&w, x)
		used := e.hold.kind != mlClosed || e.hold.name != 0 || e.queue[0] != 0
		switch {
		case !used:
		case !ok:
			s.wrong = mlOtherKey
		case in[key] != 0:
			s.wrong = mlTwoEntries
		default:
			in[key] = x + 1
		}
		if e.hold.kind == mlOpen && e.queue[0] != 0 {
			s.wrong = mlQueueOpen
		}
		if e.hold.kind == mlDead && s.died[key]&(1<<(e.hold.name-1)) == 0 {
			s.wrong = mlBlamed
		}
		for _, q := range e.queue {
			if q == 0 {
				break
			}
			queued |= 1 << (q - 1)
			if _, wanted := m.op(s, int(q-1)); wanted != key {
				s.wrong = mlOtherQueue
			}
		}
		if n := e.hold.name; n != 0 && !m.halted(s, n-1) && (e.hold.kind <= mlOpen || e.hold.kind == mlRecovering) {
			has := false
			for i := range m.threads {
				has = has || m.proc(i) == n-1 && s.inside[key]&(1<<i) != 0
			}
			if !has {
				s.wrong = mlMyHold
			}
		}
	}
	for i := range m.threads {
		if (w.node[i].v == mlQueued) != (queued&(1<<i) != 0) {
			s.wrong = mlLostNode
		}
		for key := range s.inside {
			has := s.holds[i][key]
			if s.inside[key]&(1<<i) == 0 || m.halted(s, m.proc(i)) {
				continue
			}
			if h := w.entry[has.entry-1].hold; in[key] != has.entry || h.name != m.proc(i)+1 || h.tag != has.tag {
				s.wrong = mlLostHold
			}
		}
	}
}

// done reports whether each thread has ended. It ignores threads that are dead or stopped, threads that have nothing to
// do before a death, and threads that isBlocked reports.
func (m *multiLockModel) done(s *mlState) bool {
	w := m.after(s)
	for i := range m.threads {
		t := &s.thread[i]
		if t.pc == mlEnded || m.halted(s, m.proc(i)) || m.awaits(s, i) {
			continue
		}
		if t.pc != mlSleep || s.resolved&(1<<i) != 0 || !m.isBlocked(s, &w, i) {
			return false
		}
	}
	return true
}

// isBlocked reports whether thread i waits for a key that nobody will unlock. Either a stopped process has the key or
// was granted it, or a thread that has ended did not unlock the key. w is the result of the method after.
func (m *multiLockModel) isBlocked(s, w *mlState, i int) bool {
	_, key := m.op(s, i)
	for j := range m.threads {
		if s.inside[key]&(1<<j) != 0 && s.thread[j].pc == mlEnded {
			return true
		}
	}
	for x := range m.total(w) {
		e := &w.entry[x]
		if k, ok := m.keyOf(w, x); ok && k == key && e.hold.name != 0 && e.hold.name == s.stopped && e.hold.kind != mlDead {
			return true
		}
	}
	return false
}
