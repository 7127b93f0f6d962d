//go:build linux

package prims

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/shmsync/shmsync/internal/model"
)

// This is a model of a MultiLock with one or two buckets, up to four entries and four keys. An entry has the two
// halves of a key, the hold word, the accepted word and a queue. The queue is one recorded word here;
// recordQueueModel has its links. A block has one entry here. In the model, no node of a dead participant is freed,
// and every repair succeeds.
//
// If the field fine of the model is true, each load and each CAS is a step, with three exceptions. A thread does each
// of the following in one step: it reads the words of a record; it writes the words of its record; it closes a hold
// word and reads the words of the entry.
//
// If fine is false, a thread also does each of the following in one step: it reads the commit word and the record that
// it names; it searches for an entry and closes its hold word; it writes a record and makes the commit word name it.

const (
	mlThreads = 4
	mlProcs   = 4
	mlSlots   = 3
	mlEntries = 4
	mlBuckets = 2
	mlKeys    = 4
	mlHeir    = 3 // the process that has the slot of process 0 after the death of that process
)

// The keys are a, b, c and d. Memory of zero bytes has the key a. A call finds the key c if it reads one half while the
// entry has a, and the other half while the entry has b. The key d is in bucket 1.
var mlHalves = [mlKeys]struct{ bucket, low, high uint8 }{{0, 0, 0}, {0, 1, 1}, {0, 0, 1}, {1, 1, 1}}

// The kinds that the hold word can have. The word also has a name: the number of a process, plus 1, or 0 for none.
const (
	mlClosed uint8 = iota
	mlOpen
	mlGranted
	mlDead
	mlRecovering
)

// The values that the word of a node can have. In the arena, this word is the field next of the node.
const (
	mlNone uint8 = iota
	mlQueued
	mlGrant
	mlLeft
	mlRemoved
	mlRefused
)

type mlHold struct{ kind, name, tag uint8 }

func (h mlHold) free() bool { return h.name == 0 && h.kind <= mlOpen }

type mlEntry struct {
	low, high rqWord
	hold      mlHold
	accepted  rqWord           // the name and the tag of the grant that was accepted
	queue     [mlThreads]uint8 // in order; each is the number of a thread, plus 1
	tag       uint8            // of the queue
}

// The words of a record, in the order in which a process carries it out.
const (
	mlLow uint8 = 1 << iota
	mlHigh
	mlHeld
	mlQueue
	mlNext
)

// mlRecord is a record. It changes words of one entry, and the word of one node. If it changes the queue, the node
// joins or leaves the queue.
type mlRecord struct {
	where     uint8  // the number of the entry in its bucket
	has       uint8  // the words that change
	low, high rqWord // the new value, and the tag of the old contents
	was, to   mlHold // the old and the new hold word; to.tag is how much the record adds to the tag of the word
	queueTag  uint8
	node      uint8 // the number of the node, plus 1
	next      rqWord
	nextTo    uint8
}

type mlHead struct{ version, bucket uint8 }

// mlHas is a Hold: the number of an entry plus 1, and the tag of the hold word.
type mlHas struct{ entry, tag uint8 }

type mlThread struct {
	pc, at, mode, did, why uint8
	bucket                 uint8
	i                      uint8 // the next word of rec
	scan                   uint8 // the number of the entry at which the fast path looks
	entry                  uint8 // the entry of the present change, plus 1
	q                      mlHold
	c                      rqCommit
	rec                    mlRecord
	own                    bool // the thread completes its own record, and not that of another thread
}

type mlState struct {
	entry    [mlEntries]mlEntry
	of       [mlEntries]uint8 // the bucket of each block
	blocks   uint8
	seen     [mlProcs]uint8 // how many blocks each process knows
	commit   [mlBuckets]rqCommit
	head     [mlSlots]mlHead
	rec      [mlSlots]mlRecord
	node     [mlThreads]rqWord
	resolved uint8
	private  [mlProcs]uint8 // a thread, plus 1
	opened   bool           // the heir has opened the MultiLock
	thread   [mlThreads]mlThread
	holds    [mlThreads][mlKeys]mlHas
	dead     uint8
	stopped  uint8 // the number of the stopped process, plus 1
	kills    uint8

	inside [mlKeys]uint8 // threads that have the key
	died   [mlKeys]uint8 // processes that died while they had the key, until a Recover
	told   [mlKeys]uint8 // processes whose death was reported
	wrong  mlFault
}

