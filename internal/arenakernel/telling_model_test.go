//go:build linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/model"
)

// The words of the model. The model is about a poller node whose owner dies while a releaser makes the node ready.
// The teller is the releaser that pushes the node.
const (
	tNode   = iota // the state of the node
	tStack         // whether it is on the stack of its owner's slot
	tSlot          // the owner's slot
	tTeller        // the teller's slot
	tTells         // telling count of the teller's slot
	tWalks         // telling count of the next participant in the owner's slot
)

// The states of a slot.
const (
	tellAlive = iota
	tellMarked
	tellFree
	tellNext // another participant is in the slot
)

// Ghost variables, which the code does not have.
const (
	gMarked   = iota // the teller is about to push the node
	gWalked          // the next participant in the slot has found the node on the stack
	gWiped           // the next participant has begun with an empty stack
	gTellDone        // the teller has finished
)

// The processes and threads.
const (
	tellTeller = iota
	tellOwner
	tellReaper
	tellJoiner
)

const (
	rTold = iota
	rStack
)

// tellingModel is the model of the protocol. Each field that is set stands for a mistake in the protocol.
type tellingModel struct {
	countsLate, countsDownEarly, asksNobody, looksAtNoStack, asksOnce bool
}

var errTellTwice = errors.New("a node that may get on a stack is given away")

func (m tellingModel) explore() model.Result {
	y := model.System{
		Kills: 2,
		Init:  func(s *model.Sys) { s.Mem[tNode] = uint8(NodeWaiting) },
		Check: func(s *model.Sys) error {
			if s.Mem[tNode] != uint8(NodeFree) {
				return nil
			}
			onStack := s.Mem[tStack] != 0 && s.Mem[tSlot] == tellNext && s.Ghost[gWiped] != 0
			if onStack || s.Ghost[gWalked] != 0 || s.Ghost[gMarked] != 0 && s.Life[tellTeller] != model.Gone {
				return errTellTwice
			}
			return nil
		},
		Threads: []model.ThreadSpec{
			{Name: "teller", Process: tellTeller, Mortal: true, Run: m.tell},
			{Name: "owner", Process: tellOwner, Mortal: true, Run: m.own},
			{Name: "reaper", Process: tellReaper, Run: m.reap},
			{Name: "next", Process: tellJoiner, Run: m.join},
		},
	}
	return y.Explore()
}

func up(n uint8) uint8   { return n + 1 }
func down(n uint8) uint8 { return n - 1 }

// tell models Arena.ready.
func (m tellingModel) tell(x *model.Exec) {
	pc := x.PC()
	if pc == model.Idle && x.Ghost[gTellDone] != 0 {
		x.Disable()
		return
	}
	x.Goto(pc + 1)
	switch pc {
	case model.Idle:
		x.Say("counts up")
		if !m.countsLate {
			x.Update(tTells, up)
		}
	case 1:
		x.Say("looks whose node it is")
		if x.Load(tSlot) != tellAlive {
			x.Goto(6)
		}
	case 2:
		x.Say("marks it ready")
		if !x.CAS(tNode, uint8(NodeWaiting), uint8(NodeReady)) {
			x.Goto(6)
			return
		}
		x.Ghost[gMarked] = 1
	case 3:
		x.Say("looks again whose it is")
		if m.countsLate {
			x.Update(tTells, up)
		}
		if x.Load(tSlot) != tellAlive {
			x.Ghost[gMarked] = 0
			x.Goto(6)
		}
		if m.countsDownEarly {
			x.Update(tTells, down)
		}
	case 4:
		x.Say("pushes it")
		x.Update(tStack, func(uint8) uint8 { return 1 })
		x.Ghost[gMarked] = 0
		if m.countsDownEarly {
			x.Ghost[gTellDone] = 1
			x.Idle()
		}
	case 5, 6:
		x.Say("counts down")
		if x.Load(tTells) != 0 {
			x.Update(tTells, down)
		}
		x.Ghost[gTellDone] = 1
		x.Idle()
	}
}

// own models the poller of the owner of the node.
func (m tellingModel) own(x *model.Exec) {
	switch x.PC() {
	case model.Idle:
		x.Say("empties its stack")
		if !x.CAS(tStack, 1, 0) {
			x.Disable()
		}
		x.Goto(1)
	case 1:
		x.Say("takes the node")
		x.CAS(tNode, uint8(NodeReady), uint8(NodeIdle))
		x.Idle()
	}
}

// told models the step in which allTold reads one count.
func (m tellingModel) told(x *model.Exec, slot int, alive uint8, count int) bool {
	return m.asksNobody || x.Load(slot) != alive || x.Load(count) == 0
}

