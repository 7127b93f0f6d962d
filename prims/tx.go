package prims

import (
	"fmt"
	"math"
	"strconv"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("tx.save.recorded")
	_ = crashpoint.Register("tx.save.valid")
	_ = crashpoint.Register("tx.alloc.claimed")
	_ = crashpoint.Register("tx.alloc.recorded")
	_ = crashpoint.Register("tx.alloc.logged")
	_ = crashpoint.Register("tx.free.recorded")
	_ = crashpoint.Register("tx.free.logged")
	_ = crashpoint.Register("tx.commit.decided")
	_ = crashpoint.Register("tx.commit.idle")
)

// Tx is a transaction: the changes that the function of an Update makes to data in the arena. Either all of
// these changes stay or none of them does, even if this process is killed at any instruction. The promise covers
// memory that the function passed to [Save], [SaveSlice] or [Set] before the change, and blocks of Alloc and Free.
//
// A Tx may be used only by the goroutine that runs the function, and only until the function returns.
type Tx struct {
	place  txPlace
	tail   uint32
	nSaved uint // number of saved ranges; range i is at index i%8 of saved
	active uint64
	open   bool
	blocks bool // the log has records of allocated or freed blocks
	saved  [8]txRange
	within txRange // a range that encloses all saved ranges; if there is none, from is greater than to

	log    *undoLog
	object string
	ended  bool  // the function of the Update has returned
	failed error // why the transaction can only be undone, or nil
	inside goroutineMark
	noLock bool // this process has no byte lock, so other processes cannot see when it has ended
}

// txRange is a range of the heap that was saved.
type txRange struct{ from, to uintptr }

// txEnd is the value of the panic by which a failed transaction ends the function of its Update.
type txEnd struct{ tx *Tx }

func newTx(l *undoLog, object string) *Tx {
	tx := &Tx{log: l, object: object, place: placeOf(l), noLock: !l.a.HasByteLock()}
	tx.active = uint64(makeLogState(logActive, l.a.Self(), 0))
	return tx
}

// supported returns an error if this process cannot use transactions.
func (tx *Tx) supported(op string) error {
	if !tx.noLock {
		return nil
	}
	return &shmsync.Error{Op: op, Object: tx.object, Err: shmsync.ErrNotSupported,
		Detail: "this process has no byte lock in the arena's file, so nobody could prove that it is gone"}
}

// begin starts a transaction. It fails if the undo log of the lock still describes another transaction.
//
// Preconditions: this goroutine holds the lock.
func (tx *Tx) begin(op string) error {
	if s := tx.log.state(); s != 0 {
		return &shmsync.Error{Op: op, Object: tx.object, Err: shmsync.ErrCorrupt,
			Detail: "the undo log of a free lock is " + s.String() + ": an Update was unlocked by its function, or a peer overwrote it"}
	}
	tx.tail, tx.nSaved, tx.open, tx.blocks, tx.ended, tx.failed = 0, 0, true, false, false, nil
	tx.within = txRange{from: math.MaxUint}
	return nil
}

// finish commits the transaction or undoes it. If neither is possible, finish returns errBadLog. It returns no
// other error.
func (tx *Tx) finish(commit bool) error {
	tx.open = false
	if tx.tail == 0 {
		return nil
	}
	l, self := tx.log, tx.log.a.Self()
	if h := &l.head.highest; uint64(tx.tail) > h.Load() {
		h.Store(uint64(tx.tail))
	}
	switch {
	case !commit:
		return l.undo(self, tx.tail)
	case tx.blocks:
		l.storeState(makeLogState(logCommitted, self, tx.tail))
		crashpoint.Hit("tx.commit.decided")
		return l.end(self, tx.tail, true)
	}
	// This store is the commit of the transaction.
	storeLogState(tx.place.state, 0)
	crashpoint.Hit("tx.commit.idle")
	return nil
}

// fail ends the function of the Update by a panic. The transaction can then only be undone.
func (tx *Tx) fail(err error) {
	if tx.failed == nil {
		tx.failed = err
	}
	panic(txEnd{tx})
}

func (tx *Tx) full(n uint64) {
	tx.fail(&shmsync.Error{Op: "tx.save", Object: tx.object, Err: shmsync.ErrNoSpace,
		Detail: fmt.Sprintf("the undo log has %d bytes, %d are in use, and %d more with a record of %d were asked for: make the lock with a greater LogBytes",
			tx.log.size, tx.tail, n, logFooter)})
}

func (tx *Tx) mistake(call, what string) {
	if !tx.open {
		what = "after the Update of the transaction has ended"
	}
	panic("shmsync: " + call + " in a transaction of " + strconv.Quote(tx.object) + " " + what)
}

// Alloc returns size zeroed bytes of the arena, as [arena.Arena.Alloc] does. The block stays allocated if the
// transaction commits, and is freed otherwise. If the arena or the undo log has no room, Alloc panics as [Save]
// does.
//
// Before the transaction has committed, other processes must not get the offset, except in data that the lock
// guards.
func (tx *Tx) Alloc(size, align uint64) arena.Offset {
	if align > arenakernel.MaxAlign || align&(align-1) != 0 {
		tx.mistake("Alloc", "with alignment "+strconv.FormatUint(align, 10)+", which is not a power of two up to 4096")
	}
	if !tx.open {
		tx.mistake("Alloc", "")
	}
	if logFooter > tx.log.size-tx.tail {
		tx.full(0)
	}
	a := tx.log.a
	off, err := a.ClaimAligned(size, align)
	if err != nil {
		tx.fail(err)
	}
	crashpoint.Hit("tx.alloc.claimed")
	tx.blocks = true
	tx.record(off, logAlloc)
	crashpoint.Hit("tx.alloc.recorded")
	if err := a.LogBlock(off); err != nil {
		tx.fail(err)
	}
	crashpoint.Hit("tx.alloc.logged")
	return off
}

// Free frees the block at off when the transaction commits. The bytes of the block can be read until then. Free
// panics if no block of Alloc begins at off. If the undo log has no room, Free panics as [Save] does.
func (tx *Tx) Free(off arena.Offset) {
	if !tx.open {
		tx.mistake("Free", "")
	}
	a := tx.log.a
	why, logged := a.CanLogFreed(off)
	if logged {
		tx.freeOwn(off)
		return
	}
	if why != "" {
		tx.mistake("Free", "of "+off.String()+": "+why)
	}
	tx.blocks = true
	tx.record(off, logFree)
	crashpoint.Hit("tx.free.recorded")
	if !a.LogFreed(off) {
		tx.unrecord()
		tx.mistake("Free", "of "+off.String()+", which another call has freed")
	}
	crashpoint.Hit("tx.free.logged")
}

// freeOwn does what Free does, for a block that this transaction has allocated.
func (tx *Tx) freeOwn(off arena.Offset) {
	why := "which another transaction of this process has"
	err := tx.log.each(tx.tail, func(r logRecord, end uint32) {
		if r.kind == logBytes || r.off != off {
			return
		}
		if why = ""; r.kind != logAlloc {
			why = "which this transaction has freed"
			return
		}
		tx.log.setKind(end, logTemporary)
	})
	if err != nil {
		tx.fail(&shmsync.Error{Op: "tx.free", Object: tx.object, Err: shmsync.ErrCorrupt, Detail: err.Error()})
	}
	if why != "" {
		tx.mistake("Free", "of "+off.String()+", "+why)
	}
}
