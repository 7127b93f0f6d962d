//go:build linux

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// BenchmarkUpdate measures an Update and, for comparison, the sequence Lock, two stores, Unlock.
func BenchmarkUpdate(b *testing.B) {
	a := newArena(b, nil)
	m, err := prims.OpenMutex(a, "m", &prims.MutexOptions{Policy: prims.PolicyRollback})
	require.NoError(b, err)
	words, err := arena.Value[[1024]int64](a, "words")
	require.NoError(b, err)
	b.Run("save=reference", func(b *testing.B) {
		for b.Loop() {
			m.Lock()
			words[0]++
			words[100]++
			m.Unlock()
		}
	})
	run := func(name string, f func(tx *prims.Tx) error) {
		b.Run("save="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Update(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("nothing", func(*prims.Tx) error { return nil })
	run("two words", func(tx *prims.Tx) error {
		prims.Save(tx, &words[0])
		prims.Save(tx, &words[100])
		words[0]++
		words[100]++
		return nil
	})
	for _, n := range []int{256, 1024, 4096} {
		run(fmt.Sprintf("%dB", n), func(tx *prims.Tx) error {
			prims.SaveSlice(tx, words[:n/8])
			words[0]++
			return nil
		})
	}
	run("ten Set", func(tx *prims.Tx) error {
		for i := range 10 {
			prims.Set(tx, &words[20*i], int64(i))
		}
		return nil
	})
}

// TestUpdateAllocations: an Update allocates nothing on the Go heap.
func TestUpdateAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	m, l := newRollback(t, a, 0)
	f := func(tx *prims.Tx) error {
		prims.Set(tx, &l.From, 1)
		tx.Free(tx.Alloc(64, 0))
		return nil
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { m.Update(f) }))
}
