//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func TestABISpinKinds(t *testing.T) {
	tables := abiTables(t, "SpinLock", "kind of state word", "value")
	require.Len(t, tables, 1)
	got := map[string]int{}
	for _, row := range tables[0].Rows {
		got[row.Cells[0]] = abiNumber(t, row.Cells[1])
	}
	require.Equal(t, map[string]int{
		"held": int(spinHeld), "draining": int(spinDraining), "upgrade": int(spinUpgrade), "ownerDead": int(spinOwnerDead),
		"recovering": int(spinRecovering), "notRecoverable": int(spinNotRecoverable), "upgrading": int(spinUpgrading),
	}, got)
	for k := range spinKind(8) {
		require.Equal(t, int(k) < len(got), makeSpin(k, 1).valid(true) || makeSpin(k, 0).valid(true), "kind %d", k)
	}
}

func TestABIRWSpinCount(t *testing.T) {
	tables := abiTables(t, "RWSpinLock", "bits of a count", "field")
	require.Len(t, tables, 1)
	got := map[string]string{}
	for _, row := range tables[0].Rows {
		if row.Cells[1] != "reserved" {
			got[row.Cells[1]] = row.Cells[0]
		}
	}
	require.Equal(t, map[string]string{"holds": "0..29", "name": "32..60"}, got)
	require.EqualValues(t, 1<<30-1, rwSpinCountMask)
	require.Equal(t, rwSpinCount(arenakernel.ParticipantIDMask)<<32|5, makeRWSpinCount(arenakernel.ParticipantIDMask, 5))
	require.EqualValues(t, 128, spinBytes)
}
