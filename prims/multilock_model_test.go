//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a bucket of a MultiLock. The bucket has one entry, so it has no room
// for two keys at a time. The queue lock is a lock that works and reports the death of its holder.
// The queue is a set of threads, and each thread has one node. The model of the monitor covers the
// queue lock and the queue in detail.
const (
	mkHold = iota
	mkKey
	mkQueue // the threads that wait, a bit each
	mkArrivals
	mkQueueLock // the number of the thread that has it, plus 1
	mkNode      // the first of the nodes
)

// mkWord is a hold in one byte: bits 0..1 are the process, plus 1, bits 2..4 the stamp, bits 5..7
// the kind.
type mkWord uint8

func mkMake(k ownerKind, process int, stamp uint8) mkWord {
	return mkWord(uint8(k)<<5 | stamp&7<<2 | uint8(process+1)&3)
}

func (w mkWord) kind() ownerKind { return ownerKind(w >> 5) }
func (w mkWord) stamp() uint8    { return uint8(w) >> 2 & 7 }
func (w mkWord) process() int    { return int(w&3) - 1 }
func (w mkWord) hold() keyHold   { return makeKeyHold(w.kind(), nameOf(w.process()), uint32(w.stamp())) }

func (w mkWord) with(k ownerKind) mkWord { return mkMake(k, w.process(), w.stamp()) }

// mkOf returns the model's word for a hold.
func mkOf(h keyHold) mkWord {
	if h == 0 {
		return 0
	}
	return mkMake(h.kind(), processOf(h.owner()), uint8(h.stamp()))
}

// The states of a node, in its low bits. The stamp of the node is above these bits.
const (
	mkNone uint8 = iota
	mkWaits
	mkGranted   // granted; its hold may not have been written yet
	mkAccounted // granted, and its hold has been written
)

// The registers of a thread.
const (
	mrKey   = iota // the key that the thread wants or has
	mrHold         // the hold that it has
	mrSeen         // the hold that it has seen
	mrBack         // where it goes on when it has the queue lock
	mrState        // mf...
	mrCalls        // how many calls it has made
	mrOther        // the thread or process that its present step is about
)

// The states of a thread, as flags.
const (
	mfInside = 1 << iota // the thread has the key
	mfReaped             // the reaper has taken back what the dead process had
)

// The steps of a thread.
const (
	mpIdle uint8 = iota
	mpLook
	mpLookKey
	mpLookAgain // the second check of the hold, if the key was checked first
	mpTake
	mpQueueLock
	mpFence
	mpInherit
	mpReplay
	mpSee
	mpClaim
	mpClaimStore
	mpRaise
	mpTakeKey
	mpTakeHold
	mpStamp
	mpJoin
	mpLeave
	mpAwait
	mpAccept
	mpAcceptHere // accepts while it has the queue lock
	mpInside
	mpUnlock
	mpUnlockStore
	mpLetGo
	mpResolve
	mpGrant
	mpAccount
	mpDrop
	mpReap
	mpReaped
)

// multiModel is a bucket and its users.
type multiModel struct {
	threads []int     // the process of each thread
	wants   [][]uint8 // the keys that each thread may want
	calls   []uint8   // how many calls each thread makes
	kills   int
	mortal  int // the process that may be killed
	bug     bug
}

// Faults that a key that is locked by CAS could have.
const (
	mkNoStamp     bug = "a lock by CAS leaves the stamp as it is"
	mkKeyFirst    bug = "the key is looked at before the hold"
	mkClaimStore  bug = "a claim is a load and a store"
	mkUnlock      bug = "an unlock is a store"
	mkForgets     bug = "the reap forgets biased holds"
	mkNoRaise     bug = "a claim leaves arrivals as they are"
	mkReplayRaise bug = "replaying does not raise arrivals"
	mkNoClaim     bug = "who waits does not claim"
	mkNoAccept    bug = "a grant makes the waiter's process the holder"
	mkGrantAgain  bug = "replaying grants a key that was accepted once more"
	mkDoubt       bug = "a waiter enters before it accepts"
)

var (
	errKeyTogether = errors.New("two have one key")
	errKeyOther    = errors.New("a key was taken in the entry of another")
	errKeyLost     = errors.New("who has a key cannot unlock it")
	errKeyBlamed   = errors.New("a death is told of a process that never entered")
	errKeyHidden   = errors.New("a death inside is not told")
)

// The ghost words. mgWrong is the number of the fault that the invariant found. The word of each
// key has the threads that use the key or are about to unlock it, a bit each.
const mgWrong = 0

