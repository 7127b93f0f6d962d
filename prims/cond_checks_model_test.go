//go:build linux

package prims

import (
	"errors"
	"fmt"
)

// right checks the invariant.
func (m *condModel) right(s *cnState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	x := s.after()
	boundary, queued := uint8(0), uint8(0)
	for _, q := range x.queue.node {
		if q == 0 {
			break
		}
		if queued |= 1 << (q - 1); boundary == 0 && s.covered&(1<<(q-1)) == 0 {
			boundary = q
		}
	}
	if has := x.word[cnBoundary].v; has != boundary {
		return fmt.Errorf("the boundary is %d, and the first wait that is not covered is %d", has, boundary)
	}
	flying := uint8(0)
	for k := range uint8(cnThreads) {
		bit := uint8(1) << k
		owes, signal := x.next(k) == cnOwes, x.word[cnExtra+k].v&cnSignal != 0
		if owes && !signal {
			flying++
		}
		switch {
		case s.signalled&bit != 0 && s.owner[k] == 0:
			return errors.New("a node is freed while it owes a Signal")
		case s.signalled&bit != 0 && (!owes || !signal):
			return errors.New("a wait has a Signal, but its node does not owe one")
		case owes && signal && s.signalled&bit == 0:
			return errors.New("a node owes a Signal that was not given or is used up")
		case owes && !signal && s.covered&bit == 0:
			return errors.New("a node owes a turn, and no Broadcast has covered its wait")
		case (x.next(k) == cnQueued) != (queued&bit != 0):
			return errors.New("a node says that it is queued but is not, or the other way round")
		}
	}
	if has := x.word[cnFlying].v; has != flying {
		return fmt.Errorf("flying is %d, and %d waits owe a turn", has, flying)
	}
	return nil
}

// done reports whether each thread has ended. It ignores threads that are dead or stopped, threads whose next
// operation needs a death that has not happened, and threads that have not begun to leave. A waiter may sleep for ever
// if no Broadcast has covered its wait, and if no dead process has a Signal that the waiter may get.
func (m *condModel) done(s *cnState) bool {
	x := s.after()
	due := s.covered
	for k := range uint8(cnThreads) {
		if s.signalled&(1<<k) != 0 && s.ownerDead(k) {
			due |= s.eligible[k]
		}
	}
	for i := range m.threads {
		t, op := &s.thread[i], m.op(s, i)
		bit := uint8(1) << t.node
		switch {
		case t.pc == cnEnded, m.halted(s, m.proc(i)):
		case t.pc == cnIdle && (op == 'Q' || (op == 'R' || op == 'X') && s.dead == 0):
		case t.pc == cnSleep && s.resolved&bit == 0 && x.next(t.node) == cnQueued && due&bit == 0:
		default:
			return false
		}
	}
	return true
}

// after returns the state as it is when the record in the commit word is complete.
func (s *cnState) after() cnState {
	x := *s
	if r := &s.rec; r.queue && x.queue.tag == r.was {
		x.queue = cnQueue{r.to, r.was + 1}
	}
	for e := range s.rec.entry {
		if e := &s.rec.entry[e]; e.word != 0 && x.word[e.word] == e.was {
			x.word[e.word] = rqWord{e.to, e.was.tag + 1}
		}
	}
	return x
}

// queued returns the nodes that are on the queue. It requires that the record in the commit word is complete.
func (s *cnState) queued() (bits uint8) {
	for _, q := range s.queue.node {
		if q != 0 {
			bits |= 1 << (q - 1)
		}
	}
	return bits
}

// entitled returns those of the given nodes that are queued, that no Broadcast has covered, and whose owners are not
// dead.
func (s *cnState) entitled(nodes uint8) (bits uint8) {
	x := s.after()
	bits = nodes & x.queued() &^ s.covered
	for k := range uint8(cnThreads) {
		if s.ownerDead(k) {
			bits &^= 1 << k
		}
	}
	return bits
}

