//go:build linux

package prims

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// The words of the model of an RWMutex. The writers' mutex is one word, which a thread takes in one step, because the
// Mutex has a model of its own. A reader word has the holds in its upper half and the waiters in its lower half.
const (
	vGate  = iota
	vMutex // the process of the thread that has the writers' mutex, plus 1
	vWakeWordReaders
	vWakeWordWriter
	vDead // the processes whose slots are marked dead, one bit each
	vLine // the first of the reader words, one for each process
)

// The registers of a thread.
const (
	qFlags  = iota // the flags, such as gWaits
	qSeen          // the value of the wake word on which the thread sleeps
	qGate          // the gate word that the thread has read
	qAt            // the slot that the thread examines
	qBack          // the step after a wake
	qPassed        // how many writers have overtaken the thread since it slept
	qDead          // the process that the reaper reaps
)

// The flags of a thread.
const (
	gWaits   = 1 << iota // it is registered as a waiting reader
	gGranted             // it was let in, but may not have noticed yet
	gReads               // it holds the lock as a reader
	gWrites              // it holds the lock as a writer
	gQuits               // its context has ended
	gDowngr              // its write hold becomes a read hold
	gSlept               // it has slept in this call
	gUpgr                // it has the upgradable hold, or is about to have it again
)

// The steps of a thread.
const (
	uIdle uint8 = iota
	uAdd
	uGate
	uRegister
	uBump
	uBumpWake
	uLoop
	uLook
	uAnnounce
	uRecheck
	uRecheckLine
	uSleep
	uQuit
	uEnter
	uEnterGate
	uLeave
	uReading
	uLeft
	uLeftGate
	uLock
	uLoadGate
	uClose
	uScan
	uDrainAnnounce
	uDrainRecheck
	uDrainGate
	uDrainSleep
	uDrainQuit
	uHold
	uGiveUp
	uWriting
	uDowngrade
	uOpen
	uLetIn
	uGrant
	uLetInBump
	uLetInWake
	uUnlock
	uLateGrant
	uUpgradable
	uUpgradableRead
	uMarkOwnerDead
	uMarkOwnerDeadBump
	uMarkOwnerDeadWake
	uRecover
	uRecovered
	uFence
	uMark
	uRepairLine
	uRepairGate
	uSurvey
	uReap2
	uReap3
	uReap4
	uReaped
	uRevoke
)

// The ghost variables, which only the invariant uses.
const (
	hDirty  = iota // a writer died while it wrote, and the data is not repaired yet
	hReaped        // the processes that the reaper has reaped, one bit each
	hClean         // the gate says owner-dead, although no writer wrote
)

type rwModel struct {
	threads  []int  // the process of each thread
	roles    string // of each thread: r reads, w writes, b does both, u uses upgradable holds
	cancel   bool   // contexts may end
	down     bool   // writers may downgrade
	kills    int
	policy   Policy
	recovers bool
	stops    bool // threads open the gate of a writer that closed it and seems to be stopped

	bug bug
}

const (
	rwAddLate        bug = "a reader checks the gate, and then counts itself"
	rwSilentReader   bug = "the last reader wakes nobody"
	rwSilentBackOut  bug = "a reader that finds the gate closed wakes nobody when it backs out"
	rwLateGrant      bug = "a grant is made after the mutex was given back"
	rwReaperGrants   bug = "a reaper that opens the gate lets the waiting readers in"
	rwNoRecheck      bug = "a reader sleeps without a second check"
	rwNoDrainRecheck bug = "a writer sleeps without a second check"
	rwSilentGiveUp   bug = "a writer that gives up opens the gate and wakes nobody"
	rwWakeOnly       bug = "a process that opens the gate wakes the readers, but does not let them in"
	rwDropGrant      bug = "a reader that gives up does not see that it was let in"
	rwSilentReap     bug = "a reap wakes nobody"
	rwDeadReads      bug = "the read holds of dead processes keep writers out"
	rwOneKind        bug = "a writer that died while it waited for readers is treated as a holder"
	rwNoFence        bug = "a dying process is not fenced"
	rwScanFirst      bug = "a writer looks for readers, and then closes the gate"
	rwOpenFirst      bug = "Downgrade releases the mutex, and then counts itself as a reader"
	rwWakeFirst      bug = "Unlock wakes, and then opens the gate"
	rwRevokeSilent   bug = "a process that opens the gate of a stopped writer does not wake the writer"
	rwRevokeBlind    bug = "a writer does not see that its gate was opened"
	rwTakesDown      bug = "a process that opens the gate of a stopped writer clears the announcement"
	rwUnguarded      bug = "a writer that dies leaves the gate open"
	rwReadLate       bug = "DowngradeToRead releases the mutex, and then counts itself as a reader"
	rwSilentUpgrade  bug = "an upgrade that gives up opens the gate, but does not let the waiting readers in"
	rwDropsTurn      bug = "an upgrade that gives up releases the mutex, and keeps its upgradable hold"
	rwSilentToUpgr   bug = "DowngradeToUpgradable opens the gate, but does not let the waiting readers in"
	rwUpgradeOpen    bug = "Upgrade looks for readers, and does not close the gate"
)

