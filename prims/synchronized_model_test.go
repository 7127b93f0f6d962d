//go:build linux

package prims

import (
	"errors"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// synchronizedModel has two updaters and a reader of a value with two parts. In each value, both parts are the number
// of its commit. The first updater may be killed, even while one of its system calls still copies into the value.
type synchronizedModel struct {
	kills int
	stops bool // updaters may be stopped for ever; then the other threads give up their wait for the lock
	bug   bug
}

const (
	syCommitsFirst bug = "the commit comes before the copy is written"
	syWritesValid  bug = "an Update writes the valid copy"
	syLooksOnce    bug = "a Load does not read the number of commits again"
	syAtDead       bug = "the lock passes on when its holder is dead, but not gone yet"
	syNoFence      bug = "the lock passes on before the fence"
	syLoadWaits    bug = "a Load waits for the lock"
)

// The words: the owner word, the number of commits, and the parts of both copies.
const (
	syOwner   = iota
	syCurrent // counts to syCommits
	syFirst   // the parts of copy 0, then those of copy 1
	sySecond  = syFirst + 2
)

const (
	syCommits = 3
	syGarbage = 15 // the bytes that a system call copies
)

// The ghosts, which only the invariant uses.
const (
	syInCall = iota // the kernel copies for the first updater, into the copy syInCall-1
	syTorn
	syReaped
)

// The registers: the copy or number that a thread works with, and the parts that a Load has read.
const (
	syC = iota
	syA
	syB
)

// The steps of the threads: an updater, a reader, the kernel, and the reaper.
const (
	syIdle = iota
	syLock
	syCopyFirst
	syCopySecond
	syCall
	syCalled
	syWriteFirst
	syWriteSecond
	syCommit
	syUnlock

	syLoad
	syReadFirst
	syReadSecond
	syLookAgain

	syReturns

	syFence
	syGone
)

func (m *synchronizedModel) update(x *model.Exec) {
	if m.stops && x.PC() != syIdle && x.PC() != syLock && x.Choose(2) == 1 {
		x.Say("is stopped for ever")
		x.Optional()
		x.Thread[x.Me].Run = model.Halted
		return
	}
	me, c := uint8(x.Process()+1), *x.R(syC)
	other := int(c+1) & 1
	if m.bug == syWritesValid {
		other = int(c) & 1
	}
	switch x.PC() {
	case syIdle:
		x.Say("calls Update")
		x.Goto(syLock)
		if x.Mem[syCurrent] == syCommits {
			x.Disable()
		}
	case syLock:
		x.Say("locks")
		switch {
		case x.CAS(syOwner, 0, me):
			*x.R(syC) = x.Mem[syCurrent]
			x.Goto(syCopyFirst)
			if x.Mem[syCurrent] == syCommits {
				x.Goto(syUnlock)
			}
		case m.stops:
			x.Idle()
		}
	case syCopyFirst:
		x.Say("copies the first part")
		x.Store(syFirst+other, x.Load(syFirst+int(c&1)))
		x.Goto(syCopySecond)
	case syCopySecond:
		x.Say("copies the second part")
		x.Store(sySecond+other, x.Load(sySecond+int(c&1)))
		x.Goto(syCall)
		if m.bug == syCommitsFirst {
			x.Goto(syCommit)
		}
	case syCall:
		x.Say("goes on")
		x.Goto(syWriteFirst)
		if x.Me == 0 && m.kills > 0 && x.Choose(2) == 1 {
			x.Say("has the kernel copy into the first part")
			x.Update(syOwner, func(v uint8) uint8 { return v }) // a system call, which does not change the word
			x.Ghost[syInCall] = uint8(other + 1)
			x.Goto(syCalled)
		}
	case syCalled:
		x.Say("is back from the kernel")
		x.Goto(syWriteFirst)
		if x.Ghost[syInCall] != 0 {
			x.Disable()
		}
	case syWriteFirst:
		x.Say("writes the first part")
		x.Store(syFirst+other, c+1)
		x.Goto(syWriteSecond)
	case syWriteSecond:
		x.Say("writes the second part")
		x.Store(sySecond+other, c+1)
		x.Goto(syCommit)
		if m.bug == syCommitsFirst {
			x.Goto(syUnlock)
		} else if !m.stops && x.Choose(2) == 1 {
			x.Say("writes the second part and fails")
			x.Goto(syUnlock)
		}
	case syCommit:
		x.Say("commits")
		x.Store(syCurrent, c+1)
		x.Goto(syUnlock)
		if m.bug == syCommitsFirst {
			x.Goto(syCall)
		}
	case syUnlock:
		x.Say("unlocks")
		x.Store(syOwner, 0)
		x.Idle()
	}
}

func (m *synchronizedModel) load(x *model.Exec) {
	c := *x.R(syC)
	switch x.PC() {
	case syIdle:
		x.Say("calls Load")
		x.Goto(syLoad)
	case syLoad:
		x.Say("reads the number of commits")
		if m.bug == syLoadWaits && x.Load(syOwner) != 0 {
			return
		}
		*x.R(syC) = x.Load(syCurrent)
		x.Goto(syReadFirst)
	case syReadFirst:
		x.Say("reads the first part")
		*x.R(syA) = x.Load(syFirst + int(c&1))
		x.Goto(syReadSecond)
	case syReadSecond:
		x.Say("reads the second part")
		*x.R(syB) = x.Load(sySecond + int(c&1))
		x.Goto(syLookAgain)
	case syLookAgain:
		x.Say("looks again")
		if x.Load(syCurrent) != c && m.bug != syLooksOnce {
			x.Goto(syLoad)
			return
		}
		if *x.R(syA) != c || *x.R(syB) != c {
			x.Ghost[syTorn] = 1
		}
		x.Idle()
	}
}

// kernel is a system call of the first updater. The call may go on after the process was killed.
func (m *synchronizedModel) kernel(x *model.Exec) {
	switch x.PC() {
	case syIdle:
		if x.Ghost[syInCall] == 0 {
			x.Disable()
			return
		}
		x.Say("copies")
		x.Require()
		x.Update(syFirst+int(x.Ghost[syInCall]-1), func(uint8) uint8 { return syGarbage })
		x.Goto(syReturns)
	case syReturns:
		x.Say("returns")
		x.Ghost[syInCall] = 0
		x.Idle()
	}
}

func (m *synchronizedModel) reap(x *model.Exec) {
	switch x.PC() {
	case syIdle:
		if x.LifeOf(0) == model.Alive || x.Ghost[syReaped] != 0 {
			x.Disable()
			return
		}
		x.Say("sees a death")
		x.Require()
		x.Goto(syFence)
	case syFence:
		x.Say("fences the dying")
		x.Goto(syGone)
		if m.bug == syNoFence {
			x.CAS(syOwner, 1, 0)
			return
		}
		x.Membarrier()
	case syGone:
		x.Say("passes the lock on")
		if x.Ghost[syInCall] != 0 && m.bug != syAtDead {
			x.Disable()
			return
		}
		x.CAS(syOwner, 1, 0)
		x.Membarrier() // only for the planted mistake
		x.Ghost[syReaped] = 1
		x.Idle()
	}
}

var (
	errTornLoad  = errors.New("a Load returns a torn value")
	errTornValue = errors.New("the valid copy is not that of its commit")
)

func (m *synchronizedModel) explore(b bug) model.Result {
	run := *m
	run.bug = b
	y := model.System{
		Kills: m.kills,
		Threads: []model.ThreadSpec{
			{Name: "updater 1", Process: 0, Run: run.update, Mortal: true},
			{Name: "updater 2", Process: 1, Run: run.update},
			{Name: "reader", Process: 2, Run: run.load},
			{Name: "kernel", Process: 3, Run: run.kernel},
			{Name: "reaper", Process: 4, Run: run.reap},
		},
		Check: func(s *model.Sys) error {
			if s.Ghost[syTorn] != 0 {
				return errTornLoad
			}
			c := s.Mem[syCurrent]
			if s.Mem[syFirst+int(c&1)] != c || s.Mem[sySecond+int(c&1)] != c {
				return errTornValue
			}
			return nil
		},
		Done: func(s *model.Sys) bool { return m.stops || s.Mem[syOwner] == 0 },
	}
	return y.Explore()
}

// TestModelSynchronized has three models. In the first, processes call Update and Load. In the second, a process dies
// at any step, and one of its system calls may still write afterwards. In the third, a process is stopped at any
// step, and Loads still return.
func TestModelSynchronized(t *testing.T) {
	lives, dies, stops := synchronizedModel{}, synchronizedModel{kills: 1}, synchronizedModel{stops: true}
	requireModels(t, []exploration{
		{"death", small, dies.explore, []bug{syCommitsFirst, syWritesValid, syLooksOnce, syAtDead, syNoFence}},
		{"stops", small, stops.explore, []bug{syLoadWaits, syLooksOnce}},
		{"no death", small, lives.explore, []bug{syCommitsFirst, syWritesValid, syLooksOnce}},
	})
}
