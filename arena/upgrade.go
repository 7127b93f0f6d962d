package arena

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Stored is a value that an earlier version of the program has left. [As] copies it into a variable.
type Stored = arenakernel.Stored

// As returns a copy of a stored value as a T. If the value does not have the layout of T, the error
// Is [shmsync.ErrIncompatible]. So a migration can try one earlier type after the other.
func As[T any](old Stored) (*T, error) { return arenakernel.StoredAs[T](old) }

// FieldChange describes a field that differs between a stored value and a type, or that only one of
// them has.
type FieldChange struct {
	Field string // the field and its path, such as Last.Day; "" if the value or the type is no struct
	Old   string // kind and place in the stored value, such as "int64 at 8"; "" if the field is new
	New   string // kind and place in the type; "" if the field is gone
}

// String says in words what differs, such as "Misses is new: uint64 at 8".
func (c FieldChange) String() string {
	field := c.Field
	if field == "" {
		field = "the value"
	}
	switch {
	case c.Old == "":
		return field + " is new: " + c.New
	case c.New == "":
		return field + " is gone: " + c.Old
	}
	return field + " was " + c.Old + " and is " + c.New
}

// Changes lists the fields in which a stored value differs from T. The fields of T come first, in their
// order, and then the fields that only the value has. A field that differs only in its name is not
// listed.
//
// A C program or an older release may have made the value without a description of its type. Then the
// error Is [shmsync.ErrNotSupported].
func Changes[T any](old Stored) ([]FieldChange, error) {
	changes, err := arenakernel.StoredChanges[T](old)
	all := make([]FieldChange, len(changes))
	for i, c := range changes {
		all[i] = FieldChange{Field: c.Path, Old: c.Old, New: c.New}
	}
	return all, err
}

// Upgrade converts the Value of that name to a T, if it has another type. It calls migrate, which fills
// in v, a zero T, from the old value. If migrate returns an error or panics, the old value stays as it
// is. If there is no value of that name, or if the value is already a T, Upgrade does nothing.
//
// Call Upgrade only in [Options.OnFirst], because no other process may have the value open. Elsewhere
// it panics. Every process of the new version calls Upgrade in its OnFirst, and afterwards opens the
// value by [Value]. If this process dies during the call, the next Upgrade begins again or completes
// the work. It may call migrate again for the same old value.
//
// If another process has created a value of that name after such a death, there are two contents:
// those of the new value, and those that the interrupted upgrade has left. Then the error Is
// [shmsync.ErrIncompatible], and says how to drop one of the two. The error also Is ErrIncompatible
// if the interrupted upgrade makes an object whose kind this program does not know.
//
// If the value is open in this process, the error Is [syscall.EBUSY]. A Value that OnFirst has opened
// stays open, so call Upgrade before Value.
func Upgrade[T any](a *Arena, name string, migrate func(old Stored, v *T) error) error {
	return arenakernel.UpgradeValue(a.kernel(), name, migrate)
}

// replaceTries limits how often Replace tries. It tries again if another process makes a new object of
// that name after Replace has deleted the old one.
const replaceTries = 1000

// Replace calls open, which opens the object of that name. The error of open Is
// [shmsync.ErrIncompatible] if the object has another type or other parameters. In this case, if no
// process has the object open, Replace deletes the object and calls open again. The contents of the
// object are lost. If a process has the object open, the error Is ErrIncompatible and [syscall.EBUSY],
// and names the process.
//
// The function open may also refuse an object, for example a Queue that was shut down. To refuse it,
// the function closes the object and returns an error that Is ErrIncompatible.
func Replace[H any](a *Arena, name string, open func() (H, error)) (h H, err error) {
	for range replaceTries {
		h, err = open()
		if !errors.Is(err, shmsync.ErrIncompatible) {
			return h, err
		}
		if kept := a.Delete(name); kept != nil && !errors.Is(kept, fs.ErrNotExist) {
			return h, fmt.Errorf("%w; it cannot be replaced: %w", err, kept)
		}
	}
	return h, err
}