func (m rwModel) explore(b bug) model.Result {
	m.bug = b
	y := model.System{
		Kills: m.kills, Spurious: true, Restart: true,
		Check: m.check, Done: m.done, Canon: m.canon, Show: m.show,
	}
	for i, p := range m.threads {
		y.Threads = append(y.Threads, model.ThreadSpec{
			Name: fmt.Sprintf("%c%d", 'P'+p, i), Process: p, Run: m.step, Mortal: m.kills > 0,
		})
	}
	if m.kills > 0 || m.stops {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.step})
	}
	return y.Explore()
}

var (
	errBeside = errors.New("somebody is inside beside a writer")
	errDirty  = errors.New("somebody is inside what a dead writer has left half done")
	errClean  = errors.New("a death is reported although nobody was writing")
	errPassed = errors.New("two writers have passed a reader that slept")
	errTwoUp  = errors.New("two have the right to write next")
)

func (m *rwModel) check(s *model.Sys) error {
	inside, writing, next := 0, 0, 0
	for i := range m.threads {
		t := &s.Thread[i]
		if t.R[qFlags]&gWrites != 0 {
			writing++
		}
		if t.R[qFlags]&(gReads|gWrites|gUpgr) != 0 {
			inside++
		}
		if t.R[qFlags]&(gWrites|gUpgr) != 0 {
			next++
		}
		if t.R[qPassed] > 1 {
			return errPassed
		}
	}
	switch {
	case writing > 0 && inside > 1:
		return errBeside
	case next > 1:
		return errTwoUp
	case inside > 0 && s.Ghost[hDirty] != 0:
		return errDirty
	case s.Ghost[hClean] != 0:
		return errClean
	}
	return nil
}

func (m *rwModel) done(s *model.Sys) bool {
	for p, l := range s.Life {
		if l != model.Alive && s.Ghost[hReaped]&(1<<p) == 0 {
			return false
		}
	}
	for _, p := range m.threads {
		if s.Life[p] == model.Alive && s.Mem[vLine+p] != 0 {
			return false
		}
	}
	g := unpackGate(s.Mem[vGate])
	mutex := s.Mem[vMutex]
	return (g == gateOpen || m.kills > 0 && g.kind() == gateOwnerDead) && (mutex == 0 || m.dead(s, mutex))
}

// canon renumbers the sequences of the wake words, as in the model of the Mutex, and clears values that are no
// longer used.
func (m *rwModel) canon(s *model.Sys) {
	const first = 2 // sequence 1, not announced
	readers, writer := s.Mem[vWakeWordReaders], s.Mem[vWakeWordWriter]
	s.Mem[vWakeWordReaders], s.Mem[vWakeWordWriter] = first|readers&1, first|writer&1
	for i := range m.threads {
		t := &s.Thread[i]
		var now uint8
		switch t.PC {
		case uRecheck, uRecheckLine, uSleep:
			now = readers
		case uDrainRecheck, uDrainGate, uDrainSleep:
			now = writer
		default:
			t.R[qSeen] = 0
			continue
		}
		switch {
		case t.R[qSeen] == 0:
		case t.R[qSeen]>>1 == now>>1:
			t.R[qSeen] = first | t.R[qSeen]&1
		default:
			t.R[qSeen] = 0
		}
	}
}

