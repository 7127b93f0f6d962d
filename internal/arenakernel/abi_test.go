//go:build linux

package arenakernel

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/bits"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/shmsync/shmsync/internal/mdtable"
	"github.com/stretchr/testify/require"
)

// A field describes one field of a structure in shared memory: its offset and its size in bytes.
type field struct{ offset, size uint64 }

// abiFields are the fields of the structures in shared memory that have no Go struct. The first key
// is the section of docs/abi.md that describes the structure, the second is the name of the
// constant that holds the offset of the field. TestABIConstantsAreListed checks that no field is
// missing.
var abiFields = map[string]map[string]field{
	"Header": {
		"hdrMagic": {hdrMagic, 8}, "hdrOrder": {hdrOrder, 4}, "hdrVersion": {hdrVersion, 4}, "hdrWord": {hdrWord, 4},
		"hdrHeaderSize": {hdrHeaderSize, 4}, "hdrCompat": {hdrCompat, 8}, "hdrROCompat": {hdrROCompat, 8},
		"hdrIncompat": {hdrIncompat, 8}, "hdrSize": {hdrSize, 8}, "hdrID": {hdrID, 16}, "hdrCreated": {hdrCreated, 8},
		"hdrSlots": {hdrSlots, 4}, "hdrSlotStride": {hdrSlotStride, 4}, "hdrSlotsOff": {hdrSlotsOff, 8},
		"hdrDeathRecordOff": {hdrDeathRecordOff, 8}, "hdrDeathRecordCount": {hdrDeathRecordCount, 4}, "hdrDeathRecordStride": {hdrDeathRecordStride, 4},
		"hdrDirOff": {hdrDirOff, 8}, "hdrDirCount": {hdrDirCount, 8}, "hdrChunksOff": {hdrChunksOff, 8},
		"hdrBlocksOff": {hdrBlocksOff, 8}, "hdrHeapOff": {hdrHeapOff, 8}, "hdrChunkSize": {hdrChunkSize, 4},
		"hdrBlockWords": {hdrBlockWords, 4}, "hdrChunkCount": {hdrChunkCount, 8}, "hdrChecksum": {hdrChecksum, 8},
		"hdrDeathRecordsTotal": {hdrDeathRecordsTotal, 8}, "hdrDeaths": {hdrDeaths, 4}, "hdrDirReach": {hdrDirReach, 4}, "hdrLeftTotal": {hdrLeftTotal, 8}, "hdrChunkHint": {hdrChunkHint, 8},
		"hdrEpoch": {hdrEpoch, 8}, "hdrEpochDeaths": {hdrEpochDeaths, 8}, "hdrEpochDeathsOdd": {hdrEpochDeathsOdd, 8}, "hdrSuccessors": {hdrSuccessors, 4}, "hdrEpochBoot": {hdrEpochBoot, 16}, "hdrEpochBegan": {hdrEpochBegan, 8}, "hdrSynced": {hdrSynced, 4},
		"hdrDirLowering": {hdrDirLowering, 8}, "hdrDirLowerer": {hdrDirLowerer, 4},
	},
	"Slot": {
		"slotState": {slotState, 4}, "slotReaper": {slotReaper, 4}, "slotCaps": {slotCaps, 4},
		"slotPID": {slotPID, 4}, "slotTID": {slotTID, 4}, "slotUID": {slotUID, 4}, "slotStart": {slotStart, 8},
		"slotPIDNS": {slotPIDNS, 8}, "slotJoined": {slotJoined, 8}, "slotBootID": {slotBootID, 16},
		"slotLabel": {slotLabel, 1 + labelBytes}, "slotAlive": {slotAlive, aliveWords * aliveStride},
		"slotDoorbell": {slotDoorbell, 4}, "slotAdmission": {slotAdmission, 4}, "slotReady": {slotReady, 8}, "slotDied": {slotDied, 8},
		"slotWatchDoorbell": {slotWatchDoorbell, 4}, "slotReclaimed": {slotReclaimed, 4}, "slotOpening": {uint64(slotOpening), 8}, "slotWalking": {uint64(slotWalking), 8}, "slotTelling": {slotTelling, 4}, "slotGone": {slotGone, 8},
		"slotAnnounce": {slotAnnounce, announceCount * announceStride}, "slotTouched": {uint64(slotTouched), touchedWords * 8}, "slotWindow": {slotWindow, 8}, "slotActs": {uint64(slotActs), actWords * 4}, "slotDescribed": {uint64(slotDescribed), 4}, "slotIdentitySum": {uint64(slotIdentitySum), 8},
	},
	"Announce record": {
		"announceObject": {announceObject, 8}, "announceWord": {announceWord, 8},
		"announceSince": {announceSince, 8}, "announceWanted": {announceWanted, 8},
	},
	"Death record": {
		"deathRecordSeq": {deathRecordSeq, 8}, "deathRecordID": {deathRecordID, 4}, "deathRecordPID": {deathRecordPID, 4}, "deathRecordDied": {deathRecordDied, 8},
		"deathRecordFlags": {deathRecordFlags, 4}, "deathRecordLabel": {deathRecordLabel, 1 + labelBytes},
	},
	"Object header": {
		"objKind": {objKind, 4}, "objVersion": {objVersion, 4}, "objState": {objState, 4}, "objNameOff": {objNameOff, 4},
		"objSize": {objSize, 8}, "objHash": {objHash, 8}, "objCreated": {objCreated, 8}, "objOpenOff": {objOpenOff, 4}, "objTypeLen": {objTypeLen, 4},
		"objLayout": {objLayout, 8}, "objRecords": {objRecords, 4}, "objOfKind": {objOfKind, 4},
	},
	"Slot record": {"recordNext": {recordNext, 8}, "recordObject": {recordObject, 8}, "recordSlot": {recordSlot, 4}, "recordNumber": {recordNumber, 4}},
	"Wait node":   structFields(reflect.TypeFor[Node]()),
}

