//go:build linux

package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a counter.
const (
	ctrCount = iota
	ctrPeriod
	ctrOwed
	ctrShare // two for each participant: the period of its share, and the share
	ctrWords = ctrShare + 2*ctrProcs

	ctrProcs   = 2
	ctrThreads = 4
	ctrEntries = 5
)

// ctrWord is a commit word of the model.
type ctrWord struct {
	logged, dead    bool
	count, owner    uint8 // fields of the sole form; the owner is a process + 1
	version, author uint8 // fields of the logged form
}

type ctrTagged struct{ value, tag uint8 }

type ctrEntry struct{ index, value uint8 } // the index is that of the word plus 1

type ctrRecord struct {
	head  uint8
	entry [ctrEntries]ctrEntry
}

type ctrThread struct {
	pc, op uint8
	left   uint8 // number of calls that are still to come
	c      ctrWord
	own    bool // the thread completes its own record
	// converts says that the thread's record only changes the form of the commit word, so the call
	// goes on after it.
	converts bool
	unlocks  bool // at the end of this step, the thread releases the private lock if it holds it
	at       uint8
	entry    ctrEntry
	was      ctrTagged
	record   ctrRecord // the record that the thread writes
	n        uint8     // number of entries in that record
	to       ctrWord   // the commit word that the thread is going to store
}

type ctrState struct {
	commit ctrWord
	word   [ctrWords]ctrTagged
	record [ctrProcs]ctrRecord
	ticket uint8
	lock   [ctrProcs]uint8 // 0, or 1 plus the thread that holds the private lock of the process
	killed [ctrProcs]bool
	thread [ctrThreads]ctrThread

	// The expected state after the calls that have taken effect.
	count, owed uint8
	share       [ctrProcs]uint8
}

// The calls that a thread makes.
const (
	ctrAdd = iota
	ctrDone
	ctrReset
	ctrReap
	ctrClaim
)

// The steps of a thread.
const (
	ctrIdle uint8 = iota
	ctrLoad
	ctrLock
	ctrReadEntry
	ctrReadHead
	ctrReadWord
	ctrReadCommit
	ctrSwapWord
	ctrCompose
	ctrWriteHead
	ctrWriteEntry
	ctrSwap
)

// ctrModel is the model of a counter that two processes use.
type ctrModel struct {
	goroutines int // number in each process
	calls      uint8
	reset      bool
	claims     bool
	kills      bool
	bug        bug
}

