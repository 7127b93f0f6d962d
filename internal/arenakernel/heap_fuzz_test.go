//go:build linux

package arenakernel

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAlloc compares the heap with a map. Each block must be zero, aligned and disjoint from all
// other blocks, and must keep its bytes. The heap must contain no other blocks.
func FuzzAlloc(f *testing.F) {
	f.Add([]byte{0, 10, 1, 200, 2, 3, 0, 255, 255, 0})
	f.Add(bytes.Repeat([]byte{3, 0, 7, 250}, 30))
	f.Add(bytes.Repeat([]byte{9, 255, 4, 90, 2, 1}, 40))
	f.Fuzz(func(t *testing.T, script []byte) {
		p := newNeighbours(1<<20, 2)
		as := []*Arena{p.join(1), p.join(2)}
		type piece struct {
			off        Offset
			size, mark uint64
		}
		var model []piece
		for i := 0; i+1 < len(script) && i < 400; i += 2 {
			op, arg := script[i], uint64(script[i+1])
			a := as[op&1]
			if op&2 != 0 && len(model) > 0 {
				k := int(arg) % len(model)
				q := model[k]
				b := a.slice(q.off, q.size)
				require.Equal(t, bytes.Repeat([]byte{byte(q.mark)}, len(b)), b)
				a.Free(q.off)
				model[k] = model[len(model)-1]
				model = model[:len(model)-1]
				continue
			}
			size := arg << (op >> 2 & 15) >> 3
			align := uint64(1) << (op >> 4 % 13)
			off, err := a.Alloc(size, align)
			if err != nil {
				continue
			}
			b := a.slice(off, size)
			require.Zero(t, uint64(off)%align)
			require.Equal(t, make([]byte, size), b)
			for _, q := range model {
				require.True(t, q.off+Offset(max(q.size, 1)) <= off || off+Offset(max(size, 1)) <= q.off, "%v and %v overlap", q.off, off)
			}
			mark := uint64(i)%255 + 1
			copy(b, bytes.Repeat([]byte{byte(mark)}, len(b)))
			model = append(model, piece{off, size, mark})
		}
		require.EqualValues(t, len(model), as[0].Stats().Raw)
		requireSound(t, as[0])
		for _, q := range model {
			as[0].Free(q.off)
		}
		require.Zero(t, as[0].Stats().BytesUsed)
		sweepAll(as[1])
		require.Equal(t, p.geo.chunkCount, as[0].Stats().FreeChunks)
	})
}
