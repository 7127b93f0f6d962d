//go:build linux

package arenakernel

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/stretchr/testify/require"
)

var testKind = KindOf("HTST")

func spec(name string) ObjectSpec {
	return ObjectSpec{Kind: testKind, Version: 3, Name: name, Size: 200}
}

func TestOpenObjectCreatesOnce(t *testing.T) {
	p := newNeighbours(2<<20, 40)
	a, b := p.join(1), p.join(33)
	s := spec("ledger")
	s.Init = func(body []byte) {
		require.Equal(t, make([]byte, 200), body)
		body[199] = 7
	}
	o, created, err := a.OpenObject(s)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, Object{Offset: o.Offset, Body: o.Offset + objectHeader, Size: 200, Kind: testKind, Version: 3, Name: "ledger"}, o)
	require.Zero(t, o.Body%64)

	s.Init = func([]byte) { t.Error("initialised an object that exists") }
	other, created, err := b.OpenObject(s)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, o, other)
	require.EqualValues(t, 7, b.slice(other.Body, 200)[199])
	requireSound(t, a)

	at, err := b.ObjectAt(o.Offset)
	require.NoError(t, err)
	require.Equal(t, o, at)
	require.Equal(t, "ledger", o.String())
}

func TestOpenObjectComparesBothSides(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	_, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	for want, change := range map[string]func(*ObjectSpec){
		"it is an object of kind HTST, asked for a Block":                func(s *ObjectSpec) { s.Kind = KindBlock },
		"version 3 of the layout of an object of kind HTST, asked for 4": func(s *ObjectSpec) { s.Version = 4 },
		"it has 200 bytes, asked for 201":                                func(s *ObjectSpec) { s.Size = 201 },
		"fingerprint 0x0, asked for 0x9; it has 200 bytes, asked for 1":  func(s *ObjectSpec) { s.Layout, s.Size = 9, 1 },
	} {
		s := spec("x")
		change(&s)
		_, _, err := a.OpenObject(s)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorIs(t, err, syscall.EINVAL)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `"x"`)
	}
	s := spec("x")
	s.Size, s.AnySize = 5, true
	o, created, err := a.OpenObject(s)
	require.NoError(t, err)
	require.False(t, created)
	require.EqualValues(t, 200, o.Size)
	// The calls of OpenObject that were refused have not left the object open.
	a.CloseObject(o)
	a.CloseObject(o)
	require.Panics(t, func() { a.CloseObject(o) })
	require.NoError(t, a.Delete("x"))
}

func TestObjectNames(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	for _, name := range []string{"a", strings.Repeat("ü", 127) + "x", "\x00", "a b/c\n", "日本"} {
		o, created, err := a.OpenObject(spec(name))
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, name, o.Name)
	}
	for _, name := range []string{strings.Repeat("x", 256), "\xff", "a\xc3"} {
		_, _, err := a.OpenObject(spec(name))
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	big := spec("big")
	big.Size = MaxObject + 1
	_, _, err := a.OpenObject(big)
	require.ErrorIs(t, err, shmsync.ErrNotSupported)
	big.Size = MaxObject
	_, _, err = a.OpenObject(big)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	names := map[string]bool{}
	for o := range a.Objects() {
		names[o.Name] = true
	}
	require.Len(t, names, 5)
	requireSound(t, a)
}

func TestAnonymousObjects(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	o, created, err := a.OpenObject(spec(""))
	require.NoError(t, err)
	require.True(t, created)
	second, _, err := a.OpenObject(spec(""))
	require.NoError(t, err)
	require.NotEqual(t, o.Offset, second.Offset)
	require.Equal(t, o.Offset.String(), o.String())

	there, err := b.ObjectAt(o.Offset)
	require.NoError(t, err)
	require.Equal(t, o, there)
	a.CloseObject(o)
	require.ErrorIs(t, a.DeleteObject(o), syscall.EBUSY)
	require.ErrorIs(t, b.DeleteObject(o), syscall.EBUSY)
	b.CloseObject(there)
	require.NoError(t, a.DeleteObject(o))
	require.ErrorIs(t, a.DeleteObject(o), shmsync.ErrIncompatible)
	_, err = b.ObjectAt(o.Offset)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, o.Offset.String())
	requireSound(t, a)
}

// TestDeleteObjectLeavesAnotherObjectAlone checks that DeleteObject of a deleted object does not delete another
// object at the same offset.
func TestDeleteObjectLeavesAnotherObjectAlone(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	x, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	a.CloseObject(x)
	require.NoError(t, b.DeleteObject(x))
	y, _, err := b.OpenObject(spec("y"))
	require.NoError(t, err)
	require.Equal(t, x.Offset, y.Offset)
	b.CloseObject(y)
	require.ErrorIs(t, a.DeleteObject(x), shmsync.ErrIncompatible)
	there, err := a.ObjectAt(y.Offset)
	require.NoError(t, err)
	require.Equal(t, y, there)
	a.CloseObject(there)
	require.NoError(t, a.DeleteObject(y), "nobody has it open")
	requireSound(t, a)
}

func TestDelete(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	require.ErrorIs(t, a.Delete("x"), fs.ErrNotExist)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	_, _, err = b.OpenObject(spec("x"))
	require.NoError(t, err)
	require.ErrorIs(t, a.Delete("x"), syscall.EBUSY)
	a.CloseObject(o)
	err = a.Delete("x")
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, b.self.String())
	require.EqualValues(t, objectCommitted, a.u32(o.Offset+objState).Load())
	requireSound(t, a)

	p.kill(b.self) // the open bit of a dead participant does not count, even before its reap
	require.NoError(t, a.Delete("x"))
	require.ErrorIs(t, a.Delete("x"), fs.ErrNotExist)
	_, created, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	require.True(t, created)
	requireSound(t, a)
	require.EqualValues(t, 1, a.Stats().Objects)
}