func (m multiModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Check: m.check, Done: m.done, Show: m.show, Limit: 30e6,
		Init: func(s *model.Sys) {
			s.Mem[mkHold], s.Mem[mkKey] = uint8(mkMake(keyCached, 0, 1)), 1
		},
	}
	for i, p := range m.threads {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprintf("%c%d", 'P'+p, i), Process: p, Run: m.step, Mortal: p == m.mortal})
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.step})
	}
	return y.Explore()
}

func (m *multiModel) check(s *model.Sys) error {
	var inside [4]int
	for i, p := range m.threads {
		if t := &s.Thread[i]; s.Life[p] != model.Gone && t.R[mrState]&mfInside != 0 {
			if inside[t.R[mrKey]]++; inside[t.R[mrKey]] > 1 {
				return errKeyTogether
			}
		}
	}
	switch s.Ghost[mgWrong] {
	case 1:
		return errKeyOther
	case 2:
		return errKeyLost
	case 3:
		return errKeyBlamed
	case 4:
		return errKeyHidden
	}
	return nil
}

// done reports whether nothing is left: the entry is unused, and no thread waits.
func (m *multiModel) done(s *model.Sys) bool {
	return mkWord(s.Mem[mkHold]).hold().free() && s.Mem[mkQueue] == 0
}

func (m *multiModel) show(s *model.Sys) string {
	h := mkWord(s.Mem[mkHold])
	return fmt.Sprintf("key %d: %v stamp %d, queue %b, arrivals %d, latch %d, nodes %v", s.Mem[mkKey], h.hold(), h.stamp(),
		s.Mem[mkQueue], s.Mem[mkArrivals], s.Mem[mkQueueLock], s.Mem[mkNode:mkNode+len(m.threads)])
}

func (m *multiModel) step(x *model.Exec) {
	switch pc := x.PC(); {
	case pc == mpIdle:
		m.idle(x)
	case pc <= mpTake:
		m.biased(x)
	case pc <= mpReplay:
		m.queueLock(x)
	case pc <= mpAcceptHere:
		m.lock(x)
	default:
		m.unlock(x)
	}
}

func (m *multiModel) idle(x *model.Exec) {
	if x.Me == len(m.threads) {
		if x.LifeOf(m.mortal) == model.Alive || *x.R(mrState)&mfReaped != 0 {
			x.Disable()
			return
		}
		x.Say("sees a death, and fences it")
		x.Require()
		x.Membarrier()
		m.enter(x, mpReap)
		return
	}
	wants := m.wants[x.Me]
	if *x.R(mrCalls) == m.calls[x.Me] {
		x.Disable()
		return
	}
	*x.R(mrCalls)++
	*x.R(mrKey) = wants[x.Choose(len(wants))]
	x.Say(fmt.Sprintf("calls Lock(%d)", *x.R(mrKey)))
	x.Goto(mpLook)
	if m.bug == mkKeyFirst {
		x.Goto(mpLookKey)
	}
}

// end ends a call of a thread.
func (m *multiModel) end(x *model.Exec) {
	calls, state := *x.R(mrCalls), *x.R(mrState)&mfReaped
	x.Idle()
	*x.R(mrCalls), *x.R(mrState) = calls, state
}

func (m *multiModel) enter(x *model.Exec, then uint8) {
	*x.R(mrBack) = then
	x.Goto(mpQueueLock)
}

// biased stands for multiBucket.biased.
func (m *multiModel) biased(x *model.Exec) {
	switch x.PC() {
	case mpLook, mpLookAgain:
		x.Say("looks at the hold")
		w := mkWord(x.Load(mkHold))
		if w.kind() != keyCached || w.process() != x.Process() {
			m.enter(x, mpSee)
			return
		}
		*x.R(mrSeen) = uint8(w)
		x.Goto(mpTake)
		if m.bug != mkKeyFirst {
			x.Goto(mpLookKey)
		}
	case mpLookKey:
		x.Say("looks at the key")
		switch {
		case x.Load(mkKey) != *x.R(mrKey):
			m.enter(x, mpSee)
		case m.bug == mkKeyFirst:
			x.Goto(mpLookAgain)
		default:
			x.Goto(mpTake)
		}
	case mpTake:
		x.Say("locks by CAS")
		w := mkOf(mkWord(*x.R(mrSeen)).hold() + keyHold(holdLock))
		if m.bug == mkNoStamp {
			w = mkWord(*x.R(mrSeen)).with(keyBiased)
		}
		if !x.CAS(mkHold, *x.R(mrSeen), uint8(w)) {
			m.enter(x, mpSee)
			return
		}
		if x.Load(mkKey) != *x.R(mrKey) {
			x.Ghost[mgWrong] = 1
		}
		m.has(x, w)
		x.Goto(mpInside)
	}
}