func (m *rwModel) show(s *model.Sys) string {
	str := "gate " + unpackGate(s.Mem[vGate]).String()
	if s.Mem[vMutex] != 0 {
		str += fmt.Sprintf(", %c has the mutex", 'P'+s.Mem[vMutex]-1)
	}
	for p := range m.processes() {
		if l := s.Mem[vLine+p]; l != 0 {
			str += fmt.Sprintf(", %c %d reading %d waiting", 'P'+p, l>>4, l&15)
		}
	}
	for w, name := range map[int]string{vWakeWordReaders: "readers", vWakeWordWriter: "writer"} {
		if park.Word(s.Mem[w]).Announced() {
			str += ", " + name + " announced"
		}
	}
	return str
}

func (m *rwModel) processes() (n int) {
	for _, p := range m.threads {
		n = max(n, p+1)
	}
	return n
}

func unpackGate(b uint8) gateWord { return gateWord(unpack(b)) }
func packGate(g gateWord) uint8   { return pack(ownerWord(g)) }

func (m *rwModel) dead(s *model.Sys, name uint8) bool {
	return name != 0 && s.Mem[vDead]&(1<<(name-1)) != 0
}

// TestModelRWMutex explores readers, writers, and threads that do both. No thread dies.
func TestModelRWMutex(t *testing.T) {
	bugs := []bug{rwAddLate, rwSilentReader, rwNoRecheck, rwNoDrainRecheck, rwScanFirst, rwWakeFirst, rwLateGrant, rwWakeOnly}
	two := rwModel{threads: []int{0, 1}, roles: "bb", down: true}
	three := rwModel{threads: []int{0, 1, 2}, roles: "rww", down: true}
	readers := rwModel{threads: []int{0, 1, 2}, roles: "rrw"}
	all := rwModel{threads: []int{0, 1, 2}, roles: "bbb"}
	one := rwModel{threads: []int{0, 0, 1}, roles: "rrw"}
	shared := rwModel{threads: []int{0, 0, 1, 2}, roles: "rrww"}
	requireModels(t, []exploration{
		{"two", small, two.explore, []bug{rwAddLate, rwSilentReader, rwNoRecheck, rwNoDrainRecheck, rwScanFirst, rwOpenFirst}},
		{"one reads, two write", small, three.explore, append(bugs, rwOpenFirst)},
		{"two read, one writes", small, readers.explore, []bug{rwSilentBackOut, rwNoRecheck}},
		{"two of one process read, one writes", small, one.explore, []bug{rwNoRecheck, rwSilentReader}},
		{"three", large, all.explore, bugs},
		{"two of one process read, two write", large, shared.explore, nil},
	})
}

// TestModelRWMutexCancel explores what TestModelRWMutex does, with contexts that end.
func TestModelRWMutexCancel(t *testing.T) {
	bugs := []bug{rwDropGrant, rwSilentGiveUp, rwNoRecheck}
	two := rwModel{threads: []int{0, 1}, roles: "bb", cancel: true, down: true}
	three := rwModel{threads: []int{0, 1, 2}, roles: "rww", cancel: true}
	readers := rwModel{threads: []int{0, 1, 2}, roles: "rrw", cancel: true}
	one := rwModel{threads: []int{0, 0, 1}, roles: "rrw", cancel: true}
	shared := rwModel{threads: []int{0, 0, 1, 2}, roles: "rrww", cancel: true}
	requireModels(t, []exploration{
		{"two", small, two.explore, []bug{rwDropGrant}},
		{"one reads, two write", small, three.explore, []bug{rwDropGrant, rwNoRecheck, rwLateGrant}},
		{"two read, one writes", small, readers.explore, bugs},
		{"two of one process read, one writes", large, one.explore, bugs},
		{"two of one process read, two write", large, shared.explore, nil},
	})
}

// TestModelRWMutexStopped explores models in which threads may open the gate of a writer that seems to be stopped.
func TestModelRWMutexStopped(t *testing.T) {
	bugs := []bug{rwRevokeSilent, rwRevokeBlind}
	two := rwModel{threads: []int{0, 1}, roles: "bb", stops: true, cancel: true}
	readers := rwModel{threads: []int{0, 1, 2}, roles: "rrw", stops: true}
	writers := rwModel{threads: []int{0, 1, 2}, roles: "rww", stops: true}
	requireModels(t, []exploration{
		{"two", small, two.explore, bugs},
		{"two read, one writes", large, readers.explore, bugs},
		{"one reads, two write", large, writers.explore, append(bugs, rwTakesDown)},
	})
}

