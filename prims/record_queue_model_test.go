//go:build linux

package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/model"
)

// This is the model of a recorded queue, with the rules of an owned Semaphore. Each thread has a wait node,
// which it uses for all of its waits. One step reads all words and computes the change. The model checks that
// the words are still the same when the change takes effect.

const (
	rqThreads = 4
	rqProcs   = 3
)

// The words.
const (
	rqFree   uint8 = 0
	rqFirst  uint8 = 1
	rqLast   uint8 = 2
	rqOpened uint8 = 3
	rqShare  uint8 = 4
	rqFast   uint8 = rqShare + rqProcs
	rqNext   uint8 = rqFast + rqProcs
	rqPrev   uint8 = rqNext + rqThreads
	rqWords  uint8 = rqPrev + rqThreads
)

// Values of the words next and fast.
const (
	rqEnd     uint8 = 1
	rqGranted uint8 = 2
	rqLeft    uint8 = 3
	rqRemoved uint8 = 4
	rqNode    uint8 = 8  // in the word next, rqNode+k names the node k
	rqOpen    uint8 = 16 // a bit of the word fast: the share is open
)

type rqNodeWord struct{ state, gen uint8 }

// States of a node word.
const (
	rqIdleNode uint8 = iota
	rqQueued
	rqAsleep
	rqResolved
)

type rqThread struct {
	pc, at uint8
	mode   uint8
	did    uint8
	i      uint8
	c      rqCommit
	rec    rqRecord
	own    bool // rec is a record that this thread has written
	w      rqNodeWord
	q      rqWord // the fast word that the thread has read
	had    uint8  // the permits that the share of the process had when the thread read it
	at2    uint8  // the share that the thread closes
	wakes  uint8  // nodes whose threads the thread has to wake
	gaveUp bool
	saw    uint8 // the dead processes that the thread knew of
}

type rqState struct {
	commit  rqCommit
	word    [rqWords]rqWord
	head    [rqProcs]uint8
	rec     [rqProcs]rqRecord
	private [rqProcs]uint8 // thread + 1
	fastOn  [rqProcs]bool
	last    uint8 // the process of the last releaser, plus 1
	node    [rqThreads]rqNodeWord
	woken   uint8
	thread  [rqThreads]rqThread
	dead    uint8 // bits of processes
	stopped uint8
	kills   uint8

	// The history, for the checks.
	queue [rqThreads]uint8 // nodes + 1
	waits uint8            // nodes whose wait was queued, and neither granted nor given up
	got   uint8            // nodes whose wait was granted, and whose owner has not noticed that yet
	held  [rqProcs]uint8
	wrong string
}

// The steps.
const (
	rqIdle uint8 = iota
	rqEnded
	rqFastLoad
	rqFastHad
	rqFastSwap
	rqLock
	rqBegin
	rqCopy
	rqHead
	rqApply
	rqTell
	rqTellNext
	rqTellSwap
	rqRule
	rqShut
	rqWriteHead
	rqWriteRest
	rqName
	rqUnlock
	rqWake
	rqSleep
	rqSleeping
	rqCollect
	rqPrepNext
	rqPrepWord
)

// The kinds of work of a thread.
const (
	rqAcquires uint8 = iota
	rqJoins          // acquires, after it has prepared its node
	rqReleases
	rqServes    // grants waits, after a release or after its wait was given up
	rqWithdraws // gives up its wait
	rqChecks    // makes a periodic check of the object while it waits
)

// The purposes of a change. They decide what the thread does after it has made the change.
const (
	rqNothing uint8 = iota // there is nothing to change, or the call is over
	rqAgain
	rqTook
	rqJoined
	rqGave
	rqOpens
	rqWithdrew
	rqToShut
	rqNeedsNode
	rqWasGranted
)

const (
	rqNoTags      bug = "a process that carries a record out compares values without tags"
	rqTagsAgain   bug = "the tags of a node begin anew with each wait"
	rqNoHead      bug = "a helper does not look at the head after the entries"
	rqRestFirst   bug = "an author writes the entries before the head"
	rqNoComplete  bug = "an author does not complete the record before its own"
	rqTellsAny    bug = "a granted wait is resolved without a look at its word next"
	rqHelperQuiet bug = "a process that completes a record of another resolves nobody"
	rqJoinsOpen   bug = "a wait is queued while a share is open"
	rqFoldsOpen   bug = "a share is emptied while it is open"
	rqNoServe     bug = "a release grants nothing"
	rqLeavesQuiet bug = "a wait that is given up serves nobody"
	rqNoReap      bug = "permits of the dead do not come back"
	rqGrantsDead  bug = "waits of the dead stay in the queue"
	rqNoChecks    bug = "waiters make no periodic checks"
	rqNoWake      bug = "nobody wakes a wait that was granted"
	rqBarges      bug = "a call takes permits although others wait"
	rqLosesGrant  bug = "a wait is given up while a record that grants it is incomplete"
	rqOpensQueued bug = "a share is opened although a wait is queued"
)