// abiSizes are the sizes of the structures in abiFields. The tables of docs/abi.md must describe
// every byte of each structure.
var abiSizes = map[string]uint64{
	"Header": headerSize, "Slot": slotStride, "Announce record": announceStride, "Death record": deathRecordStride,
	"Object header": objectHeader, "Slot record": SlotRecordHeader, "Wait node": nodeSize,
}

func structFields(t reflect.Type) map[string]field {
	fields := map[string]field{}
	for f := range t.Fields() {
		if f.Name != "_" {
			fields[f.Name] = field{uint64(f.Offset), uint64(f.Type.Size())}
		}
	}
	return fields
}

func abiTables(t *testing.T) []mdtable.Table {
	tables, err := mdtable.ReadFile(filepath.Join("..", "..", "docs", "abi.md"))
	require.NoError(t, err)
	return tables
}

// layoutTables returns the tables of fields in docs/abi.md, by section.
func layoutTables(t *testing.T) map[string]mdtable.Table {
	found := map[string]mdtable.Table{}
	for _, table := range mdtable.With(abiTables(t), "offset", "size", "field", "order") {
		require.NotContains(t, found, table.Section)
		found[table.Section] = table
	}
	return found
}

func TestABIFields(t *testing.T) {
	documented := layoutTables(t)
	for section, want := range abiFields {
		require.Contains(t, documented, section)
		requireLayout(t, documented[section], want, abiSizes[section])
	}
	require.Contains(t, []string{"fixed", "relaxed", "acq-rel", "seq-cst"}, documented["Slot"].Rows[0].Cells[3])
}

// requireLayout checks that a table has exactly the fields want, and that its rows cover the bytes
// from 0 to size without gaps.
func requireLayout(t *testing.T, table mdtable.Table, want map[string]field, size uint64) {
	t.Helper()
	next, got := uint64(0), map[string]field{}
	for _, row := range table.Rows {
		where := fmt.Sprintf("docs/abi.md:%d", row.Line)
		f := field{number(t, where, row.Cells[0]), number(t, where, row.Cells[1])}
		require.Equal(t, next, f.offset, "%s: begins where the row above ends", where)
		next += f.size
		if row.Cells[2] == "reserved" {
			continue
		}
		names := mdtable.Code(row.Cells[2])
		require.Len(t, names, 1, where)
		require.NotContains(t, got, names[0], where)
		got[names[0]] = f
		require.Contains(t, []string{"fixed", "relaxed", "acq-rel", "seq-cst"}, row.Cells[3], where)
	}
	require.Equal(t, size, next, "%s ends", table.Section)
	require.Equal(t, want, got, table.Section)
}

