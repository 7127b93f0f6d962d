package arenakernel

import (
	"errors"
	"io/fs"
	"runtime"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.object.before_place")
	_ = crashpoint.Register("arena.object.placed")
	_ = crashpoint.Register("arena.object.withdrawing")
	_ = crashpoint.Register("arena.object.before_commit")
	_ = crashpoint.Register("arena.object.committed")
	_ = crashpoint.Register("arena.object.before_publish")
	_ = crashpoint.Register("arena.object.opened")
)

// ObjectSpec says which object to open, and how to make it.
type ObjectSpec struct {
	Kind    Kind   // the kind of object
	Version uint16 // layout version of the kind
	Name    string // 1 to 255 bytes of UTF-8; empty for a new object without a name
	Size    uint64 // size of the body, up to MaxObject
	Layout  uint64 // fingerprint of the type in the body, if the kind uses one
	Type    string // description of the type, for messages and tools; see TypeTextOf
	AnySize bool   // an existing object of another size is accepted
	// Existing means that OpenObject creates no object. If the object does not exist, the error Is
	// [fs.ErrNotExist].
	Existing bool

	// Init fills in the body of a new object, whose bytes are zero before. A nil Init leaves them
	// zero. If another participant creates an object of this name first, the new object is
	// discarded although Init has run.
	Init func(body []byte)
}

var errOutvoted = errors.New("outvoted")

// OpenObject finds the object of that name or creates it. If several participants race to create it,
// one of them creates it and all of them open the same object. The object stays open in this process
// until CloseObject has been called as often as OpenObject.
//
// If the object has another kind, version, size or layout, the error Is [shmsync.ErrIncompatible].
// The error says what was found and what was asked for. The return of Init in the participant that
// created the object synchronizes before the return of every OpenObject that finds the object.
func (a *Arena) OpenObject(spec ObjectSpec) (o Object, created bool, err error) {
	if err := a.BeginCall("arena.open_object"); err != nil {
		return o, false, err
	}
	defer a.EndCall()
	if len(spec.Name) > maxObjectName || !utf8.ValidString(spec.Name) {
		return o, false, a.failObject("arena.open_object", spec.Name, fs.ErrInvalid, "a name is 1 to 255 bytes of UTF-8")
	}
	if spec.Size > MaxObject {
		return o, false, a.failObject("arena.open_object", spec.Name, shmsync.ErrNotSupported,
			"a body of "+strconv.FormatUint(spec.Size, 10)+" bytes; the most is "+strconv.FormatUint(MaxObject, 10))
	}
	if spec.Name == "" && spec.Existing {
		return o, false, a.failObject("arena.open_object", "", fs.ErrInvalid, "an anonymous object has no name to be found by")
	}
	if spec.Name == "" {
		o, err = a.createAnonymous(spec)
		return o, err == nil, err
	}
	hash := hashName(spec.Name)
	for range claimTries * timeout {
		h, found, err := a.openNamed(spec.Name, hash)
		if err == nil && !found && spec.Existing {
			err = a.failObject("arena.open_object", spec.Name, fs.ErrNotExist, "nobody has created an object of this name")
		}
		if err == nil && !found {
			h, found, err = a.createNamed(spec, hash)
			if err == nil && !found {
				return h.Object, true, nil
			}
		}
		switch {
		case err == errOutvoted:
			runtime.Gosched()
			continue
		case err != nil:
			return o, false, err
		}
		crashpoint.Hit("arena.object.opened")
		if err := a.compatible(&h, spec); err != nil {
			a.CloseObject(h.Object)
			return o, false, err
		}
		return h.Object, false, nil
	}
	return o, false, a.failObject("arena.open_object", spec.Name, shmsync.ErrCorrupt, "others keep making and taking away this name")
}

func (c *core) failObject(op, name string, err error, detail string) error {
	return &shmsync.Error{Op: op, Object: name, Err: err, Detail: detail + " (arena " + strconv.Quote(c.label) + ")"}
}

func (c *core) openNamed(name string, hash uint64) (header, bool, error) {
	c.handles.Lock()
	defer c.handles.Unlock()
	c.lowerReachIfDue()
	return c.seek(name, hash, 0)
}

