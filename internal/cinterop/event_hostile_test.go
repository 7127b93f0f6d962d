//go:build linux

package cinterop

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Words of an auto-reset Event: offsets in its body, and in a slot record.
const (
	eventModeAt        = 20
	eventRecordNameAt  = 64
	eventRecordWaitsAt = 72
)

// asPeer calls f, as another participant, with the arena and the object at off.
func asPeer(t *testing.T, name string, off uint64, f func(a *arena.Arena, o arenakernel.Object)) {
	t.Helper()
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	k := (*arenakernel.Arena)(a)
	o, err := k.ObjectAt(arenakernel.Offset(off))
	require.NoError(t, err)
	defer k.CloseObject(o)
	f(a, o)
}

// A peer changes the participant ID in the slot record of a process that waits. Then the record no longer counts the
// waits of this process. Each Set still ends exactly one of the waits.
func TestEventWaitsOfAChangedNameInC(t *testing.T) {
	name := newArena(t)
	x, y := newAgent(t, "c", name, "waits"), newAgent(t, "c", name, "sets")
	off := x.do(t, "event.open", "x", 1)
	y.do(t, "event.open", "x", 1)
	var waits []pending
	for n := range uint64(3) {
		waits = append(waits, x.start(t, "event.wait", "x"))
		eventually(t, "it waits", name, func() bool { return y.do(t, "waiters", "-", off) == n+1 })
	}
	asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
		require.NoError(t, (*arenakernel.Arena)(a).EachSlotRecord(o, 0, func(r arenakernel.Offset, slot int) bool {
			if slot == 1 {
				arena.At[atomic.Uint64](a, r+eventRecordNameAt).Store(12345)
			}
			return true
		}))
	})
	ended := 0
	for n := range len(waits) {
		y.do(t, "event.set", "x")
		eventually(t, "one of them ends", name, func() bool {
			for _, w := range waits {
				select {
				case a := <-w.c:
					require.Zero(t, a.err)
					ended++
				default:
				}
			}
			return ended > n
		})
		require.Equal(t, n+1, ended)
		require.Zero(t, y.do(t, "event.isset", "x"), "the token is used up")
	}
}

// A peer damages the list of slot records. The process that sets the Event then cannot find the slot record of a
// process that waits. The wait still ends, and the record of the waiting process no longer counts the wait.
func TestEventTokenForAShareThatIsNotFoundInC(t *testing.T) {
	name := newArena(t)
	sets, y := newAgent(t, "c", name, "sets"), newAgent(t, "c", name, "counts")
	off := sets.do(t, "event.open", "x", 1)
	x := newAgent(t, "c", name, "waits")
	x.do(t, "event.open", "x", 1)
	w := x.start(t, "event.wait", "x")
	eventually(t, "it waits", name, func() bool { return y.do(t, "waiters", "-", off) == 1 })
	var records []arenakernel.Offset
	var was uint32
	asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
		k := (*arenakernel.Arena)(a)
		require.NoError(t, k.EachSlotRecord(o, 0, func(r arenakernel.Offset, _ int) bool {
			records = append(records, r)
			return true
		}))
		was = k.SlotRecords(o).Swap(1)
	})
	sets.do(t, "event.set", "x")
	w.must(t)
	asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
		(*arenakernel.Arena)(a).SlotRecords(o).Store(was)
		share := arena.At[atomic.Uint64](a, records[0]+eventRecordWaitsAt)
		require.Zero(t, uint32(share.Load()), "the wait is counted off")
		require.NotZero(t, share.Load()>>32, "by the version in which it ended")
	})
	sets.do(t, "event.set", "x")
	sets.do(t, "event.try", "x")
	sound(t, name)
}

// The mode word of an Event must be 1 if the Event is auto-reset, and 0 otherwise. An open of an Event with
// another value fails.
func TestEventModeGoesWithTheSizeInC(t *testing.T) {
	for _, word := range []uint32{2, 7} {
		name := newArena(t)
		x := newAgent(t, "c", name, "makes it")
		off := x.do(t, "event.open", "x", 0)
		asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
			arena.At[atomic.Uint32](a, o.Body+eventModeAt).Store(word)
		})
		newAgent(t, "c", name, "opens it").start(t, "event.open", "x", 0).fails(t, syscall.EPROTO)
	}
}
