//go:build linux

package cinterop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

const (
	txCells = 60
	txBytes = 256 << 10
	txNodes = 40
)

// txData corresponds to tx_data of testdata/agent_tx.h.
type txData struct {
	rounds, fill, head, count uint64
	cells                     [txCells]uint64
	bytes                     [txBytes]byte
}

// txNode corresponds to tx_node.
type txNode struct{ next, mark uint64 }

var (
	errTxTorn  = fmt.Errorf("torn: %w", syscall.EILSEQ)
	errTxAbort = errors.New("abort")
	txBegan    atomic.Uint64 // the number of transactions that this process has begun
)

func init() { verbs["tx"] = (*goAgent).tx }

// txNode returns the node at an offset, or nil if no node can be at that offset.
func (x *goAgent) txNode(off uint64) *txNode {
	n, _ := arena.TryAt[txNode](x.a, arena.Offset(off))
	return n
}

// torn returns the number of values that differ from what complete transactions leave.
func (x *goAgent) torn(d *txData) (torn uint64) {
	off, i := d.head, uint64(0)
	for ; i < d.count && off != 0; i++ {
		n := x.txNode(off)
		if n == nil || n.mark != ^off {
			break
		}
		off = n.next
	}
	if i != d.count || off != 0 {
		torn++
	}
	for _, c := range d.cells {
		if c != d.rounds {
			torn++
		}
	}
	for _, b := range d.bytes {
		if b != byte(d.fill) {
			torn++
		}
	}
	return torn
}

// txReadBytes fills the bytes by a system call.
func txReadBytes(tx *prims.Tx, d *txData, fd int) error {
	fill := ^d.fill & 0xff
	prims.SaveSlice(tx, d.bytes[:])
	prims.Set(tx, &d.fill, fill)
	off := int64(0)
	if fill == 0xff {
		off = txBytes
	}
	if n, err := unix.Pread(fd, d.bytes[:], off); err != nil || n != txBytes {
		return fmt.Errorf("%d bytes: %w", n, err)
	}
	return nil
}

// txCellsIn changes all cells, in an order that begins at a random cell. If save is true, it first saves all cells in
// pieces that overlap.
func txCellsIn(tx *prims.Tx, d *txData, save bool) {
	step, to, first := 1+rand.IntN(8), d.rounds+1, rand.IntN(txCells)
	for i := 0; save && i < txCells; i += step {
		prims.SaveSlice(tx, d.cells[i:min(i+step+3, txCells)]) // the pieces overlap
	}
	if save {
		prims.Save(tx, &d.rounds)
	}
	for i := range txCells {
		d.cells[(first+i)%txCells] = to
	}
	d.rounds = to
}

// txList adds a node to the list or removes one. In between it allocates another node and frees it again.
func (x *goAgent) txList(tx *prims.Tx, d *txData, add bool) error {
	prims.Save(tx, &d.head)
	prims.Save(tx, &d.count)
	var brief arena.Offset
	if rand.IntN(3) == 0 {
		brief = tx.Alloc(1+rand.Uint64N(5000), 0)
	}
	switch {
	case (add || d.count == 0) && d.count < txNodes:
		size := 16 + rand.Uint64N(300)
		if rand.IntN(50) == 0 {
			size = 100000
		}
		off := uint64(tx.Alloc(size, 4096))
		n := x.txNode(off)
		if n == nil || *n != (txNode{}) || off%4096 != 0 {
			return errTxTorn
		}
		n.next, n.mark = d.head, ^off
		d.head = off
		d.count++
	case d.count > 0:
		off := d.head
		n := x.txNode(off)
		if n == nil {
			return errTxTorn
		}
		d.head = n.next
		d.count--
		tx.Free(arena.Offset(off))
	}
	if brief != 0 {
		tx.Free(brief)
	}
	return nil
}

// txLock is a lock with an undo log.
type txLock interface {
	Update(f func(tx *prims.Tx) error) error
	UpdateContext(ctx context.Context, f func(tx *prims.Tx) error) error
	Lock()
	TryLock() bool
	Unlock()
	Recover(repair func() error) error
	Offset() arena.Offset
	Close() error
}

// txLock opens the lock of that name: an RWMutex if the name begins with rw, otherwise a Mutex.
func (x *goAgent) txLock(name string, p prims.Policy, log int) (txLock, error) {
	if strings.HasPrefix(name, "rw") {
		return prims.OpenRWMutex(x.a, name, &prims.RWMutexOptions{Policy: p, LogBytes: log})
	}
	return prims.OpenMutex(x.a, name, &prims.MutexOptions{Policy: p, LogBytes: log})
}

