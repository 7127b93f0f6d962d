//go:build linux

package prims

import (
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// rwThread executes one step of a thread of the model.
type rwThread struct {
	*model.Exec
	m *rwModel
}

func (m *rwModel) step(x *model.Exec) {
	t := rwThread{x, m}
	switch pc := x.PC(); {
	case pc == uIdle:
		t.begin()
	case pc < uLock:
		t.read()
	case pc < uMarkOwnerDead:
		t.write()
	default:
		t.meetDeath()
	}
}

func (t rwThread) participant() uint8  { return uint8(t.Process() + 1) }
func (t rwThread) line() int           { return vLine + t.Process() }
func (t rwThread) has(flag uint8) bool { return *t.R(qFlags)&flag != 0 }
func (t rwThread) set(flag uint8)      { *t.R(qFlags) |= flag }
func (t rwThread) unset(flag uint8)    { *t.R(qFlags) &^= flag }
func (t rwThread) reaper() bool        { return t.Me >= len(t.m.threads) }
func (t rwThread) upgrades() bool      { return t.m.roles[t.Me] == 'u' }
func (t rwThread) gate() gateWord      { return unpackGate(t.Load(vGate)) }
func (t rwThread) ours(k ownerKind) uint8 {
	return pack(makeOwner(k, nameOf(t.Process())))
}

// begin begins a call, or the reaping of a process.
func (t rwThread) begin() {
	if t.reaper() {
		for p, l := range t.Life {
			if l != model.Alive && t.Ghost[hReaped]&(1<<p) == 0 {
				t.Say("sees a death")
				t.Require()
				*t.R(qDead) = uint8(p)
				t.Goto(uFence)
				return
			}
		}
		g := t.gate()
		if !t.m.stops || g.kind() != gateClosed {
			t.Disable()
			return
		}
		t.Say("sees a gate closed")
		*t.R(qGate) = packGate(g)
		t.Goto(uRevoke)
		return
	}
	write := t.m.roles[t.Me] == 'w'
	if t.m.roles[t.Me] == 'b' {
		write = t.Choose(2) == 1
	}
	if t.upgrades() {
		t.Say("calls LockUpgradable")
		t.Goto(uLock)
		return
	}
	if write {
		t.Say("calls Lock")
		t.Goto(uLock)
		return
	}
	t.Say("calls RLock")
	t.Goto(uAdd)
	if t.m.bug == rwAddLate {
		t.Goto(uGate)
	}
}

// change changes the reader word of the process, after the process has recorded the grants that the word shows.
func (t rwThread) change(f func(uint8) uint8) (to uint8) {
	t.Update(t.line(), func(v uint8) uint8 {
		t.catchUp(v)
		to = f(v)
		return to
	})
	return to
}

func (t rwThread) catchUp(v uint8) {
	if v&15 != 0 {
		return
	}
	for i, p := range t.m.threads {
		if f := &t.Thread[i].R[qFlags]; p == t.Process() && *f&gWaits != 0 {
			*f |= gGranted
		}
	}
}

// claim records that the thread has noticed the grant of its wait. It returns false if there was no grant.
func (t rwThread) claim() bool {
	if !t.has(gGranted) {
		return false
	}
	t.unset(gWaits | gGranted | gSlept | gQuits)
	*t.R(qPassed) = 0
	t.set(gReads)
	t.Goto(uReading)
	return true
}

// bump makes the thread execute the steps of WakeWord.Release for the writer's wake word. After that, the thread
// continues with the step that the parameter back names.
func (t rwThread) bump(back uint8) {
	*t.R(qBack) = back
	t.Goto(uBump)
}

func (t rwThread) goBack() {
	if back := *t.R(qBack); back != uIdle {
		*t.R(qBack) = 0
		t.Goto(back)
		return
	}
	t.Idle()
}

func (t rwThread) inside() {
	*t.R(qFlags), *t.R(qPassed) = gReads, 0
	t.Goto(uReading)
}

func (t rwThread) read() {
	switch t.PC() {
	case uAdd:
		t.Say("adds itself")
		t.Update(t.line(), func(v uint8) uint8 { return v + 16 })
		t.Goto(uGate)
		if t.m.bug == rwAddLate {
			t.inside()
		}
	case uGate:
		t.Say("looks at the gate")
		switch g := t.gate(); {
		case g == gateOpen && t.m.bug == rwAddLate:
			t.Goto(uAdd)
		case g == gateOpen:
			t.inside()
		case t.m.bug == rwAddLate:
			t.Idle()
		default:
			t.Goto(uRegister)
		}
	case uRegister:
		t.Say("registers")
		v := t.change(func(v uint8) uint8 { return v - 16 + 1 })
		t.set(gWaits)
		next := uLoop
		if t.has(gQuits) {
			next = uLeave
		}
		t.Goto(next)
		if v>>4 == 0 && t.m.bug != rwSilentBackOut {
			t.bump(next)
		}
	case uBump:
		t.Say("bumps for the writer")
		w := park.Word(t.Load(vWakeWordWriter))
		if !w.Announced() {
			t.goBack()
			return
		}
		t.CAS(vWakeWordWriter, uint8(w), uint8(w.Bumped()))
		t.Goto(uBumpWake)
	case uBumpWake:
		t.Say("wakes the writer")
		t.Wake(vWakeWordWriter, 1)
		t.goBack()
	case uLoop:
		t.Say("looks whether it was let in")
		t.change(func(v uint8) uint8 { return v })
		if !t.claim() {
			t.Goto(uLook)
		}
	case uLook:
		t.check()
	case uAnnounce:
		t.Say("announces")
		*t.R(qSeen) = t.Load(vWakeWordReaders) | 1
		t.Update(vWakeWordReaders, func(v uint8) uint8 { return v | 1 })
		t.Goto(uRecheck)
		if t.m.bug == rwNoRecheck {
			t.Goto(uSleep)
		}
	case uRecheck:
		t.Say("looks at the gate again")
		t.Goto(uRecheckLine)
		if g := t.gate(); !g.taken() || t.m.dead(t.Sys, uint8(g.participant())) {
			t.Goto(uLoop)
		}
	case uRecheckLine:
		t.Say("looks at its word again")
		t.change(func(v uint8) uint8 { return v })
		t.Goto(uSleep)
		if t.has(gGranted) {
			t.Goto(uLoop)
		}
	case uSleep:
		t.sleep(vWakeWordReaders, uLoop, uQuit)
		t.set(gSlept)
	case uQuit:
		t.Say("looks at the gate once more")
		t.set(gQuits)
		t.Goto(uLeave)
		if t.gate() == gateOpen {
			t.Goto(uEnter)
		}
	case uEnter:
		t.Say("lets itself in")
		t.change(func(v uint8) uint8 {
			if t.has(gGranted) {
				return v
			}
			return v + 16 - 1
		})
		if t.claim() {
			return
		}
		t.unset(gWaits | gSlept)
		*t.R(qPassed) = 0
		t.Goto(uEnterGate)
	case uEnterGate:
		t.Say("looks at the gate")
		t.Goto(uRegister)
		if t.gate() == gateOpen {
			t.inside()
		}
	case uLeave:
		t.Say("leaves")
		t.change(func(v uint8) uint8 {
			if t.has(gGranted) && t.m.bug != rwDropGrant || v&15 == 0 {
				return v
			}
			return v - 1
		})
		if t.m.bug == rwDropGrant || !t.claim() {
			t.Idle()
		}
	case uReading:
		t.Say("leaves, as a reader")
		v := uint8(0)
		t.Update(t.line(), func(w uint8) uint8 { v = w - 16; return v })
		*t.R(qFlags) = 0
		t.Goto(uLeftGate)
		if v>>4 != 0 || t.m.bug == rwSilentReader {
			t.Idle()
		}
	case uLeftGate:
		t.Say("looks at the gate, having left")
		if t.gate() == gateOpen {
			t.Idle()
			return
		}
		t.bump(uIdle)
	}
}

// check models an iteration of the loop of a waiting reader.
func (t rwThread) check() {
	g := t.gate()
	t.Say("looks at the gate")
	switch {
	case g == gateOpen:
		t.Goto(uEnter)
	case g.kind() == gateOwnerDead:
		t.Say("is told of a death")
		t.Goto(uLeave)
	case t.m.dead(t.Sys, uint8(g.participant())):
		*t.R(qGate), *t.R(qBack) = packGate(g), uLoop
		t.Goto(uMarkOwnerDead)
	default:
		t.Goto(uAnnounce)
	}
}

func (t rwThread) sleep(wakeWord int, then, quit uint8) {
	if !t.m.cancel {
		quit = 0
	} else if t.Choose(2) == 1 {
		t.Say("finds that its context has ended")
		t.Optional()
		t.Goto(quit)
		return
	}
	t.Say("sleeps")
	t.Sleep(then, quit, model.Wait{Word: wakeWord, Value: *t.R(qSeen)})
}

func (t rwThread) write() {
	switch t.PC() {
	case uLock:
		t.lock()
	case uLoadGate:
		t.loadGate()
	case uClose:
		t.Say("closes the gate")
		*t.R(qAt) = 0
		t.Goto(uScan)
		if !t.CAS(vGate, 0, t.ours(gateClosed)) {
			t.Goto(uLoadGate)
		} else if t.m.bug == rwScanFirst {
			t.Goto(uHold)
		}
	case uScan:
		t.Say("looks for readers")
		t.scan(uDrainAnnounce)
	case uDrainAnnounce:
		t.Say("announces, as the writer")
		*t.R(qSeen) = t.Load(vWakeWordWriter) | 1
		t.Update(vWakeWordWriter, func(v uint8) uint8 { return v | 1 })
		t.Goto(uDrainRecheck)
		if t.m.bug == rwNoDrainRecheck {
			t.Goto(uDrainSleep)
		}
	case uDrainRecheck:
		t.Say("looks at the reader again")
		t.Goto(uDrainSleep)
		if t.m.stops && t.m.bug != rwRevokeBlind {
			t.Goto(uDrainGate)
		}
		if !t.reads(int(*t.R(qAt))) {
			t.Goto(uScan)
		}
	case uDrainGate:
		t.Say("looks whether its gate is closed")
		t.Goto(uDrainSleep)
		if t.Load(vGate) != t.ours(gateClosed) {
			t.Goto(uLoadGate)
		}
	case uDrainSleep:
		t.sleep(vWakeWordWriter, uScan, uDrainQuit)
	case uDrainQuit:
		t.Say("looks for readers a last time")
		t.scan(uGiveUp)
	case uHold:
		t.Say("writes")
		*t.R(qAt) = 0
		from := t.ours(gateClosed)
		if t.m.bug == rwUpgradeOpen && t.has(gUpgr) {
			from = 0
		}
		if !t.CAS(vGate, from, t.ours(gateHeld)) && t.m.bug != rwRevokeBlind {
			t.Say("finds that its gate was opened")
			t.Goto(uLoadGate)
			return
		}
		t.unset(gUpgr)
		t.set(gWrites)
		t.pass()
		t.Goto(uWriting)
	case uGiveUp:
		t.Say("gives up and opens the gate")
		t.CAS(vGate, t.ours(gateClosed), 0)
		t.Goto(uLetIn)
		switch {
		case t.m.bug == rwSilentGiveUp, t.m.bug == rwDropsTurn && t.has(gUpgr):
			t.Goto(uUnlock)
		case t.m.bug == rwSilentUpgrade && t.has(gUpgr):
			t.Goto(uUpgradable)
		}
	case uWriting:
		t.Goto(uOpen)
		t.Say("has written")
		way := 0 // 0: Unlock, 1: Downgrade, 2: DowngradeToUpgradable; chosen once
		switch {
		case t.upgrades():
			way = t.Choose(3)
		case t.m.down:
			way = t.Choose(2)
		}
		if way == 1 {
			t.Say("has written and downgrades")
			t.set(gDowngr)
			t.Goto(uDowngrade)
		}
		if way == 2 {
			t.Say("has written and downgrades to upgradable")
			t.set(gUpgr)
		}
		if t.m.bug == rwOpenFirst && t.has(gDowngr) {
			t.Goto(uOpen)
		}
		if t.m.bug == rwWakeFirst {
			t.Goto(uLetIn)
		}
	case uDowngrade:
		t.Say("adds itself as a reader")
		t.Update(t.line(), func(v uint8) uint8 { return v + 16 })
		t.Goto(uOpen)
		if t.m.bug == rwOpenFirst {
			t.inside()
		}
	case uOpen:
		t.Say("opens the gate")
		t.CAS(vGate, t.ours(gateHeld), 0)
		t.unset(gWrites)
		if t.has(gDowngr) {
			t.set(gReads)
		}
		switch {
		case t.m.bug == rwWakeFirst:
			t.Goto(uUnlock)
		case t.m.bug == rwLateGrant:
			t.Goto(uUnlock)
		case t.m.bug == rwSilentToUpgr && t.has(gUpgr):
			t.Goto(uUpgradable)
		default:
			t.Goto(uLetIn)
		}
	case uUpgradable:
		switch t.Choose(3) {
		case 0:
			t.Say("gives its upgradable hold back")
			t.unset(gUpgr)
			t.Goto(uUnlock)
		case 1:
			t.Say("calls DowngradeToRead")
			t.unset(gUpgr)
			t.set(gReads | gDowngr)
			t.Goto(uUpgradableRead)
			if t.m.bug == rwReadLate {
				*t.R(qAt) = readLate
				t.Goto(uUnlock)
			}
		default:
			t.Say("calls Upgrade")
			t.Goto(uLoadGate)
		}
	case uUpgradableRead:
		t.Say("adds itself as a reader, with the mutex")
		t.Update(t.line(), func(v uint8) uint8 { return v + 16 })
		t.Goto(uUnlock)
		if t.m.bug == rwReadLate {
			t.inside()
		}
	case uLetIn, uGrant, uLetInBump, uLetInWake, uUnlock, uLateGrant:
		t.letIn()
	}
}

// lock takes the writers' mutex. A death frees that mutex.
func (t rwThread) lock() {
	mutex := t.Load(vMutex)
	if t.m.cancel && t.Choose(2) == 1 {
		t.Say("gives up in the queue")
		t.Optional()
		t.Idle()
		return
	}
	if mutex != 0 && !t.m.dead(t.Sys, mutex) {
		t.Disable()
		return
	}
	t.Say("has the writers' mutex")
	t.CAS(vMutex, mutex, t.participant())
	t.Goto(uLoadGate)
	if t.m.bug == rwScanFirst {
		*t.R(qAt) = 0
		t.Goto(uScan)
	}
}

func (t rwThread) loadGate() {
	g := t.gate()
	t.Say("looks at the gate, as a writer")
	switch {
	case g == gateOpen && t.upgrades() && !t.has(gUpgr):
		t.Say("has an upgradable hold")
		t.set(gUpgr)
		t.Goto(uUpgradable)
	case g == gateOpen && t.m.bug == rwUpgradeOpen && t.has(gUpgr):
		*t.R(qAt) = 0
		t.Goto(uScan)
	case g == gateOpen:
		t.Goto(uClose)
	case g.kind() == gateOwnerDead:
		t.Say("is told of a death, as a writer")
		t.Goto(uUnlock)
		if t.m.recovers && t.Choose(2) == 1 {
			*t.R(qGate) = packGate(g)
			t.Goto(uRecover)
		}
	case t.m.dead(t.Sys, uint8(g.participant())):
		*t.R(qGate), *t.R(qBack) = packGate(g), uLoadGate
		t.Goto(uMarkOwnerDead)
	default:
		t.Goto(uLoadGate) // another thread writes; the invariant reports two writers
	}
}

// reads reports whether the participant in slot p holds the lock for reading.
func (t rwThread) reads(p int) bool {
	return t.Load(vLine+p)>>4 != 0 && (t.m.bug == rwDeadReads || !t.m.dead(t.Sys, uint8(p+1)))
}

// scan examines one slot. If the participant in the slot reads, the thread continues with the step busy.
func (t rwThread) scan(busy uint8) {
	at := int(*t.R(qAt))
	switch {
	case at == t.m.processes():
		*t.R(qAt) = 0
		t.Goto(uHold)
		if t.m.bug == rwScanFirst && t.Load(vGate) == 0 {
			t.Goto(uLoadGate)
		}
	case t.reads(at):
		t.Goto(busy)
	default:
		*t.R(qAt)++
	}
}

// pass counts, for each reader that has slept, the writers that get the lock before it. It does not count in
// models with deaths, where more writers may overtake a reader.
func (t rwThread) pass() {
	for i := range t.m.threads {
		f := t.Thread[i].R[qFlags]
		if t.m.kills == 0 && f&gWaits != 0 && f&gSlept != 0 && f&gGranted == 0 && t.Thread[i].PC != uLeave {
			t.Thread[i].R[qPassed]++
		}
	}
}

func (t rwThread) letIn() {
	switch t.PC() {
	case uLetIn:
		t.Say("looks whether readers wait")
		*t.R(qAt) = 0
		t.afterLetIn()
		if park.Word(t.Load(vWakeWordReaders)).Announced() {
			t.Goto(uGrant)
			if t.m.bug == rwWakeOnly {
				t.Goto(uLetInBump)
			}
		} else if t.m.bug == rwWakeFirst {
			t.Goto(uOpen)
		}
	case uGrant, uLateGrant:
		t.Say("lets in")
		t.Update(vLine+int(*t.R(qAt)), func(v uint8) uint8 { return (v>>4 + v&15) << 4 })
		*t.R(qAt)++
		if int(*t.R(qAt)) == t.m.processes() {
			*t.R(qAt) = 0
			t.Goto(uLetInBump)
		}
	case uLetInBump:
		t.Say("bumps for the readers")
		t.Update(vWakeWordReaders, func(v uint8) uint8 { return uint8(park.Word(v).Bumped()) })
		t.Goto(uLetInWake)
	case uLetInWake:
		t.Say("wakes the readers")
		t.Wake(vWakeWordReaders, model.All)
		t.afterLetIn()
		switch t.m.bug {
		case rwLateGrant:
			t.finish()
		case rwWakeFirst:
			t.Goto(uOpen)
		}
	case uUnlock:
		t.Say("gives the mutex back")
		t.CAS(vMutex, t.participant(), 0)
		if t.m.bug == rwLateGrant && park.Word(t.Mem[vWakeWordReaders]).Announced() {
			*t.R(qAt) = 0
			t.Goto(uLateGrant)
			return
		}
		t.finish()
	}
}

// afterLetIn chooses the step after the gate was opened: the thread releases the writers' mutex, or keeps it.
func (t rwThread) afterLetIn() {
	t.Goto(uUnlock)
	if t.has(gUpgr) {
		t.Goto(uUpgradable)
	}
}

// readLate in qAt says that a thread has freed the writers' mutex too early, which is the mistake rwReadLate.
const readLate = 99

// finish ends an Unlock, a Downgrade, or a Lock that has given up.
func (t rwThread) finish() {
	switch {
	case t.has(gDowngr) && t.m.bug == rwOpenFirst:
		t.Goto(uDowngrade)
	case *t.R(qAt) == readLate:
		*t.R(qAt) = 0
		t.Goto(uUpgradableRead)
	case t.has(gDowngr):
		t.inside()
	default:
		t.Idle()
	}
}

// touch changes the sequence of the readers' wake word, and keeps the announcement bit.
func (t rwThread) touch() {
	t.Update(vWakeWordReaders, func(v uint8) uint8 {
		if t.m.bug == rwTakesDown {
			return uint8(park.Word(v).Bumped())
		}
		return v + 2
	})
}

func (t rwThread) meetDeath() {
	dead := int(*t.R(qDead))
	switch t.PC() {
	case uMarkOwnerDead:
		t.markOwnerDead()
	case uMarkOwnerDeadBump:
		t.Say("bumps for a death")
		t.touch()
		t.Goto(uMarkOwnerDeadWake)
	case uMarkOwnerDeadWake:
		t.Say("wakes readers for a death")
		t.Wake(vWakeWordReaders, model.All)
		t.goBack()
	case uRecover:
		t.Say("begins to repair")
		t.Goto(uLoadGate)
		if t.CAS(vGate, *t.R(qGate), t.ours(gateRecovering)) {
			t.Goto(uRecovered)
		}
	case uRecovered:
		t.Say("has repaired")
		t.Ghost[hDirty] = 0
		t.CAS(vGate, t.ours(gateRecovering), 0)
		t.Goto(uLetIn)
	case uFence:
		t.Say("fences the dying")
		if t.m.bug != rwNoFence {
			t.Membarrier()
		}
		t.Goto(uMark)
	case uMark:
		t.Say("marks the slot dead")
		t.Update(vDead, func(v uint8) uint8 { return v | 1<<dead })
		t.Goto(uRepairLine)
	case uRepairLine:
		t.Say("takes back what the dead one reads")
		if t.m.bug != rwDeadReads {
			t.Update(vLine+dead, func(uint8) uint8 { return 0 })
		}
		t.Goto(uRepairGate)
	case uRepairGate:
		t.Say("looks at the gate for the dead one")
		g := t.gate()
		t.Goto(uSurvey)
		if g.taken() && int(g.participant()) == dead+1 {
			*t.R(qGate), *t.R(qBack) = packGate(g), uSurvey
			t.Goto(uMarkOwnerDead)
		}
	case uSurvey:
		t.Say("bumps for readers")
		t.touch()
		t.Goto(uReap2)
		if t.m.bug == rwSilentReap {
			t.Goto(uReaped)
		}
	case uReap2:
		t.Say("wakes readers")
		t.Wake(vWakeWordReaders, model.All)
		t.Goto(uReap3)
		if t.m.bug == rwRevokeSilent {
			t.Idle()
		}
	case uRevoke:
		t.Say("opens the gate that was closed")
		if !t.CAS(vGate, *t.R(qGate), 0) {
			t.Idle()
			return
		}
		t.Goto(uSurvey)
	case uReap3:
		t.Say("bumps for a writer")
		t.Update(vWakeWordWriter, func(v uint8) uint8 { return uint8(park.Word(v).Bumped()) })
		t.Goto(uReap4)
	case uReap4:
		t.Say("wakes a writer")
		t.Wake(vWakeWordWriter, model.All)
		t.Goto(uReaped)
	case uReaped:
		t.Say("has ended")
		if t.Mem[vDead]&(1<<dead) != 0 {
			t.Ghost[hReaped] |= 1 << dead
		}
		t.Idle()
	}
}

// markOwnerDead models markOwnerDeadRWMutex. The kind of the gate shows how far the dead writer had come. The
// ghost variables record this for the invariant.
func (t rwThread) markOwnerDead() {
	t.Say("deals with the dead writer")
	g := unpackGate(*t.R(qGate))
	next := g.ownerDied(t.m.policy)
	if t.m.bug == rwOneKind && g.kind() == gateClosed {
		next = makeGate(gateOwnerDead, g.participant())
	}
	if t.m.bug == rwUnguarded {
		next = gateOpen
	}
	if !t.CAS(vGate, packGate(g), packGate(next)) {
		t.goBack()
		return
	}
	switch {
	case g.kind() == gateHeld && t.m.policy == PolicyReport:
		t.Ghost[hDirty] = 1
	case next.kind() == gateOwnerDead && g.kind() == gateClosed:
		t.Ghost[hClean] = 1
	}
	t.Goto(uMarkOwnerDeadBump)
	if t.m.bug == rwSilentReap {
		t.goBack()
	}
	if t.m.bug == rwReaperGrants && t.reaper() {
		*t.R(qAt) = 0
		t.Goto(uGrant)
	}
}
