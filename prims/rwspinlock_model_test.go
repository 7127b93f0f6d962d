//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// The words of the model of an RWSpinLock. rwPack makes the state word fit into a byte. The wake words have
// small sequences. The count of a process is at qCount plus the number of the process.
const (
	qState = iota
	qNext
	qSpinGate
	qDrain
	qRecords // the list of slot records, as a set of processes
	qCount
)

// The registers of a thread.
const (
	qrState    = iota // the state word that it has seen
	qrWake            // the wake word to sleep on
	qrWakeWord        // the index of that wake word
	qrWant            // the hold that it wants: vRead and so on
	qrFlags           // the flags, such as gRead
	qrScan            // the process whose count it examines
	qrBack            // the step that follows
	qrDead            // the dead process that it reaps

	qrKnown = qrState // the list of slot records that the thread has read; it uses the register of qrState
)

// The holds that a thread can want.
const (
	vRead uint8 = iota
	vWrite
	vUpgrade
)

// The flags of a thread.
const (
	gRead      = 1 << iota // it holds the lock for reading
	gWrite                 // it holds the lock for writing
	gUpgrade               // it has the upgradable hold
	gSpinSlept             // it has slept, or was about to sleep, in this call
	gCanceled              // its context has ended
	gArmed                 // it has announced that it waits for readers to leave
	gRecord                // it has an announce record
	gUpgrades              // it has an upgradable hold, and waits for readers to leave
)

const gIn = gRead | gWrite | gUpgrade

// The steps of a thread.
const (
	qIdle uint8 = iota
	qLook
	qTake
	qTook
	qAnnounce
	qLookAgain
	qRecord
	qSleep
	qCancel
	qLeave
	qLeaveLook
	qCountUp
	qCheck
	qPush
	qExit
	qExitLook
	qExitWake
	qList
	qScan
	qScanFence
	qScanClear
	qDrainAnnounce
	qDrainRecord
	qDrainSleep
	qDrainCancel
	qHave
	qGiveUp
	qInside
	qUpgrade
	qDownCount
	qRelease
	qPass
	qPassWake
	qNextOne
	qNextWake
	qFence
	qMarkOwnerDead
	qMeetDeathGate
	qMeetDeathWake
	qMeetDeathNext
	qMeetDeathOne
	qReapFence
	qReapCount
	qReapDrain
	qReapState
	qReapSurvey
	qReapGate
	qReapGateWake
	qReapNext
	qReapNextWake
	qReapReaped
)

// rwSpinModel is an RWSpinLock and the threads that use it. Each thread is a process of its own.
type rwSpinModel struct {
	wants  [][]uint8 // the holds that each thread may want
	cancel bool      // contexts may end
	opens  bool      // a process has no slot record until it has opened the lock
	kills  int
	policy Policy
	bug    bug
}

// Mistakes that an RWSpinLock could have.
const (
	rwLookFirst     bug = "a reader checks the state word, and then counts itself"
	rwExitSilent    bug = "the last reader wakes nobody"
	rwNoRescan      bug = "a writer announces itself, and sleeps without reading the counts again"
	rwGiveUpSilent  bug = "a writer that gives up waiting for readers wakes nobody"
	rwTookSilent    bug = "a waiter that gets the lock after a sleep does not announce again"
	rwLeaveSilent   bug = "a waiter that gives up passes no wake on"
	rwReleaseFirst  bug = "a downgrade frees the lock, and then counts itself"
	rwGateOne       bug = "a release wakes only one reader"
	rwCountsOfDead  bug = "the read holds of dead processes keep writers out"
	rwSpinNoFence   bug = "a hold of a dead process is taken back before a fence"
	rwReapSilent    bug = "a reap does not make the wakes that a dead process owed"
	rwUpgradeResets bug = "an upgrade that is given up frees the lock"
	rwRecordLate    bug = "a reader gets its slot record after it has checked the state word"
	rwListFirst     bug = "a writer reads the list of slot records, and then claims the lock"
)

