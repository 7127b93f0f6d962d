package typetext

import (
	"reflect"
	"strings"
	"structs"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

type inner struct {
	X, Y int16
}

type sample struct {
	_     structs.HostLayout
	Seq   uint64
	Value float64 `shm:"reading"`
	Count atomic.Uint32
	Flag  bool
	_     [3]byte
	Pair  [2]inner
	Bits  [2][4]uint8
	Wave  complex64
	inner
}

const sampleText = "{64 Seq@0 u8 reading@8 f8 Count@16 {4 @0 u4 } Flag@20 b1 _@21 [3] u1 Pair@24 [2] {4 X@0 i2 Y@2 i2 } " +
	"Bits@32 [2] [4] u1 Wave@40 c8 inner@48 {4 X@0 i2 Y@2 i2 } } "

func text(t *testing.T, v any) string {
	d, err := Of(reflect.TypeOf(v))
	require.NoError(t, err)
	return d.String()
}

func TestDescription(t *testing.T) {
	got := text(t, sample{})
	require.Equal(t, strings.Replace(sampleText, "{64", "{56", 1), got)
	d, err := Parse(got)
	require.NoError(t, err)
	require.Equal(t, got, d.String())
	require.True(t, Check(got, Fingerprint(got)))
	require.Equal(t, Fingerprint("{16 @0 u8 @8 f8 } "), Fingerprint("{16 Seq@0 u8 Value@8 f8 } "))
	require.NotEqual(t, Fingerprint("{16 @0 u8 @8 f8 } "), Fingerprint("{16 @0 u8 @8 i8 } "))
}

func TestTypesWithPointersNameTheField(t *testing.T) {
	for what, v := range map[string]any{
		"field A: field Name: a string refers to the memory of one process; take an array of bytes, and its length": struct{ A struct{ Name string } }{},
		"field List: a slice refers": struct{ List [2][]int }{},
		"field P: field _: a ptr refers to the memory of one process; take an arena.Offset, or a number": struct{ P atomic.Pointer[int] }{},
		`the tag shm:"a b" is not a name`: struct {
			X int `shm:"a b"`
		}{},
		"another field has the name Y": struct {
			Y int
			X int `shm:"Y"`
		}{},
	} {
		_, err := Of(reflect.TypeOf(v))
		require.ErrorContains(t, err, what)
	}
}

func TestDamagedDescriptionsAreRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "u8", "u3 ", "x8 ", "[2] ", "[2 u8 ", "[-1] u8 ", "[99999999999999999999] u8 ", "[281474976710655] [281474976710655] u8 ",
		"{8 ", "{8 X@0 u8 ", "{8 X@4 u8 } ", "{8 X u8 } ", "{8 X@0 u4 X@4 u4 } ", "{8 @0 u4 @4 u4 } ", "{8 @0 u8 } } ", "{8 1x@0 u8 } ",
		"{8 X@00 u8 } ", "{8 X-Y@0 u8 } ", "{8 \xff@0 u8 } ", strings.Repeat("[1] ", 100) + "u8 ", "{8 X@0 {8 } ", "u8 u8 ",
		"{8 " + strings.Repeat("x", 300) + "@0 u8 } ", strings.Repeat("u8 ", 2000),
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
		require.False(t, Check(text, Fingerprint(text)), text)
	}
	require.False(t, Check("u8 ", Fingerprint("u4 ")))
}

