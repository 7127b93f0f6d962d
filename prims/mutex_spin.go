package prims

import "github.com/shmsync/shmsync/internal/park"

// tuning is what steers the spinning of waiters.
func (m *Mutex) tuning() park.Tuning {
	return park.Tuning{Budget: &m.words.spin, Pays: &m.words.pays, LastCPU: &m.words.lastCPU, Slot: m.a.Self().Slot()}
}

func (m *Mutex) noteCPU() { m.tuning().NoteCPU() }

// spinWhileHeld spins while the lock is held and reports whether that ended. Where others
// are queued it does not: they would only be overtaken. A favoured caller spins all the
// same.
func (m *Mutex) spinWhileHeld(slept, favoured bool) bool {
	if !favoured && m.wakeWord.Announced() {
		return false
	}
	if m.maxSpinners > 0 {
		if !m.maySpin() {
			return false
		}
		defer m.spinners.Add(-1)
	}
	return m.tuning().Spin(func() bool {
		o := ownerWord(m.owner.Load())
		return !o.held() && (o.kind() != kindReserved || o.participant() == m.name && slept)
	})
}

// maySpin counts the caller among those of this process that spin, unless there are
// as many as may be.
func (m *Mutex) maySpin() bool {
	for n := m.spinners.Load(); n < m.maxSpinners; n = m.spinners.Load() {
		// The loop ends: each failure of the CAS is another goroutine's beginning
		// or end, and none does either twice without leaving its wait.
		if m.spinners.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}