func (m rwSpinModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Spurious: true, Restart: true,
		Check: m.check, Done: m.done, Canon: m.canon, Show: m.show, Limit: 30e6,
	}
	for i := range m.wants {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: fmt.Sprintf("%c", 'P'+i), Process: i, Run: m.step, Mortal: m.kills > 0})
	}
	if m.kills > 0 {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y.Explore()
}

func rwPack(w spinWord) uint8   { return uint8(w.kind())<<5 | uint8(w.participant()) }
func rwUnpack(b uint8) spinWord { return makeSpin(spinKind(b>>5), nameOf(int(b&31)-1)) }

var errRWTogether = errors.New("two are in that exclude each other")

func (m *rwSpinModel) check(s *model.Sys) error {
	var r, w, u int
	for i := range m.wants {
		f := s.Thread[i].R[qrFlags]
		r, w, u = r+int(f&gRead)/gRead, w+int(f&gWrite)/gWrite, u+int(f&gUpgrade)/gUpgrade
	}
	if w+u > 1 || w > 0 && r > 0 {
		return errRWTogether
	}
	return nil
}

// done checks that no hold and no wait is left when no thread is busy.
func (m *rwSpinModel) done(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[gReaped]&(1<<p) == 0 {
			return false
		}
	}
	for i := range m.wants {
		if s.Mem[qCount+i] != 0 && m.bug != rwCountsOfDead {
			return false
		}
	}
	o := rwUnpack(s.Mem[qState])
	return o.free() || m.kills > 0 && !o.held()
}

// canon clears the registers that a thread no longer uses, and renumbers the sequences. Only one thing matters
// about a sequence that a waiter has read: whether it is the present value. An old value never comes back.
func (m *rwSpinModel) canon(s *model.Sys) {
	const first = 2
	for i := range m.wants {
		t := &s.Thread[i]
		forget := func(registers ...int) {
			for _, r := range registers {
				t.R[r] = 0
			}
		}
		if t.PC < qFence {
			forget(qrDead)
			if scans := t.PC >= qScan && t.PC <= qScanClear; !scans && m.bug != rwListFirst {
				forget(qrState)
			}
		}
		switch t.PC {
		case qLook, qTake, qTook, qAnnounce, qCountUp, qCheck, qLeave, qLeaveLook:
			forget(qrWake, qrWakeWord, qrScan, qrBack)
		case qInside:
			forget(qrWake, qrWakeWord, qrScan, qrBack, qrWant)
			t.R[qrFlags] &= gIn
		case qExit, qExitLook, qExitWake, qRelease, qPass, qPassWake, qNextOne, qNextWake:
			forget(qrWake, qrWakeWord, qrScan)
			if t.R[qrBack] == qIdle {
				forget(qrWant)
				t.R[qrFlags] &= gIn
			}
		}
	}
	for wakeWord := qNext; wakeWord <= qDrain; wakeWord++ {
		now := s.Mem[wakeWord]
		s.Mem[wakeWord] = first | now&1
		for i := range m.wants {
			t := &s.Thread[i]
			switch {
			case t.R[qrWakeWord] != uint8(wakeWord):
			case t.R[qrWake] != 0 && t.R[qrWake]>>1 == now>>1:
				t.R[qrWake] = first | t.R[qrWake]&1
			default:
				t.R[qrWake] = 0
			}
		}
	}
}

func (m *rwSpinModel) show(s *model.Sys) string {
	str := rwUnpack(s.Mem[qState]).String()
	for wakeWord, name := range map[int]string{qNext: "next", qSpinGate: "gate", qDrain: "drain"} {
		if park.Word(s.Mem[wakeWord]).Announced() {
			str += ", " + name + " announced"
		}
	}
	return fmt.Sprintf("%s, counts %v", str, s.Mem[qCount:qCount+len(m.wants)])
}

