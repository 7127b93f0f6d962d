//go:build linux

package prims

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/model"
)

// monModel is a semaphore on a monitor. It has waiters, each of which is a process with a node that
// it keeps from wait to wait, and a reaper that lives for ever. A thread takes the queue lock only
// when the lock is free; the wait for it is in the model of the Mutex.
type monModel struct {
	wants     []uint8 // how many permits each waiter wants
	permits   uint8
	kills     uint8
	elsewhere bool // waiters also wait in another object, with the same node
	tries     bool // the reaper may find the queue lock held, and leave the reap to periodic checks

	bug bug
}

const (
	monMost      = 3 // waiters; the reaper is the thread after them
	monNodes     = 4
	monDead      = 255 // the queue lock is owner-dead
	monElsewhere = 128 // a stamp from another object
)

// monState is a state of the model. In the fields, threads, processes and nodes are numbered from
// 1; 0 means none.
type monState struct {
	queueLock uint8
	free      uint8
	share     [monMost]uint8
	log       monLog
	accounted uint8
	node      [monNodes]monNode
	queue     [monNodes]uint8
	thread    [monMost + 1]monThread
	dead      uint8 // bits of the processes that were killed
	marked    uint8 // bits of those that were found dead, and so are not current
	reaped    uint8 // bits of those that were reaped
	kills     uint8
	reaping   uint8
	due       bool // the next waiter that checks has to reap
	wrong     monWrong
}

// monLog is the redo log: the values that the words get.
type monLog struct {
	valid                       bool
	who, share, free, acc, node uint8
}

type monNode struct {
	word      arenakernel.NodeState
	owner     uint8
	stamp     uint8
	used      bool // the block of the node is in use
	sleeping  bool // the owner of the node sleeps on it
	elsewhere bool // the node is on a queue of another object
}

type monThread struct {
	pc          uint8
	job         uint8
	back        uint8 // where the thread goes on after it has dropped a node
	waitNode    uint8 // the node that the thread owns
	at          uint8 // the node that it is about to drop or give back
	owner       uint8 // the owner of the node at
	same        bool  // whether the node at is still in the same use
	cleanUp     uint8 // the node whose wait it has given up
	cleanUpSame bool  // whether the node cleanUp is still in the same use
	wakes       uint8 // the nodes whose owners it has to wake, a bit each
	replaying   bool
	has         bool // it has permits
}

type monWrong uint8

const (
	monFreedInUse monWrong = iota + 1
	monQueuedTwice
	monNotHeld
	monClobbered
	monLinksWrong
)

var errsMon = [...]error{
	monFreedInUse:  errors.New("a node was given back that is in use"),
	monQueuedTwice: errors.New("a node is queued that is on the queue"),
	monNotHeld:     errors.New("who was granted permits does not have them"),
	monClobbered:   errors.New("the stamp of another wait was taken away"),
	monLinksWrong:  errors.New("what is on the queue is not waiting there"),
}

var (
	errMonTooMany  = errors.New("more permits are had than there are")
	errMonPermits  = errors.New("permits are lost, or made")
	errMonLeak     = errors.New("a node is nobody's")
	errMonSleeps   = errors.New("somebody sleeps though its permits are free")
	errMonLeftOver = errors.New("something is left on the queue")
)

// The purposes for which a thread takes the queue lock.
const (
	monAcquire = iota + 1
	monRelease
	monCleanUp
	monReap
)

// The steps of a thread.
const (
	mIdle uint8 = iota
	mClaim
	mElsewhere
	mEnter
	mBody
	mTakeFree
	mJoinStamp
	mJoinLink
	mGiveFree
	mResolveAll
	mResolve
	mLog
	mApply
	mApplyRest
	mUnlog
	mTakeOver
	mDrop
	mReleased
	mTaken
	mFree
	mLeave
	mWake
	mAfter
	mSleep
	mAsleep
	mCollect
	mSpent
	mHold
	mRedo
	mRedone
	mClear
	mRebuild
	mReapShares
	mReapQueue
	mMarkOwnerDead
	mWakeResolved
	mFreeNodes
)

