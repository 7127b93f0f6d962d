//go:build linux

package prims

import (
	"fmt"
)

// step executes the next step of thread i, and describes it. It returns "" if there is none.
func (m *recordQueueModel) step(s *rqState, i int) string {
	t, p, k := &s.thread[i], uint8(m.proc(i)), uint8(i)
	verb, n := m.op(t, i)
	switch t.pc {
	case rqEnded, rqIdle:
		return ""
	case rqFastLoad:
		t.q = s.word[rqFast+p]
		switch spare := t.q.v &^ rqOpen; {
		case !s.fastOn[p] || t.q.v&rqOpen == 0 || verb != 'R' && spare < n:
			t.pc = rqLock
		case verb == 'R':
			t.pc = rqFastHad
		default:
			t.pc = rqFastSwap
		}
		return "reads its fast word"
	case rqFastHad:
		if t.had = s.word[rqShare+p].v; t.q.v&^rqOpen+n > t.had {
			t.pc = rqLock
		} else {
			t.pc = rqFastSwap
		}
		return "reads how many permits its share has"
	case rqFastSwap:
		w := &s.word[rqFast+p]
		if *w != t.q {
			t.pc = rqFastLoad
			return "its fast word has changed"
		}
		if verb == 'R' {
			w.v += n
			s.held[p] -= n
		} else {
			w.v -= n
			s.held[p] += n
			if s.waits&^m.deadNodes(s) != 0 {
				s.wrong = "permits are acquired by a fast path although others wait"
			}
		}
		m.finish(s, i)
		return "changes its fast word"
	case rqLock:
		if s.private[p] != 0 {
			return ""
		}
		s.private[p] = k + 1
		t.pc = rqBegin
		return "locks the private lock"
	case rqBegin:
		t.c = s.commit
		t.own = false
		if t.pc = rqCopy; t.c.slot == 0 || m.bug == rqNoComplete {
			t.pc = rqRule
		}
		return "reads the commit word"
	case rqCopy:
		t.rec = s.rec[t.c.slot-1]
		t.pc = rqHead
		if m.bug == rqNoHead {
			t.pc, t.i = rqApply, 0
		}
		return "reads the entries of the record"
	case rqHead:
		if t.pc, t.i = rqApply, 0; s.head[t.c.slot-1] != t.c.version {
			t.pc = rqRule
			t.rec = rqRecord{}
		}
		return "reads the head of the record"
	case rqApply:
		if t.i == t.rec.n {
			t.pc, t.i = rqTell, 0
			return m.step(s, i)
		}
		w, was := &s.word[t.rec.word[t.i]], t.rec.was[t.i]
		if *w == was || m.bug == rqNoTags && w.v == was.v {
			*w = rqWord{t.rec.to[t.i], was.tag + 1}
		}
		t.i++
		return "carries out an entry"
	case rqTell:
		for ; t.i < t.rec.n; t.i++ {
			if w := t.rec.word[t.i]; w >= rqNext && w < rqPrev && t.rec.to[t.i] == rqGranted && (t.own || m.bug != rqHelperQuiet) {
				t.w = s.node[w-rqNext]
				if t.pc = rqTellNext; m.bug == rqTellsAny {
					t.pc = rqTellSwap
				}
				return "reads the word of a granted node"
			}
		}
		t.rec, t.i, t.saw = rqRecord{}, 0, 0
		if !t.own {
			t.pc = rqRule
			return m.step(s, i)
		}
		m.made(s, i)
		return "has completed its record"
	case rqTellNext:
		node := t.rec.word[t.i] - rqNext
		if t.pc = rqTellSwap; s.word[rqNext+node] != (rqWord{rqGranted, t.rec.was[t.i].tag + 1}) || t.w.state != rqQueued && t.w.state != rqAsleep {
			t.pc = rqTell
			t.i++
		}
		return "reads the word next of a granted node"
	case rqTellSwap:
		node := t.rec.word[t.i] - rqNext
		t.pc = rqTell
		if s.node[node] != t.w || t.w.state != rqQueued && t.w.state != rqAsleep {
			if t.w = s.node[node]; t.w.state == rqQueued || t.w.state == rqAsleep {
				return "the node has changed" // the thread then reads it again
			}
			t.i++
			return "the node is resolved, or of another wait"
		}
		if s.got&(1<<node) == 0 {
			s.wrong = "a wait is resolved that was not granted"
		}
		if s.node[node].state = rqResolved; t.w.state == rqAsleep {
			t.wakes |= 1 << node
		}
		t.i++
		return "resolves a wait"
	case rqRule:
		r, did, share := m.rule(s, i)
		t.rec, t.did, t.saw = r, did, s.dead
		switch did {
		case rqToShut:
			t.at2, t.pc = share, rqShut
		case rqNothing, rqNeedsNode, rqWasGranted:
			// If the commit word is the same, the words that were read are of one state.
			if t.rec = (rqRecord{}); s.commit == t.c || m.bug == rqLosesGrant && did == rqWasGranted {
				t.pc = rqUnlock
			} else {
				t.pc = rqBegin
			}
		default:
			if t.pc = rqWriteHead; m.bug == rqRestFirst {
				t.pc = rqWriteRest
			}
		}
		return fmt.Sprint("reads the words, change ", did)
	case rqShut:
		if w := &s.word[rqFast+t.at2]; w.v&rqOpen != 0 {
			*w = rqWord{w.v &^ rqOpen, w.tag + 1}
		}
		t.pc, t.rec, t.saw = rqBegin, rqRecord{}, 0
		return "closes a share"
	case rqWriteHead:
		s.head[p] = t.c.version + 1
		if t.pc = rqWriteRest; m.bug == rqRestFirst {
			t.pc = rqName
		}
		return "writes the head of its record"
	case rqWriteRest:
		s.rec[p] = t.rec
		if t.pc = rqName; m.bug == rqRestFirst {
			t.pc = rqWriteHead
		}
		return "writes its record"
	case rqName:
		if s.commit != t.c {
			t.pc, t.rec = rqBegin, rqRecord{}
			return "the commit word has changed"
		}
		m.takesEffect(s, i)
		t.c = rqCommit{t.c.version + 1, p + 1}
		s.commit = t.c
		t.own, t.i, t.pc = true, 0, rqApply
		return "its change takes effect"
	case rqUnlock:
		s.private[p] = 0
		m.unlocked(s, i)
		return "unlocks the private lock"
	case rqWake:
		if m.bug != rqNoWake {
			s.woken |= t.wakes
		}
		t.wakes = 0
		m.unlocked(s, i)
		return "wakes"
	case rqSleep:
		if t.pc = rqSleeping; s.node[k].state == rqQueued {
			s.node[k].state = rqAsleep
			s.woken &^= 1 << k
		} else {
			t.pc = rqCollect
		}
		return "goes to sleep"
	case rqSleeping:
		checked := s.node[k].state == rqResolved && (s.kills > 0 || s.stopped != 0) && m.bug != rqNoChecks
		if s.woken&(1<<k) == 0 && !checked {
			return ""
		}
		s.woken &^= 1 << k
		if t.pc = rqSleeping; s.node[k].state != rqAsleep {
			t.pc = rqCollect
		}
		return "is woken"
	case rqCollect:
		if s.node[k].state != rqResolved || s.got&(1<<k) == 0 {
			s.wrong = "a wait ends that was not granted"
		}
		s.got &^= 1 << k
		s.node[k] = rqNodeWord{rqIdleNode, s.node[k].gen + 1}
		m.finish(s, i)
		return "collects its wait"
	case rqPrepNext:
		w := &s.word[rqNext+k]
		*w = rqWord{0, w.tag + 1}
		s.word[rqPrev+k] = rqWord{0, s.word[rqPrev+k].tag + 1}
		if m.bug == rqTagsAgain {
			*w, s.word[rqPrev+k] = rqWord{}, rqWord{}
		}
		t.pc = rqPrepWord
		return "changes the tags of its node"
	case rqPrepWord:
		s.node[k].state = rqQueued
		t.pc, t.mode = rqLock, rqJoins
		return "prepares its node"
	}
	panic(t.pc)
}

