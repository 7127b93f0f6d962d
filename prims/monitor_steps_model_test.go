//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// step makes one step of a thread.
func (x *monExec) step() {
	switch x.t.pc {
	case mIdle, mClaim, mElsewhere:
		x.begin()
	case mEnter:
		x.enter()
	case mBody, mTakeFree, mJoinStamp, mJoinLink, mGiveFree:
		x.body()
	case mResolveAll, mResolve:
		x.resolve()
	case mLog, mApply, mApplyRest, mUnlog:
		x.account()
	case mTakeOver, mDrop, mReleased, mTaken, mFree:
		x.release()
	case mLeave, mWake, mAfter:
		x.leave()
	case mSleep, mAsleep, mCollect, mSpent:
		x.wait()
	case mHold:
		if x.more = x.elsewhere && x.t.waitNode != 0 && x.choice == 0; x.choice == 1 {
			x.goElsewhere(mHold)
			return
		}
		x.t.job = monRelease
		x.to(mEnter, "calls Release")
	case mRedo, mRedone, mClear, mRebuild:
		x.replay()
	case mReapShares, mReapQueue:
		x.sweep()
	default:
		x.reap()
	}
}

func (x *monExec) begin() {
	switch {
	case x.me == x.reaper():
		x.awake()
	case x.t.pc == mElsewhere:
		x.orphan()
	case x.t.pc == mClaim:
		for i := range x.s.node {
			if n := &x.s.node[i]; !n.used {
				*n = monNode{word: arenakernel.NodeIdle, owner: x.self(), used: true}
				x.t.waitNode, x.t.job = uint8(i+1), monAcquire
				x.to(mEnter, "claims a node")
				return
			}
		}
	case x.t.waitNode == 0:
		x.optional = true
		x.to(mClaim, "calls Acquire")
	case x.choice == 0:
		x.optional, x.more = true, x.elsewhere
		x.t.job = monAcquire
		x.to(mEnter, "calls Acquire")
	default:
		x.goElsewhere(mIdle)
	}
}

// goElsewhere begins a wait in another object with the same node. then is where the thread goes on
// after that wait.
func (x *monExec) goElsewhere(then uint8) {
	x.optional = true
	n := &x.s.node[x.t.waitNode-1]
	n.elsewhere, n.stamp = true, monElsewhere
	x.t.back = then
	x.to(mElsewhere, "waits elsewhere")
}

// orphan ends a wait in another object. Either the wait is over, or the thread gives it up and
// another process then takes it off the queue.
func (x *monExec) orphan() {
	n := &x.s.node[x.t.waitNode-1]
	x.more = x.choice == 0 && n.word == arenakernel.NodeIdle
	if x.choice == 1 {
		n.word = arenakernel.NodeLeft
		x.to(mElsewhere, "gives up elsewhere")
		return
	}
	n.elsewhere, n.stamp = false, 0
	x.bump(x.t.waitNode)
	x.to(x.t.back, "has waited elsewhere")
	x.t.back = 0
	if n.word == arenakernel.NodeLeft {
		*n = monNode{}
		x.t.waitNode = 0
	}
}

// enter takes the queue lock. If its holder died, the thread first replays the log.
func (x *monExec) enter() {
	switch l := x.s.queueLock; {
	case l == 0:
		x.s.queueLock = x.self()
		x.to(mBody, "takes the queue lock")
	case l == monDead:
		x.s.queueLock, x.t.replaying = x.self(), true
		x.to(mRedo, "inherits the queue lock")
	case x.s.dead>>(l-1)&1 != 0:
		x.s.marked |= 1 << (l - 1)
		x.s.queueLock = monDead
		x.to(mEnter, "meets the dead holder")
	}
}

// body makes the change for which the thread has taken the queue lock.
func (x *monExec) body() {
	switch x.t.pc {
	case mTakeFree:
		x.s.free -= x.wants[x.me]
		x.t.has = true
		x.to(mLeave, "counts what is free")
		return
	case mJoinStamp:
		most := uint8(0)
		for i := range x.s.node {
			if v := x.s.node[i].stamp; v != monElsewhere {
				most = max(most, v)
			}
		}
		x.s.node[x.t.waitNode-1].stamp = max(most, x.s.accounted) + 1
		x.to(mJoinLink, "stamps its node")
		return
	case mJoinLink:
		x.append(x.t.waitNode)
		x.to(mLeave, "links its node")
		return
	case mGiveFree:
		x.s.free += x.wants[x.me]
		x.to(mResolveAll, "counts what is free")
		return
	}
	switch x.t.job {
	case monAcquire:
		if x.s.queue[0] == 0 && x.s.free >= x.wants[x.me] {
			x.s.share[x.me] += x.wants[x.me]
			x.to(mTakeFree, "takes permits")
			return
		}
		x.s.node[x.t.waitNode-1].word = arenakernel.NodeQueued
		x.to(mJoinStamp, "has to wait")
	case monRelease:
		if x.s.share[x.me] < x.wants[x.me] {
			x.s.wrong = monNotHeld
		} else {
			x.s.share[x.me] -= x.wants[x.me]
		}
		x.t.has = false
		x.to(mGiveFree, "gives permits back")
	case monCleanUp:
		node := x.t.cleanUp
		if n := &x.s.node[node-1]; x.t.cleanUpSame && n.word == arenakernel.NodeLeft && n.stamp != 0 && !n.elsewhere {
			x.detach(node)
			x.drop(node, mResolveAll, "takes its node off")
			return
		}
		x.to(mLeave, "finds its node taken off")
	case monReap:
		x.s.due = false
		x.to(mReapShares, "reaps")
	}
}

