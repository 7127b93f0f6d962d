// Package every has a type with a field of every kind that Go and C can share, for the tests of
// shmgen.
package every

import (
	"structs"
	"sync/atomic"
	"time"

	"github.com/shmsync/shmsync/arena"
)

//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type Every -o every_shm.h
//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type Small -o small_shm.h

// State is a number with a name of its own.
type State uint8

// Point is a struct within others.
type Point struct {
	X, Y int16
}

// Pair is generic.
type Pair[T any] struct {
	First, Second T
}

// Stamp is embedded.
type Stamp struct {
	Author uint32
	Edits  atomic.Uint32
}

// Every has a field of every kind.
type Every struct {
	_        structs.HostLayout
	I8       int8
	I16      int16
	I32      int32
	I64      int64
	Int      int
	U8       uint8
	U16      uint16
	U32      uint32
	U64      uint64
	Uint     uint
	F32      float32
	F64      float64
	Flag     bool
	C64      complex64
	C128     complex128
	Name     [16]byte
	Grid     [2][3]int32
	Block    arena.Offset
	State    State
	Took     time.Duration
	Hits     atomic.Uint64
	Level    atomic.Int32
	Balance  atomic.Int64
	Mask     atomic.Uint32
	Ready    atomic.Bool
	Cells    [4]atomic.Uint32
	Where    Point
	Path     [3]Point
	Range    Pair[float32]
	UserID   uint32
	Category uint16 `shm:"class"`
	Inner    struct {
		A uint8
		B uint64
	}
	Stamp
	_    uint32
	Last uint8
}

// Small shares Point with Every.
type Small struct {
	Key   uint64
	Where Point
}
