// Package bad has types that cannot live in shared memory, or that C cannot declare.
package bad

import (
	"sync"
	"sync/atomic"
	"time"
)

type (
	String     struct{ Owner string }
	Slice      struct{ List [2][]int32 }
	Map        struct{ Table map[int32]int32 }
	Pointer    struct{ Next *Pointer }
	Interface  struct{ Any any }
	Func       struct{ F func() }
	Chan       struct{ C chan int32 }
	Uintptr    struct{ P uintptr }
	Atomic     struct{ P atomic.Pointer[int32] }
	Time       struct{ At time.Time }
	Mutex      struct{ Lock sync.Mutex }
	Nested     struct{ A struct{ B [2]String } }
	Empty      struct{ A [0]uint32 }
	Nothing    struct{}
	Number     int32
	Generic    struct{ P Box[string] }
	Box[T any] struct{ V T }
	Twice      struct{ UserID, UserId int32 }
	Greek      struct{ Größe int32 }
	Tag        struct {
		A int32 `shm:"a b"`
	}
	Padding struct {
		A        uint8
		Padding1 uint8 `shm:"padding_1"`
	}
	Long struct {
		A [1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1][1]int32
	}
)