// node returns the wait node whose state the entry e changes. ok is false if e changes another word.
func (e *cnEntry) node() (k, bit uint8, ok bool) {
	k = e.word - cnNext
	return k, 1 << k, e.word >= cnNext && e.word < cnExtra
}

// takesEffect adds the change of thread i to the history. The change takes effect when the commit word names its
// record, before any entry of the record is carried out.
func (m *condModel) takesEffect(s *cnState, i int) {
	t := &s.thread[i]
	if t.did == cnCovered {
		s.covered |= s.queued()
	}
	// inHand: a Signal is on its way. The wait that had it has ended, and no other wait has got it yet.
	// may: the set of the waits that can get this Signal.
	inHand, may := t.did == cnGives, t.handFor
	for e := range t.rec.entry {
		e := &t.rec.entry[e]
		if e.word != 0 && s.word[e.word] != e.was && m.bug == "" {
			s.wrong = "a word is not what the record says"
		}
		k, bit, ok := e.node()
		if !ok || e.to != cnLeft && e.to != cnRemoved {
			continue
		}
		if e.was.v == cnOwes && s.signalled&bit != 0 {
			inHand, may = true, s.eligible[k]
			m.passes(s, t, k)
		}
		m.ends(s, t, e)
	}
	for e := range t.rec.entry {
		e := &t.rec.entry[e]
		switch _, bit, ok := e.node(); {
		case ok && e.to == cnQueued: // the new wait may get no Signal that was given before
			s.covered &^= bit
			for j := range s.eligible {
				s.eligible[j] &^= bit
				s.thread[j].handFor &^= bit
			}
		case ok && e.to == cnOwes:
			if m.wakes(s, t, e, inHand, may) {
				inHand = false
			}
		}
	}
	switch {
	case !inHand:
	case t.did == cnHandsOn:
		t.handFor = may
	case s.entitled(may) != 0:
		s.wrong = "a Signal is lost"
	}
}

// passes records that the wait of node k ends and its Signal passes on. If a reaper ends the wait, passes checks the
// order: the reaper must first pass on each earlier Signal of a dead process, if some wait can get that Signal.
func (m *condModel) passes(s *cnState, t *cnThread, k uint8) {
	for j := range uint8(cnThreads) {
		dead := s.owner[j] != 0 && t.saw&(1<<(s.owner[j]-1)) != 0
		earlier := s.signalled&(1<<j) != 0 && s.word[cnExtra+j].v < s.word[cnExtra+k].v
		if t.phase == cnSettling && dead && earlier && s.entitled(s.eligible[j]) != 0 {
			s.wrong = "a Signal passes on before an earlier one"
		}
	}
	if t.did == cnHandsOn {
		t.hand = s.word[cnExtra+k].v
	}
	s.signalled &^= 1 << k
	s.eligible[k] = 0
}

// ends records that the thread t ends a wait by the entry e of its record.
func (m *condModel) ends(s *cnState, t *cnThread, e *cnEntry) {
	k, bit, _ := e.node()
	switch {
	case e.to == cnRemoved && !s.ownerDead(k):
		s.wrong = "the wait of a living process is removed"
	case t.did == cnWithdrew && t.covered != (s.covered&bit != 0):
		s.wrong = "a wait that is given up does not know whether it was covered"
	}
	s.covered &^= bit
}

// wakes records that the thread t wakes a wait by the entry e of its record. It reports whether the wait has got a
// Signal. The parameters inHand and may are the variables of takesEffect.
func (m *condModel) wakes(s *cnState, t *cnThread, e *cnEntry, inHand bool, may uint8) bool {
	k, bit, _ := e.node()
	covered := s.covered&bit != 0
	if t.rec.get(s, cnExtra+k)&cnSignal == 0 {
		if !covered {
			s.wrong = "a Broadcast wakes a wait that came after it"
		}
		return false
	}
	if t.did == cnSignalled {
		may = s.queued() &^ s.covered
		for _, q := range s.queue.node {
			if q == k+1 {
				break
			}
			if q != 0 && may&(1<<(q-1)) != 0 {
				s.wrong = "a Signal wakes a wait that is not the first"
			}
		}
	}
	switch {
	case covered:
		s.wrong = "a Signal wakes a wait that a Broadcast has covered"
	case !inHand && t.did != cnSignalled:
		s.wrong = "a Signal ends two waits"
	case may&bit == 0:
		s.wrong = "a Signal wakes a wait that joined after it"
	}
	s.signalled |= bit
	s.eligible[k] = may &^ bit
	return true
}

