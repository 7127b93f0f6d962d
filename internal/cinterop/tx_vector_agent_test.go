//go:build linux

package cinterop

import (
	"encoding/binary"
	"syscall"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() { verbs["txlog"] = (*goAgent).txLog }

// txLog carries out the verbs for the vectors of a mutex with an undo log. The mutex protects 64 bytes of data,
// which begin with 5, 6 and 7.
func (x *goAgent) txLog(o order) (uint64, error) {
	m, err := prims.OpenMutex(x.a, o.name, &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 192})
	if err != nil {
		return 0, err
	}
	d, err := x.a.Block(o.name+"-data", 64)
	if err != nil {
		return 0, err
	}
	change := func(tx *prims.Tx) {
		prims.SaveSlice(tx, d[:8])
		binary.LittleEndian.PutUint64(d, 8)
		prims.SaveSlice(tx, d[8:23]) // its record has padding
		binary.LittleEndian.PutUint64(d[8:], 9)
		tx.Free(tx.Alloc(100, 0))
	}
	switch o.verb {
	case "txlog.open":
		for i := range 3 {
			binary.LittleEndian.PutUint64(d[8*i:], uint64(5+i))
		}
		return uint64(m.Offset()), nil
	case "txlog.change":
		return 0, m.Update(func(tx *prims.Tx) error {
			change(tx)
			return nil
		})
	case "txlog.leave": // begin a transaction that does not end
		left := make(chan bool)
		go m.Update(func(tx *prims.Tx) error {
			change(tx)
			owner := arena.At[uint32](x.a, m.Offset()+64)
			*owner &= 1<<29 - 1 // clear the mark of a biased hold, which only some runs set
			close(left)
			select {} // until this process is killed
		})
		<-left
		return 0, nil
	case "txlog.begin":
		return 0, m.UpdateContext(o.ctx(0), func(*prims.Tx) error { return nil })
	case "txlog.data":
		return binary.LittleEndian.Uint64(d[8*o.arg(0):]), nil
	}
	return 0, syscall.ENOSYS
}