// TestModelRWMutexDeath explores models in which threads may die at every step.
func TestModelRWMutexDeath(t *testing.T) {
	report := rwModel{threads: []int{0, 1}, roles: "bb", kills: 1, policy: PolicyReport, recovers: true, down: true}
	release := rwModel{threads: []int{0, 1}, roles: "bb", kills: 1, policy: PolicyRelease, down: true}
	three := rwModel{threads: []int{0, 1, 2}, roles: "rrw", kills: 1, policy: PolicyReport}
	writers := rwModel{threads: []int{0, 1, 2}, roles: "rww", kills: 1, policy: PolicyReport, recovers: true}
	twice := rwModel{threads: []int{0, 1, 2}, roles: "rww", kills: 2, policy: PolicyRelease, cancel: true}
	requireModels(t, []exploration{
		{"two, report and recover", small, report.explore, []bug{rwSilentReap, rwDeadReads, rwOneKind, rwUnguarded}},
		{"two, release", small, release.explore, []bug{rwSilentReap, rwDeadReads, rwNoFence}},
		{"two read, one writes", large, three.explore, []bug{rwSilentReap, rwDeadReads, rwOneKind}},
		{"one reads, two write", large, writers.explore, []bug{rwSilentReap, rwDeadReads, rwOneKind, rwReaperGrants, rwNoFence}},
		{"two deaths, contexts", large, twice.explore, nil},
	})
}

// TestModelRWMutexUpgrade explores upgradable holds together with readers, writers and other upgradable holds.
// Contexts may end, other threads may open the gate, and threads may die at every step.
func TestModelRWMutexUpgrade(t *testing.T) {
	two := rwModel{threads: []int{0, 1}, roles: "ub", cancel: true, down: true}
	both := rwModel{threads: []int{0, 1}, roles: "uu", cancel: true, down: true}
	reader := rwModel{threads: []int{0, 1, 2}, roles: "urw", cancel: true, down: true}
	upgraders := rwModel{threads: []int{0, 1, 2}, roles: "uur", cancel: true}
	readers := rwModel{threads: []int{0, 1, 1}, roles: "urr", cancel: true, down: true}
	stops := rwModel{threads: []int{0, 1}, roles: "ub", cancel: true, stops: true}
	stopped := rwModel{threads: []int{0, 1, 2}, roles: "urw", stops: true}
	report := rwModel{threads: []int{0, 1}, roles: "ub", kills: 1, policy: PolicyReport, recovers: true, down: true}
	release := rwModel{threads: []int{0, 1}, roles: "ub", kills: 1, policy: PolicyRelease, cancel: true}
	deaths := rwModel{threads: []int{0, 1, 2}, roles: "urw", kills: 1, policy: PolicyReport, recovers: true}
	bugs := []bug{rwSilentUpgrade, rwSilentToUpgr, rwUpgradeOpen}
	requireModels(t, []exploration{
		{"one upgrades, one reads and writes", small, two.explore, append(bugs, rwReadLate)},
		{"two upgrade", small, both.explore, nil},
		{"two of one process read, one upgrades", large, readers.explore, bugs},
		{"one upgrades, one reads, one writes", large, reader.explore, append(bugs, rwReadLate, rwDropsTurn, rwSilentReader)},
		{"two upgrade, one reads", large, upgraders.explore, append(bugs, rwDropsTurn)},
		{"stops", small, stops.explore, []bug{rwRevokeSilent, rwRevokeBlind}},
		{"stops, one upgrades, one reads, one writes", large, stopped.explore, []bug{rwRevokeSilent, rwRevokeBlind}},
		{"deaths, report and recover", small, report.explore, []bug{rwSilentReap, rwDeadReads, rwOneKind, rwUnguarded}},
		{"deaths, release", small, release.explore, []bug{rwSilentReap, rwDeadReads, rwNoFence}},
		{"deaths, one upgrades, one reads, one writes", large, deaths.explore, []bug{rwSilentReap, rwDeadReads, rwOneKind}},
	})
}