// Faults that a monitor could have.
const (
	monAccountsTwice   bug = "replaying accounts for what has been accounted for"
	monLeftAsSpent     bug = "who was granted and cannot keep the node marks it left"
	monKeepsStamped    bug = "a node is kept that has a stamp"
	monReclaimsAnyUse  bug = "a node is reclaimed whatever use it is in"
	monReclaimsBlindly bug = "a node is given back by whoever has marked it free, whoever owns it"
	monReapsAnyUse     bug = "a node of the dead is given back whatever use it died in"
	monForgetsOrphans  bug = "nobody gives back what one who died had taken off for another dead one"
	monDropsFirst      bug = "the stamp is dropped before the node is taken over"
	monWakesNobody     bug = "a reap does not wake those whose wait is over"
	monDoesNotCleanUp  bug = "who gives up leaves its node on the queue"
	monLogNamesStamp   bug = "the log says that the stamp becomes 0"
	monHasNoLog        bug = "several words are changed without a log"
	monGrantsLeft      bug = "a wait is resolved by a store, not a compare-and-swap"
	monDoesNotReap     bug = "a reap takes no permits back"
)

func (m monModel) explore(b bug) model.Result {
	m.bug = b
	first := monState{free: m.permits}
	for i := range m.wants {
		first.node[i] = monNode{word: arenakernel.NodeIdle, owner: uint8(i + 1), used: true}
		first.thread[i].waitNode = uint8(i + 1)
	}
	spec := model.Spec[monState]{Init: []monState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show}
	return spec.Explore()
}

// reaper returns the number of the thread that reaps.
func (m *monModel) reaper() int { return len(m.wants) }

func (m *monModel) next(s *monState, emit func(model.Step[monState])) {
	for i := 0; i <= len(m.wants); i++ {
		if s.dead>>i&1 != 0 {
			continue
		}
		for choice, more := 0, true; more; choice++ {
			x := monExec{monModel: m, s: *s, me: i, choice: choice}
			x.t = &x.s.thread[i]
			x.step()
			more = x.more
			if x.said != "" {
				x.s.canon()
				emit(model.Step[monState]{To: x.s, By: m.name(i), Label: x.said, Optional: x.optional})
			}
		}
	}
	if s.kills < m.kills {
		for i := range m.wants {
			if s.dead>>i&1 == 0 {
				to := *s
				to.dead |= 1 << i
				to.kills++
				if n := to.thread[i].waitNode; n != 0 {
					to.node[n-1].sleeping = false
				}
				to.thread[i] = monThread{}
				to.canon()
				emit(model.Step[monState]{To: to, By: m.name(i), Label: "is killed", Optional: true})
			}
		}
	}
}

func (m *monModel) name(i int) string {
	if i == m.reaper() {
		return "reaper"
	}
	return fmt.Sprintf("W%d", i+1)
}

// canon renumbers the stamps, because only their order counts. The stamp in accounted counts only
// if a node has the same stamp.
func (s *monState) canon() {
	var present [256]bool
	for i := range s.node {
		present[s.node[i].stamp] = true
	}
	if s.log.valid {
		present[s.log.acc] = true
	}
	var rank [256]uint8
	next := uint8(1)
	for v := 1; v < monElsewhere; v++ {
		if present[v] {
			rank[v] = next
			next++
		}
	}
	rank[monElsewhere] = monElsewhere
	for i := range s.node {
		s.node[i].stamp = rank[s.node[i].stamp]
	}
	s.accounted, s.log.acc = rank[s.accounted], rank[s.log.acc]
}

func (m *monModel) check(s *monState) error {
	if s.wrong != 0 {
		return errsMon[s.wrong]
	}
	had := uint8(0)
	for i, n := range m.wants {
		if s.thread[i].has {
			had += n
		}
	}
	if had > m.permits {
		return errMonTooMany
	}
	if s.queueLock == 0 {
		for _, q := range s.queue {
			if q != 0 {
				if n := &s.node[q-1]; !n.used || n.stamp == 0 || n.elsewhere || n.word == arenakernel.NodeIdle || n.word == arenakernel.NodeFree {
					return errsMon[monLinksWrong]
				}
			}
		}
	}
	return m.checkRest(s)
}

