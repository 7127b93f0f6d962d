//go:build linux

package prims

import (
	"errors"
	"fmt"
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

// canon renumbers tags, versions and generations, so that states that differ only by these numbers become the
// same state. That is allowed because the algorithm only compares such a number with another, or with its
// successor.
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
	m.rename(s, func(f func(v *uint8, next bool)) {
		f(&s.commit.version, true)
		for p := range s.head {
			f(&s.head[p], false)
		}
		for i := range m.threads {
			f(&s.thread[i].c.version, true)
		}
	})
	for k := range m.threads {
		m.rename(s, func(f func(v *uint8, next bool)) {
			f(&s.node[k].gen, false)
			for i := range m.threads {
				if t := &s.thread[i]; t.pc == rqTellNext || t.pc == rqTellSwap {
					if t.rec.word[t.i] == rqNext+uint8(k) {
						f(&t.w.gen, false)
					}
				} else {
					t.w = rqNodeWord{}
				}
			}
		})
	}
	for w := range rqWords {
		m.rename(s, func(f func(v *uint8, next bool)) {
			f(&s.word[w].tag, false)
			entries := func(r *rqRecord) {
				for e := range r.n {
					if r.word[e] == w {
						f(&r.was[e].tag, true)
					}
				}
			}
			for p := range s.rec {
				entries(&s.rec[p])
			}
			for i := range m.threads {
				t := &s.thread[i]
				if entries(&t.rec); t.pc == rqFastHad || t.pc == rqFastSwap {
					if w == rqFast+uint8(m.proc(i)) {
						f(&t.q.tag, false)
					}
				} else {
					t.q = rqWord{}
				}
			}
		})
	}
}

// rename replaces the numbers that each visits by the smallest numbers in the same order. If next is true, the
// successor of the number counts as used, too.
func (m *recordQueueModel) rename(s *rqState, each func(f func(v *uint8, next bool))) {
	var used [256]bool
	each(func(v *uint8, next bool) {
		if used[*v] = true; next {
			used[*v+1] = true
		}
	})
	var to [256]uint8
	n := uint8(0)
	for v, is := range used {
		if to[v] = n; is {
			n++
		}
	}
	each(func(v *uint8, _ bool) { *v = to[*v] })
}
