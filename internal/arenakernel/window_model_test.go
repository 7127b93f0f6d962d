//go:build linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model. In the model a slot is renewed while two members stay in the arena. Slot 0 is
// used up. Its last participant has died, and a lock word still contains the ID of that participant.
const (
	wSlot   = iota // 0: used up; 1: taken in the new window; 2: its participant is dead or has left
	wWindow        // 0: the old window; 1: a new window with the old ID; 2: a new window without it
	wLock          // the holder of the lock
	wActs          // the act words of the members: whether they contain the old ID
	_
)

// The values of the lock.
const (
	wNobody = iota
	wOld    // the old ID, which another participant gets if the window contains it
	wOther
)

// Ghost variables, which the code does not have.
const (
	gHolds  = iota // the present participant with the old ID holds the lock
	gWrong         // another thread has taken the lock from that participant
	gFinish        // the renewer has finished
)

// Registers.
const (
	rFound = iota // the renewer has found the ID
	rTook  = 0    // 1 if the member has the lock
)

// actModel is the model of [takeFrom] and [Arena.renewSlots]. Each field that is set stands for a mistake in them.
type actModel struct {
	unpublished, readsOnce, asksOnce         bool // mistakes of a member
	looksFirst, searchesNothing, ignoresActs bool // mistakes of the renewer
}

var (
	errTakenAway = errors.New("a lock is taken away from a participant that lives")
	errStaleID   = errors.New("a word has the ID of a participant that has not written it")
)

func (m actModel) explore() model.Result {
	y := model.System{
		Kills: 1,
		Init:  func(s *model.Sys) { s.Mem[wLock] = wOld },
		Check: func(s *model.Sys) error {
			switch {
			case s.Ghost[gWrong] != 0:
				return errTakenAway
			case s.Mem[wSlot] == 1 && s.Mem[wWindow] == 1 && s.Mem[wLock] == wOld && s.Ghost[gHolds] == 0:
				return errStaleID
			}
			return nil
		},
		Threads: []model.ThreadSpec{
			{Name: "member 1", Process: 0, Mortal: true, Run: m.member(0)},
			{Name: "member 2", Process: 1, Mortal: true, Run: m.member(1)},
			{Name: "renewer", Process: 2, Run: m.renew},
			{Name: "newcomer", Process: 3, Mortal: true, Run: m.join},
			{Name: "reaper", Process: 4, Run: m.reap},
		},
	}
	return y.Explore()
}

func (m actModel) current(x *model.Exec) bool { return x.Load(wSlot) == 1 && x.Load(wWindow) == 1 }

// member models a thread that finds the owner of the lock dead, takes the lock, and unlocks it. The
// thread may be stopped before each of its steps, and never leaves.
func (m actModel) member(k int) model.Program {
	return func(x *model.Exec) {
		pc := x.PC()
		x.Goto(pc + 1)
		switch pc {
		case model.Idle:
			x.Say("reads the lock")
			*x.R(rTook) = 0
			if x.Load(wLock) != wOld {
				x.Idle()
			}
		case 1:
			x.Say("asks whether its owner is current")
			if m.current(x) {
				x.Idle()
			}
		case 2:
			x.Say("publishes the ID")
			if !m.unpublished {
				x.CAS(wActs+k, 0, 1)
			}
		case 3:
			x.Say("reads the lock again")
			if !m.readsOnce && x.Load(wLock) != wOld {
				x.Goto(6)
			}
		case 4:
			x.Say("asks again")
			if !m.asksOnce && m.current(x) {
				x.Goto(6)
			}
		case 5:
			x.Say("takes it from the dead")
			if x.CAS(wLock, wOld, wOther) {
				*x.R(rTook) = 1
				if x.Ghost[gHolds] != 0 {
					x.Ghost[gWrong] = 1
				}
			}
		case 6:
			x.Say("clears the ID")
			x.Update(wActs+k, func(uint8) uint8 { return 0 })
			if *x.R(rTook) == 0 {
				x.Idle()
			}
		case 7:
			x.Say("unlocks")
			x.CAS(wLock, wOther, wNobody)
			x.Idle()
		}
	}
}

