//go:build linux

package prims

import "github.com/shmsync/shmsync/arena"

// step is one step of a thread.
func (x *monExec) step() {
	switch x.t.pc {
	case mIdle, mClaim, mElsewhere:
		x.begin()
	case mEnter:
		x.enter()
	case mBody, mTakeFree, mJoinStamp, mJoinLink, mGiveFree:
		x.body()
	case mSettle, mResolve:
		x.settle()
	case mLog, mApply, mApplyRest, mUnlog:
		x.account()
	case mTakeOver, mDrop, mReleased, mTaken, mFree:
		x.release()
	case mLeave, mWake, mAfter:
		x.leave()
	case mSleep, mAsleep, mCollect, mSpent:
		x.wait()
	case mHold:
		if x.more = x.elsewhere && x.t.seat != 0 && x.choice == 0; x.choice == 1 {
			x.goElsewhere(mHold)
			return
		}
		x.t.job = monRelease
		x.to(mEnter, "calls Release")
	case mRedo, mRedone, mClear, mRebuild:
		x.mend()
	case mSweepShares, mSweepQueue:
		x.sweep()
	default:
		x.bury()
	}
}

func (x *monExec) begin() {
	switch {
	case x.me == x.undertaker():
		x.awake()
	case x.t.pc == mElsewhere:
		x.stray()
	case x.t.pc == mClaim:
		for i := range x.s.node {
			if n := &x.s.node[i]; !n.used {
				*n = monNode{word: arena.NodeIdle, owner: x.self(), used: true}
				x.t.seat, x.t.job = uint8(i+1), monAcquire
				x.to(mEnter, "claims a node")
				return
			}
		}
	case x.t.seat == 0:
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

// goElsewhere begins a wait in another object with the same node.
func (x *monExec) goElsewhere(then uint8) {
	x.optional = true
	n := &x.s.node[x.t.seat-1]
	n.elsewhere, n.stamp = true, monElsewhere
	x.t.back = then
	x.to(mElsewhere, "waits elsewhere")
}

// stray ends a wait elsewhere: it is over, or given up and then taken off.
func (x *monExec) stray() {
	n := &x.s.node[x.t.seat-1]
	x.more = x.choice == 0 && n.word == arena.NodeIdle
	if x.choice == 1 {
		n.word = arena.NodeLeft
		x.to(mElsewhere, "gives up elsewhere")
		return
	}
	n.elsewhere, n.stamp = false, 0
	x.bump(x.t.seat)
	x.to(x.t.back, "has waited elsewhere")
	x.t.back = 0
	if n.word == arena.NodeLeft {
		*n = monNode{}
		x.t.seat = 0
	}
}

// enter takes the latch, or deals with the death of its holder.
func (x *monExec) enter() {
	switch l := x.s.latch; {
	case l == 0:
		x.s.latch = x.self()
		x.to(mBody, "takes the latch")
	case l == monDead:
		x.s.latch, x.t.mending = x.self(), true
		x.to(mRedo, "inherits the latch")
	case x.s.dead>>(l-1)&1 != 0:
		x.s.marked |= 1 << (l - 1)
		x.s.latch = monDead
		x.to(mEnter, "meets the dead holder")
	}
}

// body is what the latch was taken for.
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
		x.s.node[x.t.seat-1].stamp = max(most, x.s.accounted) + 1
		x.to(mJoinLink, "stamps its node")
		return
	case mJoinLink:
		x.append(x.t.seat)
		x.to(mLeave, "links its node")
		return
	case mGiveFree:
		x.s.free += x.wants[x.me]
		x.to(mSettle, "counts what is free")
		return
	}
	switch x.t.job {
	case monAcquire:
		if x.s.queue[0] == 0 && x.s.free >= x.wants[x.me] {
			x.s.share[x.me] += x.wants[x.me]
			x.to(mTakeFree, "takes permits")
			return
		}
		x.s.node[x.t.seat-1].word = arena.NodeQueued
		x.to(mJoinStamp, "has to wait")
	case monRelease:
		if x.s.share[x.me] < x.wants[x.me] {
			x.s.wrong = monNotHeld
		} else {
			x.s.share[x.me] -= x.wants[x.me]
		}
		x.t.has = false
		x.to(mGiveFree, "gives permits back")
	case monTidy:
		node := x.t.tidy
		if n := &x.s.node[node-1]; x.t.tidySame && n.word == arena.NodeLeft && n.stamp != 0 && !n.elsewhere {
			x.detach(node)
			x.drop(node, mSettle, "takes its node off")
			return
		}
		x.to(mLeave, "finds its node taken off")
	case monSweep:
		x.s.due = false
		x.to(mSweepShares, "sweeps")
	}
}

