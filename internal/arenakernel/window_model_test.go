//go:build linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a slot that is renewed while two members come and go: slot 0 is used
// up, and a lock word still has the ID of its last participant, which died.
const (
	wSlot   = iota // how often it was taken, in the new window; odd: taken
	wMember        // the slots of the two members: odd while somebody is there
	_
	wLock   // whose the lock is
	wDied   // whose death the lock reports
	wWindow // 0 the old one, 1 a new one with the old ID, 2 one without it
)

// What the lock and the report can have.
const (
	wNobody = iota
	wOld    // the ID that is used again, if the window has it
	wOther
)

// Ghosts.
const (
	gHolds  = iota // whoever has the old ID now holds the lock
	gWrong         // and somebody took that away
	gFinish        // the renewer has had its turn
)

// Registers of the renewer.
const (
	rMember = iota // what it has seen in the slots of the members
	_
	rFound
)

// windowModel is [Arena.renewSlots], or it with a mistake.
type windowModel struct {
	looksOnce, searchesFirst, searchesNothing, deadAreGone bool
}

var (
	errTakenAway = errors.New("a lock is taken away from a participant that lives")
	errStaleID   = errors.New("a word has the ID of a participant that has not written it")
)

func (m windowModel) explore() model.Result {
	y := model.System{
		Kills: 1,
		Init:  func(s *model.Sys) { s.Mem[wLock] = wOld },
		Check: func(s *model.Sys) error {
			switch {
			case s.Ghost[gWrong] != 0:
				return errTakenAway
			case s.Mem[wSlot] == 1 && s.Mem[wWindow] == 1 && (s.Mem[wDied] == wOld || s.Mem[wLock] == wOld && s.Ghost[gHolds] == 0):
				return errStaleID
			}
			return nil
		},
		Threads: []model.ThreadSpec{
			{Name: "member 1", Process: 0, Mortal: true, Run: m.member(0)},
			{Name: "member 2", Process: 1, Mortal: true, Run: m.member(1)},
			{Name: "renewer", Process: 2, Run: m.renew},
			{Name: "newcomer", Process: 3, Run: m.join},
			{Name: "reaper", Process: 4, Run: m.reap},
		},
	}
	return y.Explore()
}

// member joins, meets the dead owner of the lock, recovers it, and leaves. It may be stopped
// before each of its steps.
func (m windowModel) member(k int) model.Program {
	return func(x *model.Exec) {
		pc := x.PC()
		x.Goto(pc + 1)
		switch pc {
		case model.Idle:
			x.Say("joins")
			if n := x.Load(wMember + k); n >= 3 || !x.CAS(wMember+k, n&^1, n|1) {
				x.Disable()
			}
		case 1:
			x.Say("reads the lock")
			if x.Load(wLock) != wOld {
				x.Goto(6)
			}
		case 2:
			x.Say("asks whether its owner is current")
			if x.Load(wSlot) == 1 && x.Load(wWindow) == 1 {
				x.Goto(6)
			}
		case 3:
			x.Say("takes it from the dead")
			if !x.CAS(wLock, wOld, wOther) {
				x.Goto(6)
			} else if x.Ghost[gHolds] != 0 {
				x.Ghost[gWrong] = 1
			}
		case 4:
			x.Say("says who died")
			x.Update(wDied, func(uint8) uint8 { return wOld })
		case 5:
			x.Say("recovers and unlocks")
			x.Update(wDied, func(uint8) uint8 { return wNobody })
			x.CAS(wLock, wOther, wNobody)
		case 6:
			x.Say("leaves")
			x.Update(wMember+k, up)
			x.Idle()
		}
	}
}

// reap frees the slot of a member that is gone.
func (m windowModel) reap(x *model.Exec) {
	for k := range 2 {
		if x.LifeOf(k) == model.Condemned && x.Load(wMember+k)&1 != 0 {
			x.Say("reaps a member")
			x.Membarrier()
			if x.Load(wLock) == wOther { // what the dead one held passes on
				x.CAS(wLock, wOther, wNobody)
			}
			x.Update(wMember+k, up)
			return
		}
	}
	x.Disable()
}

// there reports whether a member is in its slot, as the renewer sees it.
func (m windowModel) there(x *model.Exec, k int, state uint8) bool {
	return state&1 != 0 && !(m.deadAreGone && x.LifeOf(k) != model.Alive)
}

func (m windowModel) renew(x *model.Exec) {
	pc := x.PC()
	look := func(k int) { // step 1
		n := x.Load(wMember + k)
		*x.R(rMember + k) = n
		if m.there(x, k, n) {
			x.Idle()
		}
	}
	again := func(k int) { // step 3
		if !m.looksOnce && x.Load(wMember+k) != *x.R(rMember + k) {
			x.Idle()
		}
	}
	search := func(word int) {
		if x.Load(word) == wOld && !m.searchesNothing {
			*x.R(rFound) = 1
		}
	}
	steps := []func(){
		func() { x.Say("looks at member 1"); look(0) },
		func() { x.Say("looks at member 2"); look(1) },
		func() { x.Say("searches the report"); search(wDied) },
		func() { x.Say("searches the lock"); search(wLock) },
		func() { x.Say("looks again at member 1"); again(0) },
		func() { x.Say("looks again at member 2"); again(1) },
		func() {
			x.Say("records the window")
			x.CAS(wWindow, 0, 1+*x.R(rFound))
			x.Ghost[gFinish] = 1
			x.Idle()
		},
	}
	if m.searchesFirst {
		steps[0], steps[1], steps[2], steps[3] = steps[2], steps[3], steps[0], steps[1]
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

// join takes the renewed slot, and locks with the ID that it has.
func (m windowModel) join(x *model.Exec) {
	switch x.PC() {
	case model.Idle:
		x.Say("takes the slot")
		if x.Load(wWindow) == 0 || x.Load(wSlot) != 0 {
			x.Disable()
			return
		}
		x.CAS(wSlot, 0, 1)
		if x.Load(wWindow) == 1 {
			x.Goto(1)
		}
	case 1:
		x.Say("locks")
		if x.CAS(wLock, wNobody, wOld) {
			x.Ghost[gHolds] = 1
		}
		x.Idle()
	}
}

// A slot that is used up is renewed with the IDs of its dead only when no word has them and
// nobody is about to act on them, wherever the others are stopped or killed.
func TestModelWindow(t *testing.T) {
	r := windowModel{}.explore()
	if r.Violation != nil {
		t.Fatalf("after %d states: %v", r.States, r.Violation)
	}
	t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	for name, m := range map[string]windowModel{
		"looks once": {looksOnce: true}, "searches first": {searchesFirst: true},
		"searches nothing": {searchesNothing: true}, "takes the dead for gone": {deadAreGone: true},
	} {
		r := m.explore()
		require.NotNil(t, r.Violation, name)
		t.Logf("%s: after %d steps, %d states explored: %v", name, len(r.Violation.Trace)-1, r.States, r.Violation.Err)
	}
}