// build claims a block and makes a complete object in it. No peer can find the object yet. The open
// bit of this process is already set in the object.
func (c *core) build(spec ObjectSpec, hash uint64, state objectWord) (header, error) {
	open, nameOff, total := c.layOut(spec.Size, spec.Name, spec.Type)
	off, err := c.claim(total, 1)
	if err != nil {
		return header{}, err
	}
	c.noteSuccessor(spec)
	whole := false
	defer func() {
		if !whole { // Init may have panicked
			c.unclaim(off)
		}
	}()
	c.u32(off + objKind).Store(uint32(spec.Kind))
	c.u32(off + objVersion).Store(uint32(spec.Version) | uint32(len(spec.Name))<<16)
	c.u32(off + objNameOff).Store(uint32(nameOff))
	c.u64(off + objSize).Store(spec.Size)
	c.u64(off + objHash).Store(hash)
	c.u64(off + objCreated).Store(uint64(time.Now().UnixNano()))
	c.u32(off + objOpenOff).Store(uint32(open))
	c.u64(off + objLayout).Store(spec.Layout)
	c.u32(off + objTypeLen).Store(uint32(len(spec.Type)))
	copy(c.slice(off+Offset(nameOff), total-nameOff), spec.Name+spec.Type)
	if spec.Init != nil {
		spec.Init(c.slice(off+objectHeader, spec.Size))
	}
	b, ok := c.locate(off)
	if !ok {
		return header{}, c.meddled(off)
	}
	h, err := c.readHeader(b)
	if err != nil {
		return h, err
	}
	word, mask := c.openBit(&h, c.self.Slot())
	word.Or(mask)
	h.state.Store(uint32(state))
	whole = true
	return h, nil
}

func (c *core) createAnonymous(spec ObjectSpec) (Object, error) {
	h, err := c.build(spec, hashName(""), makeObject(objectCommitted, 0))
	if err != nil {
		return Object{}, err
	}
	c.handles.Lock()
	defer c.handles.Unlock()
	crashpoint.Hit("arena.object.before_publish")
	if err := c.publish(h.Offset, blockObject); err != nil {
		return Object{}, err
	}
	c.remember(&h, false)
	return h.Object, nil
}

// createNamed makes the object that spec describes. If another participant has made an object of that name
// meanwhile, createNamed opens the other object, and the second result is true. The error errOutvoted means
// that the caller has to search again.
func (c *core) createNamed(spec ObjectSpec, hash uint64) (h header, found bool, err error) {
	pending := makeObject(objectPending, c.self)
	mine, err := c.build(spec, hash, pending)
	if err != nil {
		return h, false, err
	}
	c.handles.Lock()
	defer c.handles.Unlock()
	c.releaseDeferred()
	crashpoint.Hit("arena.object.before_place")
	if !c.place(mine.Offset, hash) {
		c.withdraw(&mine)
		return h, false, c.failObject("arena.open_object", spec.Name, shmsync.ErrNoSpace,
			"all "+strconv.FormatUint(c.geo.dirCount, 10)+" names of the directory are in use")
	}
	crashpoint.Hit("arena.object.placed")
	theirs, found, err := c.seek(spec.Name, hash, mine.Offset)
	if found || err != nil {
		c.withdraw(&mine)
		return theirs, found, err
	}
	crashpoint.Hit("arena.object.before_commit")
	// lin: the object exists from here on.
	// sync(arena.commit): release
	if !mine.swap(pending, makeObject(objectCommitted, 0)) {
		c.withdraw(&mine)
		return h, false, errOutvoted
	}
	c.remember(&mine, false)
	crashpoint.Hit("arena.object.committed")
	// A process that has opened the object may already have published its block.
	if err := c.publish(mine.Offset, blockObject); err != nil && mine.block.load().kind() != blockObject {
		return mine, false, err
	}
	return mine, false, nil
}

// withdraw deletes a new object of this participant that has not been committed, because another
// object has got the name. Other participants may be reading the object at the same time.
func (c *core) withdraw(h *header) {
	h.swap(makeObject(objectPending, c.self), makeObject(objectAborted, c.self))
	c.unlist(h.Offset, h.hash)
	crashpoint.Hit("arena.object.withdrawing")
	c.releaseUnseen(h.block, makeBlock(blockClaimed, c.self))
}
