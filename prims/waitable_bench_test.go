//go:build linux

package prims_test

import "testing"

// BenchmarkWaitable measures calls that do not wait: a claim and its release, an Update, and a State. The states have 4
// bytes or 4 KiB. In one benchmark the process already has a claim for each of 1,000 values, and makes one more claim
// for one of these values.
func BenchmarkWaitable(b *testing.B) {
	a := newArena(b, nil)
	rw, err := shared(a, "rw")
	if err != nil {
		b.Fatal(err)
	}
	x, err := openWide(a)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("claim and release", func(b *testing.B) {
		for b.Loop() {
			if !rw.TryWait(true) {
				b.Fatal("it is free")
			}
			rw.Release(true)
		}
	})
	m, err := many(a, "many")
	if err != nil {
		b.Fatal(err)
	}
	const values = 1000
	for e := range int64(values) {
		m.TryWait(e)
	}
	b.Run("one of 1,000 claims", func(b *testing.B) {
		for e := int64(0); b.Loop(); e = (e + 7) % values {
			if !m.TryWait(e) {
				b.Fatal("the rules allow it")
			}
			m.Release(e)
		}
	})
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			rw.Update(func(*sharedState) {})
		}
	})
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			rw.State()
		}
	})
	b.Run("update, wide", func(b *testing.B) {
		for b.Loop() {
			x.Update(func(s *wide) { s[0]++ })
		}
	})
	b.Run("state, wide", func(b *testing.B) {
		for b.Loop() {
			x.State()
		}
	})
}