// The steps.
const (
	mlEnded uint8 = iota
	mlInherit
	mlFast
	mlSeeLow
	mlSeeHigh
	mlSwap
	mlLock
	mlLoad
	mlCopy
	mlCompare
	mlApply
	mlTell
	mlLook
	mlFind
	mlRule
	mlWriteHead
	mlWriteRest
	mlName
	mlNumber
	mlPush
	mlSleep
)

// The kinds of a thread's call.
const (
	mlLocks uint8 = iota
	mlTries
	mlUnlocks
	mlWithdraws
	mlChecks
	mlServes
	mlRecovers
	mlInherits
)

// The reasons for which a thread has chosen an entry.
const (
	mlHasKey uint8 = iota
	mlEvicts
	mlTidies
)

// The purposes of a change: what its author does after it.
const (
	mlOver  uint8 = iota // the call has ended
	mlAgain              // the author begins its next change
	mlTook
	mlJoined
	mlGave
	mlWithdrew
	mlEnds // the author's wait has ended
	mlRepairs
	mlRefusedUnlock
	mlNeedsBlock
)

// multiLockModel has threads. Each is written as the number of its process and its operations. An operation is a letter
// and a key:
//
//	L  locks
//	C  locks with a context that may end
//	T  tries to lock
//	U  unlocks, if the thread has the key
//	D  unlocks the last Hold of the key again
//	R  recovers the key, after a death
//	X  is a reaper without a record, which takes any one open key from a dead holder; the key after X is ignored
type multiLockModel struct {
	threads []string
	buckets uint8
	entries uint8 // of each bucket
	release bool  // PolicyRelease
	fine    bool
	kills   uint8
	mortal  uint8 // the processes that may die
	stops   bool
	bug     bug
}

func mlModel(entries uint8, threads ...string) multiLockModel {
	return multiLockModel{threads: threads, buckets: 1, entries: entries, mortal: 1<<mlProcs - 1}
}
func (m multiLockModel) withKills(n uint8) multiLockModel   { m.kills = n; return m }
func (m multiLockModel) withDeathOf(p uint8) multiLockModel { m.kills, m.mortal = 1, 1<<p; return m }
func (m multiLockModel) withStop() multiLockModel           { m.stops = true; return m }
func (m multiLockModel) withTwoBuckets() multiLockModel     { m.buckets = 2; return m }
func (m multiLockModel) withRelease() multiLockModel        { m.release = true; return m }
func (m multiLockModel) inFineSteps() multiLockModel        { m.fine = true; return m }
func (m *multiLockModel) proc(i int) uint8                  { return m.threads[i][0] - '0' }
func (m *multiLockModel) slot(p uint8) uint8                { return p % mlSlots }
func (m *multiLockModel) isDead(s *mlState, name uint8) bool {
	return name != 0 && s.dead&(1<<(name-1)) != 0
}
func (m *multiLockModel) ownerDead(s *mlState, node uint8) bool {
	return m.isDead(s, m.proc(int(node-1))+1)
}
func (m *multiLockModel) halted(s *mlState, p uint8) bool {
	return s.dead&(1<<p) != 0 || s.stopped == p+1
}

// op returns the present operation of thread i, or 0, and its key.
func (m *multiLockModel) op(s *mlState, i int) (verb, key uint8) {
	if ops := m.threads[i][1:]; int(s.thread[i].at)*2 < len(ops) {
		return ops[s.thread[i].at*2], ops[s.thread[i].at*2+1] - 'a'
	}
	return 0, 0
}

func (m multiLockModel) explore(b bug) model.Result {
	m.bug = b
	first := mlState{}
	for i := range m.threads {
		m.start(&first, i)
	}
	spec := model.Spec[mlState]{
		Init: []mlState{first}, Next: m.next, Check: m.right, Done: m.done, Show: m.show, Limit: 1 << 22,
	}
	return spec.Explore()
}