func (m *rwSpinModel) has(x *model.Exec, flags uint8) bool { return *x.R(qrFlags)&flags != 0 }
func (m *rwSpinModel) set(x *model.Exec, flags uint8)      { *x.R(qrFlags) |= flags }
func (m *rwSpinModel) unset(x *model.Exec, flags uint8)    { *x.R(qrFlags) &^= flags }

// mine returns a state word of kind k that names the thread's process.
func (m *rwSpinModel) mine(x *model.Exec, k spinKind) uint8 {
	return rwPack(makeSpin(k, nameOf(x.Process())))
}

// end makes the thread continue with the step in qrBack.
func (m *rwSpinModel) end(x *model.Exec) {
	if back := *x.R(qrBack); back != qIdle {
		x.Goto(back)
		return
	}
	x.Idle()
}

func (m *rwSpinModel) announce(x *model.Exec, wakeWord uint8) {
	x.Update(int(wakeWord), func(v uint8) uint8 { return v | 1 })
	*x.R(qrWakeWord), *x.R(qrWake) = wakeWord, x.Mem[wakeWord]
}

func (m *rwSpinModel) bump(x *model.Exec, wakeWord int) {
	x.Update(wakeWord, func(v uint8) uint8 { return uint8(park.Word(v).Bumped()) })
}

func (m *rwSpinModel) step(x *model.Exec) {
	switch pc := x.PC(); {
	case pc == qIdle && m.opens && x.Load(qRecords)&(1<<x.Process()) == 0 && m.bug != rwRecordLate:
		x.Say("opens it")
		m.push(x)
	case pc == qIdle:
		wants := m.wants[x.Me]
		*x.R(qrWant) = wants[x.Choose(len(wants))]
		x.Say([]string{"calls RLock", "calls Lock", "calls LockUpgradable"}[*x.R(qrWant)])
		x.Goto(qLook)
	case pc <= qLeaveLook:
		m.wait(x)
	case pc <= qExitWake:
		m.read(x)
	case pc <= qGiveUp:
		m.drain(x)
	case pc <= qNextWake:
		m.release(x)
	default:
		m.meetDeath(x)
	}
}

// push puts the slot record of the thread's process on the list.
func (m *rwSpinModel) push(x *model.Exec) {
	x.Update(qRecords, func(v uint8) uint8 { return v | 1<<x.Process() })
}

// rescan makes the thread read all counts again.
func (m *rwSpinModel) rescan(x *model.Exec) {
	*x.R(qrScan) = 0
	x.Goto(m.scanned())
}

// scanned is the step with which a thread begins to read the counts.
func (m *rwSpinModel) scanned() uint8 {
	if m.opens {
		return qList
	}
	return qScan
}

// blocks models spinCore.blocks.
func (m *rwSpinModel) blocks(x *model.Exec, o spinWord) bool {
	return o.held() && x.LifeOf(int(o.participant())-1) != model.Gone
}