func TestDifferencesNameTheField(t *testing.T) {
	for _, c := range []struct{ arena, program, want string }{
		{"u8 ", "u8 ", ""},
		{"u8 ", "i8 ", "the type is uint64 at 0 in the arena, and int64 at 0 in this program"},
		{"{8 A@0 u8 } ", "{8 B@0 u8 } ", ""},
		{"{16 A@0 u8 B@8 u8 } ", "{16 B@0 u8 A@8 u8 } ", "field B is uint64 at 8 in the arena, and uint64 at 0 in this program, and 1 more field has moved"},
		{"{24 A@0 u8 B@8 u8 C@16 u4 } ", "{40 Name@0 [8] u1 A@8 u8 B@16 u8 C@24 u8 } ", "field Name, [8]uint8 at 0, is in this program only, " +
			"and field C is uint32 at 16 in the arena, and uint64 at 24 in this program, and 2 more fields have moved"},
		{"{8 A@0 u8 } ", "{40 B@0 u1 C@8 u8 D@16 u8 E@24 u8 A@32 u8 } ", "field B, uint8 at 0, is in this program only, and field C, uint64 at 8, is in this program only, " +
			"and field D, uint64 at 16, is in this program only, and 1 more field differs, and 1 more field has moved"},
		{"{16 A@0 u8 B@8 u8 } ", "{24 _@0 u8 A@8 u8 B@16 u8 } ", "field A is uint64 at 0 in the arena, and uint64 at 8 in this program, and 1 more field has moved"},
		{"{8 A@0 u8 } ", "{8 A@0 {8 @0 u8 } } ", "field A is uint64 at 0 in the arena, and atomic uint64 at 0 in this program"},
		{"{8 A@0 {8 @0 u8 } } ", "{8 A@0 {8 @0 u8 } } ", ""},
		{"{8 Hits@0 u8 } ", "{16 Hits@0 u8 Misses@8 u8 } ", "field Misses, uint64 at 8, is in this program only"},
		{"{16 Hits@0 u8 Misses@8 u8 } ", "{8 Hits@0 u8 } ", "field Misses, uint64 at 8, is in the arena only"},
		{"{8 L@0 [2] {4 X@0 i4 } } ", "{8 L@0 [2] {4 X@0 u4 } } ", "field L[].X is int32 at 0 in the arena, and uint32 at 0 in this program"},
		{"{8 N@0 [8] u1 } ", "{16 N@0 [16] u1 } ", "field N is [8]uint8 at 0 in the arena, and [16]uint8 at 0 in this program"},
		{"{8 A@0 {8 B@0 f8 } } ", "{8 A@0 {8 B@0 i8 } } ", "field A.B is float64 at 0 in the arena, and int64 at 0 in this program"},
		{"{8 A@0 u4 _@4 u4 } ", "{8 A@0 u4 _@4 f4 } ", ""},
		{"nonsense", "u8 ", ""},
	} {
		require.Equal(t, c.want, DifferenceOf(c.arena, c.program), "%s / %s", c.arena, c.program)
	}
}

func TestValuesByField(t *testing.T) {
	d, err := Parse("{64 A@0 i2 Name@2 [6] u1 F@8 f4 Z@12 b1 _@13 [3] u1 C@16 c8 L@24 [2] {8 X@0 u4 Y@4 [2] u2 } N@40 [3] i1 Bits@43 [4] u1 At@48 {8 @0 u8 } Far@56 f8 } ")
	require.NoError(t, err)
	b := make([]byte, 64)
	copy(b, "\xfe\xffab\x00\x00\x00\x00\x00\x00\x20\xc1\x01...\x00\x00\x80\x3f\x00\x00\x00\xc0")
	copy(b[24:], "\x01\x00\x00\x00\x02\x00\x03\x00\x04\x00\x00\x00\x05\x00\x06\x00\xff\x01\x80\x00\xff\x00\x01\x00\x07")
	copy(b[56:], "\x00\x00\x00\x00\x00\x00\xf8\x7f")
	all, more := Values(d, b, 100)
	require.False(t, more)
	var lines []string
	for _, v := range all {
		lines = append(lines, v.Path+" "+v.Kind+" "+v.Text)
	}
	require.Equal(t, []string{
		"A int16 -2", `Name [6]uint8 "ab"`, "F float32 -10", "Z bool true", "C complex64 (1-2i)", "L[0].X uint32 1", "L[0].Y [2]uint16 [2 3]",
		"L[1].X uint32 4", "L[1].Y [2]uint16 [5 6]", "N [3]int8 [-1 1 -128]", "Bits [4]uint8 0x00ff0001", "At atomic uint64 7", "Far float64 NaN",
	}, lines)
	for n := range b {
		some, more := Values(d, b[:n], 100)
		require.True(t, more)
		require.LessOrEqual(t, len(some), len(all))
	}
	few, more := Values(d, b, 2)
	require.Len(t, few, 2)
	require.True(t, more)

	d, err = Parse("[1000] u4 ")
	require.NoError(t, err)
	all, more = Values(d, make([]byte, 4000), 100)
	require.True(t, more)
	require.Len(t, all[0].Data, MaxElements)
}

// TestValuesEnd checks that a call of Values ends soon for a short description with very many parts, even if the
// parts have size 0.
func TestValuesEnd(t *testing.T) {
	for _, inner := range []string{"{0 } ", "{1 X@0 u1 } ", "{4 _@0 u4 } "} {
		d, err := Parse(strings.Repeat("[64] ", 7) + inner)
		require.NoError(t, err)
		_, more := Values(d, make([]byte, 1000), 100)
		require.True(t, more)
	}
}