func (m ctrModel) explore(b bug) model.Result {
	m.bug = b
	first := ctrState{}
	for i := range ctrThreads {
		if i/ctrProcs < m.goroutines {
			first.thread[i].left = m.calls
		}
	}
	spec := model.Spec[ctrState]{Init: []ctrState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

func (m *ctrModel) done(s *ctrState) bool {
	for i := range s.thread {
		if s.thread[i].pc != ctrIdle && !s.killed[i%ctrProcs] {
			return false
		}
	}
	return true
}

func (m *ctrModel) show(s *ctrState) string {
	return fmt.Sprintf("commit %+v, words %v, records %v; should be %d, owed %d, shares %v", s.commit, s.word, s.record, s.count, s.owed, s.share)
}

// check compares the state, as the next call sees it, with the expected state.
func (m *ctrModel) check(s *ctrState) error {
	c := s.commit
	if !c.logged {
		var share [ctrProcs]uint8
		var owed uint8
		switch {
		case c.dead:
			owed = c.count
		case c.count > 0:
			share[c.owner-1] = c.count
		}
		if c.count != s.count || owed != s.owed || share != s.share {
			return fmt.Errorf("the commit word is %+v", c)
		}
		return nil
	}
	word := s.word
	if r := &s.record[c.author]; r.head == c.version {
		for _, e := range r.entry {
			if e.index == 0 {
				break
			}
			if w := &word[e.index-1]; w.tag != c.version {
				*w = ctrTagged{e.value, c.version}
			}
		}
	}
	if word[ctrCount].value != s.count || word[ctrOwed].value != s.owed {
		return fmt.Errorf("the counter is %d, owed %d", word[ctrCount].value, word[ctrOwed].value)
	}
	for p := range ctrProcs {
		if has := m.has(&word, p); has != s.share[p] {
			return fmt.Errorf("process %d has a share of %d", p, has)
		}
	}
	return nil
}

func (m *ctrModel) has(word *[ctrWords]ctrTagged, p int) uint8 {
	if word[ctrShare+2*p].value != word[ctrPeriod].value {
		return 0
	}
	return word[ctrShare+2*p+1].value
}

func (m *ctrModel) next(s *ctrState, emit func(model.Step[ctrState])) {
	if m.kills && !s.killed[0] {
		to := *s
		to.killed[0] = true
		for i := range to.thread {
			if i%ctrProcs == 0 {
				to.thread[i] = ctrThread{}
			}
		}
		emit(model.Step[ctrState]{To: to, Label: "process 0 is killed", By: "kernel", Optional: true})
	}
	for i := range s.thread {
		if !s.killed[i%ctrProcs] {
			m.step(s, i, emit)
		}
	}
}

var ctrNames = func() (names [ctrThreads]string) {
	for i := range names {
		names[i] = fmt.Sprintf("%d of process %d", i/ctrProcs, i%ctrProcs)
	}
	return names
}()

func (m *ctrModel) step(s *ctrState, i int, emit func(model.Step[ctrState])) {
	p := i % ctrProcs
	do := func(what string, f func(to *ctrState, t *ctrThread)) {
		to := *s
		f(&to, &to.thread[i])
		if t := &to.thread[i]; t.unlocks {
			t.unlocks = false
			if to.lock[p] == uint8(i+1) {
				to.lock[p] = 0
			}
		}
		emit(model.Step[ctrState]{To: to, Label: what, By: ctrNames[i], Optional: s.thread[i].pc == ctrIdle})
	}
	t := &s.thread[i]
	switch t.pc {
	case ctrIdle:
		call := func(op uint8, what string) {
			do(what, func(_ *ctrState, t *ctrThread) {
				t.op, t.pc = op, ctrLoad
				if op != ctrReap {
					t.left--
				}
			})
		}
		if t.left > 0 {
			call(ctrAdd, "calls Add")
			if s.count > 0 {
				call(ctrDone, "calls Done")
			}
			if m.claims && s.count > 0 {
				call(ctrClaim, "calls Claim")
			}
			if m.reset && s.owed > 0 {
				call(ctrReset, "calls Reset")
			}
		}
		if s.killed[1-p] && s.share[1-p] > 0 {
			call(ctrReap, "reaps")
		}
	case ctrLoad:
		do("loads the commit word", func(to *ctrState, t *ctrThread) { m.load(to, t, p) })
	case ctrLock:
		if s.lock[p] != 0 && m.bug != ctrNoLock {
			return
		}
		do("takes its private lock", func(to *ctrState, t *ctrThread) {
			to.lock[p] = uint8(i + 1)
			t.pc = ctrCompose
			if t.c.logged && m.bug != ctrNoHelp && !(m.bug == ctrReapFirst && t.op == ctrReap) {
				t.pc, t.at, t.own = ctrReadEntry, 0, false
			}
		})
	case ctrReadEntry, ctrReadHead, ctrReadWord, ctrReadCommit, ctrSwapWord:
		do("completes a record", func(to *ctrState, t *ctrThread) { m.complete(to, t) })
	case ctrCompose:
		do("composes", func(to *ctrState, t *ctrThread) { m.compose(to, t, p) })
	case ctrWriteHead:
		do("writes the head", func(to *ctrState, t *ctrThread) {
			to.record[p].head = t.record.head
			t.pc = ctrWriteEntry
			if m.bug == ctrHeadLast {
				t.pc = ctrSwap
			}
		})
	case ctrWriteEntry:
		do("writes the entries", func(to *ctrState, t *ctrThread) {
			to.record[p].entry = t.record.entry
			t.pc = ctrSwap
			if m.bug == ctrHeadLast {
				t.pc = ctrWriteHead
				return
			}
			t.record, t.n = ctrRecord{}, 0
		})
	case ctrSwap:
		do("swaps the commit word", func(to *ctrState, t *ctrThread) { m.swap(to, t, p) })
	}
}

// again ends an attempt: the thread releases the private lock and begins another attempt.
func again(t *ctrThread) { *t = ctrThread{op: t.op, left: t.left, pc: ctrLoad, unlocks: true} }

// over ends a call.
func over(t *ctrThread) { *t = ctrThread{left: t.left, unlocks: true} }

func (m *ctrModel) load(s *ctrState, t *ctrThread, p int) {
	c := s.commit
	t.c = c
	me := uint8(p + 1)
	t.pc = ctrSwap
	switch {
	case c.logged:
		t.pc = ctrLock
	case t.op == ctrAdd && c.count == 0:
		t.to = ctrWord{count: 1, owner: me}
	case t.op == ctrAdd && c.owner == me && !c.dead:
		t.to = ctrWord{count: c.count + 1, owner: me}
	case t.op == ctrDone && c.count == 0:
		over(t) // the call panics
	case t.op == ctrDone && c.count == 1:
		t.to = ctrWord{}
	case t.op == ctrDone && c.owner == me && !c.dead:
		t.to = ctrWord{count: c.count - 1, owner: me}
	case t.op == ctrReset && !c.dead, t.op == ctrClaim && c.count == 0:
		over(t)
	case t.op == ctrReset:
		t.to = ctrWord{}
	case t.op == ctrReap && (c.count == 0 || c.dead || !s.killed[c.owner-1]):
		over(t)
	case t.op == ctrReap:
		t.to = c
		t.to.dead = true
	default:
		t.pc = ctrLock // first convert the commit word to the logged form
	}
}

// complete is one step in which a thread carries out a record.
func (m *ctrModel) complete(s *ctrState, t *ctrThread) {
	r := &s.record[t.c.author]
	end := func() {
		switch {
		case t.own && t.converts:
			again(t)
			return
		case t.own:
			over(t)
			return
		}
		t.pc, t.at, t.entry, t.was = ctrCompose, 0, ctrEntry{}, ctrTagged{}
	}
	switch t.pc {
	case ctrReadEntry:
		t.entry, t.pc = r.entry[t.at], ctrReadHead
	case ctrReadHead:
		switch {
		case r.head != t.c.version && m.bug != ctrNoHead, t.entry.index == 0:
			end()
		default:
			t.pc = ctrReadWord
		}
	case ctrReadWord:
		t.was, t.pc = s.word[t.entry.index-1], ctrReadCommit
		if m.bug == ctrNoRecheck {
			t.pc = ctrSwapWord
		}
		if t.was.tag == t.c.version {
			t.following(end)
		}
	case ctrReadCommit:
		t.pc = ctrSwapWord
		if s.commit != t.c {
			end()
		}
	case ctrSwapWord:
		if w := &s.word[t.entry.index-1]; *w != t.was {
			t.pc = ctrReadWord
			return
		}
		s.word[t.entry.index-1] = ctrTagged{t.entry.value, t.c.version}
		t.following(end)
	}
}

func (t *ctrThread) following(end func()) {
	t.pc, t.entry, t.was = ctrReadEntry, ctrEntry{}, ctrTagged{}
	if t.at++; t.at == ctrEntries {
		end()
	}
}

func (t *ctrThread) set(index int, value uint8) {
	t.record.entry[t.n] = ctrEntry{uint8(index + 1), value}
	t.n++
}

// compose reads the words and writes a record of a change. If the words change afterwards, the CAS
// of the commit word fails.
func (m *ctrModel) compose(s *ctrState, t *ctrThread, p int) {
	if t.c.logged && s.commit != t.c {
		again(t) // the words may belong to several moments
		return
	}
	s.ticket++
	version := s.ticket
	if m.bug == ctrShort {
		version = version%3 + 1
	}
	t.record, t.n, t.at = ctrRecord{head: version}, 0, 0
	t.to, t.pc = ctrWord{logged: true, version: version, author: uint8(p)}, ctrWriteHead
	if m.bug == ctrHeadLast {
		t.pc = ctrWriteEntry
	}
	w := &s.word
	period := w[ctrPeriod].value
	share := func(q int, has uint8) {
		if w[ctrShare+2*q].value != period {
			t.set(ctrShare+2*q, period)
		}
		t.set(ctrShare+2*q+1, has)
	}
	count := w[ctrCount].value
	own := min(m.has(w, p), count)
	switch {
	case !t.c.logged:
		period = version
		if m.bug == ctrNoPeriod {
			period = 1
		}
		t.converts = true
		t.set(ctrCount, t.c.count)
		t.set(ctrPeriod, period)
		if t.c.dead {
			t.set(ctrOwed, t.c.count)
			return
		}
		t.set(ctrOwed, 0)
		t.set(ctrShare+2*int(t.c.owner-1), period)
		t.set(ctrShare+2*int(t.c.owner-1)+1, t.c.count)
	case t.op == ctrAdd:
		t.set(ctrCount, count+1)
		share(p, own+1)
	case t.op == ctrDone && count == 1:
		t.to, t.pc = ctrWord{}, ctrSwap
	case t.op == ctrDone:
		t.set(ctrCount, count-1)
		if own > 0 {
			share(p, own-1)
		}
	case t.op == ctrReset && w[ctrOwed].value == 0:
		over(t)
	case t.op == ctrReset && w[ctrOwed].value >= count:
		t.to, t.pc = ctrWord{}, ctrSwap
	case t.op == ctrReset:
		t.set(ctrCount, count-w[ctrOwed].value)
		t.set(ctrOwed, 0)
	case t.op == ctrClaim:
		m.composeClaim(t, w, p, own, share)
	case m.has(w, 1-p) == 0:
		over(t) // there is no share to reap
	default:
		t.set(ctrOwed, min(w[ctrOwed].value+m.has(w, 1-p), count))
		t.set(ctrShare+2*(1-p)+1, 0)
	}
}

// composeClaim writes a record of a Claim of 1 unit. The unit comes from the work that the dead owe, from the work in
// no share, or from the share of the other process.
func (m *ctrModel) composeClaim(t *ctrThread, w *[ctrWords]ctrTagged, p int, own uint8, share func(q int, has uint8)) {
	switch from := claimFrom(w[ctrCount].value, w[ctrOwed].value, own, m.has(w, 1-p)); from {
	case ctrFails:
		over(t)
		return
	case ctrFromDead:
		t.set(ctrOwed, w[ctrOwed].value-1)
	case ctrFromOther:
		t.set(ctrShare+2*(1-p)+1, m.has(w, 1-p)-1)
	}
	share(p, own+1)
}

// The sources from which a Claim takes a unit.
const (
	ctrFails = iota
	ctrFromDead
	ctrFromNobody
	ctrFromOther
)

func claimFrom(count, owed, own, other uint8) int {
	switch {
	case count <= own:
		return ctrFails
	case owed > 0:
		return ctrFromDead
	case count > owed+own+other:
		return ctrFromNobody
	case other > 0:
		return ctrFromOther
	}
	return ctrFails
}

// swap is the CAS of the commit word, by which a change takes effect.
func (m *ctrModel) swap(s *ctrState, t *ctrThread, p int) {
	converts := t.converts
	locked := t.to.logged || t.c.logged
	if s.commit != t.c {
		if locked {
			again(t)
		} else {
			*t = ctrThread{op: t.op, left: t.left, pc: ctrLoad}
		}
		return
	}
	s.commit = t.to
	if !converts {
		m.happens(s, t.op, p)
	}
	switch {
	case !t.to.logged:
		over(t)
	case converts:
		*t = ctrThread{op: t.op, left: t.left, c: t.to, own: true, converts: true, pc: ctrReadEntry}
	default:
		*t = ctrThread{left: t.left, c: t.to, own: true, pc: ctrReadEntry}
	}
}

// happens adds the effect of a call to the expected state.
func (m *ctrModel) happens(s *ctrState, op uint8, p int) {
	switch op {
	case ctrAdd:
		s.share[p] = min(s.share[p], s.count) + 1
		s.count++
	case ctrDone:
		s.share[p] = min(s.share[p], s.count)
		s.share[p] -= min(s.share[p], 1)
		s.count--
	case ctrReset:
		s.count -= min(s.count, s.owed)
		s.owed = 0
	case ctrReap:
		s.owed = min(s.owed+s.share[1-p], s.count)
		s.share[1-p] = 0
	case ctrClaim:
		own := min(s.share[p], s.count)
		switch claimFrom(s.count, s.owed, own, s.share[1-p]) {
		case ctrFromDead:
			s.owed--
		case ctrFromOther:
			s.share[1-p]--
		}
		s.share[p] = own + 1
	}
	if s.count == 0 {
		s.owed, s.share = 0, [ctrProcs]uint8{}
	}
}
