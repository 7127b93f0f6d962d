package arena

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Stored is a value that an earlier version of the program has left; [As] copies it into a variable
// of a type.
type Stored = arenakernel.Stored

// As returns a copy of a stored value as a T. If the value was not stored as a T, the error Is
// [shmsync.ErrIncompatible], so a migration can try one earlier type after the other.
func As[T any](old Stored) (*T, error) { return arenakernel.StoredAs[T](old) }

// FieldChange describes a field that only one of a stored value and a type has, or that differs
// between them.
type FieldChange struct {
	Field string // with its path, such as Last.Day; "" if one of them is no struct
	Old   string // kind and place in the stored value, such as "int64 at 8"; "" if the field is new
	New   string // kind and place in the type; "" if the field is gone
}

// Changes lists the fields in which a stored value differs from T: first those of T, in their
// order, then those that only the value has. A field that differs only in its name is not listed.
//
// If the value has no description of its type, because a C program or an older release made it
// without one, the error Is [shmsync.ErrNotSupported].
func Changes[T any](old Stored) ([]FieldChange, error) {
	changes, err := arenakernel.StoredChanges[T](old)
	all := make([]FieldChange, len(changes))
	for i, c := range changes {
		all[i] = FieldChange{Field: c.Path, Old: c.Old, New: c.New}
	}
	return all, err
}

// Upgrade converts the Value of that name to a T, if it has another type. It calls migrate, which
// fills in v, a zero T, from the old value. If migrate returns an error or panics, the old value
// stays as it is. If there is no value of that name, or if it is a T already, nothing happens.
//
// Call Upgrade only in [Options.OnFirst], because no other process may have the value open;
// elsewhere it panics. Every process of the new version calls it in its OnFirst, and opens the
// value by [Value] afterwards. If this process dies meanwhile, the next Upgrade begins again or
// completes the work; it may call migrate again for the same old value.
//
// If another process has created a value of that name after such a death, there are two contents:
// the new value, and the one that the upgrade has left. Then the error Is
// [shmsync.ErrIncompatible], and says how to drop either. The error also Is ErrIncompatible if the
// interrupted upgrade makes a kind of object that this program does not import.
//
// The value must not be open in this process, or the error Is [syscall.EBUSY]. A Value that OnFirst
// has opened stays open, so call Upgrade before Value.
func Upgrade[T any](a *Arena, name string, migrate func(old Stored, v *T) error) error {
	return arenakernel.UpgradeValue(a.kernel(), name, migrate)
}

// replaceTries bounds how often Replace tries again because each time it finds another object of
// the name.
const replaceTries = 1000

// Replace calls open, which opens the object of that name. The error of open Is
// [shmsync.ErrIncompatible] if the object has another type or other parameters. Then, if no process
// has the object open, Replace deletes it and calls open again. The contents of the object are
// lost. If a process has it open, the error Is ErrIncompatible and [syscall.EBUSY], and names the
// process.
//
// open may also refuse an object itself, for example a Queue that was shut down: it closes the
// object and returns an error that Is ErrIncompatible.
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
