package arenakernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/typetext"
)

var (
	_ = crashpoint.Register("arena.upgrade.built")
	_ = crashpoint.Register("arena.upgrade.deleted")
	_ = crashpoint.Register("arena.upgrade.made")
)

// An upgrade gives a named object another layout. It runs in OnFirst, so no other process has the
// object open, and no other process opens it meanwhile. A *successor*, an object with a name of its
// own, holds the new body:
//
//	object  successor              meaning                                          the next upgrade
//	old     none                   nothing was done                                 begins
//	old     made from this object  the successor is complete, but the old object    deletes the successor, and begins
//	                               has the valid data
//	none    any                    the old object was deleted, so the successor     makes the new object from the
//	                               has the valid data                               successor
//	new     with the same bytes    the upgrade is done                              deletes the successor
//	other   made from another      a program has made the object again              fails: object and successor have
//	        object                                                                  different data
//
// crash: each row is a state that a death can leave, and says what the next process does.
//
// Only [Arena.UpgradeObject] deletes an object before its successor. [Arena.Delete] deletes the
// successor first, and then the object. So a death between these two deletions leaves the old
// object without a successor, as if no upgrade had begun.

// successorSuffix is appended to the name of an object to name its successor, the object that holds
// the new body during an upgrade.
const successorSuffix = " (upgrade)"

// successorTrailer is the length of the bytes after the new body in a successor. These are the offset
// and the creation time of the old object, 8 bytes each, and the kind and the version of the new
// object, 4 bytes each.
const successorTrailer = 24

// UpgradeObject gives the object with the name in spec the kind, version, size and layout of spec.
// It does nothing if there is no such object, or if the object already has this kind, version, size
// and layout. The function migrate gets the old object, which is open during the call, and returns
// a function that fills in the new body. If migrate returns an error, the old object stays
// unchanged.
//
// Preconditions: this process runs OnFirst of this arena; otherwise UpgradeObject panics.
func (a *Arena) UpgradeObject(spec ObjectSpec, migrate func(old Object) (fill func(body []byte), err error)) error {
	if err := a.use("arena.upgrade"); err != nil {
		return err
	}
	if w := a.epochWord(); w.phase() != epochClaimed || w.claimant() != a.self {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": an upgrade of " + strconv.Quote(spec.Name) +
			" outside of OnFirst: other processes could have the object open")
	}
	next := spec.Name + successorSuffix
	if spec.Name == "" || len(next) > maxObjectName {
		return a.failObject("arena.upgrade", spec.Name, fs.ErrInvalid,
			fmt.Sprintf("an object that is to be upgraded has a name of 1 to %d bytes", maxObjectName-len(successorSuffix)))
	}
	if err := a.finishUpgrade(spec.Name, next); err != nil {
		return err
	}
	h, created, err := a.openExisting(spec.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && a.compatible(&h, spec) == nil {
		if err == nil {
			a.CloseObject(h.Object)
		}
		return nil
	}
	if err != nil {
		return err
	}
	fill, err := a.migrated(h.Object, migrate)
	if err != nil {
		return err
	}
	if err := a.buildSuccessor(spec, next, h.Object, created, fill); err != nil {
		return err
	}
	crashpoint.Hit("arena.upgrade.built")
	if err := a.deleteAlone(spec.Name); err != nil { // the deletion fails if this process has the object open
		return errors.Join(err, a.deleteAlone(next))
	}
	crashpoint.Hit("arena.upgrade.deleted")
	return a.finishUpgrade(spec.Name, next)
}

// migrated calls the function migrate with the old object. It then closes the old object, even if
// migrate panics.
func (a *Arena) migrated(old Object, migrate func(old Object) (func(body []byte), error)) (func(body []byte), error) {
	defer a.CloseObject(old)
	return migrate(old)
}

// openExisting opens the object of that name and of any kind, and also returns its creation time.
func (a *Arena) openExisting(name string) (h header, created uint64, err error) {
	h, found, err := a.openNamed(name, hashName(name))
	if err == nil && !found {
		err = fs.ErrNotExist
	}
	if err != nil {
		return h, 0, err
	}
	return h, a.u64(h.Offset + objCreated).Load(), nil
}

