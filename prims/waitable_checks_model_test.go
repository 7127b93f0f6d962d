//go:build linux

package prims

import (
	"errors"
	"fmt"
)

// after returns the words as they are when the record of the commit word is complete.
func (s *wtState) after() (w [wtWords]rqWord) {
	w = s.word
	if s.commit.slot == 0 || s.head[s.commit.slot-1] != s.commit.version {
		return w
	}
	s.rec[s.commit.slot-1].carryOut(w[:])
	return w
}

// right checks the invariant.
func (m *waitableModel) right(s *wtState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	w := s.after()
	if image := s.image[w[wtCurrent].v]; image != wtHalves(s.truth) {
		return fmt.Errorf("the valid image is %v, and the state is %d", image, s.truth)
	}
	if n := w[wtLost].v; n != 0 && s.text[m.slot(n-1)] != n {
		return errors.New("the Waitable is not recoverable, and the text of the panic is missing")
	}
	if v := s.truth; wtFree(v)+wtTaken(v, 1)+2*wtTaken(v, 2) != s.size {
		return fmt.Errorf("the state %d does not have %d permits", v, s.size)
	}
	if err := m.rightHolds(s, &w); err != nil {
		return err
	}
	return m.rightQueue(s, &w)
}

// rightHolds checks that the holds, the state, and the claims of the processes agree.
func (m *waitableModel) rightHolds(s *wtState, w *[wtWords]rqWord) error {
	var count, open [wtProcs][2]uint8
	var met [wtProcs][2]bool
	for h := range uint8(wtHolds) {
		n, unaccepted := w[wtCount+h].v, w[wtGrant+h].v-s.accepted[h]
		if n == 0 && unaccepted == 0 {
			continue
		}
		label := w[wtLabel+h].v
		if label < 4 {
			return fmt.Errorf("hold %d counts claims, and has no label", h)
		}
		p, e := label/4-1, label%4-1
		if h < wtSlots && m.slot(p) != h {
			return fmt.Errorf("the hold of slot %d counts claims of process %d", h, p)
		}
		if met[p][e] {
			return fmt.Errorf("two holds count the claims of process %d for %d", p, e+1)
		}
		met[p][e], count[p][e], open[p][e] = true, n, unaccepted
	}
	for e := range uint8(2) {
		sum := uint8(0)
		for p := range wtProcs {
			sum += count[p][e]
			if count[p][e] != s.got[p][e]+s.given[p][e] || open[p][e] != s.given[p][e] {
				return fmt.Errorf("process %d has %d claims for %d, and %d that are not accepted: the hold says %d and %d",
					p, s.got[p][e]+s.given[p][e], e+1, s.given[p][e], count[p][e], open[p][e])
			}
		}
		if taken := wtTaken(s.truth, e+1); sum != taken {
			return fmt.Errorf("the state has %d claims for %d, and the holds %d", taken, e+1, sum)
		}
	}
	return nil
}

// rightQueue checks the links of the queue.
func (m *waitableModel) rightQueue(s *wtState, w *[wtWords]rqWord) error {
	prev, v := uint8(0), w[wtFirst].v
	for _, q := range s.queue {
		if v != q {
			return fmt.Errorf("the queue has node %d where %d is next", v, q)
		}
		if q == 0 {
			break
		}
		if w[wtPrev+q-1].v != prev {
			return fmt.Errorf("the node before %d is %d, not %d", q, w[wtPrev+q-1].v, prev)
		}
		prev = q
		if v = 0; w[wtNext+q-1].v != rqEnd {
			v = w[wtNext+q-1].v - rqNode + 1
		}
	}
	if w[wtLast].v != prev {
		return fmt.Errorf("the last node is %d, not %d", w[wtLast].v, prev)
	}
	return nil
}

