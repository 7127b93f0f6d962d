package prims

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("tx.undo.range")
	_ = crashpoint.Register("tx.undo.undone")
	_ = crashpoint.Register("tx.undo.block")
	_ = crashpoint.Register("tx.undo.idle")
	_ = crashpoint.Register("tx.commit.block")
	_ = crashpoint.Register("tx.log.lost")
)

// undoLog is the undo log of a lock, as this process has it mapped. The holder of the lock saves bytes in the
// records of the log before a transaction changes them; see logState. The log is at the end of the lock's body.
//
//	record: the saved bytes | padding to a multiple of 8 | offset u64 | length u32 | kind u32
//
// The lock guards the records. A peer may have overwritten them. So each record is validated when it is read,
// and used from private memory.
type undoLog struct {
	a       *arenakernel.Arena
	head    *logHead
	records []byte
	size    uint32 // len(records)
	object  arenakernel.Object
}

// own reports whether a range overlaps the lock object itself. No transaction saves such a range.
func (l *undoLog) own(off arenakernel.Offset, n uint64) bool {
	return off < l.object.Body+arenakernel.Offset(l.object.Size) && l.object.Offset < off+arenakernel.Offset(n)
}

// setKind overwrites the kind of a record. The parameter end is the position in the log at which the record ends. The
// last 4 bytes of the record are its kind.
func (l *undoLog) setKind(end, kind uint32) { storeKind(&l.records[end-4], kind) }

const (
	logDefault = 16 << 10 // bytes
	logMost    = 1 << 20
	logUnit    = 64
)

// logSize returns the size of the records of a new undo log. The parameter asked is the size in the options.
func logSize(p Policy, asked int, what string) uint64 {
	switch {
	case asked != 0 && p != PolicyRollback:
		panic(fmt.Sprintf("shmsync: %s: LogBytes is %d, but only a lock of PolicyRollback has an undo log", what, asked))
	case asked < 0 || asked > logMost:
		panic(fmt.Sprintf("shmsync: %s: LogBytes is %d, which is not within 1..%d", what, asked, logMost))
	case p != PolicyRollback:
		return 0
	case asked == 0:
		return logDefault
	}
	return (uint64(asked) + logUnit - 1) &^ (logUnit - 1)
}

// withLog returns the size of the body of a lock. The parameter words is the number of bytes of the words of the lock,
// and the parameter log is the size of the records of its undo log. If log is 0, the lock has no undo log.
func withLog(words, log uint64) uint64 {
	if log == 0 {
		return words
	}
	return words + logHeadBytes + log
}

// logOf returns the undo log of an object. The parameter words is the number of bytes before the log, at the
// beginning of the body.
func logOf(a *arenakernel.Arena, o arenakernel.Object, words uint64) (*undoLog, error) {
	size := o.Size - words - logHeadBytes
	if o.Size < words+logHeadBytes+logUnit || size > logMost || size%logUnit != 0 {
		return nil, corruptLog(o, fmt.Sprintf("a body of %d bytes has no room for its undo log", o.Size))
	}
	head, err := arenakernel.TryAt[logHead](a, o.Body+arenakernel.Offset(words))
	if err != nil {
		return nil, err
	}
	if head.size != uint32(size) {
		return nil, corruptLog(o, fmt.Sprintf("its undo log has %d bytes, and says that it has %d", size, head.size))
	}
	return &undoLog{a, head, a.Bytes(o.Body+arenakernel.Offset(words+logHeadBytes), size), uint32(size), o}, nil
}

func corruptLog(o arenakernel.Object, detail string) error {
	return &shmsync.Error{Op: "lock.log", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: detail}
}

func (l *undoLog) state() logState       { return logState(l.head.state.Load()) }
func (l *undoLog) storeState(s logState) { releaseLogState(&l.head.state, uint64(s)) }
func (l *undoLog) differs(asked int) string {
	if l == nil {
		return ""
	}
	if want := logSize(PolicyRollback, asked, ""); asked != 0 && want != uint64(l.size) {
		return fmt.Sprintf("its undo log has %d bytes, asked for %d", l.size, want)
	}
	return ""
}

// errBadLog means that no correct process leaves the log in this state.
var errBadLog = errors.New("the undo log is corrupt")