// wait models spinWaiter.acquire.
func (m *rwSpinModel) wait(x *model.Exec) {
	want := *x.R(qrWant)
	wakeWord := uint8(qNext)
	if want == vRead {
		wakeWord = qSpinGate
	}
	switch x.PC() {
	case qLook:
		o := rwUnpack(x.Load(qState))
		x.Say("looks")
		m.unset(x, gRecord)
		switch {
		case o.free() && want == vRead:
			x.Goto(qCountUp)
		case o.free():
			x.Goto(qTake)
			if m.bug == rwListFirst {
				*x.R(qrKnown) = x.Load(qRecords)
			}
		case !o.held():
			x.Say("is told of a death")
			x.Goto(qLeave)
		case x.LifeOf(int(o.participant())-1) != model.Alive:
			*x.R(qrState), *x.R(qrBack), *x.R(qrDead) = rwPack(o), qLook, o8(o)
			x.Goto(qFence)
		case m.has(x, gCanceled):
			x.Goto(qLeave)
		default:
			x.Goto(qAnnounce)
			// The thread may have been woken before its context ended.
			if m.cancel && m.has(x, gSpinSlept) && x.Choose(2) == 1 {
				x.Say("looks, and finds that its context has ended")
				x.Optional()
				x.Goto(qLeave)
			}
		}
	case qTake:
		x.Say("takes it")
		kind := spinDraining
		if want == vUpgrade {
			kind = spinUpgrade
		}
		if !x.CAS(qState, 0, m.mine(x, kind)) {
			x.Goto(qLook)
			return
		}
		if want == vUpgrade {
			m.set(x, gUpgrade)
		}
		x.Goto(qTook)
		if !m.has(x, gSpinSlept) || m.bug == rwTookSilent {
			m.tookIt(x)
		}
	case qTook:
		x.Say("announces for the others")
		x.Update(qNext, func(v uint8) uint8 { return v | 1 })
		m.tookIt(x)
	case qAnnounce:
		x.Say("announces")
		m.announce(x, wakeWord)
		x.Goto(qLookAgain)
	case qLookAgain:
		x.Say("looks again")
		x.Goto(qLook)
		if m.blocks(x, rwUnpack(x.Load(qState))) {
			m.set(x, gSpinSlept)
			x.Goto(qSleep)
			if m.kills > 0 {
				x.Goto(qRecord)
			}
		}
	case qRecord:
		x.Say("writes its record")
		m.set(x, gRecord)
		x.Goto(qSleep)
	case qSleep:
		m.sleep(x, qLook, qCancel)
	case qCancel:
		x.Say("sees that its context has ended")
		m.set(x, gCanceled)
		x.Goto(qLook)
	case qLeave:
		x.Say("leaves")
		if !m.has(x, gSpinSlept) || want == vRead || m.bug == rwLeaveSilent {
			x.Idle()
			return
		}
		x.Update(qNext, func(v uint8) uint8 { return v | 1 })
		x.Goto(qLeaveLook)
	case qLeaveLook:
		x.Say("looks whether somebody will wake the others")
		if m.blocks(x, rwUnpack(x.Load(qState))) {
			x.Idle()
			return
		}
		*x.R(qrBack) = qIdle
		x.Goto(qNextOne)
	}
}

func o8(o spinWord) uint8 { return uint8(o.participant()) - 1 }

func (m *rwSpinModel) tookIt(x *model.Exec) {
	m.unset(x, gSpinSlept)
	m.rescan(x)
	switch {
	case *x.R(qrWant) == vUpgrade:
		x.Goto(qInside)
	case m.bug == rwListFirst:
		x.Goto(qScan)
	}
}

func (m *rwSpinModel) sleep(x *model.Exec, then, quit uint8) {
	if !m.cancel {
		quit = 0
	} else if x.Choose(2) == 1 {
		x.Say("finds that its context has ended")
		x.Optional()
		x.Goto(quit)
		return
	}
	x.Say("sleeps")
	x.Sleep(then, quit, model.Wait{Word: int(*x.R(qrWakeWord)), Value: *x.R(qrWake)})
}

// read models the methods enter and exit.
func (m *rwSpinModel) read(x *model.Exec) {
	count := qCount + x.Process()
	switch x.PC() {
	case qCountUp:
		x.Say("counts itself")
		x.Update(count, func(v uint8) uint8 { return v + 1 })
		x.Goto(qCheck)
		if m.bug == rwLookFirst {
			m.set(x, gRead)
			x.Goto(qInside)
		}
	case qCheck:
		if x.Load(qState) == 0 {
			x.Say("is in")
			m.set(x, gRead)
			x.Goto(qInside)
			if m.bug == rwRecordLate {
				x.Goto(qPush)
			}
			return
		}
		x.Say("must not be in")
		*x.R(qrBack) = qLook
		x.Goto(qExit)
	case qPush:
		x.Say("opens it")
		m.push(x)
		x.Goto(qInside)
	case qExit:
		x.Say("takes itself off")
		m.unset(x, gRead)
		x.Update(count, func(v uint8) uint8 { return v - 1 })
		x.Goto(qExitLook)
		if m.bug == rwExitSilent {
			m.end(x)
		}
	case qExitLook:
		x.Say("looks whether somebody waits for readers, and bumps")
		if !park.Word(x.Load(qDrain)).Announced() {
			m.end(x)
			return
		}
		m.bump(x, qDrain)
		x.Goto(qExitWake)
	case qExitWake:
		x.Say("wakes the writer that waits for readers")
		x.Wake(qDrain, model.All)
		m.end(x)
	}
}

