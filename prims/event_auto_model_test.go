//go:build linux

package prims

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/shmsync/shmsync/internal/model"
)

const (
	aeThreads = 5
	aeSlots   = 4 // number of slots; each slot has a share
)

// aeWord is a tokenState. The field slot is 1 plus the slot whose wait the last change ended, or 0.
type aeWord struct {
	version, tokens, slot uint8
	announced             bool
}

func (w aeWord) with(tokens uint8) aeWord {
	return aeWord{version: w.version + 1, tokens: tokens, announced: w.announced}
}

// aeShare is a waitShare with the name of its participant. The name is a generation of the slot.
type aeShare struct{ waits, ended, name uint8 }

// aeThread is a goroutine of the model.
type aeThread struct {
	pc    uint8
	then  uint8 // the step that follows a subroutine
	at    uint8 // how many operations it has finished
	s     aeWord
	share aeShare // the share that it has read
	n     uint8   // how many waits it has counted
	most  uint8   // it stops counting when n exceeds this bound
	i     uint8   // index of the share that it reads

	counted, announced, slept bool
	others                    bool  // it has found that other waits are counted
	took                      bool  // the change that it is about to make takes a token
	gives                     uint8 // whether and why it gives up
	saw                       bool  // at some moment of the call, doing nothing would have been correct
}

const (
	aeGivesUp uint8 = 1 + iota // its context has ended, or the wait was canceled
	aeLeaves                   // WaitAny has chosen another element
)

// aeSlot is the state of a process without its goroutines.
type aeSlot struct {
	share     aeShare
	life      uint8
	gone      bool  // the participant is no longer current
	ready     bool  // its poller node is ready
	poller    uint8 // the state of its poller
	check     uint8 // the state of its periodic check
	looked    uint8 // the version at the last check
	rests     aeWord
	deadWaits uint8 // waits of dead goroutines, which count until the participant is gone
}

const (
	aeAlive   uint8 = iota
	aeKilled        // dead, and no reaper has begun
	aeReaping       // a reaper has seen tokens
	aeReaped
)

type aeState struct {
	word    aeWord
	wrong   string
	stopped uint8 // 0, or the slot of the stopped process plus 1
	kills   uint8
	excess  uint8 // how many tokens may be left because the waits that would have taken them died or gave up
	account uint8 // how many tokens the returned calls have made, minus the tokens that they have taken or removed
	slot    [aeSlots]aeSlot
	thread  [aeThreads]aeThread
}

// The steps of a thread.
const (
	aeIdle uint8 = iota // the participant of this thread has not joined yet
	aeDead
	aeCorpse // a dead goroutine that still gets a wake
	aeEnded
	aeInherit     // reads the word
	aeInheritRead // reads its share
	aeInheritSwap // clears its share
	aeInheritName // sets the name
	aeSetLoad     // Set reads the word
	aeSetSwap     // Set changes a word in which no wait is announced
	aeLookLoad    // reads the word
	aeLookAgain   // reads the word again after the count
	aeSwap        // changes the word
	aeWakeFirst   // a mistake: wakes before it changes the word
	aeWake        // wakes one wait
	aeOffRead     // reads the share of a wait that has ended
	aeOffWord     // reads the word again
	aeOffSwap     // counts the wait off
	aeCount       // reads how many waits a share has
	aeCountName   // reads the name of that share
	aeCountAgain  // reads again how many waits the share has
	aeBegin       // counts its wait
	aeTakeLoad    // reads the word
	aeAnnounce    // announces itself
	aeEnlist      // its process is about to park the goroutine
	aeSleep       // goes to sleep
	aeAsleep
	aeGiveLoad // gives up: reads the word
	aeEndSwap  // ends its wait

	// The steps that follow a subroutine.
	aeThenSet
	aeThenLooked
	aeThenDecide
	aeThenTake
	aeThenPolite
	aeThenGive
	aeThenOthers
	aeThenInherit
	aeThenPass
)

