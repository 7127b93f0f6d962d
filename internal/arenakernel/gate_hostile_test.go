//go:build linux

package arenakernel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestOpenRefusesAForeignAdmission: if a peer overwrites the admission word of a joiner, the
// joiner's Open fails instead of looping for ever.
func TestOpenRefusesAForeignAdmission(t *testing.T) {
	for _, admission := range []uint32{admissionIn, 7} {
		for _, gated := range []bool{true, false} {
			ta := newTestArena(t, 4)
			p := ta.join(t, "in")
			a, err := Open(ta.name, nil)
			require.NoError(t, err)
			a.u32(a.slot(a.mySlot) + slotAdmission).Store(admission)
			ctx, cancel := context.WithTimeout(t.Context(), bound())
			o := (*Options)(nil).orDefault()
			if gated {
				err = a.admit(ctx, &o, true)
			} else {
				err = a.admitUngated(ctx, &o, false)
			}
			cancel()
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			require.NoError(t, a.Close())
			p.close(t)
		}
	}
}
