//go:build linux

package prims

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/mdtable"
	"github.com/shmsync/shmsync/internal/park"
)

// abiStructs maps each section of docs/abi.md to the struct whose bytes the section describes.
var abiStructs = map[string]reflect.Type{
	"Mutex": reflect.TypeFor[mutexWords](),
	"Futex": reflect.TypeFor[futexWords](),

	"Undo log": reflect.TypeFor[logHead](),

	"CohortMutex": reflect.TypeFor[cohortWords](),
	"Local lock":  reflect.TypeFor[cohortLocalLockWords](),

	"Counters": reflect.TypeFor[countWords](),

	"SignalWaker":               reflect.TypeFor[signalHead](),
	"SpinLock":                  reflect.TypeFor[spinWords](),
	"RWSpinLock":                reflect.TypeFor[spinWords](),
	"RWMutex":                   reflect.TypeFor[rwmutexWords](),
	"Slot record of an RWMutex": reflect.TypeFor[rwmutexRecord](),

	"Slot record of an RWSpinLock": reflect.TypeFor[rwSpinRecord](),

	"Semaphore":            reflect.TypeFor[semaphoreWords](),
	"Share of a semaphore": reflect.TypeFor[semaphoreShare](),

	"Slot record of a Semaphore": reflect.TypeFor[semaphoreRecord](),
	"Waitable":                   reflect.TypeFor[waitableWords](),
	"Hold of a waitable":         reflect.TypeFor[waitableHold](),
	"Slot record of a Waitable":  reflect.TypeFor[waitableRecord](),
	"Block of a Waitable":        reflect.TypeFor[waitableBlock](),
	"Text of a Waitable":         reflect.TypeFor[waitableTextBlock](),

	"Sequencer": reflect.TypeFor[sequencerWords](),

	"Cell of a Sequencer": reflect.TypeFor[tokenCellWords](),

	"Event":            reflect.TypeFor[eventWords](),
	"Auto-reset Event": reflect.TypeFor[autoEventWords](),

	"Share of an auto-reset Event": reflect.TypeFor[eventRecord](),

	"FairMutex": reflect.TypeFor[fairMutexWords](),

	"Slot record of a FairMutex": reflect.TypeFor[plainRecord](),
	"Slot record of a Cond":      reflect.TypeFor[plainRecord](),

	"MultiLock":       reflect.TypeFor[multiLockHead](),
	"Bucket of keys":  reflect.TypeFor[multiLockBucket](),
	"Entry of a key":  reflect.TypeFor[multiLockEntry](),
	"Block of keys":   reflect.TypeFor[multiLockBlock](),
	"Cond":            reflect.TypeFor[condWords](),
	"Future":          reflect.TypeFor[futureWords](),
	"Queue":           reflect.TypeFor[queueWords](),
	"Side of a queue": reflect.TypeFor[queueSideWords](),
	"An eventcount":   reflect.TypeFor[eventcountWords](),

	"Synchronized": reflect.TypeFor[synchronizedWords](),
}

// abiParts are the sections of abiStructs that describe a part of an object, not a whole object.
var abiParts = []string{
	"Local lock", "Slot record of an RWMutex", "Slot record of an RWSpinLock", "Side of a queue", "Share of a semaphore", "Slot record of a Semaphore", "Slot record of a FairMutex", "Slot record of a Cond", "Bucket of keys", "Entry of a key", "Block of keys", "Hold of a waitable", "Slot record of a Waitable", "Block of a Waitable", "Text of a Waitable", "Counters", "Undo log", "An eventcount", "Cell of a Sequencer", "Auto-reset Event", "Share of an auto-reset Event",
}

