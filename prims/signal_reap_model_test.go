//go:build linux

package prims

import "github.com/shmsync/shmsync/internal/model"

// reap models a reaper. It repairs the gates and the index as repairSignals does, and wakes as wakeSignals
// does.
func (m *signalModel) reap(x *model.Exec) {
	q := x.R(krQueue)
	switch x.PC() {
	case ksIdle:
		if !m.unreaped(x.Sys) {
			x.Disable()
		}
		x.Say("sees a death")
		x.Require()
		x.Goto(ksFence)
	case ksFence:
		x.Say("fences the dying")
		x.Membarrier()
		*q = 0
		x.Goto(ksReapGate)
		if m.bug == reapNothing {
			x.Goto(ksReapWake)
		}
	case ksReapGate:
		x.Say("reaps a gate")
		m.reapGate(x)
	case ksReapPublish:
		x.Say("looks at the bit")
		m.nextGate(x)
		if m.bug != reapSkipsBit && x.Load(kBits)&(1<<*q) == 0 {
			*x.R(krBack) = x.PC()
			x.Goto(ksPublish)
			return
		}
		m.step(x)
	case ksReapSignal:
		x.Say("reaps the signal")
		*x.R(krBack) = ksReapPermits
		x.Goto(ksReapPermits)
		if m.bug != reapSkipsSummary && x.Load(kBits) != 0 {
			x.Goto(ksMark)
		}
	case ksReapPermits:
		x.Say("restocks the permits")
		x.Goto(ksReapWake)
		if m.bug != reapSkipsPermits && x.Mem[kPermits] < x.Mem[kSummary] {
			x.Update(kPermits, func(uint8) uint8 { return 1 })
			*x.R(krRouse) = ksReapWake
			x.Goto(ksRouse)
		}
	case ksReapWake:
		x.Say("wakes for a lost wake")
		x.Update(kWake, func(v uint8) uint8 { return (v + 2) &^ 1 })
		x.Wake(kWake, 1)
		x.Goto(ksReaped)
	case ksReaped:
		x.Say("has reaped it")
		for p, l := range x.Life {
			if l == model.Gone {
				x.Ghost[gReaped] |= 1 << p
			}
		}
		x.Idle()
	default:
		// The gate is published, so go on with the next gate.
		if x.PC() == ksReapNext {
			m.step(x)
			return
		}
		m.common(x)
	}
}

const ksReapNext = ksReaped + 1

// reapGate repairs one gate: a gate with a dead executor becomes scheduled, and a scheduled gate gets its bit.
func (m *signalModel) reapGate(x *model.Exec) {
	gate := kGate + int(*x.R(krQueue))
	g := x.Load(gate)
	name := g >> kNameShift
	switch {
	case m.bug != reapSkipsExecutor && name != 0 && x.LifeOf(int(name-1)) == model.Gone:
		x.Goto(ksReapGate)
		if x.CAS(gate, g, kScheduled) {
			*x.R(krBack) = ksReapNext
			x.Goto(ksPublish)
		}
	case g&kScheduled != 0 && g&kExecuting == 0:
		x.Goto(ksReapPublish)
	default:
		m.step(x)
	}
}

// nextGate makes the reaper go on with the next gate after a publication.
func (m *signalModel) nextGate(x *model.Exec) { x.Goto(ksReapNext) }

// step makes the reaper go on with the next gate. After the last gate, the reaper goes on with the bits of the signal.
func (m *signalModel) step(x *model.Exec) {
	q := x.R(krQueue)
	if int(*q)+1 < m.queues {
		*q++
		x.Goto(ksReapGate)
		return
	}
	x.Goto(ksReapSignal)
}
