//go:build linux

package prims

import (
	"errors"
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/park"
)

// The ghosts: words that only the invariant uses.
const (
	gWrong  = iota // a thread did something that must not be possible
	gDirty         // a holder died, and its data has not been repaired yet
	gReaped        // the processes that have been reaped, one bit for each process
	gHandle        // the state of the handle of process 0: handleOpen...
)

// The states of the handle and of the queue of process 0.
const (
	handleOpen    = iota // the poller delivers wakes for its queue
	handleShut           // the handle is closed, or it is open and has no poller node yet
	handleClosing        // Close is running
)

// mutexModel is a Mutex and its users, as a system to explore.
type mutexModel struct {
	threads    []int   // the process of each thread
	modes      []uint8 // the kinds of hold that Lock may take
	cancel     bool    // contexts of waiters may end
	handoffs   bool    // waiters may ask for a handoff
	kills      int     // how many processes may die
	policy     Policy
	recoverers int  // 1: any thread may call Recover
	bitOnly    bool // the wake word has no sequence; see TestModelMutexBit
	poller     bool // the threads of process 0 park behind a poller
	closes     bool // process 0 closes its handle between calls
	successor  bool // a process has died after it made the poller's node ready and before it pushed the node
	distinct   bool // threads count as different although all make the same steps

	bug    bug
	reaper bool // a process reaps dead processes
}

// Faults that a Mutex could have.
const (
	noFence              bug = "a waiter sleeps on a biased hold without a fence"
	noLookAfterFence     bug = "a waiter fences and does not read the owner word again"
	wakeBeforeRelease    bug = "Unlock checks whether a waiter is announced, and then frees the lock"
	noAnnounceAfterSleep bug = "a waiter that gets the lock after a sleep does not announce again"
	sleepOnOwner         bug = "waiters sleep on the owner word"

	leaveAtOnce          bug = "a waiter that gives up passes no wake on"
	leaveDoesNotWake     bug = "a waiter that gives up announces, and wakes nobody"
	leaveWithoutAnnounce bug = "a waiter that gives up wakes, but does not announce"

	sleepOnHandoffOnly bug = "starving waiters sleep on the handoff word only"
	staleStarver       bug = "starving waiters sleep on the handoff word only, and never ask again"
	reservationStays   bug = "a reservation for a waiter that has left is not revoked"
	revokeDoesNotWake  bug = "a reservation is revoked without a wake"
	handOffDoesNotWake bug = "a handoff wakes no waiter"
	sleptForgotten     bug = "a waiter that has slept leaves its process's reservation alone, like a waiter that has not"
	reserveBlindly     bug = "a free lock is reserved by a plain store, even if a process has locked it by then"
	wakeOneStarver     bug = "a handoff wakes only one of the waiters that sleep on the handoff word"

	noFenceBeforeRepair    bug = "the lock is taken from a dying process before a fence"
	silentReaper           bug = "a dead process is marked, and no waiter is woken"
	reapDoesNotWake        bug = "a reap does not make the wakes that a dead process owed"
	wakeByRecordOnly       bug = "a reap wakes only where there is a record"
	wakeByAnnouncementOnly bug = "a reap wakes only where there is an announcement"
	toldOnesKeepIt         bug = "a waiter that is told of a death wakes nobody else"
	nobodyLooks            bug = "no periodic check takes back a reservation that is not used"
	notRegistered          bug = "the fence does not reach the dying process"
)

// explore explores the model, with a bug or with none.
func (m mutexModel) explore(b bug) model.Result {
	m.bug, m.reaper = b, m.kills > 0
	return m.system().Explore()
}

// system is the model's system.
func (m *mutexModel) system() *model.System {
	y := &model.System{
		Kills: m.kills, Spurious: true, Restart: true,
		Init: m.init, Check: m.check, Done: m.done, Canon: m.canon, Show: m.show,
	}
	for i, p := range m.threads {
		y.Threads = append(y.Threads, model.ThreadSpec{
			Name: fmt.Sprintf("%c%d", 'P'+p, i), Process: p, Run: m.step, Mortal: m.reaper,
			Unregistered: m.bug == notRegistered,
		})
	}
	if m.poller {
		y.MaySleep = func(_ *model.Sys, thread int) bool { return thread == len(m.threads) }
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "poller", Process: 0, Run: m.serve, Mortal: m.reaper})
	}
	if m.alike() {
		y.Symmetry = &model.Symmetry{Threads: len(m.threads), Names: []int{rOwner, rDead}, Rename: m.rename}
	}
	if m.reaper {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "reaper", Process: model.Threads - 1, Run: m.reap})
	}
	return y
}

