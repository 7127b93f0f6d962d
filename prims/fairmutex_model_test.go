//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// This is a model of a FairMutex. It has the owner word, the word fairMutexWords.accepted, and the queue, which is one
// recorded word here. recordQueueModel has the links of a queue. The policy is PolicyReport. In one step, a thread
// reads the words and decides on a change. In another step, it writes its record and names the record in the commit
// word.

const (
	fmThreads = 3
	fmProcs   = 3
)

// The kinds of the owner word. The name in an owner word is the number of a process, plus 1.
const (
	fmClosed uint8 = iota
	fmOpen
	fmGranted
	fmDead
)

// The values of fmNode.next.
const (
	fmNone uint8 = iota
	fmQueued
	fmGrant
	fmLeft
	fmRemoved
	fmRefused
)

type fmOwner struct{ kind, name, tag uint8 }

type fmQueue struct {
	node [fmThreads]uint8 // in order; each is the number of a thread, plus 1
	tag  uint8
}

type fmNode struct{ next, tag uint8 }

// fmRecord is a record that changes the owner word, the queue, and fmNode.next of one node.
type fmRecord struct {
	owner, queue      bool
	ownerWas, ownerTo fmOwner
	queueWas, queueTo fmQueue
	node              uint8 // the number of the node, plus 1
	nodeWas           fmNode
	nodeTo            uint8
}

type fmThread struct {
	pc, at, mode, did, i uint8
	c                    rqCommit
	rec                  fmRecord
	own                  bool
	saw                  uint8 // the processes that were dead when the thread decided on its change
}

type fmState struct {
	commit   rqCommit
	head     [fmProcs]uint8
	rec      [fmProcs]fmRecord
	owner    fmOwner
	accepted fmOwner // the name and the tag of the last grant that a waiter has accepted
	queue    fmQueue
	node     [fmThreads]fmNode
	resolved uint8
	private  [fmProcs]uint8
	thread   [fmThreads]fmThread
	dead     uint8
	stopped  uint8 // the number of the stopped process, plus 1
	kills    uint8

	inside uint8 // threads that have the lock
	died   uint8 // processes that died while they had the lock
	wrong  string
}

// The steps.
const (
	fmEnded uint8 = iota
	fmFast
	fmLock
	fmBegin
	fmApply
	fmTell
	fmClose
	fmRule
	fmName
	fmUnlock
	fmSleep
	fmAccept
)

// The kinds of calls. See rqAcquires.
const (
	fmLocks uint8 = iota
	fmTries
	fmUnlocks
	fmWithdraws
	fmChecks
)

// The purposes of a change. A purpose says what a thread does after it has made the change.
const (
	fmOver  uint8 = iota // the call has ended
	fmAgain              // the call makes another change
	fmTook
	fmJoined
	fmGave
	fmWithdrew
	fmEnds // the wait of the thread has ended
)

const (
	fmNoClose   bug = "an author reads the owner word without closing it"
	fmNoAccept  bug = "a waiter does not store that it has accepted the lock"
	fmSilent    bug = "a reaper frees an accepted grant silently"
	fmReports   bug = "a grant that was not accepted counts as a hold"
	fmSameTag   bug = "a second grant to the same participant has the same tag"
	fmTryStale  bug = "TryLock does not complete the last change"
	fmDrops     bug = "an Unlock grants nothing"
	fmOpensWait bug = "a record opens the owner word although a wait is queued"
	fmPlainTake bug = "a reaper without a record takes an open lock by a store"
	fmNoTags    bug = "a process that carries a record out compares no tags"
)

// fairMutexModel has threads. Each is written as the number of its process and its operations:
//
//	L  locks
//	C  locks with a context that may end
//	T  tries to lock
//	U  unlocks, if the previous operation has locked
//	X  does what a reaper without a record does: takes an open lock back from a dead holder
type fairMutexModel struct {
	threads []string
	kills   uint8
	stops   bool
	bug     bug
}

func fmModel(threads ...string) fairMutexModel            { return fairMutexModel{threads: threads} }
func (m fairMutexModel) withKills(n uint8) fairMutexModel { m.kills = n; return m }
func (m fairMutexModel) withStop() fairMutexModel         { m.stops = true; return m }
func (m *fairMutexModel) proc(i int) int                  { return int(m.threads[i][0] - '0') }
func (m *fairMutexModel) isDead(s *fmState, p uint8) bool { return s.dead&(1<<p) != 0 }
func (m *fairMutexModel) ownerDead(s *fmState, k uint8) bool {
	return m.isDead(s, uint8(m.proc(int(k))))
}

func (m *fairMutexModel) op(s *fmState, i int) byte {
	if ops := m.threads[i][1:]; int(s.thread[i].at) < len(ops) {
		return ops[s.thread[i].at]
	}
	return 0
}