func (x *monExec) resolve() {
	if x.t.pc == mResolve {
		n := &x.s.node[x.t.at-1]
		if !queuedState(n.word) && x.bug != monGrantsLeft {
			x.drop(x.t.at, mResolveAll, "finds that the wait was given up")
			return
		}
		if n.word == arenakernel.NodeAsleep {
			x.t.wakes |= 1 << (x.t.at - 1)
		}
		n.word = arenakernel.NodeResolved
		x.t.back = mResolveAll
		x.to(mLog, "resolves a wait")
		return
	}
	head := x.s.queue[0]
	end := mLeave
	if x.t.replaying {
		end = mWake
	}
	switch {
	case head == 0:
		x.to(end, "finds the queue empty")
	case !x.waiting(&x.s.node[head-1]):
		x.detach(head)
		x.drop(head, mResolveAll, "takes one off that nobody is there for")
	case x.wants[x.s.node[head-1].owner-1] > x.s.free:
		x.to(end, "finds that nobody can be served")
	default:
		x.detach(head)
		x.t.at = head
		x.to(mResolve, "takes a wait off")
	}
}

// account stands for monitor.account with the change of a Semaphore, and for monitor.commit.
func (x *monExec) account() {
	l := &x.s.log
	switch x.t.pc {
	case mLog:
		n := &x.s.node[x.t.at-1]
		if n.owner == 0 || int(n.owner) > len(x.wants) {
			x.s.wrong = monFreedInUse
			x.to(mLog, "finds the node nobody's")
			return
		}
		want := x.wants[n.owner-1]
		if want > x.s.free {
			x.to(mTakeOver, "finds that the permits are not there")
			return
		}
		*l = monLog{x.bug != monHasNoLog, n.owner, x.s.share[n.owner-1] + want, x.s.free - want, n.stamp, 0}
		if x.bug == monLogNamesStamp {
			l.node = x.t.at
		}
		x.to(mApply, "logs the grant")
	case mApply:
		x.s.share[l.who-1] = l.share
		x.to(mApplyRest, "counts the grant")
	case mApplyRest:
		x.s.free, x.s.accounted = l.free, l.acc
		x.unstamp()
		x.to(mUnlog, "counts what is free")
	case mUnlog:
		*l = monLog{}
		if x.t.at == 0 {
			x.goBack("clears the log")
			return
		}
		x.to(mTakeOver, "clears the log")
	}
}

// unstamp clears the stamp of the node that the log names, if the log names one.
func (x *monExec) unstamp() {
	if l := &x.s.log; l.node != 0 {
		n := &x.s.node[l.node-1]
		if n.elsewhere {
			x.s.wrong = monClobbered
		}
		n.stamp = 0
	}
}

// release stands for monitor.releaseNode.
func (x *monExec) release() {
	n := &x.s.node[x.t.at-1]
	switch x.t.pc {
	case mTakeOver:
		x.t.owner, x.t.same = n.owner, true
		x.to(mDrop, "leaves the node to its owner")
		if x.bug != monDropsFirst && n.word == arenakernel.NodeLeft {
			n.owner, x.t.owner = x.self(), 0
			x.to(mDrop, "takes the node over")
		}
	case mDrop:
		if n.elsewhere {
			x.s.wrong = monClobbered
		}
		n.stamp = 0
		x.to(mReleased, "drops the stamp")
		if x.t.owner == 0 {
			x.to(mFree, "drops the stamp of a node of its own")
		}
	case mReleased:
		done := n.word == arenakernel.NodeSpent || n.word == arenakernel.NodeLeft && (x.bug == monDropsFirst || x.bug == monReclaimsAnyUse)
		switch {
		case !x.current(x.t.owner) && (x.t.same || x.bug == monReapsAnyUse):
			x.to(mTaken, "finds its owner dead")
		case x.current(x.t.owner) && done && (x.t.same || x.bug == monReclaimsAnyUse):
			x.reclaim(n)
		default:
			x.goBack("sees that the owner has the node")
		}
	case mTaken:
		if n.owner != x.t.owner {
			x.goBack("finds that somebody else gives it back")
			return
		}
		n.owner = x.self()
		x.to(mFree, "takes the node over")
	case mFree:
		x.freeNode(n)
		x.goBack("gives the node back")
	}
}

