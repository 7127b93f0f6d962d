package arenakernel

import "sync/atomic"

// rollbackMutex is what a Mutex of prims with an undo log has in its body; see docs/abi.md. The
// kernel reads it, because also a process that does not use prims must keep what the log will be
// undone into.
//
// The fields have the tags of package prims. This package reads them only.
type rollbackMutex struct {
	owner  atomic.Uint32
	_      [72]byte
	policy atomic.Uint32
	_      [112]byte
	state  atomic.Uint64
}

var rollbackMutexKind = KindOf("MUTX")

const rollbackPolicy = 2

// hasTransactionOf reports whether an undo log of the object has a transaction of dead, which a process
// will undo or is undoing. What dead had open is not deleted and its memory is not used again
// before that: its bytes will be written.
func (a *Arena) hasTransactionOf(o Object, dead ParticipantID) bool {
	if o.Kind != rollbackMutexKind {
		return false
	}
	m, err := TryAt[rollbackMutex](a, o.Body)
	if err != nil || m.policy.Load()&0xff != rollbackPolicy {
		return false
	}
	const held, biased, recovering = 0, 1, 4
	owner, state := m.owner.Load(), m.state.Load()
	if kind := owner >> 29; owner == 0 || kind != held && kind != biased && kind != recovering {
		return false // its log is idle, or will not be undone
	}
	return state != 0 && a.Reaps(dead, ParticipantID(state>>32)&ParticipantIDMask)
}