func (m fairMutexModel) explore(b bug) model.Result {
	m.bug = b
	first := fmState{owner: fmOwner{kind: fmOpen}}
	for i := range m.threads {
		m.start(&first, i)
	}
	spec := model.Spec[fmState]{Init: []fmState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

// start begins the next operation of a thread.
func (m *fairMutexModel) start(s *fmState, i int) {
	t := &s.thread[i]
	*t = fmThread{at: t.at, pc: fmFast}
	switch m.op(s, i) {
	case 0:
		t.pc = fmEnded
	case 'T':
		t.mode = fmTries
	case 'U':
		if t.mode = fmUnlocks; s.inside&(1<<i) == 0 {
			t.at++ // the previous operation has not locked
			m.start(s, i)
		}
	}
}

func (m *fairMutexModel) finish(s *fmState, i int) { s.thread[i].at++; m.start(s, i) }

func (m *fairMutexModel) halted(s *fmState, p int) bool {
	return s.dead&(1<<p) != 0 || int(s.stopped) == p+1
}

// enter records that thread i has the lock.
func (m *fairMutexModel) enter(s *fmState, i int) {
	if s.inside != 0 {
		s.wrong = "two have the lock"
	}
	if s.died != 0 {
		s.wrong = "the lock is passed on from a holder that died"
	}
	s.inside |= 1 << i
}

func (m *fairMutexModel) show(s *fmState) string { return fmt.Sprintf("%+v", *s) }

func (m *fairMutexModel) right(s *fmState) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}
	if x := s.after(); x.owner.kind == fmOpen && x.queue.node[0] != 0 {
		return errors.New("the owner word is open although a wait is queued")
	}
	if s.owner.kind == fmDead && s.died&(1<<(s.owner.name-1)) == 0 {
		return errors.New("the lock is owner-dead, and its owner has never had it")
	}
	return nil
}

// done reports whether every thread has ended. It ignores a thread that is dead or stopped, and a
// thread that waits because a stopped process has the lock or was granted it.
func (m *fairMutexModel) done(s *fmState) bool {
	o := s.after().owner
	for i := range m.threads {
		t := &s.thread[i]
		blocked := t.pc == fmSleep && s.resolved&(1<<i) == 0 && o.name != 0 && o.name == s.stopped && o.kind != fmDead
		if t.pc != fmEnded && m.op(s, i) != 'X' && !m.halted(s, m.proc(i)) && !blocked {
			return false
		}
	}
	return true
}

// after returns the state as it is when the record in the commit word is complete.
func (s *fmState) after() fmState {
	x := *s
	if s.commit.slot != 0 && s.head[s.commit.slot-1] == s.commit.version {
		r := s.rec[s.commit.slot-1]
		for e := range uint8(3) {
			x.apply(&r, e, false)
		}
	}
	return x
}

// apply carries out entry e of a record.
func (s *fmState) apply(r *fmRecord, e uint8, noTags bool) {
	switch was := s.owner; {
	case e == 0 && r.owner && (was == r.ownerWas || noTags && was.kind == r.ownerWas.kind && was.name == r.ownerWas.name):
		tag := was.tag + 1
		if r.ownerTo.tag != 0 {
			tag = was.tag // the model has the mistake fmSameTag
		}
		s.owner = fmOwner{r.ownerTo.kind, r.ownerTo.name, tag}
	case e == 1 && r.queue && s.queue == r.queueWas:
		s.queue = fmQueue{r.queueTo.node, s.queue.tag + 1}
	case e == 2 && r.node != 0 && s.node[r.node-1] == r.nodeWas:
		s.node[r.node-1] = fmNode{r.nodeTo, r.nodeWas.tag + 1}
	}
}

func (m *fairMutexModel) next(s *fmState, to func(model.Step[fmState])) {
	emit := func(step model.Step[fmState]) {
		for i := range m.threads {
			if t := &step.To.thread[i]; m.halted(&step.To, m.proc(i)) {
				*t = fmThread{at: t.at} // a halted thread makes no more steps
			}
		}
		to(step)
	}
	for i := range m.threads {
		if m.halted(s, m.proc(i)) {
			continue
		}
		to := *s
		if label := m.step(&to, i); label != "" {
			emit(model.Step[fmState]{To: to, By: namesT[i], Label: label})
		}
		if s.thread[i].pc != fmSleep {
			continue
		}
		if m.op(s, i) == 'C' {
			to := *s
			to.thread[i].pc, to.thread[i].mode = fmLock, fmWithdraws
			emit(model.Step[fmState]{To: to, By: namesT[i], Label: "its context ends", Optional: true})
		}
		if s.kills > 0 || s.stopped != 0 {
			to := *s
			to.thread[i].pc, to.thread[i].mode = fmLock, fmChecks
			emit(model.Step[fmState]{To: to, By: namesT[i], Label: "a periodic check"})
		}
	}
	for p := range fmProcs {
		if m.halted(s, p) {
			continue
		}
		if s.kills < m.kills {
			to := *s
			to.kills++
			to.dead |= 1 << p
			for i := range m.threads {
				if m.proc(i) == p && s.inside&(1<<i) != 0 {
					to.died |= 1 << p
					to.inside &^= 1 << i
				}
			}
			emit(model.Step[fmState]{To: to, By: processNames[p], Label: "dies", Optional: true})
		}
		if m.stops && s.stopped == 0 {
			to := *s
			to.stopped = uint8(p + 1)
			emit(model.Step[fmState]{To: to, By: processNames[p], Label: "stops for ever", Optional: true})
		}
	}
}