// buildSuccessor makes the successor of the object old, that is, the object that holds its new body
// during the upgrade. No process can find the successor before it is complete.
func (a *Arena) buildSuccessor(spec ObjectSpec, next string, old Object, created uint64, fill func(body []byte)) error {
	o, made, err := a.OpenObject(ObjectSpec{
		Kind: KindBlock, Version: 1, Name: next, Size: spec.Size + successorTrailer, Layout: spec.Layout, Type: spec.Type,
		Init: func(body []byte) {
			fill(body[:spec.Size:spec.Size])
			t := body[spec.Size:]
			binary.LittleEndian.PutUint64(t, uint64(old.Offset))
			binary.LittleEndian.PutUint64(t[8:], created)
			binary.LittleEndian.PutUint32(t[16:], uint32(spec.Kind))
			binary.LittleEndian.PutUint32(t[20:], uint32(spec.Version))
		},
	})
	if err != nil {
		return err
	}
	a.CloseObject(o)
	if !made {
		return a.failObject("arena.upgrade", next, shmsync.ErrCorrupt, "a peer has made the successor of an object that this process upgrades")
	}
	return nil
}

// finishUpgrade finishes the upgrade of the object with the given name, if an earlier process has
// begun an upgrade and not finished it.
func (a *Arena) finishUpgrade(name, next string) error {
	s, _, err := a.openExisting(next)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	spec, from, created, err := a.successorOf(name, &s)
	if err != nil {
		a.CloseObject(s.Object)
		return err
	}
	h, when, err := a.openExisting(name)
	switch {
	case err == nil:
		n := a.readSuccessor(&s)
		redundant := h.Offset == from && when == created || a.becameOf(&h, &s, n)
		a.CloseObject(s.Object)
		a.CloseObject(h.Object)
		if !redundant {
			return a.failObject("arena.upgrade", name, shmsync.ErrIncompatible, fmt.Sprintf(
				"an upgrade of it was interrupted, and then a program that did not go on with the upgrade made it again, or changed it; "+
					"%q has the data of before: Delete of that name drops these data, DeleteObject drops those of that program, "+
					"and Delete of %q drops both", next, name))
		}
		return a.deleteAlone(next)
	case !errors.Is(err, fs.ErrNotExist):
		a.CloseObject(s.Object)
		return err
	}
	// The successor does not change any more, so the function spec.Init may copy its body.
	o, _, err := a.OpenObject(spec)
	a.CloseObject(s.Object)
	if err != nil {
		return err
	}
	a.CloseObject(o)
	crashpoint.Hit("arena.upgrade.made")
	return a.deleteAlone(next)
}

// successor is the contents of the object that holds the new body of an object that is being
// upgraded.
type successor struct {
	body    []byte // body of the new object
	kind    Kind   // kind of the new object
	version uint32
	from    Offset // offset of the old object
	created uint64 // creation time of the old object
}

// readSuccessor reads the contents of the successor s, which holds the new body of an object that
// is being upgraded. The caller has checked s with isSuccessor.
func (a *Arena) readSuccessor(s *header) successor {
	body := a.slice(s.Body, s.Size)
	size := s.Size - successorTrailer
	t := body[size:]
	return successor{
		body: body[:size:size], from: Offset(binary.LittleEndian.Uint64(t)), created: binary.LittleEndian.Uint64(t[8:]),
		kind: Kind(binary.LittleEndian.Uint32(t[16:])), version: binary.LittleEndian.Uint32(t[20:]),
	}
}

// becameOf reports whether h is the object that the upgrade has made from the successor s, whose
// contents are n. It also compares the bytes of the two bodies. The bytes differ if a program of
// the new layout has opened the object without an upgrade, because this Open has made an empty
// object of the same kind and size. No participant uses h.
func (a *Arena) becameOf(h, s *header, n successor) bool {
	return h.Kind == n.kind && uint32(h.Version) == n.version && h.Layout == s.Layout && h.Size == uint64(len(n.body)) &&
		bytes.Equal(a.slice(h.Body, h.Size), n.body)
}