func (x *monExec) settle() {
	if x.t.pc == mResolve {
		n := &x.s.node[x.t.at-1]
		if !queuedState(n.word) && x.bug != monGrantsLeft {
			x.drop(x.t.at, mSettle, "finds that the wait was given up")
			return
		}
		if n.word == arena.NodeAsleep {
			x.t.wakes |= 1 << (x.t.at - 1)
		}
		n.word = arena.NodeResolved
		x.t.back = mSettle
		x.to(mLog, "resolves a wait")
		return
	}
	head := x.s.queue[0]
	end := mLeave
	if x.t.mending {
		end = mWake
	}
	switch {
	case head == 0:
		x.to(end, "finds the queue empty")
	case !x.waiting(&x.s.node[head-1]):
		x.detach(head)
		x.drop(head, mSettle, "takes one off that nobody is there for")
	case x.wants[x.s.node[head-1].owner-1] > x.s.free:
		x.to(end, "finds that nobody can be served")
	default:
		x.detach(head)
		x.t.at = head
		x.to(mResolve, "takes a wait off")
	}
}

// account is monitor.account with the change of a Semaphore, and monitor.commit.
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

// unstamp does what a log says that names a stamp.
func (x *monExec) unstamp() {
	if l := &x.s.log; l.node != 0 {
		n := &x.s.node[l.node-1]
		if n.elsewhere {
			x.s.wrong = monClobbered
		}
		n.stamp = 0
	}
}