// reap models a reaper: it takes back what a dead participant has left.
func (m actModel) reap(x *model.Exec) {
	dead := func(process int) bool { return x.LifeOf(process) != model.Alive }
	newcomer := dead(3) && x.Load(wSlot) == 1
	members := (dead(0) || dead(1)) && x.Load(wLock) == wOther
	if !newcomer && !members {
		x.Disable()
		return
	}
	x.Say("reaps")
	x.Require()
	x.Membarrier()
	if newcomer {
		x.Update(wSlot, up)
		x.Ghost[gHolds] = 0
	}
	if members {
		x.CAS(wLock, wOther, wNobody)
	}
}

func (m actModel) renew(x *model.Exec) {
	pc := x.PC()
	look := func(k int) {
		if x.Load(wActs+k) != 0 && !m.ignoresActs {
			*x.R(rFound) = 1
		}
	}
	steps := []func(){
		func() {
			x.Say("searches the lock")
			if x.Load(wLock) == wOld && !m.searchesNothing {
				*x.R(rFound) = 1
			}
		},
		func() { x.Say("looks at act word 1"); look(0) },
		func() { x.Say("looks at act word 2"); look(1) },
		func() {
			x.Say("records the window")
			x.CAS(wWindow, 0, 1+*x.R(rFound))
			x.Ghost[gFinish] = 1
			x.Idle()
		},
	}
	if m.looksFirst {
		steps[0], steps[1], steps[2] = steps[1], steps[2], steps[0]
	}
	if pc == model.Idle {
		if x.Ghost[gFinish] != 0 {
			x.Disable()
			return
		}
		*x.R(rFound) = 0
	}
	x.Goto(pc + 1)
	steps[pc]()
}

// join models the participant that takes the renewed slot. It locks with its ID, unlocks, and leaves.
func (m actModel) join(x *model.Exec) {
	pc := x.PC()
	x.Goto(pc + 1)
	switch pc {
	case model.Idle:
		x.Say("takes the slot")
		if x.Load(wWindow) != 1 || !x.CAS(wSlot, 0, 1) {
			x.Disable()
		}
	case 1:
		x.Say("locks")
		if !x.CAS(wLock, wNobody, wOld) {
			x.Goto(1) // the lock is held, so try again
			return
		}
		x.Ghost[gHolds] = 1
	case 2:
		x.Say("unlocks")
		x.CAS(wLock, wOld, wNobody)
		x.Ghost[gHolds] = 0
	case 3:
		x.Say("leaves")
		x.Update(wSlot, up)
		x.Idle()
	}
}

// TestModelActs: wherever members of the arena are stopped or killed, a used-up slot gets a window that contains the
// ID of a dead participant only if two conditions hold: no word contains the ID, and no thread acts on it.
func TestModelActs(t *testing.T) {
	r := actModel{}.explore()
	if r.Violation != nil {
		t.Fatalf("after %d states: %v", r.States, r.Violation)
	}
	t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	for name, m := range map[string]actModel{
		"does not publish the ID": {unpublished: true}, "does not read the word again": {readsOnce: true},
		"does not ask again": {asksOnce: true}, "looks at the acts first": {looksFirst: true},
		"searches nothing": {searchesNothing: true}, "ignores the acts": {ignoresActs: true},
	} {
		r := m.explore()
		if !assert.NotNil(t, r.Violation, name) {
			continue
		}
		t.Logf("%s: after %d steps, %d states explored: %v", name, len(r.Violation.Trace)-1, r.States, r.Violation.Err)
	}
}

// The words of the second model. In one case a process moves an ID from word to word by a record while
// a joiner searches. In the other case a granter frees a node.
const (
	pState = iota // state of an object
	pLog          // the record
	pNode         // the owner word of a wait node
	pTelling
	pWindow // 1 if the window is recorded and contains the ID
)

const (
	gUsed    = iota // the node belongs to the newcomer
	gStole          // another thread has taken the node from the newcomer
	gEnded          // the renewer has finished
	gThrough        // the holder has finished
)

// passModel is the model of [Arena.renewSlots] and one other process. That process makes a grant to a
// dead participant or, if granter is set, frees a node.
type passModel struct {
	searches    uint8
	granter     bool
	doesNotWait bool // mistake: the joiner does not wait for granters
	uncounted   bool // mistake: a granter reads the owner before it increments its telling count
}