func (m *recordQueueModel) deadNodes(s *rqState) (bits uint8) {
	for i := range m.threads {
		if m.isDead(s, m.proc(i)) {
			bits |= 1 << i
		}
	}
	return bits
}

// takesEffect records the effect of the change of thread i in the history.
func (m *recordQueueModel) takesEffect(s *rqState, i int) {
	t, p := &s.thread[i], m.proc(i)
	_, n := m.op(t, i)
	again := *s
	again.dead = t.saw
	if r, did, _ := m.rule(&again, i); m.bug == "" && t.did != rqGave && t.did != rqOpens && (r != t.rec || did != t.did) {
		s.wrong = "the words have changed since the change was made"
	}
	for e := range t.rec.n {
		if s.word[t.rec.word[e]] != t.rec.was[e] {
			s.wrong = "a word is not what the record says"
		}
	}
	switch t.did {
	case rqTook:
		s.held[p] += n
		if s.waits&^m.deadNodes(s) != 0 {
			s.wrong = "permits are acquired although others wait"
		}
	case rqGave, rqOpens:
		s.held[p] -= n
	case rqJoined:
		for q := range s.queue {
			if s.queue[q] == 0 {
				s.queue[q] = uint8(i + 1)
				break
			}
		}
		s.waits |= 1 << i
	}
	for e := range t.rec.n {
		w := t.rec.word[e]
		if w < rqNext || w >= rqPrev {
			continue
		}
		k := w - rqNext
		switch t.rec.to[e] {
		case rqGranted:
			if s.queue[0] != k+1 {
				s.wrong = "a wait is granted that is not the first"
			}
			s.held[m.proc(int(k))] += m.wants(s, k)
			s.got |= 1 << k
		case rqLeft, rqRemoved:
		default:
			continue
		}
		s.waits &^= 1 << k
		var left [rqThreads]uint8
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

// made continues thread i after its record is complete.
func (m *recordQueueModel) made(s *rqState, i int) {
	t := &s.thread[i]
	switch t.did {
	case rqTook, rqJoined:
		t.pc = rqUnlock
	case rqGave:
		t.mode, t.pc = rqServes, rqBegin
	case rqOpens:
		s.fastOn[m.proc(i)] = true
		t.pc = rqUnlock
	case rqWithdrew:
		t.mode, t.pc, t.gaveUp = rqServes, rqBegin, true
		s.node[i] = rqNodeWord{rqIdleNode, s.node[i].gen + 1}
	default:
		t.pc = rqBegin
	}
}

// unlocked continues thread i after it has released the private lock and has woken the owners.
func (m *recordQueueModel) unlocked(s *rqState, i int) {
	t := &s.thread[i]
	switch did, mode := t.did, t.mode; {
	case t.wakes != 0:
		t.pc = rqWake
	case did == rqNeedsNode:
		t.pc = rqPrepNext
	case did == rqJoined || mode == rqChecks:
		t.pc = rqSleep
		if mode == rqChecks {
			if t.pc = rqSleeping; s.node[i].state == rqResolved {
				t.pc = rqCollect
			}
		}
		t.mode, t.did, t.c, t.own, t.at2, t.had, t.q = rqJoins, 0, rqCommit{}, false, 0, 0, rqWord{}
	case did == rqWasGranted:
		t.pc = rqCollect
	default:
		if mode == rqJoins && did == rqTook {
			s.node[i] = rqNodeWord{rqIdleNode, s.node[i].gen + 1}
		}
		if t.gaveUp {
			t.at++ // the next operation is a release, and the thread has nothing to release
		}
		m.finish(s, i)
	}
}
