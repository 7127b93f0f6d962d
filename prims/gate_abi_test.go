//go:build linux

package prims

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

func init() {
	abiStructs["WaitGroup"], abiStructs["Latch"] = reflect.TypeFor[counterWords](), reflect.TypeFor[counterWords]()
	abiStructs["Barrier"], abiStructs["Once"] = reflect.TypeFor[barrierWords](), reflect.TypeFor[onceWords]()
	add := func(section string, kind arenakernel.Kind, version int) {
		row := abiKinds[section]
		row.kind, row.version = kind, version
		abiKinds[section] = row
	}
	add("WaitGroup", waitGroupKind, counterVersion)
	add("Latch", latchKind, counterVersion)
	add("Barrier", barrierKind, barrierVersion)
	add("Once", onceKind, onceVersion)
}

// TestABIShares: docs/abi.md describes the shares as the code has them.
func TestABIShares(t *testing.T) {
	for section, share := range map[string]reflect.Type{
		"Slot record of a WaitGroup or a Latch": reflect.TypeFor[counterSlot](), "Slot record of a Barrier": reflect.TypeFor[barrierSlot](),
	} {
		tables := abiTables(t, section, "offset", "size", "field", "order")
		require.Len(t, tables, 1, section)
		documented := map[string][2]int{}
		for _, row := range tables[0].Rows {
			if row.Cells[2] != "reserved" {
				documented[strings.Trim(row.Cells[2], "`")] = [2]int{abiNumber(t, row.Cells[0]), abiNumber(t, row.Cells[1])}
			}
		}
		fields := map[string][2]int{}
		for f := range share.Fields() {
			if f.Name != "_" {
				fields[f.Name] = [2]int{int(f.Offset), int(f.Type.Size())}
			}
		}
		require.Equal(t, fields, documented, section)
	}
}