var (
	errTwoOwners = errors.New("two hold the lock")
	errWrong     = errors.New("somebody took what nobody had given back, or lost what it had")
)

func (m *mutexModel) init(s *model.Sys) {
	if m.poller {
		s.Mem[wNode] = uint8(arenakernel.NodeIdle)
	}
	if m.successor {
		s.Mem[wNode], s.Mem[wStack] = uint8(arenakernel.NodeReady), 2
	}
}

func (m *mutexModel) check(s *model.Sys) error {
	inside := 0
	for i := range m.threads {
		if s.Thread[i].R[rFlags]&fInside != 0 {
			inside++
		}
	}
	switch {
	case inside > 1:
		return errTwoOwners
	case s.Ghost[gWrong] != 0:
		return errWrong
	}
	return nil
}

// done reports whether the words are as they must be when no thread is in a call.
func (m *mutexModel) done(s *model.Sys) bool {
	if _, left := m.unreaped(s); left {
		return false
	}
	o := unpack(s.Mem[wOwner])
	return o.free() || m.kills > 0 && !o.held()
}

// canon replaces the sequences in the words by small numbers. Threads only compare a sequence with the value that
// they have read. So a thread needs to know only whether it has read the present value or an earlier one. Earlier
// values do not come back.
func (m *mutexModel) canon(s *model.Sys) {
	const first = 2 // a word with sequence 1, not announced
	w, h := s.Mem[wWake], s.Mem[wHandoff]
	s.Mem[wWake], s.Mem[wHandoff] = first|w&1, 1
	if m.poller {
		canonEqual(&s.Thread[len(m.threads)].R[rHand], s.Mem[wWakeWord])
		s.Mem[wWakeWord] = 1
	}
	for i := range m.threads {
		t := &s.Thread[i]
		switch {
		case t.R[rWake] == 0:
		case t.R[rWake]>>1 == w>>1:
			t.R[rWake] = first | t.R[rWake]&1
		default:
			t.R[rWake] = 0
		}
		canonEqual(&t.R[rHand], h)
	}
}

// canonEqual replaces *seen, the value of a sequence that a thread has read. It becomes 1 if the sequence still has
// this value, and 0 otherwise. The parameter now is the present value.
func canonEqual(seen *uint8, now uint8) {
	if *seen != 0 && *seen == now {
		*seen = 1
		return
	}
	*seen = 0
}

// alike reports whether all threads can make the same steps.
func (m *mutexModel) alike() bool {
	for i, p := range m.threads {
		if i != p {
			return false
		}
	}
	return !m.distinct && !m.poller
}

// rename exchanges the numbers of the processes.
func (m *mutexModel) rename(s *model.Sys, to *[model.Threads]uint8) {
	name := func(n uint8) uint8 {
		if n == 0 {
			return 0
		}
		return to[n-1] + 1
	}
	word := func(b uint8) uint8 { return b&^31 | name(b&31) }
	mask := func(b uint8) (r uint8) {
		for i := range to {
			r |= b >> i & 1 << to[i]
		}
		return r
	}
	s.Mem[wOwner], s.Mem[wStarving] = word(s.Mem[wOwner]), name(s.Mem[wStarving])
	s.Mem[wDead], s.Ghost[gReaped] = mask(s.Mem[wDead]), mask(s.Ghost[gReaped])
	for i := range s.Thread {
		t := &s.Thread[i]
		t.R[rOwner] = word(t.R[rOwner])
		if deals(t, i == len(m.threads)) {
			t.R[rDead] = to[t.R[rDead]]
		}
	}
}

// deals reports whether a thread is dealing with a death.
func deals(t *model.Thread, reaper bool) bool {
	return reaper && t.PC != sIdle || t.PC == sFenceDead || t.PC == sMark || t.PC == sMarkOwnerDead
}

func (m *mutexModel) show(s *model.Sys) string {
	str := unpack(s.Mem[wOwner]).String()
	if park.Word(s.Mem[wWake]).Announced() {
		str += ", announced"
	}
	if n := s.Mem[wStarving]; n != 0 {
		str += fmt.Sprintf(", %c starves", 'P'+n-1)
	}
	return str
}
