//go:build linux

package prims

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// TestABISignalParts: docs/abi.md describes the parts of a SignalWaker that follow its head as the code has
// them.
func TestABISignalParts(t *testing.T) {
	requireABIFields(t, "Signal line", reflect.TypeFor[signalLine]())
	requireABIFields(t, "Gate", reflect.TypeFor[signalGate]())
	requireABIFields(t, "Participant row", reflect.TypeFor[signalRow]())
	for section, want := range map[string]map[string]uint64{
		"SignalWaker": {"signals": 0xff, "count": signalCounts},
		"Gate": {"executor": arenakernel.ParticipantIDMask, "scheduled": uint64(gateScheduled), "executing": uint64(gateExecuting),
			"epoch": uint64(gateEpochs)},
		"Participant row": {"name": arenakernel.ParticipantIDMask, "workers": maxWorkers * uint64(countWorker), "sleepers": maxSleepers * uint64(countSleeper)},
		"Signal status":   {"yield": uint64(statusYield), "tasks": uint64(statusTasks)},
	} {
		tables := abiTables(t, section, "bits", "field")
		require.Len(t, tables, 1, section)
		got := map[string]uint64{}
		for _, row := range tables[0].Rows {
			low, high, isRange := strings.Cut(row.Cells[0], "..")
			if !isRange {
				high = low
			}
			got[row.Cells[1]] = ^uint64(0) >> (63 - abiNumber(t, high)) &^ (1<<abiNumber(t, low) - 1)
		}
		require.Equal(t, want, got, section)
	}
	counters := abiTables(t, "Participant row", "counter", "index")
	require.Len(t, counters, 1)
	require.Len(t, counters[0].Rows, signalStats)
	for k, row := range counters[0].Rows {
		require.Equal(t, SignalStat(k).String(), row.Cells[0])
		require.Equal(t, k, abiNumber(t, row.Cells[1]))
	}
}
