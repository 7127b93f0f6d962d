//go:build linux

package prims

import (
	"fmt"
	"strings"

	"github.com/shmsync/shmsync/internal/model"
)

// This is the model of a Waitable: its images, its holds, and its queue. The rules are those of a semaphore. A wait
// for 1 takes one permit, a wait for 2 takes two permits, and a wait for 2 is served before a wait for 1. An image is
// written and copied in two halves, so a copy can be torn. The text of a panic is one word. Writing a record is one
// step here, and so is the sleep of a waiter; recordQueueModel has the single steps of both. Each slot has a hold,
// and each block has one more. A call that needs a block pushes it in one step.

const (
	wtThreads = 3
	wtProcs   = 3
	wtSlots   = 3
	wtBlocks  = 2                  // the maximum number of blocks
	wtHolds   = wtSlots + wtBlocks // one for each slot, and one in each block
	wtImages  = 1 + 2*wtSlots      // image 0 is in the body
)

// The words that records change.
const (
	wtCurrent uint8 = iota
	wtLost          // a process, plus 1
	wtFirst         // a node, plus 1
	wtLast
	wtLabel uint8 = 4
	wtCount uint8 = wtLabel + wtHolds
	wtGrant uint8 = wtCount + wtHolds
	wtNext  uint8 = wtGrant + wtHolds // values as in the model of the recorded queue
	wtPrev  uint8 = wtNext + wtThreads
	wtWords uint8 = wtPrev + wtThreads
)

// wtRefused is the value of the link to the next node if the wait of the node was refused, because the Waitable is not
// recoverable.
const wtRefused uint8 = 5

type wtThread struct {
	pc, at, mode, stage uint8
	did, out            uint8 // did: the change that the thread makes; out: the result of its call
	c                   rqCommit
	rec                 rqRecord
	own                 bool // the thread itself made rec; otherwise it completes the record of another thread
	i                   uint8
	img                 uint8    // the image that the thread copies or writes
	copied              [2]uint8 // the halves of the copy
	from                rqWord   // the value of wtCurrent before the copy
	fresh               bool     // the thread has a copy, and begins the change once more
	v                   uint8    // the state after the rule
	of, e               uint8    // the process, plus 1, and the argument for which the rule runs
	hold                uint8    // the hold of the claim, plus 1
	head                uint8    // how many blocks there were before the search for a hold
	undo                bool     // the claim was granted and not accepted
	place               uint8    // the node behind which the wait belongs, plus 1
	lost                rqWord   // the value of wtLost that Recover has read
	saw                 uint8    // the processes that had ended when the thread locked the private lock
	served, post        bool
	has                 bool      // the thread has a claim
	since               [16]uint8 // for State: a bit for each state that there was since the call began
}

type wtState struct {
	commit   rqCommit
	word     [wtWords]rqWord
	accepted [wtHolds]uint8
	image    [wtImages][2]uint8
	head     [wtSlots]uint8
	rec      [wtSlots]rqRecord
	text     [wtSlots]uint8
	private  [wtProcs]uint8 // thread, plus 1
	seen     [wtProcs]uint8 // the dead processes that the last reap of a process knew of
	turn     [wtProcs]uint8 // only for the bug wtBlindSpare
	blocks   uint8          // how many blocks there are
	known    [wtProcs]uint8 // how many blocks a process knows; only for bugs in which it does not know all blocks
	resolved uint8
	thread   [wtThreads]wtThread
	dead     uint8 // bits of processes
	gone     uint8 // the dead processes that have ended
	stopped  uint8
	kills    uint8

	// The history, for the checks.
	truth uint8             // the state
	size  uint8             // the number of permits
	queue [wtThreads]uint8  // nodes, plus 1, in the order of service
	got   [wtProcs][2]uint8 // claims that a process has, by their argument
	given [wtProcs][2]uint8 // claims that waits of a process were granted and have not accepted
	wrong string
}

// The steps.
const (
	wtEnded uint8 = iota
	wtBorn        // the process of the thread begins when its predecessor in the slot is dead
	wtLock
	wtBegin
	wtApply
	wtTell
	wtLook
	wtCopy
	wtCopyRest
	wtRule
	wtPush
	wtPut
	wtPutRest
	wtText
	wtWalk
	wtJoin
	wtName
	wtUnlock
	wtPrepare
	wtSleep
	wtAccept
)

// The kinds of work of a thread.
const (
	wtTries uint8 = iota // the first attempt of a Wait, or a TryWait
	wtJoins
	wtReleases
	wtUpdates
	wtFails // its rule panics
	wtLoses // makes the Waitable not recoverable, because a rule has panicked
	wtReads // State, or the first part of Recover
	wtRecovers
	wtWithdraws
	wtServes
	wtChecks // makes a periodic check of the object while it waits
)

