package arenakernel

import "sync/atomic"

// rollbackMutex is the body of a Mutex of package prims that has an undo log, from which the
// transaction of a dead holder is undone; see docs/abi.md. A process without package prims also has
// to read this body, because it must not free memory to which a rollback will write.
//
// Package prims documents the fields. Package arenakernel only reads them.
type rollbackMutex struct {
	owner  atomic.Uint32
	_      [72]byte
	policy atomic.Uint32
	_      [112]byte
	state  atomic.Uint64
}

var rollbackMutexKind = KindOf("MUTX")

const rollbackMutexVersion = 1

const rollbackPolicy = 2

// hasTransactionOf reports whether an undo log of the object has a transaction of the given dead
// participant, and some process rolls the transaction back now or later. The rollback writes into
// objects that the dead participant had open. Until the rollback has ended, these objects are not
// deleted, and their memory is not reused.
func (a *Arena) hasTransactionOf(o Object, dead ParticipantID) bool {
	if o.Kind == rollbackRWMutexKind && o.Version == rollbackRWMutexVersion {
		return a.hasWriteOf(o, dead)
	}
	if o.Kind != rollbackMutexKind || o.Version != rollbackMutexVersion {
		return false
	}
	m, err := TryAt[rollbackMutex](a, o.Body)
	if err != nil || m.policy.Load()&0xff != rollbackPolicy {
		return false
	}
	const held, biased, recovering = 0, 1, 4
	// sync(tx.idle): acquire
	owner, state := m.owner.Load(), m.state.Load()
	if kind := owner >> 29; owner == 0 || kind != held && kind != biased && kind != recovering {
		return false // the log is idle, or will not be undone
	}
	return state != 0 && a.Reaps(dead, ParticipantID(state>>32)&ParticipantIDMask)
}

// rollbackRWMutex is the body of an RWMutex of prims with an undo log; see docs/abi.md.
type rollbackRWMutex struct {
	_      [48]byte
	policy atomic.Uint32
	_      [140]byte
	state  atomic.Uint64
}

var rollbackRWMutexKind = KindOf("RWMX")

const rollbackRWMutexVersion = 2

// hasWriteOf does what the method hasTransactionOf does, for an RWMutex. It also returns true while
// the gate, the word that makes readers wait for a writer, names the dead participant. A process
// that cleans up after the death opens the gate only if no other process has the mutex of the
// writers. Otherwise it tries again later.
func (a *Arena) hasWriteOf(o Object, dead ParticipantID) bool {
	m, err := TryAt[rollbackRWMutex](a, o.Body)
	if err != nil || m.policy.Load()&0xff != rollbackPolicy {
		return false
	}
	const held, recovering = 0, 4
	// sync(tx.idle): acquire
	gate, state := ParticipantID(a.WordOfKind(o).Load()), m.state.Load()
	if kind := gate >> 29; gate == 0 || kind != held && kind != recovering {
		return false
	}
	return a.Reaps(dead, gate&ParticipantIDMask) || state != 0 && a.Reaps(dead, ParticipantID(state>>32)&ParticipantIDMask)
}