func number(t *testing.T, where, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	require.NoError(t, err, where)
	return n
}

// notOffsets are constants that are not offsets, although their names begin like the names of
// offsets.
var notOffsets = map[string]bool{
	"slotBits": true, "slotStride": true, "deathRecordCount": true, "deathRecordDeaths": true, "deathRecordStride": true, "deathRecordLeft": true, "deathRecordPending": true,
	"announceCount": true, "announceStride": true,
}

// TestABIConstantsAreListed: docs/abi.md contains every field of the code.
func TestABIConstantsAreListed(t *testing.T) {
	prefixes := map[string]string{"hdr": "Header", "slot": "Slot", "announce": "Announce record", "death": "Death record", "obj": "Object header", "record": "Slot record"}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range f.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					word := strings.IndexFunc(id.Name, func(r rune) bool { return 'A' <= r && r <= 'Z' })
					if section := prefixes[id.Name[:max(word, 0)]]; section != "" && !notOffsets[id.Name] {
						require.Contains(t, abiFields[section], id.Name, "%s: document it in docs/abi.md", name)
					}
				}
			}
		}
	}
}

func TestABIConstants(t *testing.T) {
	requireValues(t, "name", map[string]uint64{
		"orderMark": orderMark, "LayoutVersion": LayoutVersion, "wordBytes": wordBytes,
		"knownCompat": knownCompat, "knownROCompat": knownROCompat, "knownIncompat": knownIncompat,
		"headerSize": headerSize, "MaxSlots": MaxSlots, "maxGeneration": maxGeneration, "slotStride": slotStride,
		"aliveWords": aliveWords, "aliveStride": aliveStride, "announceCount": announceCount, "announceStride": announceStride,
		"labelBytes": labelBytes, "deathRecordCount": deathRecordCount, "deathRecordDeaths": deathRecordDeaths, "deathRecordStride": deathRecordStride, "chunkSize": chunkSize,
		"blockMin": blockMin, "blockWords": blockWords, "blockWordSize": blockWordSize, "objectHeader": objectHeader,
		"nodeSize": nodeSize, "MaxObject": MaxObject, "maxObjectName": maxObjectName,
	})
	requireValues(t, "capability", map[string]uint64{
		"capRobust": capRobust, "capOFD": capOFD, "capNoKernelIO": capNoKernelIO, "capFence": capFence, "capWaitV": capWaitV, "capTold": capTold, "capAsyncIO": capAsyncIO,
	})
	requireValues(t, "phase", map[string]uint64{
		"free": uint64(phaseFree), "joining": uint64(phaseJoining), "live": uint64(phaseLive),
		"leaving": uint64(phaseLeaving), "dead": uint64(phaseDead),
	})
	requireValues(t, "kind of chunk", map[string]uint64{
		"free": chunkFree, "claimed": chunkClaimed, "slab": chunkSlab, "sweeping": chunkSweeping, "head": chunkHead, "tail": chunkTail,
	})
	requireValues(t, "kind of block", map[string]uint64{
		"free": blockFree, "claimed": blockClaimed, "raw": blockRaw, "object": blockObject, "node": blockNode,
		"freeing": blockFreeing, "blocked": blockBlocked, "logged": blockLogged,
	})
	requireValues(t, "phase of an object", map[string]uint64{
		"pending": objectPending, "committed": objectCommitted, "aborted": objectAborted, "deleting": objectDeleting,
	})
	requireValues(t, "state of a node", map[string]uint64{
		"free": uint64(NodeFree), "idle": uint64(NodeIdle), "waiting": uint64(NodeWaiting), "ready": uint64(NodeReady),
		"queued": uint64(NodeQueued), "asleep": uint64(NodeAsleep), "parked": uint64(NodeParked), "resolved": uint64(NodeResolved), "left": uint64(NodeLeft),
	})
	require.EqualValues(t, 6, chunkKinds)
	require.EqualValues(t, 8, blockKinds)
	require.EqualValues(t, 4, objectPhases)

	classes := mdtable.With(abiTables(t), "class", "size of a block")
	require.Len(t, classes, 1)
	require.Len(t, classes[0].Rows, len(classSizes))
	for i, row := range classes[0].Rows {
		size, _, _ := strings.Cut(row.Cells[1], ",")
		require.Equal(t, strconv.Itoa(i), row.Cells[0])
		require.Equal(t, strconv.Itoa(int(classSizes[i])), size)
	}
	require.Equal(t, "64, wait nodes only", classes[0].Rows[classNode].Cells[1])
}

