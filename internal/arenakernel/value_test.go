//go:build linux

package arenakernel

import (
	"structs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

type counters struct {
	_    structs.HostLayout
	Hits atomic.Uint64
	Load [3]float32
	Flag bool
}

func TestValueIsShared(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	x, err := Value[counters](a, "stats")
	require.NoError(t, err)
	require.Zero(t, x.Hits.Load())
	x.Hits.Store(7)
	y, err := Value[counters](b, "stats")
	require.NoError(t, err)
	require.EqualValues(t, 7, y.Hits.Load())

	_, err = Value[[5]uint64](b, "stats")
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "24 bytes")
	require.ErrorContains(t, err, "40")
	_, err = Value[[3]uint64](b, "stats") // another type of the same size
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = a.Block("stats", 24)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)

	z, err := Value[int64](a, "")
	require.NoError(t, err)
	require.Zero(t, *z)
	_, err = Value[struct{}](a, "nothing")
	require.NoError(t, err)
	requireSound(t, a)
}

func TestBlockIsShared(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	x, err := a.Block("frames", 200000)
	require.NoError(t, err)
	require.Len(t, x, 200000)
	require.Equal(t, 200000, cap(x))
	x[199999] = 5
	y, err := b.Block("frames", 200000)
	require.NoError(t, err)
	require.EqualValues(t, 5, y[199999])
	_, err = b.Block("frames", 200001)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	z, err := b.AttachBlock("frames")
	require.NoError(t, err)
	require.Equal(t, y, z)
}

func TestTypesWithPointersArePanics(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	off := mustAlloc(t, a, 64, 0)
	for name, f := range map[string]func(){
		"string":         func() { Value[string](a, "x") },
		"pointer":        func() { Value[*int](a, "x") },
		"nested":         func() { Value[struct{ A [2]struct{ B []int } }](a, "x") },
		"empty array":    func() { Value[[0]*int](a, "x") },
		"map":            func() { Value[map[int]int](a, "x") },
		"interface":      func() { Value[any](a, "x") },
		"func":           func() { Value[func()](a, "x") },
		"chan":           func() { Value[chan int](a, "x") },
		"uintptr":        func() { Value[uintptr](a, "x") },
		"atomic pointer": func() { Value[atomic.Pointer[int]](a, "x") },
		"at":             func() { At[string](a, off) },
		"try at":         func() { TryAt[[]int](a, off) },
	} {
		require.Panics(t, f, name)
	}
	require.Zero(t, a.Stats().Objects)
}

// wordAligned has size 0 and an alignment of 4.
type wordAligned struct{ _ [0]uint32 }

func TestLayoutsTellTypesApart(t *testing.T) {
	type renamed struct {
		X int64
		Y uint32
		_ uint32
	}
	print := func(f uint64, err error) uint64 {
		require.NoError(t, err)
		require.NotZero(t, f)
		return f
	}
	same := print(LayoutOf[struct {
		A int
		B uint32
		C uint32
	}]())
	require.Equal(t, same, print(LayoutOf[renamed]()))
	seen := map[uint64]int{same: -1}
	for i, f := range []uint64{
		print(LayoutOf[struct {
			A uint
			B uint32
			C uint32
		}]()),
		print(LayoutOf[struct {
			A int
			B uint32
		}]()),
		print(LayoutOf[struct {
			A int
			B uint64
		}]()),
		print(LayoutOf[struct {
			A float64
			B uint32
			C uint32
		}]()),
		print(LayoutOf[struct {
			A uint8
			_ wordAligned
			B uint8
		}]()),
		print(LayoutOf[struct {
			A, B uint8
			_    wordAligned
		}]()),
		print(LayoutOf[[2]int64]()),
		print(LayoutOf[[4]int32]()),
		print(LayoutOf[[16]byte]()),
		print(LayoutOf[[16]bool]()),
		print(LayoutOf[complex128]()),
		print(LayoutOf[struct{}]()),
	} {
		_, twice := seen[f]
		require.False(t, twice, "type %d", i)
		seen[f] = i
	}
	_, err := LayoutOf[struct{ Name string }]()
	require.ErrorContains(t, err, "field Name")
}

func TestAt(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	off := mustAlloc(t, a, 100, 0) // takes a block of 128
	span := mustAlloc(t, a, 2*chunkSize, 0)
	p := At[counters](a, off)
	p.Hits.Store(3)
	require.EqualValues(t, 3, At[counters](a, off).Hits.Load())
	At[[96]byte](a, off+32)
	At[uint64](a, span+chunkSize+8)
	At[[2 * chunkSize]byte](a, span)
	node, err := a.ClaimNode()
	require.NoError(t, err)
	freed := mustAlloc(t, a, 32768, 0)
	a.Free(freed)
	for what, wild := range map[string]Offset{
		"nowhere": 0, "header": 64, "misaligned": off + 4, "over the end": off + 120, "out": Offset(a.size), "wraps": ^Offset(7),
		"freed": freed, "node": node, "a chunk in no use": Offset(a.geo.heapOff) + 10*chunkSize, "end of a span": span + 2*chunkSize - 8,
	} {
		_, err := TryAt[[2]uint64](a, wild)
		require.ErrorIs(t, err, shmsync.ErrCorrupt, what)
		requirePanicNaming(t, wild, func() { At[[2]uint64](a, wild) })
	}
}

func TestValueRaces(t *testing.T) {
	const members = 6
	p := newNeighbours(2<<20, members)
	var wg sync.WaitGroup
	for i := range members {
		a := p.join(i + 1)
		wg.Go(func() {
			for range 100 {
				v, err := Value[counters](a, "stats")
				if err != nil {
					t.Error(err)
					return
				}
				v.Hits.Add(1)
			}
		})
	}
	wg.Wait()
	a := p.join(1)
	v, err := Value[counters](a, "stats")
	require.NoError(t, err)
	require.EqualValues(t, members*100, v.Hits.Load())
}
