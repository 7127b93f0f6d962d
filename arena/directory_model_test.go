//go:build linux

package arena

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model of a directory in which two make an object of one name,
// whose hash gives entry 0, where there is an object of another name.
const (
	dReach = iota
	dEntry // and two more
	_
	_
	dState // the phases of the two objects
)

// What an entry can be in the model: 0 is empty.
const (
	dirOther = iota + 1
	dirGone
	dirMine // of maker 0, and so on
)

// The registers of a thread.
const (
	dAt     = iota // the entry that it is at
	dSeen          // the reach that it has seen
	dPlaced        // where it has placed its object
	dKnew          // the object was there when it began to search
)

// What the threads have done, in ghosts.
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
)

type directoryModel struct {
	late  bool // the reach is raised after the search
	early bool // or read before the entry is placed
}

var (
	errTwoObjects = errors.New("two objects have the name")
	errNotFound   = errors.New("an object that is there is not found")
)

func (m directoryModel) explore() model.Result {
	y := model.System{
		Init: func(s *model.Sys) { s.Mem[dEntry] = dirOther },
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
	return y.Explore()
}

func (m directoryModel) end(x *model.Exec) {
	x.Ghost[dDone] |= 1 << x.Me
	x.Idle()
}

// make is createNamed.
func (m directoryModel) make(x *model.Exec) {
	mine, at := uint8(dirMine+x.Me), x.R(dAt)
	switch x.PC() {
	case dirIdle:
		if x.Ghost[dDone]&(1<<x.Me) != 0 {
			x.Disable()
			return
		}
		x.Say("makes an object")
		x.Mem[dState+x.Me] = objectPending + 8 // its own until it is placed
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
		x.Goto(dirReach)
		if m.early {
			x.Goto(dirLook)
		}
	case dirCommit:
		x.Say("commits it")
		x.CAS(dState+x.Me, objectPending+8, objectCommitted)
		m.end(x)
	default:
		m.seek(x)
	}
}

// open is openNamed.
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

// seek is core.seek.
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
		x.Say("reads the reach")
		*x.R(dSeen) = x.Load(dReach)
		x.Goto(dirLook)
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

// Of two makers of one name at most one gets it, and who comes later finds it,
// although nobody searches further than the reach says.
func TestModelDirectory(t *testing.T) {
	r := directoryModel{}.explore()
	require.Nil(t, r.Violation)
	t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	for name, m := range map[string]directoryModel{
		"the reach is raised after the search": {late: true}, "the reach is read early": {early: true},
	} {
		r := m.explore()
		require.NotNil(t, r.Violation, name)
		require.True(t, isAny(r.Violation.Err, errTwoObjects, errNotFound), "%s: %v", name, r.Violation)
		t.Logf("%s: %v after %d steps, %d states explored", name, r.Violation.Err, len(r.Violation.Trace)-1, r.States)
	}
}