// abiKinds maps each section to the kind and the version of the object that it describes.
var abiKinds = map[string]struct {
	kind    arenakernel.Kind
	version int
}{
	"Mutex": {mutexKind, mutexVersion},
	"Futex": {futexKind, futexVersion},

	"CohortMutex": {cohortKind, cohortVersion},

	"Queue": {queueKind, queueVersion},

	"Synchronized": {synchronizedKind, synchronizedVersion},

	"SignalWaker": {signalKind, signalVersion},
	"SpinLock":    {spinKindID, spinVersion},
	"RWSpinLock":  {rwSpinKindID, rwSpinVersion},
	"RWMutex":     {rwmutexKind, rwmutexVersion},
	"Semaphore":   {semaphoreKind, semaphoreVersion},
	"Waitable":    {waitableKind, waitableVersion},
	"Sequencer":   {sequencerKind, sequencerVersion},
	"Event":       {eventKind, eventVersion},
	"FairMutex":   {fairMutexKind, fairMutexVersion},
	"MultiLock":   {multiLockKind, multiLockVersion},
	"Cond":        {condKind, condVersion},
	"Future":      {futureKind, futureVersion},
}

func abiTables(t *testing.T, section string, columns ...string) []mdtable.Table {
	tables, err := mdtable.ReadFile(filepath.Join("..", "docs", "abi.md"))
	require.NoError(t, err)
	return mdtable.With(mdtable.In(tables, section), columns...)
}

func TestABIFields(t *testing.T) {
	for section, body := range abiStructs {
		requireABIFields(t, section, body)
	}
}

func requireABIFields(t *testing.T, section string, body reflect.Type) {
	tables := abiTables(t, section, "offset", "size", "field", "order")
	require.Len(t, tables, 1, section)
	documented, next := map[string][2]int{}, 0
	for _, row := range tables[0].Rows {
		offset, size := abiNumber(t, row.Cells[0]), abiNumber(t, row.Cells[1])
		require.Equal(t, next, offset, "docs/abi.md:%d: begins where the row above ends", row.Line)
		next += size
		if row.Cells[2] != "reserved" {
			documented[strings.Trim(row.Cells[2], "`")] = [2]int{offset, size}
			require.Contains(t, []string{"fixed", "relaxed", "acq-rel", "seq-cst"}, row.Cells[3], "docs/abi.md:%d", row.Line)
		}
	}
	require.EqualValues(t, body.Size(), next, section)
	fields := map[string][2]int{}
	for f := range body.Fields() {
		switch {
		case f.Name == "_":
		case f.Type == reflect.TypeFor[metWords](): // the document has metSince for met.since, and so on
			for g := range f.Type.Fields() {
				if g.Name != "_" {
					name := f.Name + strings.ToUpper(g.Name[:1]) + g.Name[1:]
					fields[name] = [2]int{int(f.Offset + g.Offset), int(g.Type.Size())}
				}
			}
		default:
			fields[f.Name] = [2]int{int(f.Offset), int(f.Type.Size())}
		}
	}
	require.Equal(t, fields, documented, section)
}

func abiText(t *testing.T, section string) string {
	src, err := os.ReadFile(filepath.Join("..", "docs", "abi.md"))
	require.NoError(t, err)
	return mdtable.Text(string(src), section)
}

