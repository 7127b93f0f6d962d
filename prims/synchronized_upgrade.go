package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// UpgradeSynchronized gives the Synchronized of that name a value of type T, if its value has another type, as
// [arena.Upgrade] does with a Value. It also turns a Value into a Synchronized. The function migrate gets the old
// value, as the last Update left it, and stores the new value in *v. UpgradeSynchronized may be called only in
// [arena.Options.OnFirst], and panics elsewhere. The new object has the options opts, and its count of commits begins
// at 0.
func UpgradeSynchronized[T any](a *arena.Arena, name string, migrate func(old arena.Stored, v *T) error, opts *SynchronizedOptions) error {
	var opt SynchronizedOptions
	if opts != nil {
		opt = *opts
	}
	k := (*arenakernel.Arena)(a)
	layout, size := synchronizedLayout[T]()
	spec := arenakernel.ObjectSpec{Kind: synchronizedKind, Version: synchronizedVersion, Name: name, Size: size, Layout: layout,
		Type: arenakernel.TypeTextOf[T]()}
	return k.UpgradeObject(spec, func(old arenakernel.Object) (func([]byte), error) {
		off, err := old.Body, error(nil)
		switch {
		case old.Kind == arenakernel.KindValue:
		case old.Kind == synchronizedKind && old.Version == synchronizedVersion:
			if off, err = committedCopy(k, old); err != nil {
				return nil, err
			}
		default:
			return nil, &shmsync.Error{Op: "synchronized.upgrade", Object: objectName(old), Err: shmsync.ErrIncompatible,
				Detail: fmt.Sprintf("it is %s of version %d, not a Synchronized or a Value", arenakernel.KindPhrase(old.Kind), old.Version)}
		}
		v := new(T)
		if err := migrate(arenakernel.StoredAt(k, old, off), v); err != nil {
			return nil, err
		}
		return func(body []byte) { initSynchronized(body, v, &opt) }, nil
	})
}

// committedCopy returns the offset of the valid copy of the value of a Synchronized, for any T.
func committedCopy(a *arenakernel.Arena, o arenakernel.Object) (arenakernel.Offset, error) {
	w, err := arenakernel.TryAt[synchronizedWords](a, o.Body)
	if err != nil {
		return 0, err
	}
	copies, size := synchronizedShape(0)
	if w.current.Load()&1 == 0 || o.Size < size {
		return o.Body + copies[0], nil
	}
	// The end of the body consists of copy 0, padded to a multiple of 64 bytes, and of copy 1. Both copies have the
	// same size. So half of the end, rounded up to a multiple of 64, is the size of copy 0 with its padding.
	return o.Body + copies[0] + (arenakernel.Offset(o.Size-size)/2+63)&^63, nil
}
