//go:build linux

package prims_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// TestRollbackLeavesABlockThatAnEarlierOneGave: a process died in a rollback, after it had changed the kind of a
// block's log record to logGiven. Since then the block was freed and allocated again, and another goroutine of this
// process is freeing it. The next rollback must leave the block to that goroutine.
func TestRollbackLeavesABlockThatAnEarlierOneGave(t *testing.T) {
	const undone, committed, given = 2, 3, 4
	for name, phase := range map[string]uint64{"undone": undone, "committed": committed} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			m, _ := newRollback(t, a, 0)
			k := (*arenakernel.Arena)(a)
			off, err := k.ClaimAligned(100<<10, 1)
			require.NoError(t, err)
			require.NoError(t, k.LogBlock(off))
			require.True(t, k.TakeLogged(k.Self(), off)) // this process begins to free the block, as Free does
			record := binary.LittleEndian.AppendUint64(nil, uint64(off))
			record = binary.LittleEndian.AppendUint64(record, given<<32)
			m.LeaveLog(phase<<61|(1<<11|9)<<32|uint64(len(record)), record)
			require.NoError(t, m.LockContext(t.Context()))
			m.Unlock()
			again, err := a.Alloc(100<<10, 0)
			require.NoError(t, err)
			require.NotEqual(t, off, again)
			k.ReleaseTaken(off)
			a.Free(again)
			requireIdle(t, a, m)
			require.Zero(t, a.Stats().Raw)
		})
	}
}
