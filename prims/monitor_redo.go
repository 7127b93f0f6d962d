package prims

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("monitor.commit.logged")
	_ = crashpoint.Register("monitor.commit.begun")
	_ = crashpoint.Register("monitor.replay.redone")
	_ = crashpoint.Register("monitor.replay.rebuilt")
)

// change is a set of new values for several words of a monitor's state. Its method set adds one, and the method
// commit of the monitor stores them so that a death cannot leave only some of them.
type change struct {
	n int
	w [redoMost]*atomic.Uint64
	v [redoMost]uint64
}

// set adds to the change c that the word w will become v.
func (c *change) set(w *atomic.Uint64, v uint64) {
	c.w[c.n], c.v[c.n] = w, v
	c.n++
}

// commit carries out the change c. The caller holds the queue lock. If this process dies during the commit, either
// nothing is changed, or the next holder of the queue lock completes the change.
func (m *monitor) commit(c *change) {
	if c.n > 1 {
		r := m.words
		for i := range c.n {
			storeWord(&r.redo[i].at, uint64(offsetIn(m.words.queueLock, m.at, c.w[i])))
			storeWord(&r.redo[i].to, c.v[i])
		}
		crashpoint.Hit("monitor.commit.logged")
		r.redone.Store(uint64(c.n))
	}
	for i := range c.n {
		storeWord(c.w[i], c.v[i])
		crashpoint.Hit("monitor.commit.begun")
	}
	if c.n > 1 {
		storeWord(m.words.redone, 0)
	}
}

// replay repairs the monitor after a holder of the queue lock has died. The next holder runs it.
func (m *monitor) replay() error {
	if err := m.redoLog(); err != nil {
		return err
	}
	crashpoint.Hit("monitor.replay.redone")
	m.rebuild()
	crashpoint.Hit("monitor.replay.rebuilt")
	b := takeWakes()
	defer m.wake(b) // deferred, because the code of a user's Waitable may end the goroutine
	m.rules.resolve(b)
	return nil
}

// redoLog completes a change that the dead holder of the queue lock had committed.
func (m *monitor) redoLog() error {
	n := m.words.redone.Load()
	if n > redoMost {
		return m.corrupt(fmt.Sprintf("redo log of %d entries", n))
	}
	for i := range n {
		e := &m.words.redo[i]
		w, err := m.redoTarget(arenakernel.Offset(e.at.Load()))
		if err != nil {
			return err
		}
		w.Store(e.to.Load())
	}
	m.words.redone.Store(0)
	return nil
}

// redoTarget returns the word at off. A redo log may only name words of its own object. For any other offset
// redoTarget returns an error.
func (m *monitor) redoTarget(off arenakernel.Offset) (*atomic.Uint64, error) {
	if w := m.a.WordOfBody(m.object, off); w != nil {
		return w, nil
	}
	return nil, m.corrupt("redo log that names " + off.String())
}

func (m *monitor) corrupt(what string) error {
	return m.fail("monitor.replay", shmsync.ErrCorrupt, nil, "it has an impossible "+what)
}

// rebuild makes the queues anew from the wait nodes. It also makes the change of state for each resolved wait whose
// granter died before that change.
func (m *monitor) rebuild() {
	m.broken.Store(false)
	var all []wait
	m.a.EachNode(m.object.Offset, func(off arenakernel.Offset, n *arenakernel.Node) {
		all = append(all, wait{off, n})
	})
	slices.SortFunc(all, func(x, y wait) int {
		sx, sy := x.Stamp().Load(), y.Stamp().Load()
		switch {
		case sx < sy:
			return -1
		case sx > sy:
			return 1
		}
		return int(int64(x.off) - int64(y.off))
	})
	m.rules.clear()
	for _, w := range all {
		switch {
		case w.Load().Over() && w.Stamp().Load() != m.words.accounted.Load():
			m.rules.account(w)
		case m.waiting(w):
			m.rules.requeue(w)
		default:
			m.releaseNode(w)
		}
	}
	m.broken.Store(false) // if a queue is still broken, a peer is overwriting the nodes
}