// The stages of a call that holds the private lock.
const (
	wtMain uint8 = iota
	wtReap
	wtServe
)

// The purposes of a change.
const (
	wtNothing uint8 = iota
	wtAgain         // a preparing change (a removal, a refusal, or a label), after which the call goes on
	wtTook
	wtGranted
	wtJoined
	wtGave
	wtUpdated
	wtUndid
	wtMarked
	wtRecovered
	wtWithdrew
	wtNeedsNode
	wtWasEnded
)

const (
	wtBlindSpare  bug = "a new participant of a slot writes an image without a look at the word current"
	wtNoLook      bug = "a copy is used without a second look at the word current"
	wtNoLookTag   bug = "the second look at the word current compares the value without the tag"
	wtRuleFirst   bug = "a rule runs before the second look at the word current"
	wtTextLate    bug = "the text of a panic is written after the record"
	wtAcceptEarly bug = "a waiter accepts a claim before its node says that it was granted"
	wtSplitGrant  bug = "the word granted does not change in the record that changes the queue"
	wtLabelsUsed  bug = "a hold is labelled although it is not free"
	wtEarlyLook   bug = "a search for a hold looks for new blocks before it reads the commit word"
	wtOwnBlocks   bug = "a search for a hold knows only the blocks of its own process"
	wtHelpsKnown  bug = "a process that completes a record leaves out the words in blocks that it does not know"
	wtWrongSlot   bug = "a grant uses the hold in the slot record of the process that grants"
	wtPushBlind   bug = "a block is pushed although another call has pushed one after the search"
	wtStaleWalk   bug = "a wait joins the queue at the place of an earlier walk"
	wtUndoTwice   bug = "the state and the hold change in two records when a claim is undone"
	wtExtraLate   bug = "the argument of a claim is read after the copy was found to be valid"
	wtReapsLost   bug = "a reap of a Waitable that is not recoverable counts as done"
	wtForgetsLate bug = "a reap counts as done although the process of a dead participant has not ended"
	wtNoReap      bug = "claims of the dead stay"
	wtGrantsDead  bug = "waits of the dead stay in the queue"
	wtSwapsRules  bug = "a claim that was not accepted is undone by OnDeath"
	wtNoServe     bug = "a change ends no wait"
	wtLeavesQuiet bug = "a wait that is given up serves nobody"
	wtNoChecks    bug = "waiters make no periodic checks"
	wtChecksFirst bug = "a periodic check does nothing unless the word first names a wait"
	wtHelperQuiet bug = "a process that completes a record of another resolves nobody"
	wtBarges      bug = "a call makes a claim although others wait"
	wtNoTags      bug = "a process that carries a record out compares values without tags"
	wtIgnoresLost bug = "an Update changes the state of a Waitable that is not recoverable"
	wtNoLostTag   bug = "Recover compares the value of the word lost without its tag"
	wtLastPlace   bug = "a wait joins at the end, whatever the rule Before says"
)

// waitableModel is a model with some threads. The string of a thread has the number of its process and then its
// operations. W waits, C waits with a context that may end, T tries, and R releases what the preceding operation has
// claimed. U adds a permit, S reads the state, P calls a rule that panics, and X recovers. The argument follows each
// operation.
type waitableModel struct {
	threads  []string
	size     uint8
	kills    uint8
	stops    bool
	fine     bool // each entry of a record is carried out in a step of its own
	wide     bool // a grant with a new label does not fit into one record
	full     bool // the arena has no room for blocks
	lingers  bool // a dead process ends in a later step
	inherits bool // process 2 is the next participant in the slot of process 0
	bug      bug
	numbers  rqNumbers
}

func wtModel(size uint8, threads ...string) waitableModel {
	return waitableModel{threads: threads, size: size}
}
func (m waitableModel) withKills(n uint8) waitableModel { m.kills = n; return m }
func (m waitableModel) withStop() waitableModel         { m.stops = true; return m }
func (m waitableModel) withHeir() waitableModel         { m.inherits, m.kills = true, 1; return m }
func (m waitableModel) withEnd() waitableModel          { m.lingers = true; return m }
func (m waitableModel) inSteps() waitableModel          { m.fine = true; return m }
func (m waitableModel) withLabels() waitableModel       { m.wide = true; return m }
func (m waitableModel) withoutRoom() waitableModel      { m.full = true; return m }

func (m *waitableModel) proc(i int) uint8 { return m.threads[i][0] - '0' }
func (m *waitableModel) op(s *wtState, i int) (verb byte, e uint8) {
	ops := m.threads[i][1:]
	if k := int(s.thread[i].at) * 2; k < len(ops) {
		return ops[k], ops[k+1] - '0'
	}
	return 0, 0
}

