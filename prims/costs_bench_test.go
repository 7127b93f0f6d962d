//go:build linux

package prims_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// BenchmarkDataCosts measures what data that survives costs: Updates of a Mutex and of an RWMutex, Updates and
// Loads of a Synchronized, a rollback. It does a slice of each in turn and takes the fastest slice of each, so that
// other programs of the host disturb all alike. It prints nanoseconds, and the ratio to Lock, two stores and Unlock
// of a Mutex.
func BenchmarkDataCosts(b *testing.B) {
	a := newArena(b, &arena.Options{Size: 8 << 20})
	for !a.Fenced() { // handles that are opened from then on release by a plain store
		<-after(time.Millisecond)
	}
	m, err := prims.OpenMutex(a, "reference", nil)
	require.NoError(b, err)
	words, err := arena.Value[[1024]uint64](a, "words")
	require.NoError(b, err)
	const turns = 1000
	rows := []costRow{{"reference", turns, func(n int) {
		for range n {
			m.Lock()
			words[0]++
			words[100]++
			m.Unlock()
		}
	}}}
	for _, rw := range []bool{false, true} {
		l, err := openTxLock(a, rw, 0)
		require.NoError(b, err)
		what := map[bool]string{false: "Mutex", true: "RWMutex"}[rw]
		row := func(name string, f func(tx *prims.Tx) error) {
			rows = append(rows, costRow{what + ".Update, " + name, turns, func(n int) {
				for range n {
					l.Update(f)
				}
			}})
		}
		row("nothing", func(*prims.Tx) error { return nil })
		row("two words", func(tx *prims.Tx) error {
			prims.Save(tx, &words[0])
			prims.Save(tx, &words[100])
			words[0]++
			words[100]++
			return nil
		})
		for _, n := range []int{256, 1024, 4096} {
			row(fmt.Sprint(n, " B"), func(tx *prims.Tx) error { prims.SaveSlice(tx, words[:n/8]); words[0]++; return nil })
		}
		row("ten Set", func(tx *prims.Tx) error {
			for i := range 10 {
				prims.Set(tx, &words[20*i], uint64(i))
			}
			return nil
		})
		rows = append(rows, costRow{what + ", rollback of 16 KiB", 20, costRollback(b, a, rw)})
	}
	rows = append(rows, costSynchronized[[2]uint64](b, a, "16 B", turns)...)
	rows = append(rows, costSynchronized[[128]uint64](b, a, "1 KiB", turns)...)
	rows = append(rows, costSynchronized[[512]uint64](b, a, "4 KiB", turns)...)
	rows = append(rows, costSynchronized[[8192]uint64](b, a, "64 KiB", 20)...)
	least := make([]float64, len(rows))
	for range 20 * b.N {
		for i, r := range rows {
			start := time.Now()
			r.run(r.turns)
			if ns := float64(time.Since(start)) / float64(r.turns); least[i] == 0 || ns < least[i] {
				least[i] = ns
			}
		}
	}
	table := ""
	for i, r := range rows {
		table += fmt.Sprintf("%-34s %9.1f ns %9.2f\n", r.name, least[i], least[i]/least[0])
	}
	fmt.Print("\n" + table)
	b.ReportMetric(0, "ns/op")
}

// costRow is an operation, and how often a slice does it.
type costRow struct {
	name  string
	turns int
	run   func(n int)
}

func costSynchronized[T any](b *testing.B, a *arena.Arena, size string, turns int) []costRow {
	s, dst := newSynchronized(b, a, size, *new(T)), new([2]T)
	return []costRow{
		{"memcpy of " + size, turns, func(n int) {
			for range n {
				dst[0] = dst[1]
				sink(dst)
			}
		}},
		{"Synchronized.Update of " + size, turns, func(n int) {
			for range n {
				s.Update(func(*T) error { return nil })
			}
		}},
		{"Synchronized.Load of " + size, turns, func(n int) {
			for range n {
				s.LoadInto(&dst[0])
			}
		}},
	}
}

// costRollback returns a call that locks what a process that is gone has left, with 16 KiB in its log.
func costRollback(b *testing.B, a *arena.Arena, rw bool) func(n int) {
	const saved, gone = 16 << 10, 1<<11 | 9
	off, err := a.Alloc(saved, 8)
	require.NoError(b, err)
	records := binary.LittleEndian.AppendUint64(make([]byte, saved), uint64(off))
	records = binary.LittleEndian.AppendUint64(records, saved)
	var l txLock
	if rw {
		l, err = prims.OpenRWMutex(a, "left rw", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: 2 * saved})
	} else {
		l, err = prims.OpenMutex(a, "left m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 2 * saved})
	}
	require.NoError(b, err)
	leave := func() { l.LeaveLog(1<<61|gone<<32|uint64(len(records)), records) }
	run := func(n int) {
		for range n {
			leave()
			l.Lock()
			l.Unlock()
		}
	}
	run(1)
	require.EqualValues(b, 1, l.Rollbacks())
	return run
}