// drain models RWSpinLock.drain.
func (m *rwSpinModel) drain(x *model.Exec) {
	scan := int(*x.R(qrScan))
	pending := m.mine(x, spinDraining)
	if m.has(x, gUpgrades) {
		pending = m.mine(x, spinUpgrading)
	}
	switch x.PC() {
	case qList:
		x.Say("reads the list of slot records")
		*x.R(qrKnown) = x.Load(qRecords)
		x.Goto(qScan)
	case qScan:
		m.scan(x, scan)
	case qScanFence:
		x.Say("fences the dying reader")
		if m.bug != rwSpinNoFence {
			x.Membarrier()
		}
		x.Goto(qScanClear)
	case qScanClear:
		x.Say("takes the dead reader back")
		x.Update(qCount+scan, func(uint8) uint8 { return 0 })
		x.Goto(qScan)
	case qDrainAnnounce:
		x.Say("announces that it waits for readers")
		m.announce(x, qDrain)
		m.set(x, gArmed)
		m.rescan(x)
		if m.bug == rwNoRescan {
			x.Goto(qDrainRecord)
		}
	case qDrainRecord:
		x.Say("writes its record")
		m.set(x, gRecord)
		x.Goto(qDrainSleep)
	case qDrainSleep:
		m.unset(x, gArmed)
		*x.R(qrScan) = 0
		m.sleep(x, m.scanned(), qDrainCancel)
	case qDrainCancel:
		x.Say("sees that its context has ended")
		m.set(x, gCanceled)
		m.rescan(x)
	case qHave:
		x.Say("has it")
		x.CAS(qState, pending, m.mine(x, spinHeld))
		m.unset(x, gUpgrade|gUpgrades|gRecord)
		m.set(x, gWrite)
		x.Goto(qInside)
	case qGiveUp:
		x.Say("gives up")
		*x.R(qrBack) = qIdle
		back := uint8(0)
		if m.has(x, gUpgrades) && m.bug != rwUpgradeResets {
			back = m.mine(x, spinUpgrade)
		}
		x.CAS(qState, pending, back)
		up := m.has(x, gUpgrades)
		m.unset(x, gArmed|gRecord|gCanceled|gUpgrades)
		switch {
		case up:
			x.Goto(qInside)
		case m.bug == rwGiveUpSilent:
			x.Idle()
		default:
			x.Goto(qPass)
		}
	}
}

// scan examines the count of process i, or of the next process that has a slot record.
func (m *rwSpinModel) scan(x *model.Exec, i int) {
	for m.opens && i < len(m.wants) && *x.R(qrKnown)&(1<<i) == 0 {
		i++
	}
	*x.R(qrScan) = uint8(i)
	x.Say(fmt.Sprintf("looks at the count of %c", 'P'+i))
	switch {
	case i == len(m.wants) || x.Load(qCount+i) == 0:
		if *x.R(qrScan)++; int(*x.R(qrScan)) >= len(m.wants) {
			*x.R(qrScan) = 0
			x.Goto(qHave)
		}
	case x.LifeOf(i) != model.Alive && m.bug != rwCountsOfDead:
		x.Goto(qScanFence)
	case m.has(x, gCanceled):
		x.Goto(qGiveUp)
	case !m.has(x, gArmed):
		x.Goto(qDrainAnnounce)
	case m.kills > 0:
		x.Goto(qDrainRecord)
	default:
		x.Goto(qDrainSleep)
	}
}