func (m passModel) explore() model.Result {
	y := model.System{
		Init: func(s *model.Sys) { s.Mem[pNode] = wOld },
		Check: func(s *model.Sys) error {
			switch {
			case s.Ghost[gStole] != 0:
				return errTakenAway
			case s.Mem[pWindow] != 0 && (s.Mem[pState] == wOld || s.Mem[pLog] == wOld):
				return errStaleID
			}
			return nil
		},
		Threads: []model.ThreadSpec{
			{Name: "holder", Process: 0, Run: m.holder},
			{Name: "renewer", Process: 1, Run: m.renew},
			{Name: "newcomer", Process: 2, Run: m.newcomer},
		},
	}
	return y.Explore()
}

func (m passModel) holder(x *model.Exec) {
	set := func(what string, w int, v uint8) func() {
		return func() {
			x.Say(what)
			x.Update(w, func(uint8) uint8 { return v })
		}
	}
	steps := []func(){ // the steps of a grant
		set("writes the record", pLog, wOld),
		set("gives the node back", pNode, wNobody),
		set("writes the state", pState, wOld),
		set("writes another record", pLog, wNobody),
		set("takes the state back in the next reap", pState, wNobody),
	}
	if m.granter {
		count := set("counts itself", pTelling, 1)
		read := func() { x.Say("reads the node's owner"); *x.R(0) = x.Load(pNode) }
		steps = []func(){
			count, read,
			set("is not alone: the owner's reaper frees the node", pNode, wNobody),
			func() {
				x.Say("takes the node")
				if x.CAS(pNode, *x.R(0), wOther) && x.Ghost[gUsed] != 0 {
					x.Ghost[gStole] = 1
				}
			},
			set("is through", pTelling, 0),
		}
		if m.uncounted {
			steps[0], steps[1], steps[2] = steps[1], steps[2], steps[0]
		}
	}
	pc := x.PC()
	if x.Ghost[gThrough] != 0 {
		x.Disable()
		return
	}
	x.Goto(pc + 1)
	steps[pc]()
	if int(pc) == len(steps)-1 {
		x.Ghost[gThrough] = 1
		x.Idle()
	}
}

func (m passModel) renew(x *model.Exec) {
	pc := x.PC()
	if x.Ghost[gEnded] != 0 {
		x.Disable()
		return
	}
	giveUp := func() {
		x.Ghost[gEnded] = 1
		x.Idle()
	}
	x.Goto(pc + 1)
	switch n := pc / 4; { // each search has three steps, and one step follows it
	case n == m.searches:
		x.Say("records the window")
		x.Update(pWindow, func(uint8) uint8 { return 1 })
		giveUp()
	case pc%4 == 3:
		x.Say("sees that no granter is at work")
		if n == 0 && !m.doesNotWait && x.Load(pTelling) != 0 {
			giveUp()
		}
	default:
		w := int(pc % 4) // the state first, then the log, then the node
		x.Say([]string{"searches the state", "searches the log", "searches the node"}[w])
		if x.Load(w) == wOld {
			giveUp()
		}
	}
}

func (m passModel) newcomer(x *model.Exec) {
	x.Say("claims the node")
	if x.Load(pWindow) == 0 || !x.CAS(pNode, wNobody, wOld) {
		x.Disable()
		return
	}
	x.Ghost[gUsed] = 1
}

// TestModelPassing: the search finds an ID that another process moves from word to word by records. It also
// waits for a granter that is about to free a node.
func TestModelPassing(t *testing.T) {
	for _, granter := range []bool{false, true} {
		r := passModel{searches: searches, granter: granter}.explore()
		if r.Violation != nil {
			t.Fatalf("after %d states: %v", r.States, r.Violation)
		}
		t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	}
	for name, m := range map[string]passModel{
		"searches once": {searches: 1}, "searches twice": {searches: 2},
		"does not wait for granters":    {searches: searches, granter: true, doesNotWait: true},
		"reads before it counts itself": {searches: searches, granter: true, uncounted: true},
	} {
		r := m.explore()
		if !assert.NotNil(t, r.Violation, name) {
			continue
		}
		t.Logf("%s: after %d steps, %d states explored: %v", name, len(r.Violation.Trace)-1, r.States, r.Violation.Err)
	}
}