// logRecord is a record of the log that was read and validated.
type logRecord struct {
	kind  uint32
	off   arenakernel.Offset
	start uint32 // where the saved bytes begin in the log
	n     uint32 // how many bytes are saved
}

// The method before reads and validates a record of the log. The parameter end is the position at which the record
// ends.
func (l *undoLog) before(end uint32) (r logRecord, err error) {
	if end < logFooter || end > l.size {
		return r, errBadLog
	}
	end -= logFooter
	f := l.records[end : end+logFooter]
	r.off = arenakernel.Offset(binary.LittleEndian.Uint64(f))
	last := binary.LittleEndian.Uint64(f[8:]) // one load, because a peer may write between two loads
	r.n, r.kind = uint32(last), uint32(last>>32)
	padded := (uint64(r.n) + 7) &^ 7
	switch {
	case r.kind >= logKinds, (r.kind == logBytes) != (r.n != 0), padded > uint64(end),
		r.kind == logBytes && (!l.a.Backed(r.off, uint64(r.n)) || l.own(r.off, uint64(r.n))):
		return r, errBadLog
	}
	r.start = end - uint32(padded)
	return r, nil
}

// each calls f for the records that end at tail or before, from the last to the first. Each record has at least a
// footer, so the number of calls is bounded by the size of the log.
func (l *undoLog) each(tail uint32, f func(r logRecord, end uint32)) error {
	for end := tail; end > 0; {
		r, err := l.before(end)
		if err != nil {
			return err
		}
		if f != nil {
			f(r, end)
		}
		end = r.start
	}
	return nil
}

// undoBytes restores the bytes that were saved in the records up to tail. If any record is invalid, it restores
// nothing. It may be repeated.
func (l *undoLog) undoBytes(tail uint32) error {
	if err := l.each(tail, nil); err != nil {
		return err
	}
	return l.each(tail, func(r logRecord, _ uint32) {
		if r.kind == logBytes {
			copy(l.a.Bytes(r.off, uint64(r.n)), l.records[r.start:r.start+r.n])
			crashpoint.Hit("tx.undo.range")
		}
	})
}

// hasBlocks reports whether a record up to tail is about a block that was allocated or freed.
func (l *undoLog) hasBlocks(tail uint32) (has bool, err error) {
	err = l.each(tail, func(r logRecord, _ uint32) { has = has || r.kind != logBytes })
	return has, err
}

// endBlocks commits or undoes what the transaction of participant n did to blocks. It may be repeated, also by
// another process. If a block is not logged in the name of n, endBlocks skips it, because an earlier call has dealt
// with it, or because it was never logged.
//
// endBlocks frees no block itself. Instead it takes the block over from the transaction for this process, and changes
// the kind of the record to logGiven. The method release frees the block later, when the log is idle. If endBlocks
// itself freed the block, a transaction of n with another log could allocate it. If this process then died, the next
// process that finishes this log would free the block again.
func (l *undoLog) endBlocks(n arenakernel.ParticipantID, tail uint32, commit bool) error {
	return l.each(tail, func(r logRecord, end uint32) {
		switch {
		case r.kind == logBytes:
			return
		case r.kind == logGiven:
			// An earlier process has set the kind logGiven. That process, or its reaper, frees the block, so this
			// process must not: the block may already be in use again, or another goroutine of this process may be
			// freeing it. The method release frees the blocks of the kind logGiven, so change the kind.
			if commit {
				l.setKind(end, logAlloc)
			} else {
				l.setKind(end, logFree)
			}
			return
		case r.kind == logTemporary, r.kind == logFree && commit, r.kind == logAlloc && !commit:
			if l.a.TakeLogged(n, r.off) {
				l.setKind(end, logGiven)
			}
		default:
			l.a.KeepLogged(n, r.off)
		}
		if commit {
			crashpoint.Hit("tx.commit.block")
		} else {
			crashpoint.Hit("tx.undo.block")
		}
	})
}

