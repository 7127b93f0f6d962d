package prims

import "github.com/shmsync/shmsync/internal/park"

// tuning returns the words that control how long waiters spin.
func (m *Mutex) tuning() park.Tuning {
	return park.Tuning{Budget: &m.words.spin, Pays: &m.words.pays, LastCPU: &m.words.lastCPU, Slot: m.a.Self().Slot()}
}

func (m *Mutex) noteCPU() { m.tuning().NoteCPU() }

// spinWhileHeld spins while the lock is held, and reports whether the lock became free. If other waiters are
// announced, it spins only if overtakes is true: this waiter may then take the lock before them.
func (m *Mutex) spinWhileHeld(slept, overtakes bool) bool {
	if !overtakes && m.wakeWord.Announced() || !m.variant.beginSpin() {
		return false
	}
	defer m.variant.endSpin()
	return m.tuning().Spin(func() bool {
		o := ownerWord(m.owner.Load())
		return !o.held() && (o.kind() != kindReserved || o.participant() == m.name && slept)
	})
}