func (m *multiModel) has(x *model.Exec, w mkWord) {
	*x.R(mrHold) = uint8(w)
	*x.R(mrState) |= mfInside
	x.Ghost[*x.R(mrKey)] |= 1 << x.Me
}

func (m *multiModel) let(x *model.Exec) { x.Ghost[*x.R(mrKey)] &^= 1 << x.Me }

// queueLock stands for monitor.enter.
func (m *multiModel) queueLock(x *model.Exec) {
	switch x.PC() {
	case mpQueueLock:
		has := x.Load(mkQueueLock)
		switch {
		case has == 0:
			x.Say("takes the queue lock")
			x.CAS(mkQueueLock, 0, uint8(x.Me)+1)
			x.Goto(*x.R(mrBack))
		case x.LifeOf(m.processOf(int(has)-1)) == model.Alive:
			x.Disable()
		default:
			x.Say("finds the holder of the queue lock dead, and fences it")
			x.Membarrier()
			x.Goto(mpInherit)
		}
	case mpInherit:
		x.Say("takes the queue lock of the dead")
		has := x.Load(mkQueueLock)
		if has == 0 || x.LifeOf(m.processOf(int(has)-1)) != model.Gone || !x.CAS(mkQueueLock, has, uint8(x.Me)+1) {
			x.Goto(mpQueueLock)
			return
		}
		x.Goto(mpReplay)
	case mpReplay:
		x.Say("replays")
		m.replay(x)
		if *x.R(mrBack) != mpResolve && mkWord(x.Load(mkHold)).kind() == kindReserved {
			// The dead process was about to pass a key on. So this thread passes the key on, and
			// then begins its own call again.
			*x.R(mrOther) = *x.R(mrBack)
			*x.R(mrBack) = mpQueueLock
			x.Goto(mpResolve)
			return
		}
		x.Goto(*x.R(mrBack))
	}
}

func (m *multiModel) processOf(thread int) int {
	if thread < len(m.threads) {
		return m.threads[thread]
	}
	return model.Threads - 1
}

// replay stands for clear, and then for requeue and account of the waits.
func (m *multiModel) replay(x *model.Exec) {
	w := mkWord(x.Load(mkHold))
	if m.bug != mkReplayRaise {
		m.raise(x, w)
	}
	queue := uint8(0)
	for i := range m.threads {
		switch n := x.Load(mkNode + i); {
		case n&3 == mkWaits && x.LifeOf(m.threads[i]) == model.Alive:
			queue |= 1 << i
		case n&3 == mkWaits:
			x.Update(mkNode+i, func(uint8) uint8 { return 0 })
		case n&3 == mkGranted:
			x.Update(mkHold, func(w uint8) uint8 {
				if mkWord(w).kind() != kindReserved && m.bug != mkGrantAgain {
					return w
				}
				return uint8(mkMake(m.grant(), m.threads[i], n>>2))
			})
			x.Update(mkNode+i, func(n uint8) uint8 { return n&^3 | mkAccounted })
		}
	}
	x.Update(mkQueue, func(uint8) uint8 { return queue })
}

func (m *multiModel) raise(x *model.Exec, w mkWord) {
	// Stamps have three bits, and no stamp is ahead of another by more than four.
	if n := x.Load(mkArrivals); (w.stamp()-n)&7 <= 4 {
		x.Update(mkArrivals, func(uint8) uint8 { return n + (w.stamp()-n)&7 })
	}
}