func abiNumber(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// TestABIKinds checks that docs/abi.md describes each kind of object that this package defines.
func TestABIKinds(t *testing.T) {
	for section := range abiStructs {
		if !slices.Contains(abiParts, section) {
			require.Contains(t, abiKinds, section)
		}
	}
	for section, k := range abiKinds {
		require.Contains(t, abiText(t, section), fmt.Sprintf("Kind `%v`, version %d.", k.kind, k.version))
	}
}

func TestABIBits(t *testing.T) {
	for section, want := range map[string]map[string]uint64{
		"Mutex": {"name": arenakernel.ParticipantIDMask, "kind": 7 << ownerKindShift},
		"Undo log": {
			"tail": 1<<32 - 1, "name": arenakernel.ParticipantIDMask << logNameShift, "phase": 7 << logPhaseShift,
		},
		"Wake word": {"announced": 1, "sequence": 1<<32 - 2},
		"Event":     {"mode": uint64(eventModeMask)},
		"Auto-reset Event": {
			"version": uint64(tokenVersion), "announced": uint64(tokenAnnounced), "tokens": uint64(tokenCountMask), "slot": 1<<64 - 1<<tokenSlotShift,
		},
		"Share of an auto-reset Event": {"waits": 1<<32 - 1, "ended": (1<<32 - 1) << 32},
		"SpinLock":                     {"name": arenakernel.ParticipantIDMask, "kind": 7 << spinKindShift},
		"Futex":                        {"announced": uint64(futexAnnounced), "stopped": uint64(futexStopped), "counter": maxToken << futexShift},
		"Once": {
			"announced": uint64(onceAnnounced), "done": uint64(onceDone), "runner": uint64(onceIDs), "turn": uint64(1<<32-1) << 32,
		},
		"RWMutex gate": {"name": arenakernel.ParticipantIDMask, "kind": 7 << ownerKindShift},
		"Reader word": {
			"generation": readerGeneration, "waiting": readerMost << readerWaitShift, "reading": readerMost << readerShift,
		},
		"An eventcount": {"sequence": uint64(eventcountSequence), "announced": uint64(eventcountAnnounced)},
		"Future":        {"abandoned": uint64(futureAbandoned), "producer": uint64(futureIDs)},
		"Result of a Future": {
			"value": 1<<32 - 1, "abandoned": uint64(futureResultAbandoned), "decided": uint64(futureResultDecided),
			"lap": (1<<26 - 1) << futureLapShift,
		},
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
	require.True(t, park.Word(1).Announced())
	require.False(t, park.Word(1<<32-2).Announced())
	require.Equal(t, park.Word(2), park.Word(1).Bumped())
	require.Equal(t, futexState(futexPost), futexState(1<<futexShift))
}

func TestABIOwnerKinds(t *testing.T) {
	tables := abiTables(t, "Mutex", "kind of owner word", "value")
	require.Len(t, tables, 1)
	got := map[string]int{}
	for _, row := range tables[0].Rows {
		got[row.Cells[0]] = abiNumber(t, row.Cells[1])
	}
	require.Equal(t, map[string]int{
		"held": int(kindHeld), "biased": int(kindBiased), "reserved": int(kindReserved), "ownerDead": int(kindOwnerDead),
		"recovering": int(kindRecovering), "notRecoverable": int(kindNotRecoverable),
	}, got)
	for k := range ownerKind(8) {
		require.Equal(t, int(k) < len(got), makeOwner(k, 1).valid() || makeOwner(k, 0).valid(), "kind %d", k)
	}
	require.Contains(t, abiText(t, "Mutex"), "bits 0..7: 0 PolicyReport, 1 PolicyRelease, 2 PolicyRollback")
	require.EqualValues(t, 0xff, policyMask)
	require.EqualValues(t, 0, PolicyReport.stored())
	require.EqualValues(t, 1, PolicyRelease.stored())
	require.EqualValues(t, 2, PolicyRollback.stored())
}

func TestABIGateKinds(t *testing.T) {
	tables := abiTables(t, "RWMutex gate", "kind of gate", "value")
	require.Len(t, tables, 1)
	got := map[string]int{}
	for _, row := range tables[0].Rows {
		got[row.Cells[0]] = abiNumber(t, row.Cells[1])
	}
	require.Equal(t, map[string]int{
		"held": int(gateHeld), "closed": int(gateClosed), "ownerDead": int(gateOwnerDead),
		"recovering": int(gateRecovering), "notRecoverable": int(kindNotRecoverable),
	}, got)
}

func TestABIUndoLog(t *testing.T) {
	for column, want := range map[string]map[string]int{
		"phase of a log": {"idle": int(logIdle), "active": int(logActive), "undone": int(logUndone), "committed": int(logCommitted), "lost": int(logLost)},
		"kind of record": {"bytes": logBytes, "alloc": logAlloc, "free": logFree, "temporary": logTemporary, "given": logGiven},
	} {
		tables := abiTables(t, "Undo log", column, "value")
		require.Len(t, tables, 1)
		got := map[string]int{}
		for _, row := range tables[0].Rows {
			got[row.Cells[0]] = abiNumber(t, row.Cells[1])
		}
		require.Equal(t, want, got)
	}
	require.Contains(t, abiText(t, "Undo log"), fmt.Sprintf("from %d to %d; %d by default", logUnit, logMost, logDefault))
	require.Equal(t, 16, logFooter)
}