// start begins the next operation of a thread.
func (m *multiLockModel) start(s *mlState, i int) {
	t, me := &s.thread[i], uint8(1)<<i
	*t = mlThread{at: t.at, pc: mlFast}
	verb, key := m.op(s, i)
	t.bucket = mlHalves[key].bucket
	skip := false
	switch verb {
	case 0:
		*t = mlThread{at: t.at}
		return
	case 'T':
		t.mode = mlTries
	case 'U':
		t.mode, skip = mlUnlocks, s.inside[key]&me == 0 // an earlier operation has failed to lock the key
	case 'D':
		t.mode, skip = mlUnlocks, s.inside[key]&me != 0 || s.holds[i][key].entry == 0
	case 'R':
		t.mode = mlRecovers
	}
	if skip {
		t.at++
		m.start(s, i)
		return
	}
	if m.proc(i) == mlHeir && !s.opened {
		t.pc = mlInherit
	}
}

func (m *multiLockModel) finish(s *mlState, i int) { s.thread[i].at++; m.start(s, i) }

// awaits reports whether thread i has nothing to do before the death of another process.
func (m *multiLockModel) awaits(s *mlState, i int) bool {
	verb, _ := m.op(s, i)
	pc := s.thread[i].pc
	return pc == mlInherit && s.dead&1 == 0 || pc == mlFast && (verb == 'X' || verb == 'R') && s.dead == 0
}

func (m *multiLockModel) show(s *mlState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %v heads %v blocks %d known %v nodes %v", s.commit, s.head, s.blocks, s.seen, s.node)
	fmt.Fprintf(&b, " inside %v died %v dead %b stop %d", s.inside, s.died, s.dead, s.stopped)
	for x := range m.total(s) {
		fmt.Fprintf(&b, " E%d %v", x, s.entry[x])
	}
	for i := range m.threads {
		t := &s.thread[i]
		fmt.Fprintf(&b, " T%d pc %d at %d mode %d did %d c %v holds %v", i, t.pc, t.at, t.mode, t.did, t.c, s.holds[i])
	}
	return b.String()
}

func (m *multiLockModel) next(s *mlState, to func(model.Step[mlState])) {
	emit := func(step model.Step[mlState]) {
		m.canon(&step.To)
		to(step)
	}
	for i := range m.threads {
		t := &s.thread[i]
		if m.halted(s, m.proc(i)) || m.awaits(s, i) {
			continue
		}
		for pick := range m.choices(s, i) {
			to := *s
			if label := m.step(&to, i, pick); label != "" {
				emit(model.Step[mlState]{To: to, By: namesT[i], Label: label})
			}
		}
		if t.pc != mlSleep {
			continue
		}
		if verb, _ := m.op(s, i); verb == 'C' {
			to := *s
			to.thread[i].pc, to.thread[i].mode = mlLock, mlWithdraws
			emit(model.Step[mlState]{To: to, By: namesT[i], Label: "its context ends", Optional: true})
		}
		if (s.kills > 0 || s.stopped != 0) && m.bug != mlNoChecks {
			to := *s
			to.thread[i].pc, to.thread[i].mode = mlLock, mlChecks
			emit(model.Step[mlState]{To: to, By: namesT[i], Label: "a periodic check"})
		}
	}
	for p := range uint8(mlProcs) {
		if m.halted(s, p) || !m.exists(p) {
			continue
		}
		if s.kills < m.kills && m.mortal&(1<<p) != 0 {
			to := *s
			to.kills++
			to.dead |= 1 << p
			m.dies(&to, p)
			emit(model.Step[mlState]{To: to, By: processNames[p], Label: "dies", Optional: true})
		}
		if m.stops && s.stopped == 0 {
			to := *s
			to.stopped = p + 1
			emit(model.Step[mlState]{To: to, By: processNames[p], Label: "stops for ever", Optional: true})
		}
	}
}

// exists reports whether a thread belongs to process p.
func (m *multiLockModel) exists(p uint8) bool {
	return slices.ContainsFunc(m.threads, func(t string) bool { return t[0]-'0' == p })
}

// right checks the invariant.
func (m *multiLockModel) right(s *mlState) error {
	if s.wrong == 0 {
		m.invariant(s)
	}
	if s.wrong != 0 {
		return errors.New(mlFaults[s.wrong])
	}
	return nil
}