// txTurn runs one transaction.
func (x *goAgent) txTurn(m txLock, d *txData, mode, fd int) error {
	full, r := false, rand.IntN(8)
	err := m.Update(func(tx *prims.Tx) error {
		txBegan.Add(1)
		if mode == txRead {
			return txReadBytes(tx, d, fd)
		}
		txCellsIn(tx, d, mode != txUnsaved)
		if mode != txMixed {
			return nil
		}
		if r%4 < 3 {
			if err := x.txList(tx, d, rand.IntN(2) == 0); err != nil {
				return err
			}
		}
		switch r {
		case 0:
			return errTxAbort
		case 1:
			for full = true; ; {
				prims.SaveSlice(tx, d.bytes[rand.IntN(1000):txBytes-1000+rand.IntN(1000)])
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errTxAbort), full && errors.Is(err, shmsync.ErrNoSpace):
		return nil
	case full:
		return errTxTorn
	}
	return err
}

func txFile() (int, error) {
	fd, err := unix.MemfdCreate("tx", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	_, err = unix.Write(fd, append(make([]byte, txBytes), slices.Repeat([]byte{0xff}, txBytes)...))
	return fd, err
}

// tx carries out the verbs for transactions.
func (x *goAgent) tx(o order) (uint64, error) {
	var policy prims.Policy
	log := 0
	if o.verb == "tx.open" {
		policy, log = prims.PolicyRollback, 2*txBytes
	}
	m, err := x.txLock(o.name, policy, log)
	if err != nil {
		return 0, err
	}
	defer func() {
		if o.verb != "tx.work" && o.verb != "tx.hold" { // Close waits for the end of an Update
			m.Close()
		}
	}()
	if o.verb == "tx.begin" {
		return 0, m.UpdateContext(o.ctx(0), func(*prims.Tx) error { return nil })
	}
	mem, err := x.a.Block(o.name+"-data", txDataSize)
	if err != nil {
		return 0, err
	}
	d := txDataOf(mem)
	switch o.verb {
	case "tx.open":
		return uint64(m.Offset()), nil
	case "tx.began":
		for txBegan.Load() == 0 {
			syscall.Nanosleep(&syscall.Timespec{Nsec: 20e3}, nil) // until another goroutine has begun a transaction
		}
		return 0, nil
	case "tx.work", "tx.turn":
		fd, err := txFile()
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		for i := int64(0); err == nil && (o.verb == "tx.work" || i < o.arg(2)); i++ {
			err = x.txTurn(m, d, int(o.arg(0)), fd)
		}
		return 0, err
	case "tx.hold":
		fd, err := txFile()
		if err != nil {
			return 0, err
		}
		held := make(chan error, 1)
		go m.Update(func(tx *prims.Tx) error {
			txCellsIn(tx, d, true)
			err := x.txList(tx, d, true)
			for _, add := range []bool{true, false} {
				if err == nil {
					err = x.txList(tx, d, add)
				}
			}
			if err == nil {
				err = txReadBytes(tx, d, fd)
			}
			held <- err
			select {} // until this process is killed
		})
		return 0, <-held
	case "tx.try":
		if !m.TryLock() {
			return 0, syscall.EBUSY
		}
		m.Unlock()
		return 0, nil
	case "tx.recover":
		n := uint64(0)
		err := m.Recover(func() error {
			n++
			return nil
		})
		return n, err
	case "tx.torn":
		return x.torn(d), nil
	case "tx.count":
		return d.count, nil
	case "tx.look", "tx.trylook":
		rw := m.(*prims.RWMutex)
		if o.verb == "tx.trylook" && !rw.TryRLock() {
			return 0, syscall.EBUSY
		}
		if o.verb == "tx.look" {
			if err := rw.RLockContext(context.Background()); err != nil {
				return 0, err
			}
		}
		defer rw.RUnlock()
		return x.torn(d), nil
	case "tx.lock":
		m.Lock()
		return 0, nil
	case "tx.unlock":
		m.Unlock()
		return 0, nil
	case "tx.check":
		var torn uint64
		err := m.Update(func(*prims.Tx) error {
			if torn = x.torn(d); torn != 0 { // repairs the data for the next round
				for i := range d.cells {
					d.cells[i] = d.rounds
				}
				for i := range d.bytes {
					d.bytes[i] = byte(d.fill)
				}
			}
			return nil
		})
		return torn, err
	}
	return 0, syscall.ENOSYS
}
