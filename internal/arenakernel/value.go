package arenakernel

import (
	"fmt"
	"io/fs"
	"reflect"

	"github.com/shmsync/shmsync"
)

// The kinds of objects that contain only data.
var (
	KindValue = KindOf("VALU")
	KindBlock = KindOf("BLOK")
)

func init() {
	RegisterKind(KindOps{Kind: KindValue, Version: 1})
	RegisterKind(KindOps{Kind: KindBlock, Version: 1})
}

// Value returns a pointer to the T of that name, or creates a T that is zero. It panics if T
// contains pointers. A value that exists must have been created with a type whose parts have the
// same sizes, kinds and places. Otherwise the error Is [shmsync.ErrIncompatible].
//
// The value stays open, and cannot be deleted, until this process leaves the arena. The caller
// synchronizes access to it, as to any variable: use atomic fields or a lock of package prims.
func Value[T any](a *Arena, name string) (*T, error) { return value[T](a, name, false) }

// AttachValue is Value for a value that exists. If there is no value of that name, the error Is
// [fs.ErrNotExist].
func AttachValue[T any](a *Arena, name string) (*T, error) { return value[T](a, name, true) }

// Slice returns the n elements of type T that have that name, or creates n elements that are zero.
// The object is the same as the [Value] of the type [n]T.
func Slice[T any](a *Arena, name string, n int) ([]T, error) { return slice[T](a, name, n, false) }

// AttachSlice is Slice for a value that exists. If there is no value of that name, the error Is
// [fs.ErrNotExist].
func AttachSlice[T any](a *Arena, name string, n int) ([]T, error) { return slice[T](a, name, n, true) }

// valueSpec returns the ObjectSpec of the value of that name. It panics if T contains pointers.
func valueSpec[T any](name string) ObjectSpec { return valueSpecOf(name, reflect.TypeFor[T]()) }

func valueSpecOf(name string, t reflect.Type) ObjectSpec {
	mustHaveNoPointers(t)
	l := layoutOf(t)
	return ObjectSpec{Kind: KindValue, Version: 1, Name: name, Size: uint64(t.Size()), Layout: l.fingerprint, Type: l.text}
}

func mustHaveNoPointers(t reflect.Type) {
	if err := layoutOf(t).err; err != nil {
		panic("shmsync: " + err.Error())
	}
}

func value[T any](a *Arena, name string, attach bool) (*T, error) {
	spec := valueSpec[T](name)
	spec.Existing = attach
	o, _, err := a.OpenObject(spec)
	if err != nil {
		return nil, err
	}
	return bodyOf[T](&a.core, o), nil
}

func slice[T any](a *Arena, name string, n int, attach bool) ([]T, error) {
	t := reflect.TypeFor[T]()
	size := uint64(t.Size())
	mustHaveNoPointers(t)
	switch {
	case n < 1 || size == 0:
		return nil, a.failObject("arena.slice", name, fs.ErrInvalid, fmt.Sprintf("%d elements of %d bytes", n, size))
	case uint64(n) > uint64(a.Size())/size: // reflect.ArrayOf might panic for a larger n
		return nil, a.failObject("arena.slice", name, shmsync.ErrNoSpace,
			fmt.Sprintf("%d elements of %d bytes in an arena of %d bytes", n, size, a.Size()))
	}
	spec := valueSpecOf(name, reflect.ArrayOf(n, t))
	spec.Existing = attach
	o, _, err := a.OpenObject(spec)
	if err != nil {
		return nil, err
	}
	return elementsOf[T](&a.core, o, n), nil
}

// Block returns the bytes of that name, or creates size bytes that are zero. If the block has another
// size, the error Is [shmsync.ErrIncompatible]. If size is 0, the error Is [fs.ErrInvalid]. Like a
// Value, a block stays open until this process leaves the arena.
func (a *Arena) Block(name string, size uint64) ([]byte, error) {
	if size == 0 {
		return nil, a.failObject("arena.block", name, fs.ErrInvalid, "a block has at least 1 byte; AttachBlock opens one that exists")
	}
	return a.block(ObjectSpec{Kind: KindBlock, Version: 1, Name: name, Size: size})
}

// AttachBlock returns the bytes of that name. The block may have any size. If there is no block of that
// name, the error Is [fs.ErrNotExist].
func (a *Arena) AttachBlock(name string) ([]byte, error) {
	return a.block(ObjectSpec{Kind: KindBlock, Version: 1, Name: name, AnySize: true, Existing: true})
}

func (a *Arena) block(spec ObjectSpec) ([]byte, error) {
	o, _, err := a.OpenObject(spec)
	if err != nil {
		return nil, err
	}
	return a.slice(o.Body, o.Size)[:o.Size:o.Size], nil
}
