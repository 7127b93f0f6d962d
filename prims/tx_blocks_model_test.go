//go:build linux

package prims

import (
	"errors"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// txBlocksModel has two locks with undo logs, and two blocks. The data of each lock is one of the blocks, or
// none. A transaction allocates a block, frees the old one, and makes the new one the data. Its process may be
// killed at each step, and so may a process that rolls back.
type txBlocksModel struct {
	kills int
	twice bool // one process runs transactions of both locks; if false, of one lock, and two processes roll back
	bug   bug
}

const (
	tbFreeEarly    bug = "a block is free before the log is idle"
	tbStaysGiven   bug = "a record that an earlier rollback has marked as given keeps the mark"
	tbReapsLogged  bug = "a reaper frees logged blocks"
	tbCommitsIdle  bug = "a commit with blocks makes the log idle at once"
	tbLogsFirst    bug = "a block is logged before its record is valid"
	tbAtDead       bug = "a rollback begins when the process is dead, but not gone yet"
	tbRawAlloc     bug = "a transaction leaves its new block claimed until it commits"
	tbOwnNameInLog bug = "the log names the process that rolls back"
)

// The words. First come the words of each lock: an owner word, a log with two records, and a word that names
// the block that is the lock's data. Then come the words of the blocks.
const (
	tbOwner  = iota // process + 1; tbRecovering
	tbLog           // phase | process + 1 | tail
	tbFirst         // the record of the new block: kind | block
	tbSecond        // the record of the old one
	tbData
	tbLock                     // words of a lock
	tbBlock     = 2*tbLock - 1 // the word of block 1: kind | process + 1
	tbNameShift = 3
	tbTailShift = 6
	tbKindShift = 2

	tbRecovering = 8
	tbBlocks     = 2
)

// Kinds of blocks.
const (
	tbFree = iota
	tbClaimed
	tbRaw
	tbFreeing
	tbLogged
)

// The steps.
const (
	tbIdle = iota
	tbClaim
	tbRecordAlloc
	tbValidAlloc
	tbLogAlloc
	tbRecordFree
	tbValidFree
	tbLogFree
	tbChange
	tbEnd
	tbAbort

	tbRead
	tbRestore
	tbUndone
	tbTake
	tbGive
	tbEnds
	tbLook
	tbRelease
	tbUnlock

	tbPublish
	tbFrees
	tbFreed
)

// The registers: the lock, the new block, the old block, the current record (counted from 1), the process that
// the log names, and whether the transaction is committed.
const (
	tbK = iota
	tbNew
	tbOld
	tbAt
	tbName
	tbCommit
)

// The ghosts, which no process reads. The ghost of a block says who has the block: lock 0, lock 1, or another
// thread. The last ghost records the first mistake.
const (
	tbOfOther = 3
	tbWrong   = 3
)

func tbWord(kind, process uint8) uint8 { return kind | process<<tbNameShift }

func (m *txBlocksModel) word(x *model.Exec, w int) int { return int(*x.R(tbK))*tbLock + w }

// must records a mistake unless the block belongs to the lock or thread whose number is the parameter of.
func (m *txBlocksModel) must(x *model.Exec, block, of uint8) {
	if x.Ghost[block] != of {
		x.Ghost[tbWrong] = 1
	}
}

// transaction is the program of a thread that runs transactions of lock k.
func (m *txBlocksModel) transaction(k uint8) model.Program {
	return func(x *model.Exec) {
		me := uint8(x.Process() + 1)
		b, old, of := *x.R(tbNew), *x.R(tbOld), k+1
		block := func(b uint8) int { return tbBlock + int(b) }
		switch x.PC() {
		case tbIdle:
			x.Say("locks")
			*x.R(tbK) = k
			if !x.CAS(m.word(x, tbOwner), 0, me) {
				x.Disable()
			}
			x.Goto(tbClaim)
		case tbClaim:
			x.Say("claims a block")
			b = uint8(x.Choose(tbBlocks) + 1)
			x.Goto(tbUnlock)
			if x.CAS(block(b), tbFree, tbWord(tbClaimed, me)) {
				x.Ghost[b] = of
				*x.R(tbNew), *x.R(tbOld) = b, x.Load(m.word(x, tbData))
				x.Goto(tbRecordAlloc)
			}
		case tbRecordAlloc:
			x.Say("records it")
			x.Store(m.word(x, tbFirst), logAlloc<<tbKindShift|b)
			x.Goto(tbValidAlloc)
			if m.bug == tbLogsFirst {
				x.Goto(tbLogAlloc)
			}
		case tbValidAlloc:
			x.Say("makes the record valid")
			x.Store(m.word(x, tbLog), uint8(logActive)|me<<2|1<<tbTailShift)
			x.Goto(tbLogAlloc)
			if m.bug == tbLogsFirst || m.bug == tbRawAlloc {
				x.Goto(tbRecordFree)
			}
		case tbLogAlloc:
			x.Say("makes the block logged")
			x.CAS(block(b), tbWord(tbClaimed, me), tbWord(tbLogged, me))
			x.Goto(tbRecordFree)
			if m.bug == tbLogsFirst {
				x.Goto(tbValidAlloc)
			}
		case tbRecordFree:
			x.Say("records that the old one goes")
			x.Store(m.word(x, tbSecond), logFree<<tbKindShift|old)
			x.Goto(tbValidFree)
		case tbValidFree:
			x.Say("makes the record valid")
			x.Store(m.word(x, tbLog), uint8(logActive)|me<<2|2<<tbTailShift)
			x.Goto(tbLogFree)
		case tbLogFree:
			x.Say("makes the old one logged")
			if old != 0 && !x.CAS(block(old), tbRaw, tbWord(tbLogged, me)) {
				x.Ghost[tbWrong] = 1
			}
			x.Goto(tbChange)
		case tbChange:
			x.Say("lists the new one")
			x.Store(m.word(x, tbData), b)
			x.Goto(tbEnd)
		case tbEnd:
			*x.R(tbAt), *x.R(tbName) = 2, me
			if x.Choose(2) == 1 {
				x.Say("gives up")
				x.Goto(tbRestore)
				return
			}
			x.Say("commits")
			*x.R(tbCommit) = 1
			x.Goto(tbTake)
			s := uint8(logCommitted) | me<<2 | 2<<tbTailShift
			if m.bug == tbCommitsIdle {
				s = 0
			}
			x.Store(m.word(x, tbLog), s)
		default:
			m.end(x)
		}
	}
}

// rollBack is the program of a thread that rolls back the transactions of dead processes.
func (m *txBlocksModel) rollBack(locks int, required bool) model.Program {
	return func(x *model.Exec) {
		switch x.PC() {
		case tbIdle:
			x.Say("takes the lock of a dead process")
			k := x.Choose(locks)
			*x.R(tbK) = uint8(k)
			o := x.Load(m.word(x, tbOwner))
			holder := int(o&^tbRecovering) - 1
			if o == 0 || x.LifeOf(holder) == model.Alive || x.LifeOf(holder) == model.Condemned && m.bug != tbAtDead {
				x.Disable()
				return
			}
			if required {
				x.Require()
			}
			x.CAS(m.word(x, tbOwner), o, uint8(x.Process()+1)|tbRecovering)
			x.Goto(tbRead)
		case tbRead:
			x.Say("reads the log")
			s := x.Load(m.word(x, tbLog))
			*x.R(tbAt), *x.R(tbName) = s>>tbTailShift, s>>2&7
			switch logPhase(s & 3) {
			case logIdle:
				x.Goto(tbUnlock)
			case logActive:
				x.Goto(tbRestore)
			case logUndone:
				x.Goto(tbTake)
			case logCommitted:
				*x.R(tbCommit) = 1
				x.Goto(tbTake)
			}
			if m.bug == tbOwnNameInLog && s != 0 {
				*x.R(tbName) = uint8(x.Process() + 1)
			}
		default:
			m.end(x)
		}
	}
}

// end has the steps that a commit, an abort and a rollback have in common.
func (m *txBlocksModel) end(x *model.Exec) {
	me, of, at := uint8(x.Process()+1), *x.R(tbK)+1, *x.R(tbAt)
	commit := *x.R(tbCommit) == 1
	record := m.word(x, tbFirst+int(at)-1)
	block := func(r uint8) int { return tbBlock + int(r&3) }
	next := func(pc uint8) { // go to the previous record, or to step pc if there is none
		if *x.R(tbAt)--; *x.R(tbAt) == 0 {
			*x.R(tbAt) = x.Load(m.word(x, tbLog)) >> tbTailShift
			x.Goto(pc)
			return
		}
		x.Goto(tbTake)
		if pc != tbEnds {
			x.Goto(tbLook)
		}
	}
	switch x.PC() {
	case tbRestore:
		x.Say("restores the list")
		if at == 2 {
			x.Store(m.word(x, tbData), x.Load(m.word(x, tbSecond))&3)
		}
		x.Goto(tbUndone)
	case tbUndone:
		x.Say("makes the log undone")
		x.Store(m.word(x, tbLog), uint8(logUndone)|*x.R(tbName)<<2|at<<tbTailShift)
		x.Goto(tbTake)
	case tbTake:
		r := x.Load(record)
		kind, name := r>>tbKindShift, *x.R(tbName)
		if r&3 == 0 {
			x.Say("has no such block")
			next(tbEnds)
			return
		}
		if kind == logGiven {
			x.Say("finds a record that is given")
			kind = logFree
			if commit {
				kind = logAlloc
			}
			if m.bug != tbStaysGiven {
				x.Store(record, kind<<tbKindShift|r&3)
			}
			next(tbEnds)
			return
		}
		if (kind == logFree) != commit {
			x.Say("keeps a block")
			if x.CAS(block(r), tbWord(tbLogged, name), tbRaw) {
				m.must(x, r&3, of)
			}
			if m.bug == tbRawAlloc && x.CAS(block(r), tbWord(tbClaimed, name), tbRaw) {
				m.must(x, r&3, of)
			}
			next(tbEnds)
			return
		}
		x.Say("takes a block")
		if !x.CAS(block(r), tbWord(tbLogged, name), tbWord(tbFreeing, me)) {
			next(tbEnds)
			return
		}
		m.must(x, r&3, of)
		x.Goto(tbGive)
	case tbGive:
		x.Say("makes the record given")
		r := x.Load(record)
		x.Store(record, logGiven<<tbKindShift|r&3)
		if m.bug == tbFreeEarly {
			x.Update(block(r), func(uint8) uint8 { return tbFree })
			x.Ghost[r&3] = 0
			x.Store(record, r)
		}
		next(tbEnds)
	case tbEnds:
		x.Say("makes the log idle")
		x.Store(m.word(x, tbLog), 0)
		x.Goto(tbLook)
		if at == 0 {
			x.Goto(tbUnlock) // only a model with a planted mistake gets here
		}
	case tbLook:
		x.Say("looks at a block that may go back")
		r := x.Load(record)
		if r>>tbKindShift == logGiven && x.Load(block(r)) == tbWord(tbFreeing, me) {
			x.Goto(tbRelease)
			return
		}
		m.look(x)
	case tbRelease:
		x.Say("gives the block back")
		r := x.Load(record)
		m.must(x, r&3, of)
		x.Update(block(r), func(uint8) uint8 { return tbFree })
		x.Ghost[r&3] = 0
		m.look(x)
	case tbUnlock:
		x.Say("unlocks")
		x.Update(m.word(x, tbOwner), func(uint8) uint8 { return 0 })
		x.Idle()
	}
}

// look goes on with the previous record.
func (m *txBlocksModel) look(x *model.Exec) {
	x.Goto(tbLook)
	if *x.R(tbAt)--; *x.R(tbAt) == 0 {
		x.Goto(tbUnlock)
	}
}

// other allocates a block and frees it, without a transaction.
func (m *txBlocksModel) other(x *model.Exec) {
	me, b := uint8(x.Process()+1), *x.R(tbNew)
	word := tbBlock + int(b)
	switch x.PC() {
	case tbIdle:
		x.Say("allocates a block")
		b = uint8(x.Choose(tbBlocks) + 1)
		if !x.CAS(tbBlock+int(b), tbFree, tbWord(tbClaimed, me)) {
			x.Disable()
			return
		}
		x.Ghost[b], *x.R(tbNew) = tbOfOther, b
		x.Goto(tbPublish)
	case tbPublish:
		x.Say("publishes it")
		x.CAS(word, tbWord(tbClaimed, me), tbRaw)
		x.Goto(tbFrees)
	case tbFrees:
		x.Say("frees it")
		if !x.CAS(word, tbRaw, tbWord(tbFreeing, me)) {
			x.Ghost[tbWrong] = 1
		}
		x.Goto(tbFreed)
	case tbFreed:
		x.Say("has freed it")
		if !x.CAS(word, tbWord(tbFreeing, me), tbFree) {
			x.Ghost[tbWrong] = 1
		}
		m.must(x, b, tbOfOther)
		x.Ghost[b] = 0
		x.Idle()
	}
}

// reap frees the blocks of dead processes, except the logged ones: a rollback frees those.
func (m *txBlocksModel) reap(x *model.Exec) {
	for p := range model.Threads {
		if x.LifeOf(p) == model.Condemned {
			x.Say("fences the dying")
			x.Require()
			x.Membarrier()
			return
		}
	}
	for p := range uint8(model.Threads) {
		for b := uint8(1); b <= tbBlocks && x.LifeOf(int(p)) == model.Gone; b++ {
			switch w := x.Load(tbBlock + int(b)); {
			case w == tbWord(tbClaimed, p+1), w == tbWord(tbFreeing, p+1), w == tbWord(tbLogged, p+1) && m.bug == tbReapsLogged:
				x.Say("gives a block of the dead back")
				x.Require()
				x.CAS(tbBlock+int(b), w, tbFree)
				x.Ghost[b] = 0
				return
			}
		}
	}
	x.Disable()
}

var (
	errTxBlockOfAnother = errors.New("a log changes a block that it does not have")
	errTxBlockLost      = errors.New("the data of a lock is a block that is not its own")
)

func (m *txBlocksModel) explore(b bug) model.Result {
	run := *m
	run.bug = b
	threads := []model.ThreadSpec{
		{Name: "transaction", Process: 0, Run: run.transaction(0), Mortal: true},
		{Name: "reaper", Process: 4, Run: run.reap},
	}
	if m.twice {
		threads = append(threads,
			model.ThreadSpec{Name: "other transaction", Process: 0, Run: run.transaction(1), Mortal: true},
			model.ThreadSpec{Name: "rollback", Process: 1, Run: run.rollBack(2, true)})
	} else {
		threads = append(threads,
			model.ThreadSpec{Name: "first rollback", Process: 1, Run: run.rollBack(1, false), Mortal: true},
			model.ThreadSpec{Name: "second rollback", Process: 2, Run: run.rollBack(1, true)},
			model.ThreadSpec{Name: "other", Process: 2, Run: run.other})
	}
	y := model.System{
		Kills:   m.kills,
		Threads: threads,
		Init: func(s *model.Sys) {
			s.Mem[tbData], s.Mem[tbBlock+1], s.Ghost[1] = 1, tbRaw, 1
		},
		Check: func(s *model.Sys) error {
			if s.Ghost[tbWrong] != 0 {
				return errTxBlockOfAnother
			}
			for k := range 2 {
				if b := s.Mem[k*tbLock+tbData]; b != 0 && s.Ghost[b] != uint8(k+1) {
					return errTxBlockLost
				}
			}
			return nil
		},
		Done: func(s *model.Sys) bool {
			for b := uint8(1); b <= tbBlocks; b++ {
				want := uint8(tbFree)
				if s.Mem[tbData] == b || s.Mem[tbLock+tbData] == b {
					want = tbRaw
				}
				if s.Mem[tbBlock+int(b)] != want {
					return false
				}
			}
			return s.Mem[tbOwner] == 0 && s.Mem[tbLock+tbOwner] == 0 && s.Mem[tbLog] == 0 && s.Mem[tbLock+tbLog] == 0
		},
	}
	return y.Explore()
}

// TestModelTxBlocks: a process dies at every step of a transaction and of a rollback. Meanwhile the same
// process runs another transaction, or another thread allocates and frees. No block is lost or used twice.
func TestModelTxBlocks(t *testing.T) {
	rollbacks, transactions := txBlocksModel{kills: 2}, txBlocksModel{kills: 1, twice: true}
	requireModels(t, []exploration{
		{"two rollbacks", small, rollbacks.explore, []bug{tbStaysGiven, tbReapsLogged, tbCommitsIdle, tbLogsFirst, tbAtDead, tbRawAlloc, tbOwnNameInLog}},
		{"two transactions", small, transactions.explore, []bug{tbFreeEarly, tbReapsLogged, tbCommitsIdle, tbLogsFirst, tbAtDead, tbRawAlloc, tbOwnNameInLog}},
	})
}