// autoEventModel is the model of an Event with automatic reset. A thread is written as a string: the number
// of its slot, a letter, and its operations. The letter is k if the thread sleeps in the kernel and p if its
// goroutine parks. A capital K or P also says that the first operation is a wait that sleeps already.
//
//	S  Set
//	R  Reset
//	T  TryWait
//	w  a wait
//	c  a wait whose context may end
//	a  WaitAsync, which may be canceled
//	o  WaitAny, which may choose another element
//	I  opens the Event in a slot whose participant has died
type autoEventModel struct {
	threads []string
	first   uint8 // number of tokens at the beginning
	kills   uint8
	stops   bool
	checks  bool // the periodic checks run; they also run if stops is set
	bug     bug
}

// op returns the operation that a thread does now, or 0.
func (m autoEventModel) op(t *aeThread, i int) byte {
	if ops := m.threads[i][2:]; int(t.at) < len(ops) {
		return ops[t.at]
	}
	return 0
}

func (m autoEventModel) slotOf(i int) int   { return int(m.threads[i][0] - '0') }
func (m autoEventModel) parked(i int) bool  { return m.threads[i][1]|' ' == 'p' }
func (m autoEventModel) sleeps(i int) bool  { return m.threads[i][1]&' ' == 0 }
func (m autoEventModel) watch(op byte) bool { return op == 'a' || op == 'o' }

