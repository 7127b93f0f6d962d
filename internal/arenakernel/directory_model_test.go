//go:build linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
	"github.com/shmsync/shmsync/internal/race"
)

// The words of the model of a directory. Two makers create objects with the same name. The hash of
// the name selects entry 0, which already contains an object with another name.
const (
	dReach = iota
	dEntry // followed by two more entries
	_
	_
	dState // the phases of the objects of the two makers
	_
	dLower // 0: the reach is not lowered yet; 1: it is lowered; in between: dBusy plus the previous reach
)

const dBusy = 4

// The values of an entry in the model. The value 0 means that the entry is empty.
const (
	dirOther = iota + 1
	dirGone
	dirMine // the object of maker 0; the object of maker 1 is the next value
)

// The registers of a thread.
const (
	dAt     = iota // the entry that the thread examines
	dSeen          // the reach that the thread has read
	dPlaced        // the entry in which the thread has placed its object
	dKnew          // whether the object existed when the search began
	dWord          // the value of dLower that the thread has read
	dFar           // the furthest entry that the thread has found
)

// The ghost variables record which steps the threads have done.
const (
	dDone = iota
	dWrong
)

const (
	dirIdle uint8 = iota
	dirRaise
	dirPlace
	dirRaiseLate
	dirReach
	dirLook
	dirState
	dirCommit
	dirAgain
	dirReachOf
	dirReachStill
	dirBegin
	dirLower
	dirCheck
	dirRaiseBack
	dirOver
)

type directoryModel struct {
	late  bool // mistake: a maker raises the reach only after its search
	early bool // mistake: a maker reads the reach before it places its entry

	lowered bool // another thread lowers the reach at the same time
	once    bool // mistake: a maker does not raise the reach again after it has placed its entry
	blind   bool // mistake: searches do not check whether the reach is being lowered
	hasty   bool // mistake: the lowerer reads the entries only once
}

var (
	errTwoObjects = errors.New("two objects have the name")
	errNotFound   = errors.New("an object that is there is not found")
)

func (m directoryModel) explore() model.Result {
	y := model.System{
		Init: func(s *model.Sys) {
			s.Mem[dEntry] = dirOther
			if m.lowered {
				s.Mem[dReach] = 2
			}
		},
		Check: func(s *model.Sys) error {
			switch {
			case s.Mem[dState] == objectCommitted && s.Mem[dState+1] == objectCommitted:
				return errTwoObjects
			case s.Ghost[dWrong] != 0:
				return errNotFound
			}
			return nil
		},
		Threads: []model.ThreadSpec{
			{Name: "maker 0", Process: 0, Run: m.make}, {Name: "maker 1", Process: 1, Run: m.make},
			{Name: "opener", Process: 2, Run: m.open},
			{Name: "deleter", Process: 3, Run: func(x *model.Exec) {
				x.Say("deletes the other name")
				if !x.CAS(dEntry, dirOther, dirGone) {
					x.Disable()
				}
			}},
		},
	}
	if m.lowered {
		y.Threads = append(y.Threads, model.ThreadSpec{Name: "lowerer", Process: 4, Run: m.lower})
	}
	return y.Explore()
}

// lower does the next step of core.lowerReach.
func (m directoryModel) lower(x *model.Exec) {
	at, far := x.R(dAt), x.R(dFar)
	look := func(then uint8) {
		x.Say("looks at an entry")
		if e := x.Load(dEntry + int(*at)); e != 0 && e != dirGone {
			*far = *at
		}
		if *at++; *at == 3 {
			*at = 0
			x.Goto(then)
		}
	}
	switch x.PC() {
	case dirIdle:
		if x.Mem[dLower] != 0 {
			x.Disable()
			return
		}
		x.Say("reads the reach, to lower it")
		*x.R(dSeen) = x.Load(dReach)
		x.Goto(dirBegin)
	case dirBegin:
		x.Say("says so")
		x.Store(dLower, dBusy+*x.R(dSeen))
		x.Goto(dirLook)
	case dirLook:
		look(dirLower)
	case dirLower:
		x.Say("lowers the reach")
		if *far < *x.R(dSeen) {
			x.CAS(dReach, *x.R(dSeen), *far)
		}
		*far = 0
		x.Goto(dirCheck)
		if m.hasty {
			x.Goto(dirOver)
		}
	case dirCheck:
		look(dirRaiseBack)
	case dirRaiseBack:
		x.Say("raises it to what is there")
		f := *far
		x.Update(dReach, func(r uint8) uint8 { return max(r, f) })
		x.Goto(dirOver)
	case dirOver:
		x.Say("says that it is over")
		x.Store(dLower, 1)
		x.Idle()
	}
}

func (m directoryModel) end(x *model.Exec) {
	x.Ghost[dDone] |= 1 << x.Me
	x.Idle()
}