// done reports whether each thread has ended. Threads that are dead or stopped do not count, and neither do threads
// that wait while the rules do not allow the first wait to go on. A claim of a dead process is no reason to wait.
func (m *waitableModel) done(s *wtState) bool {
	left, w := s.size, s.after()
	for p := range uint8(wtProcs) {
		if !m.isDead(s, p) {
			left -= s.got[p][0] + s.given[p][0] + 2*(s.got[p][1]+s.given[p][1])
		}
	}
	blocked := false
	for _, q := range s.queue {
		if q != 0 && !m.isDead(s, m.proc(int(q-1))) {
			blocked = m.wants(s, q-1) > left && w[wtLost].v == 0
			break
		}
	}
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case t.pc == wtEnded || m.halted(s, m.proc(i)):
		case t.pc == wtBorn && !m.isDead(s, 0):
		case t.pc == wtSleep && blocked && rqIsQueued(w[wtNext+uint8(i)].v):
		default:
			return false
		}
	}
	return true
}

// canon clears the parts of s that have no effect any more, and renumbers tags and versions. So states that differ only
// in these parts and numbers become the same state. This is allowed because the algorithm compares a tag or a version
// only with another one, or with the successor of another one.
func (m *waitableModel) canon(s *wtState) {
	var used [wtSlots]bool
	var image [wtImages]bool
	if s.commit.slot != 0 {
		used[s.commit.slot-1] = true
	}
	w := s.after()
	image[s.word[wtCurrent].v], image[w[wtCurrent].v] = true, true
	for i := range m.threads {
		t := &s.thread[i]
		if m.halted(s, m.proc(i)) {
			*t = wtThread{at: t.at}
			continue
		}
		switch t.pc {
		case wtLock:
			t.c = rqCommit{}
		case wtBegin:
			t.c, t.rec, t.i, t.own, t.did = rqCommit{}, rqRecord{}, 0, false, 0
			t.img, t.v, t.of, t.e, t.hold, t.undo, t.head = 0, 0, 0, 0, 0, false, 0
			if !t.fresh && t.mode != wtRecovers {
				t.copied = [2]uint8{}
			}
		case wtCopy, wtCopyRest, wtPutRest:
			image[t.img] = true
		case wtName:
			if t.rec.entry(wtCurrent) >= 0 {
				image[t.img] = true
			}
		case wtEnded, wtSleep:
			*t = wtThread{at: t.at, pc: t.pc}
		case wtUnlock:
			*t = wtThread{at: t.at, pc: t.pc, mode: t.mode, out: t.out, has: t.has}
		}
	}
	for i := range m.threads {
		if t := &s.thread[i]; !t.fresh && t.pc != wtCopy && t.pc != wtCopyRest {
			t.from = rqWord{}
		}
	}
	for slot := range used {
		if !used[slot] {
			s.head[slot], s.rec[slot] = 0, rqRecord{}
		}
	}
	for n := range image {
		if !image[n] {
			s.image[n] = [2]uint8{}
		}
	}
	m.renumber(s)
}

// renumber replaces the tags and the versions by the smallest numbers in the same order.
func (m *waitableModel) renumber(s *wtState) {
	n := &m.numbers
	n.add(&s.commit.version, true)
	for slot := range s.head {
		n.add(&s.head[slot], false)
	}
	for i := range m.threads {
		n.add(&s.thread[i].c.version, true)
	}
	n.rename()
	for w := range wtWords {
		n.add(&s.word[w].tag, false)
		for slot := range s.rec {
			n.addEntries(&s.rec[slot], w)
		}
		for i := range m.threads {
			t := &s.thread[i]
			n.addEntries(&t.rec, w)
			switch {
			case w == wtLost && (t.mode == wtReads || t.mode == wtRecovers):
				n.add(&t.lost.tag, false)
			case w == wtCurrent && (t.fresh || t.pc == wtCopy || t.pc == wtCopyRest):
				n.add(&t.from.tag, false)
			}
		}
		n.rename()
	}
}