// reap models freeNodesOf and takeOrphans. It also marks the teller dead.
func (m tellingModel) reap(x *model.Exec) {
	pc := x.PC()
	if pc != model.Idle {
		x.Goto(pc + 1)
	}
	switch pc {
	case model.Idle:
		switch {
		case x.Load(tTeller) == tellAlive && x.LifeOf(tellTeller) != model.Alive:
			x.Say("marks the teller")
			x.Membarrier()
			x.Update(tTeller, up)
		case x.Load(tSlot) == tellAlive && x.LifeOf(tellOwner) != model.Alive:
			x.Say("marks the owner")
			x.Membarrier()
			x.Update(tSlot, up)
			x.Goto(1)
		case x.Load(tSlot) >= tellFree && x.Load(tNode) == uint8(NodeReady):
			x.Say("finds an orphaned node as somebody else dies")
			x.Goto(6)
		default:
			x.Disable()
		}
	case 1:
		x.Say("asks the teller")
		*x.R(rTold) = 0
		if m.told(x, tTeller, tellAlive, tTells) {
			*x.R(rTold) = 1
		}
	case 2:
		x.Say("looks at the stack of the dead")
		*x.R(rStack) = x.Load(tStack)
	case 3:
		x.Say("gives the node back")
		w := x.Load(tNode)
		if *x.R(rTold) == 0 && w == uint8(NodeReady) && *x.R(rStack) == 0 {
			return
		}
		x.CAS(tNode, w, uint8(NodeFree))
	case 4:
		x.Say("frees the slot")
		x.CAS(tSlot, tellMarked, tellFree)
		x.Idle()
	default:
		m.takeOrphan(x, pc)
	}
}

func (m tellingModel) takeOrphan(x *model.Exec, pc uint8) {
	unless := func(ok bool) {
		if !ok {
			x.Idle() // leaves the node as it is
		}
	}
	switch pc {
	case 6, 9:
		x.Say("asks the teller")
		unless(pc == 9 && m.asksOnce || m.told(x, tTeller, tellAlive, tTells))
	case 7, 10:
		x.Say("asks the next one in the slot")
		unless(pc == 10 && m.asksOnce || m.told(x, tSlot, tellNext, tWalks))
	case 8:
		x.Say("looks at the stack")
		*x.R(rStack) = 0
		if x.Load(tSlot) == tellNext && !m.looksAtNoStack {
			*x.R(rStack) = x.Load(tStack)
		}
	case 11:
		x.Say("gives the orphaned node back")
		if *x.R(rStack) == 0 {
			x.CAS(tNode, uint8(NodeReady), uint8(NodeFree))
		}
		x.Idle()
	}
}

// join takes the slot of the owner, like fillSlot. Then it acts as the poller of this slot, like
// TakeReady.
func (m tellingModel) join(x *model.Exec) {
	switch x.PC() {
	case model.Idle:
		switch {
		case x.Load(tSlot) == tellFree:
			x.Say("takes the slot")
			x.CAS(tSlot, tellFree, tellNext)
			x.Goto(1)
		case x.Load(tSlot) == tellNext:
			x.Say("counts up")
			x.Update(tWalks, up)
			x.Goto(2)
		default:
			x.Disable()
		}
	case 1:
		x.Say("begins with an empty stack")
		x.Update(tStack, func(uint8) uint8 { return 0 })
		x.Ghost[gWiped] = 1
		x.Idle()
	case 2:
		x.Say("empties the stack")
		if x.CAS(tStack, 1, 0) {
			x.Ghost[gWalked] = 1
		}
		x.Goto(3)
	case 3:
		x.Say("sees that the node is nobody's")
		x.Ghost[gWalked] = 0
		x.Goto(4)
	case 4:
		x.Say("counts down")
		x.Update(tWalks, down)
		x.Idle()
	}
}

// TestModelTelling: whichever participants die, a node of a dead participant gets another owner only if two
// conditions hold: the node is on no stack, and no participant can push it on a stack any more.
func TestModelTelling(t *testing.T) {
	r := tellingModel{}.explore()
	if r.Violation != nil {
		t.Fatalf("after %d states: %v", r.States, r.Violation)
	}
	t.Logf("%d states, %d steps: correct", r.States, r.Steps)
	for name, m := range map[string]tellingModel{
		"counts when the node is marked": {countsLate: true}, "counts down before it has pushed": {countsDownEarly: true},
		"asks nobody": {asksNobody: true}, "looks at no stack": {looksAtNoStack: true}, "asks once": {asksOnce: true},
	} {
		r := m.explore()
		require.NotNil(t, r.Violation, name)
		require.ErrorIs(t, r.Violation, errTellTwice, name)
		t.Logf("%s: after %d steps, %d states explored", name, len(r.Violation.Trace)-1, r.States)
	}
}