// release is monitor.drop.
func (x *monExec) release() {
	n := &x.s.node[x.t.at-1]
	switch x.t.pc {
	case mTakeOver:
		x.t.owner, x.t.same = n.owner, true
		x.to(mDrop, "leaves the node to its owner")
		if x.bug != monDropsFirst && n.word == arena.NodeLeft {
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
		done := n.word == arena.NodeSpent || n.word == arena.NodeLeft && (x.bug == monDropsFirst || x.bug == monReclaimsAnyUse)
		switch {
		case !x.current(x.t.owner) && (x.t.same || x.bug == monBuriesAnyUse):
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

// reclaim is the compare-and-swap of ReclaimNode, where it succeeds.
func (x *monExec) reclaim(n *monNode) {
	n.word = arena.NodeFree
	x.bump(x.t.at)
	x.to(mTaken, "marks the node free")
	if x.bug == monReclaimsBlindly {
		x.to(mFree, "marks the node free")
	}
}

// freeNode frees a node's block, if it is in use.
func (x *monExec) freeNode(n *monNode) {
	if !n.used {
		return
	}
	if n.elsewhere || n.stamp != 0 {
		x.s.wrong = monFreedInUse
	}
	for i := range x.wants {
		if x.s.thread[i].seat == x.t.at && x.s.dead>>i&1 == 0 {
			x.s.wrong = monFreedInUse
		}
	}
	*n = monNode{}
	x.bump(x.t.at)
}

func (x *monExec) leave() {
	switch x.t.pc {
	case mLeave:
		x.s.latch = 0
		x.to(mWake, "leaves the latch")
	case mWake:
		if x.t.wakes != 0 {
			k := lowest(x.t.wakes)
			x.t.wakes &^= 1 << k
			x.s.node[k].sleeping = false
			x.to(mWake, "wakes")
			return
		}
		x.to(mAfter, "has woken all")
		if x.t.mending {
			x.t.mending = false
			x.to(mBody, "has mended")
		}
	case mAfter:
		job := x.t.job
		x.t.job, x.t.tidy, x.t.tidySame = 0, 0, false
		switch {
		case job == monAcquire && !x.t.has, job == monSweep && x.me != x.undertaker():
			x.to(mSleep, "waits")
		case job == monAcquire:
			x.to(mHold, "has permits")
		case job == monSweep:
			x.to(mWakeResolved, "has swept")
		default:
			x.to(mIdle, "returns")
		}
	}
}

func (x *monExec) wait() {
	switch x.t.pc {
	case mSleep:
		n := &x.s.node[x.t.seat-1]
		if !queuedState(n.word) {
			x.to(mCollect, "sees that its wait is over")
			return
		}
		n.word, n.sleeping = arena.NodeAsleep, true
		x.to(mAsleep, "sleeps")
	case mAsleep:
		x.asleep(&x.s.node[x.t.seat-1])
	case mCollect:
		n := &x.s.node[x.t.seat-1]
		x.t.has = true
		if n.stamp == 0 || x.bug == monKeepsStamped {
			n.word = arena.NodeIdle
			x.bump(x.t.seat)
			x.to(mHold, "keeps its node")
			return
		}
		n.word = arena.NodeSpent
		if x.bug == monLeftAsSpent {
			n.word = arena.NodeLeft
		}
		x.t.at, x.t.owner, x.t.same, x.t.back, x.t.seat = x.t.seat, x.self(), true, mHold, 0
		x.to(mSpent, "marks its node spent")
	case mSpent:
		if n := &x.s.node[x.t.at-1]; n.stamp == 0 && x.t.same && n.word == arena.NodeSpent {
			x.reclaim(n)
			return
		}
		x.goBack("leaves the node to who takes it off")
	}
}

// asleep is what can happen to a sleeper.
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
		if n.word == arena.NodeResolved {
			x.to(mCollect, "wakes for no reason, or too late to give up")
			return
		}
		n.word = arena.NodeLeft
		x.t.tidy, x.t.tidySame, x.t.seat, x.t.job = x.t.seat, true, 0, monTidy
		x.to(mEnter, "gives up")
		if x.bug == monDoesNotTidy {
			x.t.tidy, x.t.tidySame, x.t.job = 0, false, 0
			x.to(mIdle, "gives up")
		}
	case 2:
		if x.s.due {
			n.sleeping = false
			x.t.job = monSweep
			x.to(mEnter, "looks")
		}
	}
}

// mend is what who takes the latch after a death does first.
func (x *monExec) mend() {
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

// rebuild deals with the first node that is on no queue yet.
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
		x.to(mSettle, "has rebuilt the queue")
		return
	}
	n := &x.s.node[first-1]
	over := n.word == arena.NodeResolved || n.word == arena.NodeSpent
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
	if x.t.pc == mSweepShares {
		for i := range x.wants {
			if left := x.s.share[i]; left > 0 && !x.current(uint8(i+1)) && x.bug != monDoesNotSweep {
				x.s.log = monLog{x.bug != monHasNoLog, uint8(i + 1), 0, x.s.free + left, x.s.accounted, 0}
				x.t.back = mSweepShares
				x.to(mApply, "takes permits of the dead back")
				return
			}
		}
		x.to(mSweepQueue, "has taken all permits back")
		return
	}
	for _, q := range x.s.queue {
		if q != 0 && !x.waiting(&x.s.node[q-1]) {
			x.detach(q)
			x.drop(q, mSweepQueue, "takes one off that nobody is there for")
			return
		}
	}
	x.to(mSettle, "has swept the queue")
}

// awake begins a burial.
func (x *monExec) awake() {
	if left := x.s.dead &^ x.s.buried; left != 0 {
		x.s.burying = lowest(left) + 1
		x.s.marked |= 1 << (x.s.burying - 1)
		x.to(mBereave, "marks a dead one")
	}
}

// bury is the rest of a burial.
func (x *monExec) bury() {
	dead := x.s.burying
	switch x.t.pc {
	case mBereave:
		// Who holds the latch lives, and may be stopped.
		busy := x.s.latch != 0 && x.s.latch != monDead && x.s.dead>>(x.s.latch-1)&1 == 0
		if x.more = x.tries && busy && x.choice == 0; x.choice == 1 {
			x.to(mWakeResolved, "finds the latch taken")
			return
		}
		if x.s.latch == dead {
			x.s.latch = monDead
		}
		x.t.job = monSweep
		x.to(mEnter, "is about to sweep")
	case mWakeResolved:
		for i := range x.s.node {
			if n := &x.s.node[i]; n.word == arena.NodeResolved && x.bug != monWakesNobody {
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
			orphan := n.owner != dead && x.s.buried>>(n.owner-1)&1 != 0 && x.bug != monForgetsOrphans
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
		x.s.buried |= 1 << (dead - 1)
		x.s.burying = 0
		x.to(mIdle, "has buried it")
	}
}