// make does the next step of createNamed.
func (m directoryModel) make(x *model.Exec) {
	mine, at := uint8(dirMine+x.Me), x.R(dAt)
	switch x.PC() {
	case dirIdle:
		if x.Ghost[dDone]&(1<<x.Me) != 0 {
			x.Disable()
			return
		}
		x.Say("makes an object")
		x.Mem[dState+x.Me] = objectPending + 8 // private until it is placed
		if m.early {
			*x.R(dSeen) = x.Load(dReach)
		}
		x.Goto(dirRaise)
		if m.late {
			x.Goto(dirPlace)
		}
	case dirRaise, dirRaiseLate:
		x.Say("raises the reach")
		far := *at
		if x.PC() == dirRaiseLate {
			far = *x.R(dPlaced)
		}
		x.Update(dReach, func(r uint8) uint8 { return max(r, far) })
		if x.PC() == dirRaise {
			x.Goto(dirPlace)
			return
		}
		x.Goto(dirCommit)
	case dirPlace:
		x.Say("places it where nothing is")
		e := x.Load(dEntry + int(*at))
		if e != 0 && e != dirGone {
			*at++
			x.Goto(dirRaise)
			if m.late {
				x.Goto(dirPlace)
			}
			return
		}
		x.CAS(dEntry+int(*at), e, mine)
		*x.R(dPlaced), *at = *at, 0
		x.Goto(dirAgain)
		if m.once || m.late {
			x.Goto(dirReach)
		}
		if m.early {
			x.Goto(dirLook)
		}
	case dirAgain:
		x.Say("raises the reach again")
		far := *x.R(dPlaced)
		x.Update(dReach, func(r uint8) uint8 { return max(r, far) })
		x.Goto(dirReach)
	case dirCommit:
		x.Say("commits it")
		x.CAS(dState+x.Me, objectPending+8, objectCommitted)
		m.end(x)
	default:
		m.seek(x)
	}
}

// open does the next step of openNamed.
func (m directoryModel) open(x *model.Exec) {
	if x.PC() != dirIdle {
		m.seek(x)
		return
	}
	x.Say("opens it")
	if x.Mem[dState] == objectCommitted || x.Mem[dState+1] == objectCommitted {
		*x.R(dKnew) = 1
	}
	x.Goto(dirReach)
}

// seek does the next step of core.seek.
func (m directoryModel) seek(x *model.Exec) {
	at := x.R(dAt)
	e := x.Load(dEntry + int(*at))
	maker := x.Me < 2
	next := func() {
		*at++
		x.Goto(dirLook)
		if *at <= *x.R(dSeen) {
			return
		}
		if maker {
			x.Goto(dirCommit)
			if m.late {
				x.Goto(dirRaiseLate)
			}
			return
		}
		if *x.R(dKnew) != 0 {
			x.Ghost[dWrong] = 1
		}
		x.Idle()
	}
	switch x.PC() {
	case dirReach:
		x.Say("looks whether somebody lowers the reach")
		*x.R(dWord) = x.Load(dLower)
		x.Goto(dirReachOf)
	case dirReachOf:
		x.Say("reads the reach")
		*x.R(dSeen) = x.Load(dReach)
		if w := *x.R(dWord); w >= dBusy && !m.blind {
			*x.R(dSeen) = max(*x.R(dSeen), w-dBusy)
		}
		x.Goto(dirReachStill)
		if m.blind {
			x.Goto(dirLook)
		}
	case dirReachStill:
		x.Say("looks whether that has changed")
		x.Goto(dirLook)
		if x.Load(dLower) != *x.R(dWord) {
			x.Goto(dirReach)
		}
	case dirLook:
		x.Say("looks at an entry")
		switch {
		case e == 0:
			*at = *x.R(dSeen)
			next()
		case e < dirMine, maker && e == uint8(dirMine+x.Me):
			next()
		default:
			x.Goto(dirState)
		}
	case dirState:
		x.Say("looks at its object")
		theirs := dState + int(e-dirMine)
		switch {
		case x.Load(theirs) == objectCommitted && maker:
			x.Say("adopts it, and withdraws its own")
			x.CAS(dState+x.Me, objectPending+8, objectAborted)
			m.end(x)
		case x.Load(theirs) == objectCommitted:
			x.Idle()
		case maker:
			x.Say("aborts it")
			x.CAS(theirs, objectPending+8, objectAborted)
			next()
		default:
			next()
		}
	}
}

// TestModelDirectory: at most one of two makers of the same name wins. The later maker finds the
// object of the earlier one, although no search goes further than the reach.
func TestModelDirectory(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector: a single goroutine explores the model, ten times as slowly with it")
	}
	for _, m := range []directoryModel{{}, {lowered: true}} {
		r := m.explore()
		require.Nil(t, r.Violation)
		t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	}
	for name, m := range map[string]directoryModel{
		"the reach is not raised after the entry is placed": {lowered: true, once: true},
		"a search does not look whether it is lowered":      {lowered: true, blind: true},
		"who lowers it looks once":                          {lowered: true, hasty: true},
		"the reach is raised after the search":              {late: true}, "the reach is read early": {early: true},
	} {
		r := m.explore()
		require.NotNil(t, r.Violation, name)
		require.True(t, isAny(r.Violation.Err, errTwoObjects, errNotFound), "%s: %v", name, r.Violation)
		t.Logf("%s: %v after %d steps, %d states explored", name, r.Violation.Err, len(r.Violation.Trace)-1, r.States)
	}
}
