//go:build linux

package prims

import "math/bits"

// canon renumbers tags and versions, so that states that differ only by these numbers become the same state. That is
// allowed because the algorithm compares a tag only with the present tag of its word and with the next tag, and compares
// the versions of a bucket only with each other. canon also clears what no step reads any more.
func (m *multiLockModel) canon(s *mlState) {
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case m.halted(s, m.proc(i)):
			*t = mlThread{at: t.at}
			s.holds[i] = [mlKeys]mlHas{}
		case t.pc == mlName && s.commit[t.bucket] != t.c:
			t.rec, t.did, t.entry, t.why = mlRecord{}, 0, 0, 0
		case t.pc == mlApply || t.pc == mlTell:
			if t.entry, t.why = 0, 0; !t.own {
				t.did = 0
			}
			if t.mode == mlInherits {
				t.c = rqCommit{}
			}
			if m.bug != mlNoTags && m.bug != mlHoldFirst {
				t.i = 0
			}
		case t.pc == mlLoad:
			t.c = rqCommit{}
		}
	}
	for p := range uint8(mlProcs) {
		if m.halted(s, p) {
			s.private[p], s.seen[p] = 0, 0
		}
	}
	if m.bug == mlNoBucket || m.bug == mlNoComplete {
		return
	}
	m.canonTags(s)
	m.canonRecords(s)
	for b := range m.buckets {
		m.canonVersions(s, b)
	}
}

// The method records calls f for each record. The argument b of f is the bucket of the record, and committed says
// whether a commit word has named the record.
func (m *multiLockModel) records(s *mlState, f func(r *mlRecord, b uint8, committed bool)) {
	for i := range m.threads {
		if t := &s.thread[i]; t.rec.has != 0 || t.rec.node != 0 {
			f(&t.rec, t.bucket, t.pc == mlApply || t.pc == mlTell)
		}
	}
	for slot := range s.rec {
		if r := &s.rec[slot]; r.has != 0 || r.node != 0 {
			b := s.head[slot].bucket
			f(r, b, s.commit[b] == rqCommit{s.head[slot].version, uint8(slot + 1)})
		}
	}
}

// mlTag renumbers *tag, which the algorithm compares with the tag of a word. The parameter now is the tag of the word;
// canonTags renumbers it to 2. So mlTag sets *tag to 2 if it equals now, to 3 if it is the next tag, and to 1 if it is
// older. The next tag occurs in the Hold of a key until the record that locks the key is complete.
func mlTag(tag *uint8, now uint8) {
	switch *tag {
	case now:
		*tag = 2
	case now + 1:
		*tag = 3
	default:
		*tag = 1
	}
}

// canonTags gives all words the tag 2.
func (m *multiLockModel) canonTags(s *mlState) {
	m.records(s, func(r *mlRecord, b uint8, committed bool) {
		if r.node != 0 {
			r.next.tag = 2 - min(s.node[r.node-1].tag-r.next.tag, 2)
		}
		if x, ok := m.where(s, b, r.where, s.blocks); ok {
			e := &s.entry[x]
			mlTag(&r.low.tag, e.low.tag)
			mlTag(&r.high.tag, e.high.tag)
			mlTag(&r.was.tag, e.hold.tag)
			mlTag(&r.queueTag, e.tag)
		}
		r.canon(m, s, b, committed)
	})
	for i := range m.threads {
		t := &s.thread[i]
		if x := t.scan; t.q != (mlHold{}) {
			if verb, _ := m.op(s, i); verb != 'X' {
				all, _ := m.known(s, t.bucket, m.proc(i))
				x = all[t.scan]
			}
			mlTag(&t.q.tag, s.entry[x].hold.tag)
		}
		for key := range s.holds[i] {
			if h := &s.holds[i][key]; h.entry != 0 {
				mlTag(&h.tag, s.entry[h.entry-1].hold.tag)
			}
		}
	}
	for x := range s.entry {
		e := &s.entry[x]
		if e.accepted.tag == e.hold.tag && e.accepted.v != 0 {
			e.accepted.tag = 2
		} else {
			e.accepted = rqWord{}
		}
		e.low.tag, e.high.tag, e.hold.tag, e.tag = 2, 2, 2, 2
	}
	for k := range s.node {
		s.node[k].tag = 2
	}
}

// canon removes from a record the words that the record does not change, or has already changed. It runs after mlTag,
// so a tag in the record is 2 if the word still has its old contents.
func (r *mlRecord) canon(m *multiLockModel, s *mlState, b uint8, committed bool) {
	if committed && m.bug != mlNoTags {
		x, ok := m.where(s, b, r.where, s.blocks)
		e := &s.entry[x]
		if r.low.tag != 2 {
			r.has &^= mlLow
		}
		if r.high.tag != 2 {
			r.has &^= mlHigh
		}
		if r.was.tag != 2 || ok && (e.hold.kind != r.was.kind || e.hold.name != r.was.name) {
			r.has &^= mlHeld
		}
		if r.queueTag != 2 {
			r.has &^= mlQueue
		}
		if r.next.tag != 2 {
			r.has &^= mlNext
		}
		told := r.next.tag == 0 || r.node != 0 && s.resolved&(1<<(r.node-1)) != 0
		if r.has&(mlQueue|mlNext) == 0 && (told || r.nextTo != mlGrant && r.nextTo != mlRefused) {
			r.node, r.next, r.nextTo = 0, rqWord{}, 0
		}
	}
	if r.has&mlLow == 0 {
		r.low = rqWord{}
	}
	if r.has&mlHigh == 0 {
		r.high = rqWord{}
	}
	if r.has&mlHeld == 0 {
		r.was, r.to = mlHold{}, mlHold{}
	}
	if r.has&mlQueue == 0 {
		r.queueTag = 0
	}
	if r.has == 0 {
		r.where = 0
	}
}

// canonRecords clears the records that no process reads any more.
func (m *multiLockModel) canonRecords(s *mlState) {
	for slot := range s.head {
		used := false
		for b, c := range s.commit {
			if int(c.slot) != slot+1 {
				continue
			}
			if s.head[slot] == (mlHead{c.version, uint8(b)}) && s.rec[slot] != (mlRecord{}) {
				used = true
			}
		}
		for i := range m.threads {
			t := &s.thread[i]
			reads := m.fine && int(t.c.slot) == slot+1 && (t.pc == mlCopy || t.pc == mlCompare)
			writes := int(m.slot(m.proc(i))) == slot && (t.pc == mlWriteRest || m.fine && t.pc == mlName)
			inherits := slot == 0 && m.proc(i) == mlHeir && !s.opened
			used = used || reads || writes || inherits
		}
		if !used {
			s.head[slot], s.rec[slot] = mlHead{}, mlRecord{}
		}
	}
}

// canonVersions replaces the versions of a bucket by the smallest numbers in the same order.
func (m *multiLockModel) canonVersions(s *mlState, b uint8) {
	used := uint64(1) | 1<<s.commit[b].version
	each := func(f func(v *uint8)) {
		f(&s.commit[b].version)
		for slot := range s.head {
			if s.head[slot].bucket == b {
				f(&s.head[slot].version)
			}
		}
		for i := range m.threads {
			if s.thread[i].bucket == b {
				f(&s.thread[i].c.version)
			}
		}
	}
	each(func(v *uint8) { used |= 1 << *v })
	for i := range m.threads {
		if t := &s.thread[i]; t.bucket == b && t.pc >= mlApply && t.pc <= mlWriteHead {
			used |= 2 << t.c.version
		}
	}
	each(func(v *uint8) { *v = uint8(bits.OnesCount64(used & (1<<*v - 1))) })
}
