package arenakernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.upgrade.built")
	_ = crashpoint.Register("arena.upgrade.deleted")
	_ = crashpoint.Register("arena.upgrade.made")
)

// An upgrade gives a named object another layout. It is a step of OnFirst, so no other process has
// the object open or opens it. A *successor* holds the new body, under its own name:
//
//	object  successor              meaning                                          the next upgrade
//	old     none                   nothing was done                                 begins
//	old     made from that old     the successor is whole; the old one decides      deletes the successor, and begins
//	none    any                    the deletion was the decision: the successor     makes the object of the successor
//	                               decides
//	new     of the layout of new   the upgrade is done                              deletes the successor
//	old     made from another old  an older program has made the object again       fails: both have data
//
// crash: each row is a state that a death can leave, and says what the next process does.

// successorSuffix is appended to the name of an object to name its successor.
const successorSuffix = " (upgrade)"

// successorTrailer is what follows the new body in a successor: the offset and the time of the
// creation of the old object, 8 bytes each; kind and version of the new object, 4 bytes each.
const successorTrailer = 24

// UpgradeObject gives the object that spec names the kind, version, size and layout of spec. It does
// nothing if there is no such object, or if the object has them already. migrate gets the old object,
// which is open during the call, and returns a function that fills in the new body. After an error of
// migrate the old object is unchanged.
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
	if err := a.Delete(spec.Name); err != nil { // this process may have it open
		return errors.Join(err, a.Delete(next))
	}
	crashpoint.Hit("arena.upgrade.deleted")
	return a.finishUpgrade(spec.Name, next)
}

// migrated calls migrate. It closes the old object afterwards, even after a panic.
func (a *Arena) migrated(old Object, migrate func(old Object) (func(body []byte), error)) (func(body []byte), error) {
	defer a.CloseObject(old)
	return migrate(old)
}

// openExisting opens the object of that name, of whatever kind, and returns the time of its
// creation.
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

// buildSuccessor makes the successor of old. It becomes visible only when it is whole.
func (a *Arena) buildSuccessor(spec ObjectSpec, next string, old Object, created uint64, fill func(body []byte)) error {
	o, made, err := a.OpenObject(ObjectSpec{
		Kind: KindBlock, Version: 1, Name: next, Size: spec.Size + successorTrailer, Layout: spec.Layout,
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

// finishUpgrade finishes an upgrade of the object that an earlier process has begun, if there is
// one.
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
		a.CloseObject(s.Object)
		a.CloseObject(h.Object)
		undecided := h.Offset == from && when == created
		if !undecided && a.compatible(&h, spec) != nil {
			return a.failObject("arena.upgrade", name, shmsync.ErrIncompatible, fmt.Sprintf(
				"an upgrade of it was interrupted, and then an older program made it again; %q has the data of before: delete the one that is to go", next))
		}
		return a.Delete(next)
	case !errors.Is(err, fs.ErrNotExist):
		a.CloseObject(s.Object)
		return err
	}
	// The successor does not change any more, so Init may read it.
	o, _, err := a.OpenObject(spec)
	a.CloseObject(s.Object)
	if err != nil {
		return err
	}
	a.CloseObject(o)
	crashpoint.Hit("arena.upgrade.made")
	return a.Delete(next)
}

// successorOf says which object a successor will become, and from which object it was made.
func (a *Arena) successorOf(name string, s *header) (spec ObjectSpec, from Offset, created uint64, err error) {
	bad := func(what string) error {
		return a.failObject("arena.upgrade", s.Name, shmsync.ErrCorrupt, what)
	}
	if s.Kind != KindBlock || s.Size < successorTrailer {
		return spec, 0, 0, bad(fmt.Sprintf("it is a %v of %d bytes, which is no successor of an object", s.Kind, s.Size))
	}
	body := a.slice(s.Body, s.Size)
	size := s.Size - successorTrailer
	t := body[size:]
	kind, version := Kind(binary.LittleEndian.Uint32(t[16:])), binary.LittleEndian.Uint32(t[20:])
	if _, known := kindOps(kind); !known || version == 0 || version > 1<<16-1 {
		return spec, 0, 0, bad(fmt.Sprintf("it says that it becomes a %v of version %d", kind, version))
	}
	return ObjectSpec{
		Kind: kind, Version: uint16(version), Name: name, Size: size, Layout: s.Layout,
		Init: func(to []byte) { copy(to, body[:size]) },
	}, Offset(binary.LittleEndian.Uint64(t)), binary.LittleEndian.Uint64(t[8:]), nil
}

// Stored is a value that an earlier version of a program has left; see [StoredAs].
type Stored struct {
	a      *Arena
	off    Offset
	layout uint64
	name   string
}

// StoredAt returns the Stored for the value of that layout at an offset of object o.
func StoredAt(a *Arena, o Object, off Offset) Stored {
	return Stored{a: a, off: off, layout: o.Layout, name: o.String()}
}

// StoredAs returns a copy of the value if T has its layout. Otherwise the error Is
// [shmsync.ErrIncompatible].
func StoredAs[T any](s Stored) (*T, error) {
	layout, err := LayoutOf[T]()
	if err != nil {
		panic("shmsync: " + err.Error())
	}
	if layout != s.layout {
		return nil, s.a.failObject("arena.as", s.name, shmsync.ErrIncompatible,
			fmt.Sprintf("its value has fingerprint %#x, and %T has %#x", s.layout, *new(T), layout))
	}
	p, err := TryAt[T](s.a, s.off)
	if err != nil {
		return nil, err
	}
	v := new(T)
	copyValue(v, p)
	return v, nil
}

// UpgradeValue makes the Value of that name a T. See [arena.Upgrade].
func UpgradeValue[T any](a *Arena, name string, migrate func(old Stored, v *T) error) error {
	spec := valueSpec[T](name)
	return a.UpgradeObject(spec, func(old Object) (func([]byte), error) {
		if old.Kind != KindValue {
			return nil, a.failObject("arena.upgrade", name, shmsync.ErrIncompatible, fmt.Sprintf("it is a %v, not a Value", old.Kind))
		}
		v := new(T)
		if err := migrate(StoredAt(a, old, old.Body), v); err != nil {
			return nil, err
		}
		return func(body []byte) { putValue(body, v) }, nil
	})
}