// deleteSuccessor deletes the successor that an interrupted upgrade of the object of that name has left. It is
// called before the object itself is deleted. The second parameter is an offset or 0. If it is not 0,
// deleteSuccessor deletes the successor only if the successor belongs to the object at this offset.
//
// A successor that does not belong to the object has data of its own. deleteSuccessor does not
// delete such a successor while a process has the object open, because then the object cannot be
// deleted either.
func (a *Arena) deleteSuccessor(name string, of Offset) (deleted bool, err error) {
	next := name + successorSuffix
	if name == "" || len(next) > maxObjectName || a.u32(hdrSuccessors).Load() == 0 {
		return false, nil
	}
	for try := 0; ; try++ {
		s, made, err := a.openExisting(next)
		if err != nil {
			return false, ignoreMissing(err)
		}
		if !s.isSuccessor() {
			a.CloseObject(s.Object)
			return false, nil
		}
		redundant, busy, err := a.isRedundant(name, &s, of)
		a.CloseObject(s.Object)
		switch {
		case err != nil, of != 0 && !redundant:
			return false, err
		case redundant, busy == nil:
			err := a.deleteCreated(&s, made)
			return err == nil, ignoreMissing(err)
		case try >= timeout:
			return false, busy
		}
		runtime.Gosched() // a participant may have the object open for a moment
	}
}