// canon renumbers the tags and versions of a state, so that states which act alike become equal. A step compares a
// tag only with the present and the previous tag of its word. It compares versions only by their order. canon also
// clears the fields that no later step reads.
func (m *condModel) canon(s *cnState) {
	for i := range m.threads {
		t := &s.thread[i]
		switch {
		case m.halted(s, m.proc(i)):
			*t = cnThread{}
		case t.pc == cnName && !t.fresh:
			t.rec, t.did = cnRecord{}, 0
		}
	}
	for p := range uint8(cnProcs) {
		if m.halted(s, p) {
			s.private[p], s.reaped[p], s.before[p] = 0, 0, 0
		}
	}
	if m.bug == cnTagsAgain {
		return
	}
	m.canonRecord(s, &s.rec, true)
	for i := range m.threads {
		m.canonRecord(s, &s.thread[i].rec, s.thread[i].pc != cnName)
	}
	for p := range s.before {
		if b := &s.before[p]; *b == s.word[cnFlying].tag+1 {
			*b = 3
		} else if *b != 0 {
			*b = 1
		}
	}
	s.queue.tag = 2
	for w := range s.word {
		s.word[w].tag = 2
	}
	m.canonVersions(s)
}

// canonRecord renumbers the tags in a record so that the present tag of each word becomes 2. The caller then gives the
// words this tag. If committed is true, canonRecord also removes the entries that have no effect any more.
func (m *condModel) canonRecord(s *cnState, r *cnRecord, committed bool) {
	if r.was = 2 - min(s.queue.tag-r.was, 2); !r.queue || committed && r.was != 2 {
		r.queue, r.was, r.to = false, 0, [cnThreads]uint8{}
	}
	for e := range r.entry {
		e := &r.entry[e]
		if e.word == 0 {
			continue
		}
		tells := e.word >= cnNext && e.word < cnExtra && (e.to == cnOwes || e.to == cnRemoved)
		e.was.tag = 2 - min(s.word[e.word].tag-e.was.tag, 2)
		if committed && m.bug != cnNoTags && (e.was.tag == 0 || e.was.tag == 1 && !tells) {
			*e = cnEntry{}
		}
	}
}

// canonVersions replaces the version of the commit word, the numbers of the waits and the bounds of the Signals by the
// smallest numbers that have the same order.
func (m *condModel) canonVersions(s *cnState) {
	var used [256]bool
	bounds := func(f func(extra *uint8)) {
		for k := range uint8(cnThreads) {
			f(&s.word[cnExtra+k].v)
		}
		entries := func(r *cnRecord) {
			for e := range r.entry {
				if e := &r.entry[e]; e.word >= cnExtra {
					f(&e.to)
					f(&e.was.v)
				}
			}
		}
		entries(&s.rec)
		for i := range m.threads {
			entries(&s.thread[i].rec)
			f(&s.thread[i].hand)
		}
	}
	used[0], used[s.version] = true, true
	for k := range s.number {
		if v := s.next(uint8(k)); v != cnNone && v != cnQueued {
			s.number[k] = 0
		}
		used[s.number[k]] = true
	}
	bounds(func(extra *uint8) { used[*extra&^cnSignal] = true })
	var to [256]uint8
	n := uint8(0)
	for v, is := range used {
		if to[v] = n; is {
			n++
		}
	}
	s.version = to[s.version]
	for k := range s.number {
		s.number[k] = to[s.number[k]]
	}
	bounds(func(extra *uint8) { *extra = *extra&cnSignal | to[*extra&^cnSignal] })
}