// lock is a step of Lock with the queue lock.
func (m *multiModel) lock(x *model.Exec) {
	key := *x.R(mrKey)
	switch x.PC() {
	case mpSee:
		x.Say("looks at the entry")
		m.see(x, mkWord(x.Load(mkHold)), x.Load(mkKey) == key)
	case mpClaim:
		x.Say("claims")
		if m.bug == mkClaimStore {
			*x.R(mrSeen) = x.Load(mkHold)
			x.Goto(mpClaimStore)
			return
		}
		x.Update(mkHold, func(w uint8) uint8 { return w &^ (holdFast >> ownerKindShift << 5) })
		x.Goto(mpRaise)
	case mpClaimStore:
		x.Say("stores the claim")
		x.Store(mkHold, *x.R(mrSeen)&^(1<<5))
		x.Goto(mpRaise)
	case mpRaise:
		x.Say("raises arrivals")
		if m.bug != mkNoRaise {
			m.raise(x, mkWord(x.Load(mkHold)))
		}
		x.Goto(*x.R(mrBack))
	case mpTakeKey:
		x.Say("writes its key")
		x.Store(mkKey, key)
		x.Goto(mpTakeHold)
	case mpTakeHold:
		x.Say("takes a stamp, and the key")
		kind := kindHeld
		if x.Choose(2) == 1 {
			kind = keyBiased
		}
		n := (x.Load(mkArrivals) + 1) & 7
		if m.bug == mkNoStamp {
			n = 1
		}
		x.Store(mkArrivals, n)
		w := mkMake(kind, x.Process(), n)
		x.Store(mkHold, uint8(w))
		m.has(x, w)
		x.Goto(mpLeave)
		*x.R(mrBack) = mpInside
	case mpStamp:
		x.Say("stamps its node")
		n := (x.Load(mkArrivals) + 1) & 7
		x.Store(mkArrivals, n)
		x.Store(mkNode+x.Me, n<<2|mkWaits)
		x.Goto(mpJoin)
	case mpJoin:
		x.Say("joins the queue")
		x.Store(mkQueue, x.Load(mkQueue)|1<<x.Me)
		x.Goto(mpLeave)
		*x.R(mrBack) = mpAwait
	case mpLeave:
		x.Say("leaves the queue lock")
		x.Store(mkQueueLock, 0)
		then := *x.R(mrBack)
		x.Goto(then)
		if then == mpIdle {
			m.end(x)
		}
	case mpAwait:
		n := x.Load(mkNode + x.Me)
		if n&3 != mkGranted && n&3 != mkAccounted {
			x.Disable()
			return
		}
		x.Say("finds that it is granted the key")
		*x.R(mrHold) = uint8(mkMake(kindHeld, x.Process(), n>>2))
		if m.bug == mkDoubt || m.bug == mkNoAccept {
			m.has(x, mkWord(*x.R(mrHold)))
		}
		x.Goto(mpAccept)
		if m.bug == mkNoAccept {
			x.Goto(mpInside)
		}
	case mpAccept, mpAcceptHere:
		here := x.PC() == mpAcceptHere
		x.Say("accepts the key")
		hold := mkWord(*x.R(mrHold))
		ok := x.CAS(mkHold, uint8(hold.with(keyGranted)), uint8(hold))
		switch {
		case ok:
			m.has(x, hold)
			x.Goto(mpInside)
		case !here:
			m.enter(x, mpAcceptHere)
		default:
			x.Ghost[mgWrong] = 2
			x.Goto(mpInside)
		}
		if here {
			*x.R(mrBack) = mpInside
			x.Goto(mpLeave)
		}
	}
}

// grant returns the kind of a hold that is granted.
func (m *multiModel) grant() ownerKind {
	if m.bug == mkNoAccept {
		return kindHeld
	}
	return keyGranted
}

// see decides what to do with the entry, which has the hold w. mine means that the entry is that of
// the wanted key.
func (m *multiModel) see(x *model.Exec, w mkWord, mine bool) {
	h := w.hold()
	switch {
	case w == 0 || h.idle():
		x.Goto(mpTakeKey)
		if mine {
			x.Goto(mpTakeHold)
		}
	case h.fast() && (mine || w.kind() == keyCached):
		if mine && w.kind() == keyBiased && m.bug == mkNoClaim {
			x.Goto(mpStamp)
			return
		}
		*x.R(mrBack) = mpSee
		x.Goto(mpClaim)
	case !mine:
		x.Goto(mpLeave) // the entry has another key, so there is no room
		*x.R(mrBack) = mpIdle
	default:
		x.Goto(mpStamp)
	}
}