// release chooses what a thread does with the hold that it has got.
func (m *rwSpinModel) release(x *model.Exec) {
	held := uint8(0)
	switch {
	case m.has(x, gWrite):
		held = m.mine(x, spinHeld)
	case m.has(x, gUpgrade):
		held = m.mine(x, spinUpgrade)
	}
	switch x.PC() {
	case qInside:
		m.inside(x)
	case qUpgrade:
		x.Say("begins to upgrade")
		x.CAS(qState, held, m.mine(x, spinUpgrading))
		m.set(x, gUpgrades)
		m.rescan(x)
	case qDownCount:
		x.Say("counts itself")
		x.Update(qCount+x.Process(), func(v uint8) uint8 { return v + 1 })
		x.Goto(qRelease)
		*x.R(qrBack) = qInside
		if held == 0 {
			x.Goto(qInside)
		}
	case qRelease:
		x.Say("frees it")
		x.CAS(qState, held, 0)
		m.unset(x, gWrite|gUpgrade)
		if *x.R(qrBack) != qIdle {
			m.set(x, gRead)
		}
		x.Goto(qPass)
	case qPass:
		x.Say("looks whether readers wait, and bumps")
		x.Goto(qNextOne)
		if park.Word(x.Load(qSpinGate)).Announced() {
			m.bump(x, qSpinGate)
			x.Goto(qPassWake)
		}
	case qPassWake:
		x.Say("wakes the readers")
		n := model.All
		if m.bug == rwGateOne {
			n = 1
		}
		x.Wake(qSpinGate, n)
		x.Goto(qNextOne)
	case qNextOne:
		x.Say("looks whether others wait, and bumps")
		if !park.Word(x.Load(qNext)).Announced() {
			m.end(x)
			return
		}
		m.bump(x, qNext)
		x.Goto(qNextWake)
	case qNextWake:
		x.Say("wakes one")
		x.Wake(qNext, 1)
		m.end(x)
	}
}

// inside chooses the next step of a thread that has a hold.
func (m *rwSpinModel) inside(x *model.Exec) {
	*x.R(qrBack) = qIdle
	switch {
	case m.has(x, gRead):
		x.Say("has read")
		x.Goto(qExit)
	case m.has(x, gWrite):
		switch x.Choose(3) {
		case 0:
			x.Say("has written")
			x.Goto(qRelease)
		case 1:
			x.Say("downgrades")
			m.down(x, m.mine(x, spinHeld))
		default:
			x.Say("downgrades to upgrade")
			x.Optional()
			x.CAS(qState, m.mine(x, spinHeld), m.mine(x, spinUpgrade))
			m.unset(x, gWrite)
			m.set(x, gUpgrade)
		}
	default:
		switch x.Choose(3) {
		case 0:
			x.Say("unlocks the upgrade")
			x.Goto(qRelease)
		case 1:
			x.Say("downgrades the upgrade")
			m.down(x, m.mine(x, spinUpgrade))
		default:
			x.Say("calls Upgrade")
			x.Optional()
			x.Goto(qUpgrade)
		}
	}
}

// down models becomeReader.
func (m *rwSpinModel) down(x *model.Exec, held uint8) {
	x.Goto(qDownCount)
	if m.bug == rwReleaseFirst {
		x.CAS(qState, held, 0)
		m.unset(x, gWrite|gUpgrade)
		m.set(x, gRead)
	}
}

