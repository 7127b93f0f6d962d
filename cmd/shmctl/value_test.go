//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/typetext"
	"github.com/shmsync/shmsync/prims"
)

type ledger struct {
	Balance int64
	Owner   [16]byte
	Entries atomic.Uint64
	Last    [2]struct{ Day, Month uint8 }
	Rate    float64 `shm:"rate"`
}

func TestValueByField(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	v, err := arena.Value[ledger](a, "ledger")
	require.NoError(t, err)
	v.Balance, v.Rate = -90, 0.25
	copy(v.Owner[:], "alice")
	v.Entries.Store(3)
	v.Last[1].Month = 11
	want := `FIELD          TYPE           VALUE
Balance        int64          -90
Owner          [16]uint8      "alice"
Entries        atomic uint64  3
Last[0].Day    uint8          0
Last[0].Month  uint8          0
Last[1].Day    uint8          0
Last[1].Month  uint8          11
rate           float64        0.25
`
	require.Equal(t, want, soon(t, exitOK, "value", name, "ledger"))
	_, d := shmctlJSON(t, "value", name, "ledger")
	require.Equal(t, "Last[1].Month", d.Value.Fields[6].Field)
	require.EqualValues(t, 35, d.Value.Fields[6].Offset)
	require.EqualValues(t, 11, d.Value.Fields[6].Value)
	require.False(t, d.Value.More)

	s, err := prims.OpenSynchronized(a, "s", struct{ A, B uint32 }{1, 2}, nil)
	require.NoError(t, err)
	for range 2 { // so that each copy of the Synchronized is the valid copy once
		require.NoError(t, s.Update(func(v *struct{ A, B uint32 }) error { v.B += 10; return nil }))
	}
	require.Equal(t, "s after 2 commits\nFIELD  TYPE    VALUE\nA      uint32  1\nB      uint32  22\n", soon(t, exitOK, "value", name, "s"))
	require.NoError(t, s.Update(func(v *struct{ A, B uint32 }) error {
		v.B = 5 // not committed yet
		require.Contains(t, soon(t, exitOK, "value", name, "s"), "B      uint32  22\n")
		return nil
	}))
	require.Contains(t, soon(t, exitOK, "value", name, "s"), "B      uint32  5\n")
	anonymous, err := prims.OpenSynchronized(a, "", int8(-3), nil)
	require.NoError(t, err)
	require.Equal(t, anonymous.Offset().String()+" after 0 commits\nFIELD  TYPE  VALUE\n-      int8  -3\n", soon(t, exitOK, "value", name, anonymous.Offset().String()))

	_, err = prims.OpenQueue[ledger](a, "q", 2, nil)
	require.NoError(t, err)
	_, err = a.Block("b", 8)
	require.NoError(t, err)
	_, _, err = (*arenakernel.Arena)(a).OpenObject(arenakernel.ObjectSpec{Kind: arenakernel.KindValue, Version: 1, Name: "plain", Size: 8, Layout: 7})
	require.NoError(t, err)
	for object, why := range map[string]string{
		"q": "q is a Queue, whose items shmctl does not show; an item has Balance int64 at 0, ", "b": "only a Value and a Synchronized have a value",
		"plain": "has no description of its type", "nothing": `there is no object "nothing"`,
	} {
		code, _, errs := shmctl("value", name, object)
		require.Equal(t, exitMissing, code)
		require.Contains(t, errs, why)
	}

	dir := t.TempDir()
	bare, full := filepath.Join(dir, "bare"), filepath.Join(dir, "full")
	soon(t, exitOK, "dump", "-o", bare, name)
	soon(t, exitOK, "dump", "--with-data", "-o", full, name)
	require.Equal(t, want, soon(t, exitOK, "value", full, "ledger"))
	code, _, errs := shmctl("value", bare, "ledger")
	require.Equal(t, exitMissing, code)
	require.Contains(t, errs, "the dump has no values")
}

// Whatever bytes an object has, the command value ends, and prints a document or an error.
func TestValueOfHostileBytes(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	k := (*arenakernel.Arena)(a)
	for object, text := range map[string]string{
		"large":   "[281474976710655] u1 ",
		"many":    "[64] [64] [64] [64] [64] [64] [64] [64] {0 } ",
		"wrong":   "{8 A@0 u4 ",
		"control": "{8 A\x1b[0m@0 u8 } ",
		"bool":    "{8 A@0 b1 } ",
	} {
		o, _, err := k.OpenObject(arenakernel.ObjectSpec{Kind: arenakernel.KindValue, Version: 1, Name: object, Size: 8, Layout: typetext.Fingerprint(text), Type: text,
			Init: func(b []byte) { b[0] = 9 }})
		require.NoError(t, err)
		code, out, errs := shmctl("value", name, object, "--json")
		switch object {
		case "bool":
			require.Contains(t, soon(t, exitOK, "value", name, object), "0x9, which is no bool")
		case "many":
			require.Contains(t, out, `"more": true`)
		default:
			require.Equal(t, exitMissing, code, object)
		}
		require.True(t, code != exitOK || json.Valid([]byte(out)), object)
		require.NotContains(t, out+errs, "\x1b")
		// A length that does not fit is reported as damage, and does not crash shmctl.
		f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{255, 255, 255, 255}, int64(o.Offset)+44)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		code, _, _ = shmctl("value", name, object)
		require.Equal(t, exitMissing, code)
		code, out, _ = shmctl("check", name)
		require.Equal(t, exitTrouble, code)
		require.Contains(t, out, "length of the description of its type")
	}
}

// TestValueThatIsDeletedMeanwhile checks the case that a value is deleted while the command reads it, and a new value
// gets the same offset. The command does not show the bytes of the new value under the old name.
func TestValueThatIsDeletedMeanwhile(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	k := (*arenakernel.Arena)(a)
	fingerprint, err := arenakernel.LayoutOf[int64]()
	require.NoError(t, err)
	create := func(object string) arenakernel.Object {
		o, created, err := k.OpenObject(arenakernel.ObjectSpec{
			Kind: arenakernel.KindValue, Version: 1, Name: object, Size: 8, Layout: fingerprint, Type: arenakernel.TypeTextOf[int64](),
		})
		require.NoError(t, err)
		require.True(t, created)
		k.CloseObject(o)
		return o
	}
	first := create("first")
	src, err := open(name)
	require.NoError(t, err)
	defer src.Close()
	o, err := findObject(src, "first")
	require.NoError(t, err)
	_, err = readValue(src, o)
	require.NoError(t, err)
	require.NoError(t, a.Delete("first"))
	require.Equal(t, first.Offset, create("second").Offset)
	_, err = readValue(src, o)
	require.ErrorAs(t, err, &missing{})
}