func (m autoEventModel) explore(b bug) model.Result {
	m.bug = b
	first := aeState{word: aeWord{version: 1, tokens: m.first}, account: m.first}
	for i := range m.threads {
		if first.thread[i].pc = aeIdle; m.threads[i][2] != 'I' {
			m.begin(&first, i)
		}
		if m.sleeps(i) {
			t := &first.thread[i]
			t.pc, t.counted, t.announced = aeAsleep, true, true
			first.word.announced = true
			first.slot[m.slotOf(i)].share.waits++
		}
	}
	for i := len(m.threads); i < aeThreads; i++ {
		first.thread[i].pc = aeEnded
	}
	m.note(&first)
	spec := model.Spec[aeState]{Init: []aeState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

func (m *autoEventModel) show(s *aeState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "word %+v stopped %d", s.word, s.stopped)
	for i, p := range s.slot {
		if p != (aeSlot{}) {
			fmt.Fprintf(&b, " slot%d %+v", i, p)
		}
	}
	for i := range m.threads {
		fmt.Fprintf(&b, " T%d %+v", i, s.thread[i])
	}
	return b.String()
}

// begin begins the next operation of a thread.
func (m *autoEventModel) begin(s *aeState, i int) {
	t := &s.thread[i]
	*t = aeThread{at: t.at}
	switch m.op(t, i) {
	case 0:
		*t = aeThread{pc: aeEnded}
	case 'S':
		t.pc = aeSetLoad
	case 'R', 'T':
		t.pc = aeLookLoad
	case 'I':
		t.pc = aeInherit
	default:
		t.pc = aeBegin
	}
}

func (m *autoEventModel) finish(s *aeState, i int) {
	s.thread[i].at++
	m.begin(s, i)
}

// waits returns how many waits of living processes have announced themselves, and how many have begun.
func (m *autoEventModel) waits(s *aeState) (announced, begun uint8) {
	for i := range m.threads {
		if t := &s.thread[i]; t.counted {
			begun++
			if t.announced {
				announced++
			}
		}
	}
	for p := range s.slot {
		begun += s.slot[p].deadWaits
	}
	return announced, begun
}

// note sets t.saw for each thread t whose call could correctly do nothing at this moment.
func (m *autoEventModel) note(s *aeState) {
	announced, begun := m.waits(s)
	for i := range m.threads {
		switch t := &s.thread[i]; t.pc {
		case aeEnded, aeDead, aeCorpse, aeIdle:
		default:
			switch m.op(t, i) {
			case 'S':
				t.saw = t.saw || s.word.tokens > announced
			case 'R', 'T':
				t.saw = t.saw || s.word.tokens <= begun
			}
		}
	}
}

// canon gives the same form to states that differ only in the numbers of versions. That is right because
// versions are only compared with each other.
func (m *autoEventModel) canon(s *aeState) {
	used := uint64(1)
	each := func(f func(*uint8)) {
		f(&s.word.version)
		for p := range s.slot {
			f(&s.slot[p].share.ended)
			f(&s.slot[p].looked)
			f(&s.slot[p].rests.version)
		}
		for i := range m.threads {
			f(&s.thread[i].s.version)
			f(&s.thread[i].share.ended)
		}
	}
	each(func(v *uint8) { used |= 1 << *v })
	each(func(v *uint8) { *v = uint8(bits.OnesCount64(used & (1<<*v - 1))) })
}

// right checks the invariant.
func (m *autoEventModel) right(s *aeState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	var begun [aeSlots]uint8
	for i := range m.threads {
		if t := &s.thread[i]; t.counted {
			begun[m.slotOf(i)]++
		}
	}
	for p := range s.slot {
		h := s.slot[p].share
		if s.slot[p].life != aeAlive {
			continue
		}
		if int(s.word.slot) == p+1 && h.ended != s.word.version {
			h.waits--
		}
		if h.waits != begun[p] && !m.inherits(s, p) {
			return fmt.Errorf("the share of slot %d counts %d waits, and there are %d", p, h.waits, begun[p])
		}
	}
	if s.kills == 0 && s.stopped == 0 && m.done(s) && s.account != s.word.tokens {
		return fmt.Errorf("there are %d tokens, and the calls that have returned account for %d", s.word.tokens, s.account)
	}
	if _, begun := m.waits(s); s.word.tokens > begun+1+s.excess {
		return fmt.Errorf("%d tokens, %d waits", s.word.tokens, begun)
	}
	return nil
}

// inherits reports whether a participant has not yet cleared the share of its slot.
func (m *autoEventModel) inherits(s *aeState, p int) bool {
	for i := range m.threads {
		if pc := s.thread[i].pc; m.slotOf(i) == p && m.op(&s.thread[i], i) == 'I' && pc != aeIdle && pc != aeInheritName {
			return true
		}
	}
	return false
}

// done reports whether the model may end in this state. It may if all threads have ended. Dead threads,
// stopped threads, and threads that sleep while there is no token need not have ended.
func (m *autoEventModel) done(s *aeState) bool {
	for i := range m.threads {
		switch t := &s.thread[i]; t.pc {
		case aeEnded, aeDead, aeCorpse, aeIdle:
		case aeAsleep:
			if s.word.tokens > 0 && !m.halted(s, m.slotOf(i)) {
				return false
			}
		default:
			if !m.halted(s, m.slotOf(i)) {
				return false
			}
		}
	}
	for p := range s.slot {
		q := &s.slot[p]
		if q.life == aeKilled || q.life == aeReaping || q.life == aeReaped && !q.gone ||
			!m.halted(s, p) && (q.ready || q.poller != 0 || q.check != 0) {
			return false
		}
	}
	return true
}

// halted reports whether a process is stopped or dead.
func (m *autoEventModel) halted(s *aeState, p int) bool {
	return int(s.stopped) == p+1 || s.slot[p].life != aeAlive
}

func (m *autoEventModel) next(s *aeState, emit func(model.Step[aeState])) {
	send := func(to aeState, by, what string, optional bool) {
		m.note(&to)
		m.canon(&to)
		if to != *s {
			emit(model.Step[aeState]{To: to, Label: what, By: by, Optional: optional})
		}
	}
	for p := range s.slot {
		m.nextOfSlot(s, p, send)
	}
	for i := range m.threads {
		m.nextOfThread(s, i, send)
	}
}

type aeSend func(to aeState, by, what string, optional bool)

// nextOfSlot emits the steps of a process that no goroutine makes, such as its death, its reaping and
// the steps of its poller.
func (m *autoEventModel) nextOfSlot(s *aeState, p int, send aeSend) {
	q, by := &s.slot[p], processNames[p]
	one := func(what string, optional bool, f func(to *aeState, q *aeSlot)) {
		to := *s
		f(&to, &to.slot[p])
		send(to, by, what, optional)
	}
	used, asleep, enlists := false, false, false
	for i := range m.threads {
		if m.slotOf(i) == p {
			pc := s.thread[i].pc
			used = used || pc > aeEnded
			asleep = asleep || pc == aeAsleep
			enlists = enlists || pc == aeSleep && m.parked(i)
		}
	}
	if used && !m.halted(s, p) {
		if s.kills < m.kills {
			one("is killed", true, func(to *aeState, q *aeSlot) { m.kill(to, p) })
		}
		if m.stops && s.stopped == 0 {
			one("is stopped for ever", true, func(to *aeState, q *aeSlot) { to.stopped = uint8(p + 1) })
		}
	}
	if q.life != aeAlive {
		if !q.gone {
			one("is no longer current", false, func(to *aeState, q *aeSlot) {
				q.gone, q.deadWaits = true, 0
				to.excess += s.slot[p].deadWaits
				// A call during which the death comes may do nothing.
				for i := range m.threads {
					to.thread[i].saw = to.thread[i].saw || to.thread[i].pc > aeEnded
				}
			})
		}
		switch {
		case q.life == aeKilled:
			one("is reaped", false, func(to *aeState, q *aeSlot) {
				for i := range m.threads {
					if t := &to.thread[i]; t.pc == aeCorpse && m.slotOf(i) == p {
						t.pc = aeDead
					}
				}
				q.ready = false
				if q.life = aeReaped; to.word.tokens > 0 && m.bug != aeReapSilent {
					q.life = aeReaping
				}
			})
		case q.life == aeReaping:
			one("has its reaper wake all", false, func(to *aeState, q *aeSlot) {
				q.life = aeReaped
				m.wakeAll(to)
			})
		case q.gone:
			for i := range m.threads {
				if s.thread[i].pc == aeIdle && m.slotOf(i) == p {
					one("is followed by another", false, func(to *aeState, q *aeSlot) {
						q.life, q.gone = aeAlive, false
						m.begin(to, i)
					})
				}
			}
		}
	}
	if m.halted(s, p) {
		return
	}
	switch {
	case q.poller == 1:
		one("looks whether there is a token for others", false, func(to *aeState, q *aeSlot) {
			if q.poller = 0; to.word.tokens > 0 && m.bug != aeMissSilent {
				q.poller = 2
			}
		})
	case q.poller == 2:
		to := *s
		to.slot[p].poller = 0
		m.wakeOne(&to, -1, func(to aeState, what string) { send(to, by, "passes the wake on: "+what, false) })
	case q.ready && !enlists:
		missed := true
		for i := range m.threads {
			if m.slotOf(i) == p && m.parked(i) && s.thread[i].pc == aeAsleep {
				missed = false
				one("delivers to "+namesT[i], false, func(to *aeState, q *aeSlot) {
					q.ready = false
					m.woken(to, i)
				})
			}
		}
		if missed {
			one("delivers to nobody", false, func(to *aeState, q *aeSlot) { q.ready, q.poller = false, 1 })
		}
	}
	if m.checks || m.stops {
		m.nextOfCheck(s, p, asleep, send, one)
	}
}

// nextOfCheck emits the steps of the periodic check of a process.
func (m *autoEventModel) nextOfCheck(s *aeState, p int, asleep bool, send aeSend, one func(string, bool, func(*aeState, *aeSlot))) {
	rest := func(to *aeState, q *aeSlot) {
		if q.rests = (aeWord{}); to.word.announced && (to.word.tokens == 0 || m.bug == aeRestsAnyway) {
			q.rests = to.word
		}
	}
	switch q := &s.slot[p]; {
	case m.bug == aeNoCheck:
	case q.check == 1:
		to := *s
		to.slot[p].check = 0
		m.wakeOne(&to, p, func(to aeState, what string) {
			rest(&to, &to.slot[p])
			send(to, "check", what, false)
		})
	case q.check == 2:
		one("checks, and wakes all", false, func(to *aeState, q *aeSlot) {
			q.check = 0
			m.wakeAll(to)
			for i := range m.threads {
				if to.thread[i].pc == aeAsleep && m.slotOf(i) == p {
					m.woken(to, i)
				}
			}
			rest(to, q)
		})
	case asleep && q.rests != s.word:
		one("checks", false, func(to *aeState, q *aeSlot) {
			before := q.looked
			q.looked = to.word.version
			switch {
			case to.word.tokens == 0:
				rest(to, q)
			case before == q.looked:
				q.check = 2
			default:
				q.check = 1
			}
		})
	}
}

// kill makes a process die.
func (m *autoEventModel) kill(s *aeState, p int) {
	s.kills++
	q := &s.slot[p]
	q.life, q.poller, q.check = aeKilled, 0, 0
	for i := range m.threads {
		if t := &s.thread[i]; m.slotOf(i) == p && t.pc != aeIdle && t.pc != aeEnded {
			pc := aeDead
			if t.pc == aeAsleep {
				pc = aeCorpse
			}
			if t.counted {
				q.deadWaits++
			}
			*t = aeThread{pc: pc}
		}
	}
}

// woken is called when a thread is woken.
func (m *autoEventModel) woken(s *aeState, i int) {
	switch t := &s.thread[i]; t.pc {
	case aeAsleep:
		t.pc, t.slept, t.s = aeTakeLoad, true, aeWord{}
	case aeCorpse:
		t.pc = aeDead
	}
}

// wakeOne emits the states that can follow a wake of one wait. own is the process that makes the wake, or -1 if that
// process has no queue.
func (m *autoEventModel) wakeOne(s *aeState, own int, emit func(to aeState, what string)) {
	nobody := true
	for i := range m.threads {
		pc, p := s.thread[i].pc, m.slotOf(i)
		switch {
		case !m.parked(i) && (pc == aeAsleep || pc == aeCorpse), m.parked(i) && pc == aeAsleep && p == own:
			nobody = false
			to := *s
			m.woken(&to, i)
			emit(to, "wakes "+namesT[i])
		}
		if m.parked(i) && (pc == aeAsleep || pc == aeCorpse || pc == aeSleep) && !s.slot[p].ready {
			nobody = false
			to := *s
			to.slot[p].ready = true
			emit(to, "makes the node of "+processNames[p]+" ready")
		}
	}
	if nobody {
		emit(*s, "wakes nobody")
	}
}

// wakeAll wakes all threads that sleep in the kernel, and makes all poller nodes ready.
func (m *autoEventModel) wakeAll(s *aeState) {
	for i := range m.threads {
		switch pc := s.thread[i].pc; {
		case !m.parked(i):
			m.woken(s, i)
		case pc == aeAsleep || pc == aeCorpse || pc == aeSleep:
			s.slot[m.slotOf(i)].ready = true
		}
	}
}

// nextOfThread emits the steps of a goroutine.
func (m *autoEventModel) nextOfThread(s *aeState, i int, send aeSend) {
	t, by, p := &s.thread[i], namesT[i], m.slotOf(i)
	if t.pc <= aeEnded || m.halted(s, p) {
		return
	}
	one := func(what string, optional bool, f func(to *aeState, t *aeThread)) {
		to := *s
		f(&to, &to.thread[i])
		send(to, by, what, optional)
	}
	op := m.op(t, i)
	// A wait may give up while it sleeps, or after it was woken.
	if t.counted && t.gives == 0 && (t.pc == aeAsleep || t.pc == aeTakeLoad && (t.slept || op == 'o')) {
		switch op {
		case 'c', 'a':
			one("its context ends", true, func(to *aeState, t *aeThread) { t.pc, t.gives, t.s = aeGiveLoad, aeGivesUp, aeWord{} })
		case 'o':
			one("chooses another element", true, func(to *aeState, t *aeThread) { t.pc, t.gives, t.s = aeGiveLoad, aeLeaves, aeWord{} })
		}
	}
	switch t.pc {
	case aeAsleep:
		if op == 'o' && s.word.tokens > 0 {
			one("is told by another element", true, func(to *aeState, t *aeThread) { m.woken(to, i) })
		}
		if t.s.tokens > 0 && m.bug != aeUnbounded && (!m.watch(op) || m.bug != aeWatchUnbounded) {
			one("has been polite", false, func(to *aeState, t *aeThread) { m.woken(to, i) })
		}
	case aeWake, aeWakeFirst:
		to := *s
		own := p
		if t.pc == aeWakeFirst {
			to.thread[i].pc = aeSwap
		} else {
			m.finish(&to, i)
		}
		m.wakeOne(&to, own, func(to aeState, what string) { send(to, by, what, false) })
	default:
		one(aeNames[t.pc], false, func(to *aeState, t *aeThread) { m.step(to, i, t) })
	}
}

// after begins the step that follows a subroutine.
func (m *autoEventModel) after(s *aeState, i int, then uint8) {
	t := &s.thread[i]
	t.then, t.share = 0, aeShare{}
	others := t.n
	switch then {
	case aeThenSet:
		t.pc = aeSetSwap
	case aeThenLooked:
		if t.n = 0; t.s.tokens == 0 {
			m.decide(s, i)
			return
		}
		m.count(s, i, t.s.announced, t.s.tokens, aeThenDecide)
	case aeThenDecide:
		if t.pc = aeLookAgain; m.bug == aeNoLookAgain {
			m.decide(s, i)
		}
	case aeThenTake:
		switch {
		case t.s.tokens > 0 && (t.slept || m.bug == aeBarges):
			m.end(s, i, true)
		case t.s.tokens > 0:
			m.count(s, i, true, t.s.tokens, aeThenPolite)
		default:
			m.wait(s, i)
		}
	case aeThenPolite:
		if t.n = 0; others <= t.s.tokens {
			m.end(s, i, true)
			return
		}
		m.wait(s, i)
	case aeThenGive:
		m.end(s, i, t.gives == aeGivesUp && t.s.tokens > 0 && m.bug != aeGiveUpLeavesToken)
	case aeThenOthers:
		t.n, t.others, t.pc = 0, others > 1, aeEndSwap
	case aeThenInherit:
		t.pc = aeInheritRead
	case aeThenPass:
		pass := t.others && t.s.tokens > 0
		switch {
		case m.bug == aeTakeSilent && t.gives == 0, m.bug == aeGiveUpSilent && t.gives != 0:
			pass = false
		}
		if pass {
			t.pc = aeWake
			return
		}
		m.finish(s, i)
	}
}

// countOff begins to count off the wait that the word t.s names: it subtracts the wait from the
// share.
func (m *autoEventModel) countOff(s *aeState, i int, then uint8) {
	t := &s.thread[i]
	skip := false
	switch m.bug {
	case aeSetNoCountOff:
		skip = then == aeThenSet || then == aeThenLooked
	case aeWaitNoCountOff:
		skip = then == aeThenTake
	case aeGiveUpNoCountOff:
		skip = then == aeThenGive
	case aeEndNoCountOff:
		skip = then == aeThenPass
	case aeInheritNoCountOff:
		skip = then == aeThenInherit
	}
	if t.s.slot == 0 || skip {
		m.after(s, i, then)
		return
	}
	t.then, t.pc = then, aeOffRead
}

// count begins to count the waits of all shares.
func (m *autoEventModel) count(s *aeState, i int, announced bool, most, then uint8) {
	t := &s.thread[i]
	t.n = 0
	if !announced {
		m.after(s, i, then)
		return
	}
	t.then, t.most, t.i, t.pc = then, most, 0, aeCount
}

// countNext adds the waits of a share, and goes on with the next share.
func (m *autoEventModel) countNext(s *aeState, i int, n uint8) {
	t := &s.thread[i]
	t.n += n
	t.i++
	if t.pc = aeCount; t.n > t.most || int(t.i) == m.slots() {
		then := t.then
		t.i, t.most = 0, 0
		m.after(s, i, then)
	}
}

// slots returns how many slots have waits.
func (m *autoEventModel) slots() (n int) {
	for i, ops := range m.threads {
		if strings.ContainsAny(ops[2:], "wcao") {
			n = max(n, m.slotOf(i)+1)
		}
	}
	return n
}

// decide begins the step that follows when the word and the number of waits are known.
func (m *autoEventModel) decide(s *aeState, i int) {
	t := &s.thread[i]
	op := m.op(t, i)
	t.pc = aeSwap
	if enough := t.s.tokens > t.n; enough == (op == 'S') {
		if !t.saw {
			s.wrong = fmt.Sprintf("%c does nothing, and that was never right", op)
		}
		m.finish(s, i)
		return
	}
	if m.bug == aeWakesFirst && op == 'S' && t.s.announced {
		t.pc = aeWakeFirst
	}
}

// end begins to end a wait.
func (m *autoEventModel) end(s *aeState, i int, took bool) {
	t := &s.thread[i]
	t.took = took
	m.count(s, i, true, 1, aeThenOthers)
}

// wait makes a thread sleep if it has announced its wait, and announce the wait otherwise.
func (m *autoEventModel) wait(s *aeState, i int) {
	t := &s.thread[i]
	if t.pc = aeAnnounce; t.announced || m.bug == aeBeginsSilently && t.s.announced {
		t.announced = true
		m.sleep(i, t)
	}
}

func (m *autoEventModel) sleep(i int, t *aeThread) {
	if t.pc = aeSleep; m.parked(i) {
		t.pc = aeEnlist
	}
}

// step is one step of a goroutine.
func (m *autoEventModel) step(s *aeState, i int, t *aeThread) {
	own := &s.slot[m.slotOf(i)]
	read := &s.slot[t.i].share
	off := &own.share
	if t.s.slot != 0 {
		off = &s.slot[t.s.slot-1].share
	}
	swap := func(to aeWord) bool {
		if s.word != t.s {
			t.s = aeWord{}
			return false
		}
		s.word = to
		return true
	}
	switch t.pc {
	case aeInherit:
		t.s = s.word
		m.countOff(s, i, aeThenInherit)
	case aeInheritRead:
		t.share, t.pc, t.s = own.share, aeInheritSwap, aeWord{}
	case aeInheritSwap:
		if t.pc = aeInheritRead; own.share == t.share {
			own.share.waits, t.pc = 0, aeInheritName
			if m.bug == aeInheritNewShare {
				own.share.ended = 0
			}
		}
		t.share = aeShare{}
	case aeInheritName:
		own.share.name++
		m.finish(s, i)

	case aeSetLoad:
		switch t.s = s.word; {
		case t.s.announced:
			t.s, t.pc = aeWord{}, aeLookLoad
		case t.s.tokens > 0:
			if !t.saw {
				s.wrong = "Set does nothing, and that was never right"
			}
			m.finish(s, i)
		default:
			m.countOff(s, i, aeThenSet)
		}
	case aeSetSwap:
		if t.pc = aeSetLoad; swap(t.s.with(1)) {
			s.account++
			m.finish(s, i)
		}
	case aeLookLoad:
		t.s = s.word
		m.countOff(s, i, aeThenLooked)
	case aeLookAgain:
		if s.word != t.s {
			t.s, t.n, t.pc = aeWord{}, 0, aeLookLoad
			return
		}
		m.decide(s, i)
	case aeSwap:
		op, n, wakes := m.op(t, i), t.n, t.s.announced
		tokens := t.s.tokens + 1
		if op != 'S' {
			tokens = n
		}
		had := t.s.tokens
		if t.n = 0; !swap(t.s.with(tokens)) {
			t.pc = aeLookLoad
			return
		}
		if op != 'S' && had-tokens > 1+s.excess {
			s.wrong = "a call takes more than one token"
		}
		s.account += tokens - had
		switch {
		case op == 'S' && wakes && m.bug != aeWakesFirst && m.bug != aeSetSilent:
			t.pc, t.s = aeWake, aeWord{}
		default:
			m.finish(s, i)
		}

	case aeOffRead:
		if t.share = *off; t.share.ended == t.s.version {
			m.after(s, i, t.then)
			return
		}
		if t.pc = aeOffWord; m.bug == aeNoWordCheck {
			t.pc = aeOffSwap
		}
	case aeOffWord:
		if t.pc = aeOffSwap; s.word != t.s {
			m.after(s, i, t.then)
		}
	case aeOffSwap:
		if off.waits != t.share.waits || off.ended != t.share.ended {
			t.pc, t.share = aeOffRead, aeShare{}
			return
		}
		if off.ended = t.s.version; off.waits > 0 {
			off.waits--
		}
		m.after(s, i, t.then)

	case aeCount:
		if t.pc = aeCountName; read.waits == 0 {
			m.countNext(s, i, 0)
		} else if m.bug == aeCountsOnce {
			t.share.waits = read.waits
		}
	case aeCountName:
		// The name in a share is current if its participant is current.
		switch q := &s.slot[t.i]; {
		case (q.gone || q.share.name != m.generation(s, int(t.i))) && m.bug != aeCountsDead:
			t.share = aeShare{}
			m.countNext(s, i, 0)
		case m.bug == aeCountsOnce:
			n := t.share.waits
			t.share = aeShare{}
			m.countNext(s, i, n)
		default:
			t.pc = aeCountAgain
		}
	case aeCountAgain:
		m.countNext(s, i, read.waits)

	case aeBegin:
		own.share.waits++
		t.counted, t.pc = true, aeTakeLoad
	case aeTakeLoad:
		t.s = s.word
		m.countOff(s, i, aeThenTake)
	case aeAnnounce:
		to := t.s.with(t.s.tokens)
		to.announced = true
		if t.pc = aeTakeLoad; swap(to) {
			t.announced, t.s = true, to
			m.sleep(i, t)
		}
	case aeEnlist:
		t.pc = aeSleep
	case aeSleep:
		if s.word.version == t.s.version {
			t.pc = aeAsleep
			t.s = aeWord{tokens: min(t.s.tokens, 1)}
			return
		}
		t.slept = t.slept || !m.watch(m.op(t, i)) // a WaitAsync or a WaitAny does not sleep: a wake is only recorded
		t.pc, t.s = aeTakeLoad, aeWord{}
	case aeGiveLoad:
		t.s = s.word
		m.countOff(s, i, aeThenGive)
	case aeEndSwap:
		tokens, spare := t.s.tokens, uint8(0)
		if t.took {
			tokens--
		}
		if !t.others && tokens > 1 {
			tokens, spare = 1, tokens-1
		}
		to := t.s.with(tokens)
		to.slot = uint8(m.slotOf(i) + 1)
		if !t.others || m.bug == aeEndClears {
			to.announced = false
		}
		if !swap(to) {
			t.others, t.took = false, false
			if t.pc = aeTakeLoad; t.gives != 0 {
				t.pc = aeGiveLoad
			}
			return
		}
		t.s, t.counted, t.announced = to, false, false
		if t.took {
			s.account--
		} else {
			s.excess++
			if t.gives == aeGivesUp && tokens > 0 {
				s.wrong = "a wait has given up, and left a token"
			}
		}
		if s.account -= spare; spare > s.excess {
			s.wrong = "the end of a wait takes tokens away"
		}
		m.countOff(s, i, aeThenPass)
	}
}

// generation returns the name of the participant that has a slot.
func (m *autoEventModel) generation(s *aeState, p int) uint8 {
	for i := range m.threads {
		if m.slotOf(i) == p && m.threads[i][2] == 'I' && s.thread[i].pc != aeIdle {
			return 1
		}
	}
	return 0
}

var aeNames = [...]string{
	aeInherit: "opens", aeInheritRead: "reads its share", aeInheritSwap: "clears its share", aeInheritName: "sets its name",
	aeSetLoad: "Set reads the word", aeSetSwap: "Set changes the word", aeLookLoad: "reads the word", aeLookAgain: "reads the word again",
	aeSwap: "changes the word", aeOffRead: "reads the share of an ended wait", aeOffWord: "reads the word, to count off",
	aeOffSwap: "counts off", aeCount: "reads a share", aeCountName: "reads its name", aeCountAgain: "reads the share again",
	aeBegin: "counts its wait", aeTakeLoad: "reads the word, to take", aeAnnounce: "announces itself", aeEnlist: "is about to park",
	aeSleep: "goes to sleep", aeGiveLoad: "reads the word, to give up", aeEndSwap: "ends its wait",
}