// checkRest checks what must hold when no thread is doing anything.
func (m *monModel) checkRest(s *monState) error {
	if s.thread[m.reaper()].pc != mIdle || s.dead != s.reaped || s.queueLock != 0 {
		return nil
	}
	sum, right := s.free, true
	for i := range m.wants {
		switch t := &s.thread[i]; t.pc {
		case mIdle, mHold:
		case mAsleep:
			if !s.node[t.waitNode-1].sleeping {
				return nil
			}
		default:
			return nil
		}
		sum += s.share[i]
		right = right && (s.share[i] == 0 || s.thread[i].has && s.share[i] == m.wants[i])
	}
	for i := range s.node {
		n := &s.node[i]
		lives := n.owner != 0 && s.dead>>(n.owner-1)&1 == 0
		switch {
		case !n.used, s.due && n.stamp != 0:
		case lives && (n.word == arenakernel.NodeSpent || n.word == arenakernel.NodeFree):
			// Such a node is freed together with its owner. It is left if the owner before died
			// while another process marked the node spent, and that process died, too.
		case !lives || s.thread[n.owner-1].waitNode != uint8(i+1):
			return errMonLeak
		}
	}
	if s.due {
		return nil
	}
	if sum != m.permits || !right {
		return errMonPermits
	}
	if q := s.queue[0]; q != 0 { // the first wait of the queue must not be grantable
		n := &s.node[q-1]
		if !queuedState(n.word) {
			return errMonLeftOver
		}
		if m.wants[n.owner-1] <= s.free {
			return errMonSleeps
		}
	}
	return nil
}

func queuedState(w arenakernel.NodeState) bool {
	return w == arenakernel.NodeQueued || w == arenakernel.NodeAsleep
}

// done reports whether nothing has to happen any more: every thread is idle, and every dead process
// is reaped.
func (m *monModel) done(s *monState) bool {
	for i := range m.wants {
		if s.thread[i].pc != mIdle {
			return false
		}
	}
	return s.thread[m.reaper()].pc == mIdle && s.dead == s.reaped
}

func (m *monModel) show(s *monState) string {
	str := fmt.Sprintf("latch %d, free %d, shares %v, accounted %d, queue %v", s.queueLock, s.free, s.share, s.accounted, s.queue)
	for i := range s.node {
		n := &s.node[i]
		str += fmt.Sprintf("; %d: %v of %d, stamp %d", i+1, arenakernel.NodeWord(n.word), n.owner, n.stamp)
		if n.sleeping {
			str += ", sleeps"
		}
	}
	if s.log.valid {
		str += fmt.Sprintf("; log %+v", s.log)
	}
	return str
}

// monExec is the execution of one step by a thread.
type monExec struct {
	*monModel
	s        monState
	t        *monThread
	me       int
	choice   int
	more     bool
	optional bool
	said     string
}

func (x *monExec) self() uint8 { return uint8(x.me + 1) }

func (x *monExec) to(pc uint8, said string) { x.t.pc, x.said = pc, said }

func (x *monExec) current(name uint8) bool { return x.s.marked>>(name-1)&1 == 0 }

// waiting stands for monitor.waiting.
func (x *monExec) waiting(n *monNode) bool { return queuedState(n.word) && x.current(n.owner) }

// bump begins the next generation of a node. Threads that remember the node see that it is in
// another use.
func (x *monExec) bump(node uint8) {
	for i := range x.s.thread {
		t := &x.s.thread[i]
		if t.at == node {
			t.same = false
		}
		if t.cleanUp == node {
			t.cleanUpSame = false
		}
	}
}

func (x *monExec) detach(node uint8) {
	kept := 0
	for _, q := range x.s.queue {
		if q != 0 && q != node {
			x.s.queue[kept] = q
			kept++
		}
	}
	clear(x.s.queue[kept:])
}

func (x *monExec) append(node uint8) {
	for k, q := range x.s.queue {
		switch q {
		case node:
			x.s.wrong = monQueuedTwice
			return
		case 0:
			x.s.queue[k] = node
			return
		}
	}
}

// drop makes the thread drop a node that is off the queue, and then go on at back.
func (x *monExec) drop(node, back uint8, said string) {
	x.t.at, x.t.back = node, back
	x.to(mTakeOver, said)
}

func (x *monExec) goBack(said string) {
	x.to(x.t.back, said)
	x.t.at, x.t.owner, x.t.same, x.t.back = 0, 0, false, 0
}

func lowest(mask uint8) uint8 { return uint8(bits.TrailingZeros8(mask)) }