// reclaim stands for the compare-and-swap of ReclaimNode, where it succeeds.
func (x *monExec) reclaim(n *monNode) {
	n.word = arenakernel.NodeFree
	x.bump(x.t.at)
	x.to(mTaken, "marks the node free")
	if x.bug == monReclaimsBlindly {
		x.to(mFree, "marks the node free")
	}
}

// freeNode frees the block of a node, if the block is in use.
func (x *monExec) freeNode(n *monNode) {
	if !n.used {
		return
	}
	if n.elsewhere || n.stamp != 0 {
		x.s.wrong = monFreedInUse
	}
	for i := range x.wants {
		if x.s.thread[i].waitNode == x.t.at && x.s.dead>>i&1 == 0 {
			x.s.wrong = monFreedInUse
		}
	}
	*n = monNode{}
	x.bump(x.t.at)
}

func (x *monExec) leave() {
	switch x.t.pc {
	case mLeave:
		x.s.queueLock = 0
		x.to(mWake, "leaves the queue lock")
	case mWake:
		if x.t.wakes != 0 {
			k := lowest(x.t.wakes)
			x.t.wakes &^= 1 << k
			x.s.node[k].sleeping = false
			x.to(mWake, "wakes")
			return
		}
		x.to(mAfter, "has woken all")
		if x.t.replaying {
			x.t.replaying = false
			x.to(mBody, "has replayed")
		}
	case mAfter:
		job := x.t.job
		x.t.job, x.t.cleanUp, x.t.cleanUpSame = 0, 0, false
		switch {
		case job == monAcquire && !x.t.has, job == monReap && x.me != x.reaper():
			x.to(mSleep, "waits")
		case job == monAcquire:
			x.to(mHold, "has permits")
		case job == monReap:
			x.to(mWakeResolved, "has reaped")
		default:
			x.to(mIdle, "returns")
		}
	}
}

func (x *monExec) wait() {
	switch x.t.pc {
	case mSleep:
		n := &x.s.node[x.t.waitNode-1]
		if !queuedState(n.word) {
			x.to(mCollect, "sees that its wait is over")
			return
		}
		n.word, n.sleeping = arenakernel.NodeAsleep, true
		x.to(mAsleep, "sleeps")
	case mAsleep:
		x.asleep(&x.s.node[x.t.waitNode-1])
	case mCollect:
		n := &x.s.node[x.t.waitNode-1]
		x.t.has = true
		if n.stamp == 0 || x.bug == monKeepsStamped {
			n.word = arenakernel.NodeIdle
			x.bump(x.t.waitNode)
			x.to(mHold, "keeps its node")
			return
		}
		n.word = arenakernel.NodeSpent
		if x.bug == monLeftAsSpent {
			n.word = arenakernel.NodeLeft
		}
		x.t.at, x.t.owner, x.t.same, x.t.back, x.t.waitNode = x.t.waitNode, x.self(), true, mHold, 0
		x.to(mSpent, "marks its node spent")
	case mSpent:
		if n := &x.s.node[x.t.at-1]; n.stamp == 0 && x.t.same && n.word == arenakernel.NodeSpent {
			x.reclaim(n)
			return
		}
		x.goBack("leaves the node to whoever takes it off")
	}
}

// asleep is a step of a thread that sleeps: it is woken, or it gives up.
func (x *monExec) asleep(n *monNode) {
	x.more = x.choice < 2
	switch x.choice {
	case 0:
		if !n.sleeping {
			x.to(mSleep, "is woken")
		}
	case 1:
		x.optional = true
		n.sleeping = false
		if n.word == arenakernel.NodeResolved {
			x.to(mCollect, "wakes for no reason, or too late to give up")
			return
		}
		n.word = arenakernel.NodeLeft
		x.t.cleanUp, x.t.cleanUpSame, x.t.waitNode, x.t.job = x.t.waitNode, true, 0, monCleanUp
		x.to(mEnter, "gives up")
		if x.bug == monDoesNotCleanUp {
			x.t.cleanUp, x.t.cleanUpSame, x.t.job = 0, false, 0
			x.to(mIdle, "gives up")
		}
	case 2:
		if x.s.due {
			n.sleeping = false
			x.t.job = monReap
			x.to(mEnter, "looks")
		}
	}
}

