package arena

import (
	"fmt"
	"io/fs"
	"runtime"
	"syscall"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.delete.before_mark")
	_ = crashpoint.Register("arena.delete.marked")
	_ = crashpoint.Register("arena.delete.before_decide")
	_ = crashpoint.Register("arena.delete.decided")
	_ = crashpoint.Register("arena.delete.freeing")
	_ = crashpoint.Register("arena.delete.unlisted")
	_ = crashpoint.Register("arena.delete.nodes_freed")
)

// Delete removes the object of that name, and its name, for good. Where there is
// none the error Is [fs.ErrNotExist]. While a living participant, this one
// included, has it open, it stays and the error Is [syscall.EBUSY].
func (a *Arena) Delete(name string) error {
	hash := hashName(name)
	a.handles.Lock()
	defer a.handles.Unlock()
	a.releaseDeferred()
	h, found, err := a.seek(name, hash, 0)
	if err != nil {
		return err
	}
	if !found {
		return a.failObject("arena.delete", name, fs.ErrNotExist, "no object has this name")
	}
	return a.erase(h.Offset)
}

// DeleteObject removes an object, as Delete does one that has a name.
func (a *Arena) DeleteObject(o Object) error {
	a.handles.Lock()
	defer a.handles.Unlock()
	a.releaseDeferred()
	if _, err := a.openAt(o.Offset); err != nil {
		return err
	}
	return a.erase(o.Offset)
}

// erase deletes an object that we have just opened for that, or closes it again.
// The caller holds handles.
func (c *core) erase(off Offset) error {
	ref := c.handles.refs[off]
	h := &ref.header
	if ref.count > 1 {
		c.forget(off)
		return c.busy(h, []Name{c.self})
	}
	// The guard takes over from the open bit, which would be in the way.
	c.guard(off)
	c.forget(off)
	err := c.decide(h)
	c.unguard()
	if err != nil {
		return err
	}
	crashpoint.Hit("arena.delete.decided")
	c.finishErase(h)
	return nil
}

// decide brings h from committed to aborted unless somebody has it open. Others
// that open it for a moment are waited for a little.
//
//	opener                            deleter
//	open bit := 1                     phase: committed -> deleting
//	phase is committed: opened        an open bit is set: -> committed, busy
//	phase is deleting: -> committed   no open bit is set: deleting -> aborted
//	phase is aborted: not there
//
// Each writes before it reads, so either the deleter sees the bit or the opener
// sees the phase; and then one CAS of the phase decides.
func (c *core) decide(h *header) error {
	ours := makeObject(objectDeleting, c.self)
	var who []Name
	crashpoint.Hit("arena.delete.before_mark")
	for try := range claimTries * patience {
		s := h.load()
		switch {
		case !s.legal():
			return c.corrupt(h.Offset, "phase")
		case !s.there():
			return c.failObject("arena.delete", h.Object.String(), fs.ErrNotExist, "somebody else has deleted it")
		case s.phase() == objectDeleting && try < patience && c.current(s.name()):
			runtime.Gosched()
			continue
		case !h.swap(s, ours):
			continue
		}
		crashpoint.Hit("arena.delete.marked")
		who = c.openers(h)
		crashpoint.Hit("arena.delete.before_decide")
		if len(who) == 0 {
			// lin: the object is gone from here on.
			// sync(arena.open): acquire
			if h.swap(ours, makeObject(objectAborted, c.self)) {
				return nil
			}
			continue
		}
		h.swap(ours, makeObject(objectCommitted, 0))
		if try >= patience {
			break
		}
		runtime.Gosched()
	}
	return c.busy(h, who)
}

func (c *core) busy(h *header, who []Name) error {
	return c.failObject("arena.delete", h.Object.String(), syscall.EBUSY, fmt.Sprintf("participants %v have it open", who))
}

// finishErase gives back what is left of an object whose deletion is decided.
func (c *core) finishErase(h *header) {
	freeing := makeBlock(blockFreeing, c.self)
	if !h.block.swap(makeBlock(blockObject, 0), freeing) {
		return
	}
	crashpoint.Hit("arena.delete.freeing")
	if h.Name != "" {
		c.unlist(h.Offset, h.hash)
	}
	crashpoint.Hit("arena.delete.unlisted")
	c.releaseUnseen(h.block, freeing)
}

// settleDelete ends what dead had begun with the object in b: a deletion that
// was decided is done, another cancelled. The caller is the undertaker of dead.
func (c *core) settleDelete(b block, dead Name) {
	c.guard(b.off)
	defer c.unguard()
	if now, ok := c.locate(b.off); !ok || now != b || b.load().kind() != blockObject {
		return
	}
	state := c.u32(b.off + objState)
	s := objectWord(state.Load())
	if s.name() != dead || !s.legal() {
		return
	}
	switch s.phase() {
	case objectDeleting:
		state.CompareAndSwap(uint32(s), uint32(makeObject(objectCommitted, 0)))
	case objectAborted:
		h, err := c.readHeader(b)
		if err != nil {
			return
		}
		c.unguard()
		c.finishErase(&h)
	}
}

// openAt opens the object at off. The caller holds handles.
func (c *core) openAt(off Offset) (header, error) {
	c.guard(off)
	defer c.unguard()
	h, err := c.headerAt(off)
	if err != nil {
		return h, err
	}
	if there, err := c.adopt(&h); err != nil || there {
		return h, err
	}
	return h, c.noObject(off)
}

// headerAt reads the header of the object at off, which the caller guards.
func (c *core) headerAt(off Offset) (header, error) {
	// sync(arena.publish): acquire
	if b, ok := c.locate(off); ok && b.load() == makeBlock(blockObject, 0) {
		// The slab may have been taken back and made anew between the two
		// looks; from now on it cannot.
		if now, ok := c.locate(off); ok && now == b {
			return c.readHeader(b)
		}
	}
	return header{}, c.noObject(off)
}

func (c *core) noObject(off Offset) error {
	return c.failObject("arena.object", off.String(), shmsync.ErrIncompatible, "there is no object at that offset")
}
