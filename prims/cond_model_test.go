//go:build linux

package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/model"
)

// This is a model of a Cond. It has the queue with its boundary, and the waits that were woken and whose owners do not
// have the lock yet. It counts those of these waits that a Broadcast has woken. A wake by a Broadcast is called a turn.
//
// The whole queue is one recorded word; the model recordQueueModel has the links of a queue. The lock of the user is
// not modeled: a waiter that was woken gets the lock, or finds that nobody can get it.
//
// In one step, a thread reads the words and decides on a change. In another step, it writes its record and names the
// record in the commit word. A step in which a thread only finds that a word has changed is part of the next step.

const (
	cnThreads = 4 // as many as there are wait nodes
	cnProcs   = 4
	cnEntries = 4
)

// The recorded words other than the queue.
const (
	cnBoundary uint8 = 1 // this word has the number of a node plus 1, or 0
	cnFlying   uint8 = 2
	cnNext     uint8 = 3
	cnExtra    uint8 = cnNext + cnThreads
	cnWords    uint8 = cnExtra + cnThreads
)

// The states of the wait of a node, in the word cnNext of the node.
const (
	cnNone uint8 = iota
	cnQueued
	cnOwes
	cnLeft
	cnRemoved
)

// cnSignal is set in the word cnExtra of a node that owes a Signal, that is, if a Signal has woken the wait and the
// owner does not have the lock yet. The other bits are the bound of the Signal: it may pass on to waits whose number
// is at most the bound.
const cnSignal uint8 = 0x80

type cnQueue struct {
	node [cnThreads]uint8 // in order; each is the number of a node, plus 1
	tag  uint8
}

// cnEntry is an entry of a record. If word is 0, there is no entry.
type cnEntry struct {
	word, to uint8
	was      rqWord
}

type cnRecord struct {
	queue bool // the record changes the queue
	was   uint8
	to    [cnThreads]uint8
	entry [cnEntries]cnEntry
}

type cnThread struct {
	pc, at, mode, did, phase uint8
	i                        uint8 // the next entry of rec
	node                     uint8
	own                      bool  // rec is the record of this thread, which it completes
	fresh                    bool  // the commit word is as it was when the thread began its change
	covered                  bool  // a Broadcast had covered the wait that the thread gives up
	saw                      uint8 // the dead processes that the thread knew of, if it reaps
	rec                      cnRecord

	// With the mistake cnTwoRecords, a thread passes a Signal on by two records. Between them, hand is the value of
	// the word cnExtra of the node that owed the Signal, and handFor is the set of the waits that may get the Signal.
	hand, handFor uint8
}

type cnState struct {
	version  uint8    // of the commit word
	rec      cnRecord // the record that the commit word names
	queue    cnQueue
	word     [cnWords]rqWord
	number   [cnThreads]uint8 // of each node: the number of its wait
	owner    [cnThreads]uint8 // of each node: a process, plus 1; 0 if the node is free
	resolved uint8            // the nodes whose waits are resolved
	private  [cnProcs]uint8   // of each process: the thread that holds the private lock, plus 1
	reaped   [cnProcs]uint8   // the dead processes that each process has reaped
	before   [cnProcs]uint8   // the tag of cnFlying at the last periodic check, plus 1
	thread   [cnThreads]cnThread
	dead     uint8 // processes that have died or left
	left     uint8 // processes that have left the arena
	stopped  uint8 // the number of the stopped process, plus 1
	kills    uint8

	// The history, for the checks.
	covered   uint8            // nodes whose present wait a Broadcast has covered
	signalled uint8            // nodes that have a Signal which no Wait has used yet
	eligible  [cnThreads]uint8 // for the Signal that a node has: the other nodes that may get it
	wrong     string
}

// The steps.
const (
	cnEnded uint8 = iota
	cnIdle        // before a call
	cnLock
	cnApply
	cnTell
	cnRule
	cnName
	cnSleep
	cnWoken
)

// The kinds of work of a thread.
const (
	cnJoins uint8 = iota
	cnSignals
	cnBroadcasts
	cnSettles // ends its own wait, which was woken
	cnServes
	cnWithdraws
	cnChecks
	cnReaps
	cnFrees // frees nodes of the dead
)

// The phases of a reap, which may be a part of a call. After the last phase, the thread goes on with its call.
const (
	cnNoPhase uint8 = iota
	cnRemoving
	cnSettling
	cnServing
	cnForcing // not a phase of a reap: a periodic check wakes all covered waits
)

// The purposes of a change: what its author does after it.
const (
	cnOver  uint8 = iota // the call has ended
	cnAgain              // the author makes another change for the same call
	cnJoined
	cnSignalled
	cnCovered
	cnSettled
	cnWithdrew
	cnIsWoken
	cnChecked
	cnHandsOn // only for cnTwoRecords: the author commits the second record next
	cnGives   // only for cnTwoRecords: the author has committed the second record
)

// condModel has threads, and as many wait nodes. Each thread is written as the number of its process and its
// operations:
//
//	W  waits
//	C  waits with a context that may end
//	F  waits, and cannot get the lock again when it was woken
//	S  signals
//	B  broadcasts
//	R  reaps after a death, and frees nodes of the dead
//	X  frees nodes of the dead, and does nothing else
//	Q  leaves the arena, after it has waited for calls of other threads; see mayLeave
type condModel struct {
	threads []string
	batch   uint8
	kills   uint8
	stops   bool
	checks  bool // periodic checks are made even if no process has died or stopped
	bug     bug
}

