package arena

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Stored is a value as an earlier version of the program has left it; [As] gives it a type.
type Stored = arenakernel.Stored

// As gives a copy of a stored value. If the value is no T, the error Is
// [shmsync.ErrIncompatible]: a migration may try one earlier type after the other.
func As[T any](old Stored) (*T, error) { return arenakernel.StoredAs[T](old) }

// FieldChange is a field that a stored value and a type do not have in common.
type FieldChange struct {
	Field string // with its path, such as Last.Day; "" if one of them is no struct
	Old   string // kind and place in the stored value, such as "int64 at 8"; "" if the field is new
	New   string // kind and place in the type; "" if the field is gone
}

// Changes lists the fields in which a stored value differs from T: first those of T, in their order, then
// those that only the value has. A field that has another name only is no change.
//
// If the value has no description of its type, since a C program or an older release has made it without
// one, the error Is [shmsync.ErrNotSupported].
func Changes[T any](old Stored) ([]FieldChange, error) {
	changes, err := arenakernel.StoredChanges[T](old)
	all := make([]FieldChange, len(changes))
	for i, c := range changes {
		all[i] = FieldChange{Field: c.Path, Old: c.Old, New: c.New}
	}
	return all, err
}

// Upgrade makes the Value of that name a T, if it has another type. migrate fills in v, which is
// zero, from the old value. If migrate returns an error or panics, the old value stays as it is. If
// there is no value of that name, or if it is a T already, nothing happens.
//
// Upgrade is for [Options.OnFirst], and panics elsewhere: no other process may have the value
// open. Every process of the new version calls it in its OnFirst, and opens the value by [Value]
// afterwards. If this process dies, the next Upgrade begins again, or ends what was begun; migrate
// may be called again for the same old value.
//
// If another process has made the value again after such a death, both have contents. Then the error Is
// [shmsync.ErrIncompatible], and says how to drop either. It Is ErrIncompatible, too, if the upgrade that was begun
// leads to a kind of object that this program does not import.
//
// The value must not be open in this process: a Value that OnFirst has opened stays open. Then the
// error Is [syscall.EBUSY].
func Upgrade[T any](a *Arena, name string, migrate func(old Stored, v *T) error) error {
	return arenakernel.UpgradeValue(a.kernel(), name, migrate)
}

// replaceTries bounds how often Replace meets another object of the name each time.
const replaceTries = 1000

// Replace calls open, which opens the object of that name. If the error Is
// [shmsync.ErrIncompatible], since the object has another type or other parameters, and no process
// has it open, Replace deletes it and calls open again. The contents of the object are lost. If a
// process has it open, the error Is ErrIncompatible and [syscall.EBUSY], and names the process.
//
// open may refuse an object itself, by an error that Is ErrIncompatible after it closed the
// object: a Queue that was shut down, for example.
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
