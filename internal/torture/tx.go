//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

const txJobNodes = 20 // the longest list

// txData is the data that the transactions change. The data is torn unless each of Cells is equal to Commits, and
// Nodes is the length of the list that begins at Head.
type txData struct {
	Commits     uint64
	Head, Nodes uint64
	Cells       [40]uint64
}

// txNode is a node of the linked list that the transactions keep in the arena. Each node lies in a block that a
// transaction has allocated. The field Mark is the complement of the block's offset, by which txJob recognizes a node.
type txNode struct{ Next, Mark uint64 }

// logged is the interface of the locks that have an undo log.
type logged interface {
	UpdateContext(ctx context.Context, f func(tx *prims.Tx) error) error
	Lock()
	Unlock()
}

// txJob changes data under a lock with an undo log: it increments each cell, and adds or removes a node of the list.
// Some transactions are committed. Others return an error on purpose, or fail because the log is full. Victims in C do
// the same; see worker.c.
type txJob struct {
	*party
	m    logged
	rw   *prims.RWMutex // nil if m is a Mutex
	idle func() error
	d    *txData
	w    *witness
}

const txLogBytes = 2048

func openTxJob(p *party) (jobWorker, error) {
	m, err := prims.OpenMutex(p.a, "tx", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: txLogBytes})
	if err != nil {
		return nil, err
	}
	idle := func() error { return leftOver(m.State().Held, m.State()) }
	return openBank(&txJob{party: p, m: m, idle: idle, w: &p.page.board.locks[lockTx]}, "tx-data")
}

func openRWTxJob(p *party) (jobWorker, error) {
	m, err := prims.OpenRWMutex(p.a, "rwtx", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: txLogBytes})
	if err != nil {
		return nil, err
	}
	idle := func() error { return leftOver(m.State().Held || m.State().Readers != 0, m.State()) }
	return openBank(&txJob{party: p, m: m, rw: m, idle: idle, w: &p.page.board.locks[lockRWTx]}, "rwtx-data")
}

// openBank opens the data that the transactions of j change.
func openBank(j *txJob, name string) (_ jobWorker, err error) {
	if j.d, err = arena.Value[txData](j.a, name); err == nil {
		j.banks = append(j.banks, j.d)
	}
	return j, err
}

func (j *txJob) node(off uint64) (*txNode, error) {
	n, err := arena.TryAt[txNode](j.a, arena.Offset(off))
	if err == nil && n.Mark != ^off {
		err = fmt.Errorf("no node at %#x: its mark is %#x", off, n.Mark)
	}
	return n, err
}

// whole returns an error that says which part of the data is torn. The caller holds the lock.
func (j *txJob) whole() error {
	for i, c := range j.d.Cells {
		if c != j.d.Commits {
			return fmt.Errorf("torn: cell %d is %d after %d commits", i, c, j.d.Commits)
		}
	}
	nodes := uint64(0)
	for off := j.d.Head; off != 0 && nodes <= txJobNodes; nodes++ {
		n, err := j.node(off)
		if err != nil {
			return err
		}
		off = n.Next
	}
	if nodes != j.d.Nodes {
		return fmt.Errorf("torn: the list has %d nodes and says %d", nodes, j.d.Nodes)
	}
	return nil
}

// grow adds a node to the list, or removes one.
func (j *txJob) grow(tx *prims.Tx, r *rand.Rand) error {
	d := j.d
	if r.IntN(4) == 0 {
		tx.Free(tx.Alloc(1+r.Uint64N(3000), 8)) // a block that is allocated and freed in one transaction
	}
	if d.Nodes == 0 || d.Nodes < txJobNodes && r.IntN(2) == 0 {
		off := tx.Alloc(16+r.Uint64N(200), 8)
		n, err := arena.TryAt[txNode](j.a, off)
		if err != nil {
			return err
		}
		*n = txNode{Next: d.Head, Mark: ^uint64(off)}
		prims.Set(tx, &d.Head, uint64(off))
		prims.Set(tx, &d.Nodes, d.Nodes+1)
		return nil
	}
	off := d.Head
	n, err := j.node(off)
	if err != nil {
		return err
	}
	prims.Set(tx, &d.Head, n.Next)
	prims.Set(tx, &d.Nodes, d.Nodes-1)
	tx.Free(arena.Offset(off))
	return nil
}

// looks checks the data under the read lock, which other readers may hold, too.
func (j *txJob) looks(r *rand.Rand) error {
	return forgive(ends(r, func(ctx context.Context) error {
		if err := j.rw.RLockContext(ctx); err != nil {
			return err
		}
		defer j.rw.RUnlock()
		return j.whole()
	}))
}

func (j *txJob) turn(_ int, r *rand.Rand) error {
	if j.rw != nil && r.IntN(2) == 0 {
		return j.looks(r)
	}
	how := r.IntN(8)
	err := ends(r, func(ctx context.Context) error {
		return j.m.UpdateContext(ctx, func(tx *prims.Tx) error {
			if err := j.whole(); err != nil {
				return err
			}
			first := r.IntN(len(j.d.Cells))
			for i := range j.d.Cells {
				c := &j.d.Cells[(first+i)%len(j.d.Cells)]
				prims.Set(tx, c, *c+1)
				if i == len(j.d.Cells)/2 {
					if err := j.inside(j.w, r); err != nil {
						return err
					}
					j.linger(r)
				}
			}
			prims.Set(tx, &j.d.Commits, j.d.Commits+1)
			if how < 6 {
				if err := j.grow(tx, r); err != nil {
					return err
				}
				j.linger(r)
			}
			switch how {
			case 0:
				return errGivenUp
			case 1:
				for { // repeats until the log is full
					tx.Free(tx.Alloc(16, 8))
				}
			}
			return nil
		})
	})
	switch {
	case err == errGivenUp, how == 1 && errors.Is(err, shmsync.ErrNoSpace):
		return nil
	case errors.Is(err, shmsync.ErrNotSupported):
		return nil // the process has no byte lock, which a rollback needs
	case how == 1 && err == nil:
		return errors.New("a log is never full")
	}
	return forgive(err)
}

func (j *txJob) rest() error {
	j.m.Lock()
	err := j.whole()
	j.m.Unlock()
	if err != nil {
		return err
	}
	return j.idle()
}

// balance returns an error unless the allocated blocks of the arena are exactly the nodes of the lists. The caller
// makes sure that no job runs meanwhile.
func (p *party) balance() error {
	if p.page.only&^dataJobs != 0 {
		return nil // deaths in other jobs may leave blocks allocated
	}
	nodes := uint64(0)
	for _, d := range p.banks {
		nodes += d.Nodes
	}
	if st := p.a.Stats(); st.Raw != nodes || st.Claimed != 0 {
		return fmt.Errorf("leaked: the lists have %d nodes, the heap has %d blocks, and %d are being made or freed", nodes, st.Raw, st.Claimed)
	}
	return nil
}
