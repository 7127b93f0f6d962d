//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/cmd/shmgen/internal/every"
	"github.com/shmsync/shmsync/internal/typetext"
)

// C and Go find the same differences between two descriptions. Neither accepts bytes that are not a description.
func testDifferencesInC(t *testing.T, path string) {
	c := startPeer(t, path, "-")
	texts := []string{
		"u8 ", "i8 ", "[4] u1 ", "[2] [3] f4 ", "{8 A@0 u8 } ", "{8 B@0 u8 } ", "{16 A@0 u8 B@8 u8 } ", "{16 B@0 u8 A@8 u8 } ", "{8 A@0 {8 @0 u8 } } ",
		"{16 A@0 c16 } ", "{8 L@0 [2] {4 X@0 i4 } } ", "{8 L@0 [2] {4 X@0 u4 } } ", "{8 L@0 [2] {4 @0 u4 } } ", "{8 A@0 u4 _@4 u4 } ", "{1 A@0 b1 } ",
		"{32 A@0 u8 In@8 {16 X@0 f8 Y@8 f8 } L@24 [2] {4 Q@0 i2 R@2 i2 } } ", "{24 In@0 {16 Y@0 f8 X@8 f8 } L@16 [2] {4 Q@0 i2 S@2 u2 } } ",
		"{272 Gr\u00f6\u00dfe@0 [3] [4] {4 @0 u4 } Last@271 u1 } ", strings.Repeat("[1] ", 15) + "u8 ",
	}
	d, err := typetext.Of(reflect.TypeFor[every.Every]())
	require.NoError(t, err)
	texts = append(texts, d.String())
	compare := func(x, y string) {
		t.Helper()
		want := fmt.Sprintf("%016x %s", typetext.Fingerprint(x), typetext.DifferenceOf(x, y))
		require.Equal(t, want, c.ask(t, "diff %s|%s", x, y), "%s | %s", x, y)
	}
	for _, x := range texts {
		for _, y := range texts {
			compare(x, y)
		}
	}
	for _, bad := range []string{"{8 A\x1b[0m@0 u8 } ", "{8 A\u0085@0 u8 } ", "{8 A-B@0 u8 } ", "{8 1A@0 u8 } ", "{8 A@0 u8", "u3 ", "[x] u8 ", "{16 A@0 u8 @8 u8 } "} {
		compare("{8 B@0 i8 } ", bad)
		compare(bad, "{8 B@0 i8 } ")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		x, y := texts[random.IntN(len(texts))], []byte(texts[random.IntN(len(texts))])
		for range 1 + random.IntN(3) {
			at := random.IntN(len(y))
			if random.IntN(2) == 0 {
				y[at] = "@{}[] 0189iufbcAX_\x01\xff"[random.IntN(20)]
			} else {
				y = append(y[:at], y[at+1:]...)
			}
			if len(y) == 0 {
				break
			}
		}
		if _, err := typetext.Parse(string(y)); err == nil {
			compare(x, string(y))
			compare(string(y), x)
		} else {
			c.ask(t, "diff %s|%s", x, y) // it answers
			c.ask(t, "diff %s|%s", y, x)
		}
	}
}