// release frees the blocks that endBlocks has turned into blocks of this process. If this process dies meanwhile,
// its reaper frees the rest. After endBlocks, no record of an earlier process has the kind logGiven.
//
// Preconditions: the log is idle, and the caller still holds the lock.
func (l *undoLog) release(tail uint32) {
	l.each(tail, func(r logRecord, _ uint32) {
		if r.kind == logGiven {
			l.a.ReleaseTaken(r.off)
		}
	})
}

// undo undoes the transaction of participant n. The only error is errBadLog. After an error some of the bytes may
// have been restored.
//
// Preconditions: the caller holds the lock, and is n or got the lock after n.
func (l *undoLog) undo(n arenakernel.ParticipantID, tail uint32) error {
	if err := l.undoBytes(tail); err != nil {
		return err
	}
	has, err := l.hasBlocks(tail)
	if err != nil {
		return err
	}
	if has {
		l.storeState(makeLogState(logUndone, n, tail))
		crashpoint.Hit("tx.undo.undone")
		return l.end(n, tail, false)
	}
	l.storeState(0)
	crashpoint.Hit("tx.undo.idle")
	return nil
}

// end ends the transaction of participant n after its bytes were undone or committed. Only the blocks of the
// transaction are left to deal with.
func (l *undoLog) end(n arenakernel.ParticipantID, tail uint32, commit bool) error {
	if err := l.endBlocks(n, tail, commit); err != nil {
		return err
	}
	l.storeState(0)
	if commit {
		crashpoint.Hit("tx.commit.idle")
	} else {
		crashpoint.Hit("tx.undo.idle")
	}
	l.release(tail)
	return nil
}

// recover undoes or completes the transaction that a dead holder left. The only error is errBadLog. After an error
// some of the bytes may have been restored.
//
// Preconditions: this process holds the lock, and every earlier holder is gone.
func (l *undoLog) recover() error {
	s := l.state()
	n := s.participant()
	switch {
	case s == 0:
		return nil
	case !s.valid(l.size), l.a.Current(n) && !(n == l.a.Self() && l.a.Gone(n)):
		return errBadLog
	}
	if err := l.each(s.tail(), nil); err != nil {
		return err
	}
	if s.phase() == logCommitted {
		return l.end(n, s.tail(), true)
	}
	end := l.undo
	if s.phase() == logUndone {
		end = func(n arenakernel.ParticipantID, tail uint32) error { return l.end(n, tail, false) }
	}
	if err := end(n, s.tail()); err != nil {
		return err
	}
	l.head.rollbacks.Add(1)
	return nil
}

// lose marks the log lost: its records must not be used any more. The caller does so because the lock is about to
// become not recoverable, or to be repaired.
//
// Preconditions: the caller holds the lock.
func (l *undoLog) lose() {
	if l.state() != logStateLost {
		l.storeState(logStateLost)
		crashpoint.Hit("tx.log.lost")
	}
}

// disown marks the log lost if the log does not belong to the dead holder that the owner word o names. The log belongs
// to that holder if the transaction is the holder's own, or if the holder was rolling it back. The log belongs to
// another process if the function of an Update has unlocked the lock, and a later holder has locked it since then.
//
// disown must be called before the lock is taken from the dead holder. Otherwise, if the caller died right after it
// took the lock, no process would know any more which process held the lock.
//
// The caller does not hold the lock, and may have been stopped for long since it read o. So disown reads the state
// of the log first. Then, while the ID of the dead holder is in an act word, disown reads the owner word again. The
// comment of logState says why that suffices.
func (l *undoLog) disown(owner *atomic.Uint32, o ownerWord) {
	s, dead := l.state(), o.participant()
	if s == 0 || s == logStateLost || s.participant() == dead {
		return
	}
	arenakernel.WhileGone(l.a, dead, owner, uint32(o), func() { l.loseForeign(s) })
}

// loseForeign marks the log lost if the state of the log is still s. The caller does not hold the lock.
func (l *undoLog) loseForeign(s logState) {
	if l.head.state.CompareAndSwap(uint64(s), uint64(logStateLost)) {
		crashpoint.Hit("tx.log.lost")
	}
}

// check returns an error if no correct process can have left the log in its present state.
func (l *undoLog) check() error {
	s := l.state()
	if !s.valid(l.size) {
		return errBadLog
	}
	return l.each(s.tail(), nil)
}
