//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/model"

// reap buries the dead: it sweeps the gates and the index, as repairSignals, and
// wakes, as wakeSignals.
func (m *signalModel) reap(x *model.Exec) {
	q := x.R(krQueue)
	switch x.PC() {
	case ksIdle:
		if !m.unburied(x.Sys) {
			x.Disable()
		}
		x.Say("sees a death")
		x.Require()
		x.Goto(ksFence)
	case ksFence:
		x.Say("fences the dying")
		x.Membarrier()
		*q = 0
		x.Goto(ksSweepGate)
		if m.bug == sweepNothing {
			x.Goto(ksSweepWake)
		}
	case ksSweepGate:
		x.Say("sweeps a gate")
		m.sweepGate(x)
	case ksSweepPublish:
		x.Say("looks at the bit")
		m.nextGate(x)
		if m.bug != sweepSkipsBit && x.Load(kBits)&(1<<*q) == 0 {
			*x.R(krBack) = x.PC()
			x.Goto(ksPublish)
			return
		}
		m.step(x)
	case ksSweepSignal:
		x.Say("sweeps the signal")
		*x.R(krBack) = ksSweepPermits
		x.Goto(ksSweepPermits)
		if m.bug != sweepSkipsSummary && x.Load(kBits) != 0 {
			x.Goto(ksMark)
		}
	case ksSweepPermits:
		x.Say("restocks the permits")
		x.Goto(ksSweepWake)
		if m.bug != sweepSkipsPermits && x.Mem[kPermits] < x.Mem[kSummary] {
			x.Update(kPermits, func(uint8) uint8 { return 1 })
			*x.R(krRouse) = ksSweepWake
			x.Goto(ksRouse)
		}
	case ksSweepWake:
		x.Say("wakes for a lost wake")
		x.Update(kWake, func(v uint8) uint8 { return (v + 2) &^ 1 })
		x.Wake(kWake, 1)
		x.Goto(ksBuried)
	case ksBuried:
		x.Say("has buried it")
		for p, l := range x.Life {
			if l == model.Gone {
				x.Ghost[gBuried] |= 1 << p
			}
		}
		x.Idle()
	default:
		// A gate that was published: go on with the next.
		if x.PC() == ksSweepNext {
			m.step(x)
			return
		}
		m.common(x)
	}
}

const ksSweepNext = ksBuried + 1

// sweepGate looks at one gate: an orphan is scheduled, and what is scheduled has
// its bit.
func (m *signalModel) sweepGate(x *model.Exec) {
	gate := kGate + int(*x.R(krQueue))
	g := x.Load(gate)
	name := g >> kNameShift
	switch {
	case m.bug != sweepSkipsExecutor && name != 0 && x.LifeOf(int(name-1)) == model.Gone:
		x.Goto(ksSweepGate)
		if x.CAS(gate, g, kScheduled) {
			*x.R(krBack) = ksSweepNext
			x.Goto(ksPublish)
		}
	case g&kScheduled != 0 && g&kExecuting == 0:
		x.Goto(ksSweepPublish)
	default:
		m.step(x)
	}
}

// nextGate says where a step that publishes comes back to.
func (m *signalModel) nextGate(x *model.Exec) { x.Goto(ksSweepNext) }

// step goes on to the next gate, or to the signal.
func (m *signalModel) step(x *model.Exec) {
	q := x.R(krQueue)
	if int(*q)+1 < m.queues {
		*q++
		x.Goto(ksSweepGate)
		return
	}
	x.Goto(ksSweepSignal)
}