func cnModel(batch uint8, threads ...string) condModel {
	return condModel{threads: threads, batch: batch}
}
func (m condModel) withKills(n uint8) condModel      { m.kills = n; return m }
func (m condModel) withStop() condModel              { m.stops = true; return m }
func (m condModel) withChecks() condModel            { m.checks = true; return m }
func (m *condModel) proc(i int) uint8                { return m.threads[i][0] - '0' }
func (m *condModel) isDead(s *cnState, p uint8) bool { return s.dead&(1<<p) != 0 }
func (m *condModel) halted(s *cnState, p uint8) bool {
	return s.dead&^s.left&(1<<p) != 0 || s.stopped == p+1
}
func (s *cnState) ownerDead(k uint8) bool { o := s.owner[k]; return o != 0 && s.dead&(1<<(o-1)) != 0 }
func (s *cnState) next(k uint8) uint8     { return s.word[cnNext+k].v }

func (m *condModel) op(s *cnState, i int) byte {
	if ops := m.threads[i][1:]; int(s.thread[i].at) < len(ops) {
		return ops[s.thread[i].at]
	}
	return 0
}

func (m condModel) explore(b bug) model.Result {
	m.bug = b
	first := cnState{}
	for i := range m.threads {
		first.thread[i].node, first.owner[i] = uint8(i), m.proc(i)+1
		m.start(&first, i)
	}
	spec := model.Spec[cnState]{
		Init: []cnState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 22,
	}
	return spec.Explore()
}

func (m *condModel) show(s *cnState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d queue %v words %v numbers %v owners %v resolved %d", s.version, s.queue, s.word[1:], s.number, s.owner, s.resolved)
	fmt.Fprintf(&b, " covered %d signalled %d %v dead %d stop %d", s.covered, s.signalled, s.eligible, s.dead, s.stopped)
	for i := range m.threads {
		t := &s.thread[i]
		fmt.Fprintf(&b, " T%d pc %d mode %d did %d phase %d i %d node %d fresh %v", i, t.pc, t.mode, t.did, t.phase, t.i, t.node, t.fresh)
	}
	return b.String()
}

// start begins the next operation of a thread.
func (m *condModel) start(s *cnState, i int) {
	t := &s.thread[i]
	*t = cnThread{at: t.at, node: t.node, pc: cnIdle}
	switch m.op(s, i) {
	case 0:
		*t = cnThread{}
	case 'S':
		t.mode = cnSignals
	case 'B':
		t.mode = cnBroadcasts
	case 'R', 'Q':
		t.mode = cnReaps
	case 'X':
		t.mode = cnFrees
	}
}

func (m *condModel) next(s *cnState, to func(model.Step[cnState])) {
	emit := func(step model.Step[cnState]) {
		m.canon(&step.To)
		to(step)
	}
	troubled := s.dead != 0 || s.stopped != 0 || m.checks
	for i := range m.threads {
		if m.halted(s, m.proc(i)) {
			continue
		}
		to := *s
		if label := m.step(&to, i); label != "" {
			emit(model.Step[cnState]{To: to, By: namesT[i], Label: label})
		}
		t := &s.thread[i]
		if t.pc != cnSleep {
			continue
		}
		if m.op(s, i) == 'C' {
			to := *s
			to.thread[i].pc, to.thread[i].mode = cnLock, cnWithdraws
			emit(model.Step[cnState]{To: to, By: namesT[i], Label: "its context ends", Optional: true})
		}
		if troubled && s.resolved&(1<<t.node) == 0 {
			to := *s
			to.thread[i].pc, to.thread[i].mode = cnLock, cnChecks
			emit(model.Step[cnState]{To: to, By: namesT[i], Label: "a periodic check"})
		}
	}
	for p := range uint8(cnProcs) {
		if m.isDead(s, p) || s.stopped == p+1 || !m.lives(s, p) {
			continue
		}
		if s.kills < m.kills {
			to := *s
			to.kills++
			to.dead |= 1 << p
			m.dies(&to, p)
			emit(model.Step[cnState]{To: to, By: processNames[p], Label: "dies", Optional: true})
		}
		if m.stops && s.stopped == 0 {
			to := *s
			to.stopped = p + 1
			emit(model.Step[cnState]{To: to, By: processNames[p], Label: "stops for ever", Optional: true})
		}
	}
}

// lives reports whether a thread of process p has not ended.
func (m *condModel) lives(s *cnState, p uint8) bool {
	for i := range m.threads {
		if m.proc(i) == p && s.thread[i].pc != cnEnded {
			return true
		}
	}
	return false
}

// dies is the death of process p. If a thread of p has taken a Signal out of its node and not put it into another
// one, the Signal is lost. That is a fault if a wait could get the Signal.
func (m *condModel) dies(s *cnState, p uint8) {
	for i := range m.threads {
		if t := &s.thread[i]; m.proc(i) == p && t.hand != 0 && s.entitled(t.handFor) != 0 {
			s.wrong = "a Signal is lost"
		}
	}
}
