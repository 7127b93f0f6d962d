package arenakernel

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
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

// Delete removes the object of that name, and its name, for good. If there is no such object, the
// error Is [fs.ErrNotExist]. The object stays while living participants, including this one, have
// it open. It also stays while living participants hold the object, or a part of it, although they
// have closed their handles. In both cases, the error Is [syscall.EBUSY] and names those
// participants.
//
// An interrupted [Arena.UpgradeObject] may have left the contents of the object under another name.
// Delete removes these contents, too, even if there is no object of the name itself.
func (a *Arena) Delete(name string) error {
	if err := a.BeginCall("arena.delete"); err != nil {
		return err
	}
	defer a.EndCall()
	deleted, err := a.deleteSuccessor(name, 0)
	if err != nil {
		return err
	}
	if err := a.deleteAlone(name); !deleted || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// deleteAlone deletes the object of that name, as Delete does. It does not delete contents that an
// interrupted upgrade may have left.
func (a *Arena) deleteAlone(name string) error {
	hash := hashName(name)
	a.handles.Lock()
	defer a.handles.Unlock()
	a.releaseDeferred()
	a.lowerReachIfDue()
	h, found, err := a.seek(name, hash, 0)
	if err != nil {
		return err
	}
	if !found {
		return a.failObject("arena.delete", name, fs.ErrNotExist, "no object has this name")
	}
	return a.erase(h.Offset)
}

// DeleteObject removes an object as Delete does. The object need not have a name. If the object was deleted,
// another object may be at its offset now. DeleteObject removes the other object only if its name, kind, type
// and size are those of o. If o has only an offset, DeleteObject removes whatever object is there. An
// interrupted upgrade may have left the contents of an earlier object of the same name. DeleteObject does not
// remove these contents, and the next upgrade finds them.
func (a *Arena) DeleteObject(o Object) error {
	if err := a.BeginCall("arena.delete"); err != nil {
		return err
	}
	defer a.EndCall()
	if o.Name != "" {
		if _, err := a.deleteSuccessor(o.Name, o.Offset); err != nil {
			return err
		}
	}
	a.handles.Lock()
	defer a.handles.Unlock()
	a.releaseDeferred()
	h, err := a.openAt(o.Offset)
	if err != nil {
		return err
	}
	if h.Object != o && o != (Object{Offset: o.Offset}) {
		a.forget(o.Offset)
		return a.failObject("arena.delete", o.String(), shmsync.ErrIncompatible, "it was deleted, and "+KindPhrase(h.Kind)+" is at its offset now")
	}
	return a.erase(o.Offset)
}

// erase deletes an object. The caller has just opened the object for that purpose, and has locked
// c.handles. Whether erase succeeds or fails, the object is not open for the caller any more.
func (a *Arena) erase(off Offset) error {
	c := &a.core
	ref := c.handles.refs[off]
	h := &ref.header
	if ref.count > 1 {
		a.forget(off)
		return c.busy(h, a.openIn([]ParticipantID{a.self}))
	}
	// From here on the guard protects the object from being freed. The open bit cannot do that,
	// because it would prevent the deletion.
	c.guard(off)
	a.forget(off)
	err := a.decide(h, func() []string { return append(a.undoneFor(h), a.holders(h.Object)...) })
	c.unguard()
	if err != nil {
		return err
	}
	crashpoint.Hit("arena.delete.decided")
	c.finishErase(h)
	return nil
}

// decide makes the deletion of the object h final, unless a participant has the object open. It changes the
// state of h from committed to deleting, and then from deleting to aborted. Some participants have an object
// open only for a moment, so decide waits a little for them.
//
//	opener                            deleter
//	open bit := 1                     phase: committed -> deleting
//	phase is committed: opened        an open bit is set: -> committed, busy
//	phase is deleting: -> committed   no open bit is set: deleting -> aborted
//	phase is aborted: no such object
//
// Both the opener and the deleter write before they read. So the deleter sees the open bit, or the
// opener sees the phase, or both. Then one CAS of the phase decides between them.
//
// A participant must open the object before it can hold it. So if no open bit is set, the remaining
// holds belong to handles that were closed. The function holders names these holds. The object stays
// for them, too.
func (a *Arena) decide(h *header, holders func() []string) error {
	ours := makeObject(objectDeleting, a.self)
	var why string
	crashpoint.Hit("arena.delete.before_mark")
	for try := range claimTries * timeout {
		s := h.load()
		switch {
		case !s.legal():
			return a.corrupt(h.Offset, "phase")
		case !s.there():
			return a.failObject("arena.delete", h.Object.String(), fs.ErrNotExist, "somebody else has deleted it")
		case s.phase() == objectDeleting && try < timeout && a.current(s.participant()):
			runtime.Gosched()
			continue
		case !h.swap(s, ours):
			continue
		}
		crashpoint.Hit("arena.delete.marked")
		who := a.openers(h)
		crashpoint.Hit("arena.delete.before_decide")
		if len(who) == 0 {
			if holds := holders(); len(holds) > 0 {
				h.swap(ours, makeObject(objectCommitted, 0))
				return a.core.busy(h, strings.Join(holds, ", "))
			}
			// lin: the object is gone from here on.
			// sync(arena.open): acquire
			if h.swap(ours, makeObject(objectAborted, a.self)) {
				return nil
			}
			continue
		}
		why = a.openIn(who)
		h.swap(ours, makeObject(objectCommitted, 0))
		if try >= timeout {
			break
		}
		runtime.Gosched()
	}
	return a.core.busy(h, why)
}

func (c *core) busy(h *header, why string) error {
	return c.failObject("arena.delete", h.Object.String(), syscall.EBUSY, why)
}

// holders returns a text for each living participant that holds an object or a part of it, if this process
// knows the kind of the object. If the participant only owes something, such as an arrival or a result, holders
// leaves the hold out: only participants that have the object open wait for what it owes.
func (a *Arena) holders(o Object) (who []string) {
	ops, ok := opsOf(o)
	if !ok || ops.Inspect == nil {
		return nil
	}
	// No participant has the object open, so none can wait for it. With the empty map of waits, Inspect does not
	// search for waits.
	look := &Arena{membership: a.membership, waits: map[Offset][]Wait{}}
	for _, h := range ops.Inspect(look, o).Holds {
		switch h.Mode {
		case HoldReserved, HoldOwes, HoldParty, HoldProducer:
			continue
		}
		if a.current(h.Owner) {
			who = append(who, fmt.Sprintf("%s holds it (%s)", a.called([]ParticipantID{h.Owner}), h.Mode))
		}
	}
	return who
}

// finishErase frees the memory of an object whose deletion has become final.
func (c *core) finishErase(h *header) {
	freeing := makeBlock(blockFreeing, c.self)
	c.touch(h.block.chunk)
	c.publishRecords(h.Offset)
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

// resolveDelete completes or cancels the deletion of the object in b that a dead participant had
// begun. It completes a deletion that had become final, and cancels any other. The caller is the
// reaper of that participant.
func (c *core) resolveDelete(b block, dead ParticipantID) {
	c.guard(b.off)
	defer c.unguard()
	if now, ok := c.locate(b.off); !ok || now != b || b.load().kind() != blockObject {
		return
	}
	state := c.u32(b.off + objState)
	s := objectWord(state.Load())
	if s.participant() != dead || !s.legal() {
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

// openAt opens the object at off. The caller has locked c.handles.
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

// headerAt reads the header of the object at off. The caller guards the object, so that its block
// is not reused.
func (c *core) headerAt(off Offset) (header, error) {
	// sync(arena.publish): acquire
	if b, ok := c.locate(off); ok && b.load() == makeBlock(blockObject, 0) {
		// Between the first lookup and readHeader, the chunk with the block may have been freed and
		// reused. The guard is set, so after this second lookup the block cannot be reused any
		// more.
		if now, ok := c.locate(off); ok && now == b {
			return c.readHeader(b)
		}
	}
	return header{}, c.noObject(off)
}

func (c *core) noObject(off Offset) error {
	return c.failObject("arena.object", off.String(), shmsync.ErrIncompatible, "there is no object at that offset")
}