func TestWildOffsetsAreNoObjects(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	off := mustAlloc(t, a, 200, 0)
	for _, wild := range []Offset{0, 1, o.Offset + 64, o.Offset + 8, off, Offset(a.size), ^Offset(0), Offset(a.geo.dirOff)} {
		_, err := a.ObjectAt(wild)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, wild.String())
		require.ErrorIs(t, a.DeleteObject(Object{Offset: wild}), shmsync.ErrIncompatible)
	}
}

func TestImpossibleHeadersAreCorrupt(t *testing.T) {
	for what, change := range map[string]func(a *Arena, off Offset){
		"size":  func(a *Arena, off Offset) { a.u64(off + objSize).Store(1 << 40) },
		"open":  func(a *Arena, off Offset) { a.u32(off + objOpenOff).Store(8) },
		"open2": func(a *Arena, off Offset) { a.u32(off + objOpenOff).Store(1 << 31) },
		"name":  func(a *Arena, off Offset) { a.u32(off + objNameOff).Store(1<<32 - 1) },
		"len":   func(a *Arena, off Offset) { a.u32(off + objVersion).Store(0xffff0003) },
		"hash":  func(a *Arena, off Offset) { a.u64(off + objHash).Add(1 << 47) },
		"state": func(a *Arena, off Offset) { a.u32(off + objState).Store(7) },
	} {
		t.Run(what, func(t *testing.T) {
			p := newNeighbours(2<<20, 4)
			a, b := p.join(1), p.join(2)
			o, _, err := a.OpenObject(spec("x"))
			require.NoError(t, err)
			change(a, o.Offset)
			_, err = b.ObjectAt(o.Offset)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			_, _, err = b.OpenObject(spec("x"))
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
			require.ErrorIs(t, b.Delete("x"), shmsync.ErrCorrupt)
			require.ErrorIs(t, b.Check(), shmsync.ErrCorrupt)
			for range b.Objects() {
				t.Error("an impossible object")
			}
		})
	}
}

func TestFullDirectory(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a := p.join(1)
	n := int(p.geo.dirCount)
	for i := range n {
		s := spec(fmt.Sprint("object ", i))
		s.Size = 0
		o, created, err := a.OpenObject(s)
		require.NoError(t, err)
		require.True(t, created)
		a.CloseObject(o)
	}
	before := a.Stats()
	_, _, err := a.OpenObject(spec("one more"))
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, "names of the directory")
	require.NoError(t, a.Delete("object 17"))
	o, created, err := a.OpenObject(ObjectSpec{Kind: testKind, Name: "one more"})
	require.NoError(t, err)
	require.True(t, created)
	a.CloseObject(o)
	require.Equal(t, before.Objects, a.Stats().Objects)
	for i := range n {
		if i != 17 {
			require.NoError(t, a.Delete(fmt.Sprint("object ", i)))
		}
	}
	require.NoError(t, a.Delete("one more"))
	require.Zero(t, a.Stats().Objects)
	requireSound(t, a)
}

// TestInitPanics: if Init panics, neither an object with a name nor an anonymous object is left behind.
func TestInitPanics(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	for _, name := range []string{"", "x"} {
		s := spec(name)
		s.Init = func([]byte) { panic("no") }
		require.PanicsWithValue(t, "no", func() { a.OpenObject(s) })
		require.Zero(t, a.Stats().Claimed+a.Stats().Objects)
		s.Init = nil
		_, created, err := a.OpenObject(s)
		require.NoError(t, err)
		require.True(t, created)
		requireSound(t, a)
		require.NoError(t, func() error {
			o, err := a.ObjectAt(firstObject(t, a))
			require.NoError(t, err)
			a.CloseObject(o)
			a.CloseObject(o)
			return a.DeleteObject(o)
		}())
	}
}

func firstObject(t *testing.T, a *Arena) (off Offset) {
	for o := range a.Objects() {
		return o.Offset
	}
	t.Fatal("there is no object")
	return 0
}

// TestSearchIsShort: the search for a missing name examines only a few entries, no matter how many
// names existed before. The search for an existing name always finds it.
func TestSearchIsShort(t *testing.T) {
	p := newNeighbours(1<<20, 4)
	a := p.join(1)
	n := int(p.geo.dirCount)
	steps := func(name string) (n int) {
		a.probe(hashName(name), func(uint64, entry) bool { n++; return true })
		return n
	}
	for i := range 40 * n {
		s := ObjectSpec{Kind: testKind, Name: fmt.Sprint("object ", i)}
		o, created, err := a.OpenObject(s)
		require.NoError(t, err)
		require.True(t, created)
		a.CloseObject(o)
		if i >= n/8 { // at most n/8 names exist at a time
			require.NoError(t, a.Delete(fmt.Sprint("object ", i-n/8)))
		}
	}
	gone := 0
	for pos := range p.geo.dirCount {
		if a.loadEntry(pos) != entryEmpty {
			gone++
		}
	}
	require.Equal(t, n, gone, "an empty entry ends no search any more")
	worst := 0
	for i := range 1000 {
		worst = max(worst, steps(fmt.Sprint("nobody ", i)))
	}
	require.LessOrEqual(t, worst, n/32)
	for i := 40*n - n/8; i < 40*n; i++ {
		_, created, err := a.OpenObject(ObjectSpec{Kind: testKind, Name: fmt.Sprint("object ", i)})
		require.NoError(t, err)
		require.False(t, created)
	}
	requireSound(t, a)
}