// replay is a step of the next holder of the queue lock after a death.
func (x *monExec) replay() {
	switch x.t.pc {
	case mRedo:
		if l := &x.s.log; l.valid {
			x.s.share[l.who-1], x.s.free, x.s.accounted = l.share, l.free, l.acc
			x.unstamp()
		}
		x.to(mRedone, "carries the log out")
	case mRedone:
		x.s.log = monLog{}
		x.to(mClear, "clears the log")
	case mClear:
		clear(x.s.queue[:])
		x.s.free = x.permits
		for _, n := range x.s.share {
			x.s.free -= min(n, x.s.free)
		}
		x.to(mRebuild, "clears the queue")
	case mRebuild:
		x.rebuild()
	}
}

// rebuild treats the first node that is on no queue yet.
func (x *monExec) rebuild() {
	first := uint8(0)
	for i := range x.s.node {
		n, node := &x.s.node[i], uint8(i+1)
		queued := false
		for _, q := range x.s.queue {
			queued = queued || q == node
		}
		if n.used && n.stamp != 0 && !n.elsewhere && !queued && (first == 0 || n.stamp < x.s.node[first-1].stamp) {
			first = node
		}
	}
	if first == 0 {
		x.to(mResolveAll, "has rebuilt the queue")
		return
	}
	n := &x.s.node[first-1]
	over := n.word == arenakernel.NodeResolved || n.word == arenakernel.NodeSpent
	switch {
	case over && (n.stamp != x.s.accounted || x.bug == monAccountsTwice):
		x.t.at, x.t.back = first, mRebuild
		x.to(mLog, "finds a grant that does not count yet")
	case x.waiting(n):
		x.append(first)
		x.to(mRebuild, "queues a wait anew")
	default:
		x.drop(first, mRebuild, "finds a wait that is over")
	}
}

func (x *monExec) sweep() {
	if x.t.pc == mReapShares {
		for i := range x.wants {
			if left := x.s.share[i]; left > 0 && !x.current(uint8(i+1)) && x.bug != monDoesNotReap {
				x.s.log = monLog{x.bug != monHasNoLog, uint8(i + 1), 0, x.s.free + left, x.s.accounted, 0}
				x.t.back = mReapShares
				x.to(mApply, "takes permits of the dead back")
				return
			}
		}
		x.to(mReapQueue, "has taken all permits back")
		return
	}
	for _, q := range x.s.queue {
		if q != 0 && !x.waiting(&x.s.node[q-1]) {
			x.detach(q)
			x.drop(q, mReapQueue, "takes one off that nobody is there for")
			return
		}
	}
	x.to(mResolveAll, "has reaped the queue")
}

// awake begins a reap, if a process is dead and not reaped.
func (x *monExec) awake() {
	if left := x.s.dead &^ x.s.reaped; left != 0 {
		x.s.reaping = lowest(left) + 1
		x.s.marked |= 1 << (x.s.reaping - 1)
		x.to(mMarkOwnerDead, "marks a dead one")
	}
}

// reap makes the remaining steps of a reap.
func (x *monExec) reap() {
	dead := x.s.reaping
	switch x.t.pc {
	case mMarkOwnerDead:
		// The queue lock is busy if its holder lives. The holder may be stopped.
		busy := x.s.queueLock != 0 && x.s.queueLock != monDead && x.s.dead>>(x.s.queueLock-1)&1 == 0
		if x.more = x.tries && busy && x.choice == 0; x.choice == 1 {
			x.to(mWakeResolved, "finds the queue lock taken")
			return
		}
		if x.s.queueLock == dead {
			x.s.queueLock = monDead
		}
		x.t.job = monReap
		x.to(mEnter, "is about to reap")
	case mWakeResolved:
		for i := range x.s.node {
			if n := &x.s.node[i]; n.word == arenakernel.NodeResolved && x.bug != monWakesNobody {
				n.sleeping = false
			}
		}
		x.s.due = x.tries
		x.to(mFreeNodes, "wakes those whose wait is over")
	case mFreeNodes:
		for i := range x.s.node {
			n := &x.s.node[i]
			if !n.used || n.owner == 0 || n.owner > uint8(len(x.wants)) {
				continue
			}
			orphan := n.owner != dead && x.s.reaped>>(n.owner-1)&1 != 0 && x.bug != monForgetsOrphans
			if n.elsewhere && n.owner == dead {
				n.elsewhere, n.stamp = false, 0
				x.to(mFreeNodes, "has it taken off elsewhere")
				return
			}
			if n.stamp == 0 && (n.owner == dead || orphan) {
				n.owner = x.self()
				x.t.at, x.t.back = uint8(i+1), mFreeNodes
				x.to(mFree, "takes a node of the dead over")
				return
			}
		}
		x.s.reaped |= 1 << (dead - 1)
		x.s.reaping = 0
		x.to(mIdle, "has reaped it")
	}
}