// unlock is a step of Unlock, or of the reap.
func (m *multiModel) unlock(x *model.Exec) {
	hold := mkWord(*x.R(mrHold))
	switch x.PC() {
	case mpInside:
		x.Say("calls Unlock")
		switch {
		case hold.kind() != keyBiased:
			*x.R(mrState) &^= mfInside
			m.enter(x, mpLetGo)
		case m.bug == mkUnlock:
			x.Goto(mpUnlockStore)
		default:
			x.Goto(mpUnlock)
		}
	case mpUnlock:
		x.Say("unlocks by CAS")
		*x.R(mrState) &^= mfInside
		if x.CAS(mkHold, uint8(hold), uint8(mkOf(hold.hold()+keyHold(holdUnlock)))) {
			m.let(x)
			m.end(x)
			return
		}
		*x.R(mrHold) = uint8(mkOf(hold.hold().claimed()))
		m.enter(x, mpLetGo)
	case mpUnlockStore:
		x.Say("unlocks by a store")
		x.Store(mkHold, uint8(hold.with(keyCached)))
		m.let(x)
		m.end(x)
	case mpLetGo:
		x.Say("lets go")
		m.let(x)
		*x.R(mrBack) = mpIdle
		switch {
		case mkWord(x.Load(mkHold)) != hold || x.Load(mkKey) != *x.R(mrKey):
			x.Ghost[mgWrong] = 2
			x.Goto(mpLeave)
		case x.Load(mkQueue) == 0:
			x.Store(mkHold, uint8(hold.with(keyFree)))
			x.Goto(mpLeave)
		default:
			x.Store(mkHold, uint8(hold.with(kindReserved)))
			x.Goto(mpResolve)
		}
	case mpResolve:
		x.Say("looks for whoever waits")
		q := x.Load(mkQueue)
		if q == 0 {
			x.Store(mkHold, uint8(mkWord(x.Load(mkHold)).with(keyFree)))
			m.resolved(x)
			return
		}
		for i := range m.threads {
			if q&(1<<i) != 0 {
				x.Store(mkQueue, q&^(1<<i))
				*x.R(mrSeen) = uint8(i)
				break
			}
		}
		x.Goto(mpGrant)
		if x.LifeOf(m.threads[*x.R(mrSeen)]) != model.Alive {
			x.Store(mkNode+int(*x.R(mrSeen)), 0)
			x.Goto(mpResolve)
		}
	case mpGrant:
		x.Say("resolves the wait")
		x.Update(mkNode+int(*x.R(mrSeen)), func(n uint8) uint8 { return n&^3 | mkGranted })
		x.Goto(mpAccount)
	case mpAccount:
		x.Say("writes the hold of whoever has waited")
		w := int(*x.R(mrSeen))
		x.Store(mkHold, uint8(mkMake(m.grant(), m.threads[w], x.Load(mkNode+w)>>2)))
		x.Goto(mpDrop)
	case mpDrop:
		x.Say("drops the stamp of the wait")
		x.Update(mkNode+int(*x.R(mrSeen)), func(n uint8) uint8 { return n&^3 | mkAccounted })
		m.resolved(x)
	case mpReap:
		x.Say("looks what the dead has")
		m.replay(x) // takes off the waits of the dead process
		w := mkWord(x.Load(mkHold))
		*x.R(mrOther) = mpReaped
		switch {
		case w.process() != m.mortal || !w.hold().taken() || w.kind() == keyBiased && m.bug == mkForgets:
			*x.R(mrBack) = mpReaped
			x.Goto(mpLeave)
			if w.kind() == kindReserved {
				*x.R(mrBack) = mpReaped
				x.Goto(mpResolve)
			}
		case w.hold().fast():
			*x.R(mrBack) = mpReap
			x.Goto(mpClaim)
		default:
			m.judge(x, w)
			x.Store(mkHold, uint8(w.with(kindReserved)))
			*x.R(mrBack) = mpReaped
			x.Goto(mpResolve)
		}
	case mpReaped:
		x.Say("has reaped it")
		*x.R(mrState) |= mfReaped
		m.end(x)
	}
}

// resolved is called after a key was passed on. A call that replayed the log on its way begins
// again; any other call leaves the queue lock.
func (m *multiModel) resolved(x *model.Exec) {
	if *x.R(mrBack) == mpQueueLock {
		*x.R(mrBack) = *x.R(mrOther)
		x.Goto(*x.R(mrBack))
		return
	}
	x.Goto(mpLeave)
}

// judge compares what the survivors learn with what the dead process did. A process counts as the
// holder of a key if one of its threads has entered. A process that was only granted the key has no
// such thread.
func (m *multiModel) judge(x *model.Exec, w mkWord) {
	entered := false
	for i, p := range m.threads {
		entered = entered || p == m.mortal && x.Ghost[x.Load(mkKey)]&(1<<i) != 0
	}
	switch {
	case w.hold().granted() && entered:
		x.Ghost[mgWrong] = 4
	case !w.hold().granted() && !entered:
		x.Ghost[mgWrong] = 3
	}
}