// meetDeath models markOwnerDeadSpin. The thread then continues with the step in qrBack.
func (m *rwSpinModel) meetDeath(x *model.Exec) {
	o := rwUnpack(*x.R(qrState))
	next := o.ownerDied(m.policy)
	switch x.PC() {
	case qFence:
		x.Say("fences the dying")
		if m.bug != rwSpinNoFence {
			x.Membarrier()
		}
		x.Goto(qMarkOwnerDead)
	case qMarkOwnerDead:
		x.Say("deals with the dead owner")
		x.Goto(qMeetDeathGate)
		if !x.CAS(qState, rwPack(o), rwPack(next)) {
			m.end(x)
		}
	case qMeetDeathGate:
		x.Say("bumps for the readers")
		m.bump(x, qSpinGate)
		x.Goto(qMeetDeathWake)
	case qMeetDeathWake:
		x.Say("wakes the readers")
		x.Wake(qSpinGate, model.All)
		x.Goto(qMeetDeathNext)
	case qMeetDeathNext:
		x.Say("bumps for the others")
		m.bump(x, qNext)
		x.Goto(qMeetDeathOne)
	case qMeetDeathOne:
		x.Say("wakes the others")
		n := 1
		if !next.free() {
			n = model.All
		}
		x.Wake(qNext, n)
		m.end(x)
	}
}

// reap executes a step of reaping a dead process.
func (m *rwSpinModel) reap(x *model.Exec) {
	dead := int(*x.R(qrDead))
	switch x.PC() {
	case qIdle:
		for p, l := range x.Life {
			if l != model.Alive && x.Ghost[gReaped]&(1<<p) == 0 {
				x.Say("sees a death")
				x.Require()
				*x.R(qrDead) = uint8(p)
				x.Goto(qReapFence)
				return
			}
		}
		x.Disable()
	case qReapFence:
		x.Say("fences the dying")
		if m.bug != rwSpinNoFence {
			x.Membarrier()
		}
		x.Goto(qReapCount)
	case qReapCount:
		x.Say("takes the count of the dead back")
		x.Goto(qReapState)
		if x.Load(qCount+dead) != 0 && m.bug != rwCountsOfDead {
			x.Update(qCount+dead, func(uint8) uint8 { return 0 })
			x.Goto(qReapDrain)
		}
	case qReapDrain:
		x.Say("wakes the writer that waits for readers")
		m.bump(x, qDrain)
		x.Wake(qDrain, model.All)
		x.Goto(qReapState)
	case qReapState:
		x.Say("looks whose it is")
		o := rwUnpack(x.Load(qState))
		x.Goto(qReapSurvey)
		if o.held() && int(o8(o)) == dead {
			*x.R(qrState), *x.R(qrBack) = rwPack(o), qReapSurvey
			x.Goto(qMarkOwnerDead)
		}
	case qReapSurvey:
		x.Say("looks for announce records")
		for i := range m.wants {
			if x.Thread[i].R[qrFlags]&gRecord != 0 {
				*x.R(qrWant) = 1
			}
		}
		x.Goto(qReapGate)
		if m.bug == rwReapSilent {
			x.Goto(qReapReaped)
		}
	case qReapGate, qReapGateWake:
		// One step wakes all threads that sleep on the gate, and all that sleep on the drain word.
		x.Say("wakes the waiters of the gate, and the writer that waits for readers")
		for _, wakeWord := range []int{qSpinGate, qDrain} {
			if *x.R(qrWant) == 1 || park.Word(x.Load(wakeWord)).Announced() {
				m.bump(x, wakeWord)
				x.Wake(wakeWord, model.All)
			}
		}
		x.Goto(qReapNext)
	case qReapNext:
		x.Say("bumps for the others")
		x.Goto(qReapReaped)
		if *x.R(qrWant) == 1 || park.Word(x.Load(qNext)).Announced() {
			m.bump(x, qNext)
			x.Goto(qReapNextWake)
		}
	case qReapNextWake:
		x.Say("wakes one for a lost wake")
		x.Wake(qNext, 1)
		x.Goto(qReapReaped)
	case qReapReaped:
		x.Say("has reaped it")
		x.Ghost[gReaped] |= 1 << dead
		x.Idle()
	default:
		m.meetDeath(x)
	}
}