// recordQueueModel is a model with some threads. The string of a thread has the number of its process and then
// its operations. A acquires, C acquires with a context that may end, and R releases. A number of permits
// follows each operation.
type recordQueueModel struct {
	threads []string
	size    uint8
	kills   uint8
	stops   bool
	bug     bug
	numbers rqNumbers
}

func (m recordQueueModel) withKills(n uint8) recordQueueModel { m.kills = n; return m }
func (m recordQueueModel) withStop() recordQueueModel         { m.stops = true; return m }

func (m *recordQueueModel) proc(i int) int { return int(m.threads[i][0] - '0') }
func (m *recordQueueModel) op(t *rqThread, i int) (verb byte, n uint8) {
	ops := m.threads[i][1:]
	if k := int(t.at) * 2; k < len(ops) {
		return ops[k], ops[k+1] - '0'
	}
	return 0, 0
}

func (m recordQueueModel) explore(b bug) model.Result {
	m.bug = b
	first := rqState{}
	first.word[rqFree].v = m.size
	for i := range first.thread {
		first.thread[i].pc = rqEnded
		if i < len(m.threads) {
			m.start(&first, i)
		}
	}
	spec := model.Spec[rqState]{Init: []rqState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 22}
	return spec.Explore()
}

func (m *recordQueueModel) start(s *rqState, i int) {
	t := &s.thread[i]
	*t = rqThread{at: t.at, pc: rqFastLoad}
	if verb, _ := m.op(t, i); verb == 0 {
		t.pc = rqEnded
	} else if verb == 'R' {
		t.mode = rqReleases
	}
}

func (m *recordQueueModel) finish(s *rqState, i int) {
	s.thread[i].at++
	m.start(s, i)
}

func (m *recordQueueModel) halted(s *rqState, p int) bool {
	return s.dead&(1<<p) != 0 || int(s.stopped) == p+1
}

func (m *recordQueueModel) show(s *rqState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %v free %v first %v last %v opened %v T %v fast %v next %v prev %v node %v queue %v held %v dead %d stop %d",
		s.commit, s.word[rqFree], s.word[rqFirst], s.word[rqLast], s.word[rqOpened], s.word[rqShare:rqFast], s.word[rqFast:rqNext],
		s.word[rqNext:rqPrev], s.word[rqPrev:], s.node, s.queue, s.held, s.dead, s.stopped)
	for i := range m.threads {
		t := &s.thread[i]
		fmt.Fprintf(&b, " T%d pc %d mode %d did %d c %v i %d", i, t.pc, t.mode, t.did, t.c, t.i)
	}
	return b.String()
}

func (m *recordQueueModel) next(s *rqState, to func(model.Step[rqState])) {
	emit := func(step model.Step[rqState]) {
		m.canon(&step.To)
		to(step)
	}

	for i := range m.threads {
		if m.halted(s, m.proc(i)) {
			continue
		}
		to := *s
		if label := m.step(&to, i); label != "" {
			emit(model.Step[rqState]{To: to, By: namesT[i], Label: label})
		}
		if verb, _ := m.op(&s.thread[i], i); s.thread[i].pc == rqSleeping && verb == 'C' {
			to := *s
			t := &to.thread[i]
			t.pc, t.mode = rqLock, rqWithdraws
			emit(model.Step[rqState]{To: to, By: namesT[i], Label: "its context ends", Optional: true})
		}
		if s.thread[i].pc == rqSleeping && (s.kills > 0 || s.stopped != 0) && m.bug != rqNoChecks {
			to := *s
			t := &to.thread[i]
			t.pc, t.mode = rqLock, rqChecks
			emit(model.Step[rqState]{To: to, By: namesT[i], Label: "a periodic check"})
		}
	}
	for p := range rqProcs {
		if m.halted(s, p) {
			continue
		}
		if s.kills < m.kills {
			to := *s
			to.kills++
			to.dead |= 1 << p
			emit(model.Step[rqState]{To: to, By: processNames[p], Label: "dies", Optional: true})
		}
		if m.stops && s.stopped == 0 {
			to := *s
			to.stopped = uint8(p + 1)
			emit(model.Step[rqState]{To: to, By: processNames[p], Label: "stops for ever", Optional: true})
		}
	}
}