func (m *waitableModel) slot(p uint8) uint8 {
	if m.inherits && p == 2 {
		return 0
	}
	return p
}

func (m *waitableModel) isDead(s *wtState, p uint8) bool { return s.dead&(1<<p) != 0 }
func (m *waitableModel) halted(s *wtState, p uint8) bool {
	return m.isDead(s, p) || s.stopped == p+1
}

// wants returns the argument of the wait of node k.
func (m *waitableModel) wants(s *wtState, k uint8) uint8 {
	_, e := m.op(s, int(k))
	return e
}

func (m waitableModel) explore(b bug) model.Result {
	m.bug = b
	first := wtState{size: m.size, truth: m.size}
	first.image[0] = wtHalves(m.size)
	for i := range m.threads {
		m.start(&first, i)
		if m.inherits && m.proc(i) == 2 {
			first.thread[i].pc = wtBorn
		}
	}
	spec := model.Spec[wtState]{Init: []wtState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 23}
	return spec.Explore()
}

// start begins the next operation of a thread.
func (m *waitableModel) start(s *wtState, i int) {
	t := &s.thread[i]
	*t = wtThread{at: t.at, pc: wtLock, has: t.has}
	switch verb, _ := m.op(s, i); verb {
	case 0:
		t.pc = wtEnded
	case 'R':
		if t.mode = wtReleases; !t.has {
			m.finish(s, i)
		}
	case 'U':
		t.mode = wtUpdates
	case 'P':
		t.mode = wtFails
	case 'S', 'X':
		t.mode, t.pc = wtReads, wtBegin
		t.since[s.truth/8] = 1 << (s.truth % 8)
	}
}

func (m *waitableModel) finish(s *wtState, i int) { s.thread[i].at++; m.start(s, i) }

func (m *waitableModel) show(s *wtState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %v current %v lost %v first %v last %v label %v count %v granted %v accepted %v next %v prev %v images %v truth %d queue %v got %v given %v dead %d stop %d blocks %d",
		s.commit, s.word[wtCurrent], s.word[wtLost], s.word[wtFirst], s.word[wtLast], s.word[wtLabel:wtCount], s.word[wtCount:wtGrant], s.word[wtGrant:wtNext], s.accepted,
		s.word[wtNext:wtPrev], s.word[wtPrev:], s.image, s.truth, s.queue, s.got, s.given, s.dead, s.stopped, s.blocks)
	for i := range m.threads {
		t := &s.thread[i]
		fmt.Fprintf(&b, " T%d pc %d mode %d stage %d did %d c %v", i, t.pc, t.mode, t.stage, t.did, t.c)
	}
	return b.String()
}

func (m *waitableModel) next(s *wtState, to func(model.Step[wtState])) {
	emit := func(step model.Step[wtState]) {
		m.canon(&step.To)
		to(step)
	}
	again := func(i int, mode uint8, label string, optional bool) {
		to := *s
		to.thread[i].pc, to.thread[i].mode = wtLock, mode
		emit(model.Step[wtState]{To: to, By: namesT[i], Label: label, Optional: optional})
	}
	for i := range m.threads {
		if m.halted(s, m.proc(i)) {
			continue
		}
		to := *s
		if label := m.step(&to, i); label != "" {
			emit(model.Step[wtState]{To: to, By: namesT[i], Label: label})
		}
		if s.thread[i].pc != wtSleep {
			continue
		}
		if verb, _ := m.op(s, i); verb == 'C' {
			again(i, wtWithdraws, "its context ends", true)
		}
		looks := m.bug != wtNoChecks && (m.bug != wtChecksFirst || s.word[wtFirst].v != 0 || s.dead != 0)
		if (s.kills > 0 || s.stopped != 0) && looks {
			again(i, wtChecks, "a periodic check", false)
		}
	}
	for p := range uint8(wtProcs) {
		if m.isDead(s, p) && s.gone&(1<<p) == 0 {
			to := *s
			to.gone |= 1 << p
			emit(model.Step[wtState]{To: to, By: processNames[p], Label: "has ended"})
		}
		if m.halted(s, p) || m.inherits && p == 2 {
			continue
		}
		if s.kills < m.kills {
			to := *s
			to.kills++
			if to.dead |= 1 << p; !m.lingers {
				to.gone = to.dead
			}
			emit(model.Step[wtState]{To: to, By: processNames[p], Label: "dies", Optional: true})
		}
		if m.stops && s.stopped == 0 {
			to := *s
			to.stopped = p + 1
			emit(model.Step[wtState]{To: to, By: processNames[p], Label: "stops for ever", Optional: true})
		}
	}
}
