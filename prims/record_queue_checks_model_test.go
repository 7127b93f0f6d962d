//go:build linux

package prims

import (
	"errors"
	"fmt"
	"math/bits"
)

// right checks the invariant.
func (m *recordQueueModel) right(s *rqState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	w := s.after()
	sum := w[rqFree].v
	for p := range uint8(rqProcs) {
		sum += w[rqShare+p].v
		spare := w[rqFast+p].v &^ rqOpen
		if !m.isDead(s, int(p)) && w[rqShare+p].v-spare != s.held[p] {
			return fmt.Errorf("process %d has %d permits, %d of them spare, and its calls have %d", p, w[rqShare+p].v, spare, s.held[p])
		}
		if w[rqFast+p].v != 0 && w[rqOpened].v == 0 {
			return fmt.Errorf("the share of process %d may be open, and opened is 0", p)
		}
	}
	if sum != m.size {
		return fmt.Errorf("there are %d permits, not %d", sum, m.size)
	}
	prev, v := uint8(0), w[rqFirst].v
	for _, q := range s.queue {
		if v != q {
			return fmt.Errorf("the queue has node %d where %d is next", v, q)
		}
		if q == 0 {
			break
		}
		if w[rqPrev+q-1].v != prev {
			return fmt.Errorf("the node before %d is %d, not %d", q, w[rqPrev+q-1].v, prev)
		}
		prev = q
		if v = 0; w[rqNext+q-1].v != rqEnd {
			v = w[rqNext+q-1].v - rqNode + 1
		}
	}
	if w[rqLast].v != prev {
		return fmt.Errorf("the last node is %d, not %d", w[rqLast].v, prev)
	}
	return nil
}

// done reports whether each thread has ended. Threads that are dead or stopped do not count, and neither do
// threads that wait for permits that are not free.
func (m *recordQueueModel) done(s *rqState) bool {
	left := m.size
	for p := range s.held {
		if !m.isDead(s, p) {
			left -= s.held[p]
		}
	}
	blocked := false
	for _, q := range s.queue {
		if q != 0 && !m.isDead(s, m.proc(int(q-1))) {
			blocked = m.wants(s, q-1) > left
			break
		}
	}
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case t.pc == rqEnded || m.halted(s, m.proc(i)):
		case t.pc == rqSleeping && s.waits&(1<<i) != 0 && blocked:
		default:
			return false
		}
	}
	return true
}

// canon renumbers tags, versions and generations, so that states that differ only by these numbers become the same
// state. The algorithm only checks whether two such numbers are equal, or whether one is the successor of the other.
// The renumbering changes no result of these checks.
func (m *recordQueueModel) canon(s *rqState) {
	for p := range rqProcs {
		used := int(s.commit.slot) == p+1
		for i := range m.threads {
			t := &s.thread[i]
			if m.halted(s, m.proc(i)) {
				*t = rqThread{at: t.at}
				continue
			}
			used = used || int(t.c.slot) == p+1 && (t.pc == rqCopy || t.pc == rqHead)
			used = used || m.proc(i) == p && (t.pc == rqWriteHead || t.pc == rqWriteRest || t.pc == rqName)
		}
		if !used {
			s.head[p], s.rec[p] = 0, rqRecord{}
		}
	}
	n := &m.numbers
	n.add(&s.commit.version, true)
	for p := range s.head {
		n.add(&s.head[p], false)
	}
	for i := range m.threads {
		n.add(&s.thread[i].c.version, true)
	}
	n.rename()
	for k := range m.threads {
		n.add(&s.node[k].gen, false)
		for i := range m.threads {
			if t := &s.thread[i]; t.pc == rqTellNext || t.pc == rqTellSwap {
				if t.rec.word[t.i] == rqNext+uint8(k) {
					n.add(&t.w.gen, false)
				}
			} else {
				t.w = rqNodeWord{}
			}
		}
		n.rename()
	}
	for w := range rqWords {
		n.add(&s.word[w].tag, false)
		for p := range s.rec {
			n.addEntries(&s.rec[p], w)
		}
		for i := range m.threads {
			t := &s.thread[i]
			if n.addEntries(&t.rec, w); t.pc == rqFastHad || t.pc == rqFastSwap {
				if w == rqFast+uint8(m.proc(i)) {
					n.add(&t.q.tag, false)
				}
			} else {
				t.q = rqWord{}
			}
		}
		n.rename()
	}
}

// rqNumbers are numbers of a state that are renamed together. All states of an exploration share one rqNumbers,
// because an allocation for each state would take a third of the time.
type rqNumbers struct {
	at   []*uint8
	used [4]uint64 // a bit for each number
}

// add adds a number. If next is true, its successor counts as used, too.
func (n *rqNumbers) add(v *uint8, next bool) {
	n.at = append(n.at, v)
	n.used[*v/64] |= 1 << (*v % 64)
	if next {
		n.used[(*v+1)/64] |= 1 << ((*v + 1) % 64)
	}
}

// addEntries adds the old tags in the entries of r that change the word w.
func (n *rqNumbers) addEntries(r *rqRecord, w uint8) {
	for e := range r.n {
		if r.word[e] == w {
			n.add(&r.was[e].tag, true)
		}
	}
}

// rename replaces the numbers that were added by the smallest numbers that keep their order. Then it empties n.
func (n *rqNumbers) rename() {
	for _, v := range n.at {
		below := 0
		for k := range *v / 64 {
			below += bits.OnesCount64(n.used[k])
		}
		*v = uint8(below + bits.OnesCount64(n.used[*v/64]&(1<<(*v%64)-1)))
	}
	n.at, n.used = n.at[:0], [4]uint64{}
}
