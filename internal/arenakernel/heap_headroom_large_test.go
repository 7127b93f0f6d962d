//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestHeadroomAndLargeSlotRecords: the slot record of a Waitable contains its state, which may be large. Such
// records do not take all of the headroom, so each object with smaller records can be used, and recovered.
func TestHeadroomAndLargeSlotRecords(t *testing.T) {
	for _, large := range []uint64{384, 4096, 20000} {
		for _, size := range []uint64{1 << 20, 2 << 20, 4 << 20, 16 << 20} {
			p := newNeighbours(size, 16)
			a := p.join(1)
			o, _ := withSlotRecords(t, "x", a)
			other, _ := withSlotRecords(t, "y", a)
			fillCommon(t, a)
			before := a.Stats()
			var err error
			slot := 2
			for ; slot <= 10 && err == nil; slot++ {
				_, err = p.join(slot).pushRecord(o.Offset, slot, large, 0, nil)
			}
			if err != nil {
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
			}
			after := a.Stats()
			if before.Headroom > 2 { // with one or two chunks, the headroom has no chunk for large records
				require.Less(t, after.FreeHeadroom, before.FreeHeadroom, "%d bytes, %d", size, large)
			}
			for slot := 2; slot <= 16; slot++ {
				_, err := p.join(slot).pushRecord(other.Offset, slot, 256, 0, nil)
				require.NoError(t, err, "%d bytes, %d, slot %d", size, large, slot)
			}
			requireSound(t, a)
		}
	}
}