// isRedundant reports whether the object of that name has the same data as its successor s, which an
// interrupted upgrade has left. The second result is an error if the object cannot be deleted now, and
// otherwise nil. The last parameter is an offset or 0. If it is not 0, isRedundant returns true only for an
// object at this offset.
func (a *Arena) isRedundant(name string, s *header, of Offset) (redundant bool, busy, err error) {
	h, created, err := a.openExisting(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	defer a.CloseObject(h.Object)
	n := a.readSuccessor(s)
	busy = a.checkUnused(&h)
	redundant = h.Offset == n.from && created == n.created || busy == nil && a.becameOf(&h, s, n)
	return redundant && (of == 0 || h.Offset == of), busy, nil
}

// deleteCreated deletes the object h if h was created at the given time. If that object no longer
// exists, the error Is [fs.ErrNotExist], even if another object has the same name.
func (a *Arena) deleteCreated(h *header, created uint64) error {
	a.handles.Lock()
	defer a.handles.Unlock()
	a.releaseDeferred()
	a.lowerReachIfDue()
	now, err := a.openAt(h.Offset)
	if errors.Is(err, shmsync.ErrIncompatible) {
		return fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	if now.Name != h.Name || a.u64(h.Offset+objCreated).Load() != created {
		a.forget(h.Offset)
		return fs.ErrNotExist
	}
	return a.erase(h.Offset)
}

// ignoreMissing returns err, or nil if err means that another process has already deleted the object.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkUnused returns the error that a deletion of the object h would return now, or nil. The
// caller has opened h by openExisting.
func (a *Arena) checkUnused(h *header) error {
	who := slices.DeleteFunc(a.openers(h), func(n ParticipantID) bool { return n == a.self })
	a.handles.Lock()
	if a.handles.refs[h.Offset].count > 1 {
		who = append(who, a.self)
	}
	a.handles.Unlock()
	if len(who) > 0 {
		return a.core.busy(h, a.openIn(who))
	}
	if holds := append(a.undoneFor(h), a.holders(h.Object)...); len(holds) > 0 {
		return a.core.busy(h, strings.Join(holds, ", "))
	}
	return nil
}

// successorOf reads the successor s, which an upgrade has made from an old object. It returns the
// ObjectSpec of the new object that the upgrade makes from s, and the offset and creation time of
// the old object.
func (a *Arena) successorOf(name string, s *header) (spec ObjectSpec, from Offset, created uint64, err error) {
	bad := func(err error, what string) error {
		return a.failObject("arena.upgrade", s.Name, err, what)
	}
	if !s.isSuccessor() {
		return spec, 0, 0, bad(shmsync.ErrCorrupt, fmt.Sprintf("it is %s of %d bytes, which is no successor of an object", KindPhrase(s.Kind), s.Size))
	}
	n := a.readSuccessor(s)
	kind, version := n.kind, n.version
	if !kind.hasLetters() || version == 0 || version > 1<<16-1 {
		return spec, 0, 0, bad(shmsync.ErrCorrupt, fmt.Sprintf("it says that it becomes %s of version %d", KindPhrase(kind), version))
	}
	if _, known := kindOps(kind, uint16(version)); !known {
		return spec, 0, 0, bad(shmsync.ErrIncompatible, fmt.Sprintf(
			"it becomes %s, a kind that this program does not know: import the package that defines it, such as prims", KindPhrase(kind)))
	}
	return ObjectSpec{
		Kind: kind, Version: uint16(version), Name: name, Size: uint64(len(n.body)), Layout: s.Layout, Type: a.typeText(s),
		Init: func(to []byte) { copy(to, n.body) },
	}, n.from, n.created, nil
}

// isSuccessor reports whether the object can be a successor, which holds the new body of an object
// that is being upgraded. A block that a program has made by [Arena.Block] has no layout, so it
// cannot be one.
func (h *header) isSuccessor() bool {
	return h.Kind == KindBlock && h.Layout != 0 && h.Size >= successorTrailer
}

// noteSuccessor stores 1 in a word of the arena's header, if an object like spec may be a
// successor, which an upgrade makes. While that word is 0, deletions do not search for a successor.
// The search for a name that does not exist is slow, because it has to pass many entries of the
// directory.
//
//	writers: the maker of an object that may be a successor, before another participant can find it
//	readers: participants that delete an object, which no participant upgrades meanwhile
//	order:   relaxed; the entry of the successor carries the edge
//	futex:   none
//	crash:   may be set needlessly, and stays set: deletions take longer
func (c *core) noteSuccessor(spec ObjectSpec) {
	if h := (header{Object: Object{Kind: spec.Kind, Layout: spec.Layout, Size: spec.Size}}); h.isSuccessor() {
		c.u32(hdrSuccessors).Store(1)
	}
}

// Stored is a value that an earlier version of a program has left. [StoredAs] copies it into a
// variable.
type Stored struct {
	a    *Arena
	off  Offset
	old  header // the header of the object
	name string
}

// StoredAt returns the Stored for the value at an offset of object o, which this process has open.
func StoredAt(a *Arena, o Object, off Offset) Stored {
	h, err := a.headerAt(o.Offset)
	if err != nil {
		h = header{Object: o} // without a description
	}
	return Stored{a: a, off: off, old: h, name: o.String()}
}

// StoredAs returns a copy of the value if the value has the layout of T. Otherwise the error Is
// [shmsync.ErrIncompatible].
func StoredAs[T any](s Stored) (*T, error) {
	l := layoutOf(reflect.TypeFor[T]())
	if l.err != nil {
		panic("shmsync: " + l.err.Error())
	}
	if what := s.a.differs(&s.old, l.fingerprint, l.text); what != "" {
		return nil, s.a.failObject("arena.as", s.name, shmsync.ErrIncompatible, fmt.Sprintf("opened as a %T: %s", *new(T), what))
	}
	p, err := TryAt[T](s.a, s.off)
	if err != nil {
		return nil, err
	}
	v := new(T)
	copyValue(v, p)
	return v, nil
}

// StoredChanges lists the fields in which a stored value differs from T.
func StoredChanges[T any](s Stored) ([]typetext.Change, error) {
	l := layoutOf(reflect.TypeFor[T]())
	if l.err != nil {
		panic("shmsync: " + l.err.Error())
	}
	was, err := typetext.Parse(s.a.typeText(&s.old))
	if err != nil {
		return nil, s.a.failObject("arena.changes", s.name, shmsync.ErrNotSupported, "it has no description of its type")
	}
	is, err := typetext.Parse(l.text)
	if err != nil {
		return nil, s.a.failObject("arena.changes", s.name, shmsync.ErrNotSupported, fmt.Sprintf("a %T has too many fields to be described", *new(T)))
	}
	return typetext.Changes(was, is), nil
}

// UpgradeValue converts the Value of that name to a T. See [arena.Upgrade].
func UpgradeValue[T any](a *Arena, name string, migrate func(old Stored, v *T) error) error {
	spec := valueSpec[T](name)
	return a.UpgradeObject(spec, func(old Object) (func([]byte), error) {
		if old.Kind != KindValue {
			return nil, a.failObject("arena.upgrade", name, shmsync.ErrIncompatible, fmt.Sprintf("it is %s, not a Value", KindPhrase(old.Kind)))
		}
		v := new(T)
		if err := migrate(StoredAt(a, old, old.Body), v); err != nil {
			return nil, err
		}
		return func(body []byte) { putValue(body, v) }, nil
	})
}