// requireValues checks the only table of values in docs/abi.md whose first column has the given
// heading. It ignores values that are not numbers.
func requireValues(t *testing.T, heading string, want map[string]uint64) {
	t.Helper()
	tables := mdtable.With(abiTables(t), heading, "value")
	require.Len(t, tables, 1, heading)
	got := map[string]uint64{}
	for _, row := range tables[0].Rows {
		name := strings.Trim(row.Cells[0], "`")
		if name == "magic" {
			require.Equal(t, "`"+strings.ReplaceAll(magic, "\x00", `\0`)+"`", row.Cells[1])
			continue
		}
		got[name] = number(t, fmt.Sprintf("docs/abi.md:%d", row.Line), row.Cells[1])
	}
	require.Equal(t, want, got, heading)
}

func TestABIBits(t *testing.T) {
	all := ^uint64(0)
	for section, want := range map[string]map[string]uint64{
		"Bits of a slot's state": {"phase": uint64(makeSlotWord(7, 0)), "generation": uint64(makeSlotWord(0, maxGeneration)), "byte": uint64(heldByte)},
		"Windows of generations": {
			"first": uint64(makeWindow(maxGeneration, 0, 0)), "last": uint64(makeWindow(0, maxGeneration, 0)), "number": uint64(makeWindow(0, 0, 1<<28-1)),
		},
		"Names": {"slot": uint64(makeParticipantID(MaxSlots, 0)), "generation": uint64(makeParticipantID(0, maxGeneration))},
		"Chunk words": {
			"kind": 7, "reserved": uint64(chunkReserved), "number": chunkNumberMask << chunkNumberShift,
			"name": uint64(ParticipantIDMask) << chunkNameShift,
		},
		"Block words":     {"kind": uint64(makeBlock(7, 0)), "name": uint64(makeBlock(0, ParticipantIDMask))},
		"Object header":   {"phase": uint64(makeObject(7, 0)), "name": uint64(makeObject(0, ParticipantIDMask))},
		"Directory entry": {"offset": uint64(makeEntry(Offset(all), 0)), "hash": uint64(makeEntry(0, all))},
		"Wait node": {
			"state":      uint64(NodeWord(0).With(nodeStateMask)),
			"generation": uint64(^NodeWord(0).With(nodeStateMask)),
		},
	} {
		tables := mdtable.With(mdtable.In(abiTables(t), section), "bits", "field")
		require.Len(t, tables, 1, section)
		require.Equal(t, want, bitFields(t, tables[0]), section)
	}
	require.Equal(t, uint64(generationUnit), uint64(NodeWord(0).With(nodeStateMask))+1)
	require.Equal(t, entry(0), entryEmpty)
	require.Equal(t, entry(all), entryGone)
}

// bitFields returns the mask of each field of a table of bits. It requires that no masks overlap.
func bitFields(t *testing.T, table mdtable.Table) map[string]uint64 {
	masks, union := map[string]uint64{}, uint64(0)
	for _, row := range table.Rows {
		where := fmt.Sprintf("docs/abi.md:%d", row.Line)
		low, high, isRange := strings.Cut(row.Cells[0], "..")
		if !isRange {
			high = low
		}
		lo, hi := number(t, where, low), number(t, where, high)
		require.LessOrEqual(t, lo, hi, where)
		require.Equal(t, uint64(bits.Len64(union)), lo, "%s: begins where the row above ends", where)
		mask := ^uint64(0) >> (63 - hi) &^ (1<<lo - 1)
		masks[row.Cells[1]] = mask
		union |= mask
	}
	return masks
}
