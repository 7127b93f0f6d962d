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

// Words of an auto-reset Event: offsets in its body, and in the record of a slot.
const (
	eventModeAt       = 20
	eventSpareAt      = 32
	eventRecordNameAt = 64
)

// asPeer calls f with the arena and the object at off, as another participant.
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

// A peer changes the name in the share of a participant that waits. A token that came back from the dead ends one of
// its waits, not all.
func TestEventSpareEndsOneWaitInC(t *testing.T) {
	name := newArena(t)
	x, y := newAgent(t, "c", name, "waits"), newAgent(t, "c", name, "counts")
	off := x.do(t, "event.open", "x", 1)
	var waits []pending
	for n := range uint64(3) {
		waits = append(waits, x.start(t, "event.wait", "x"))
		eventually(t, "it is queued", name, func() bool { return y.do(t, "waiters", "-", off) == n+1 })
	}
	asPeer(t, name, off, func(a *arena.Arena, o arenakernel.Object) {
		require.NoError(t, (*arenakernel.Arena)(a).EachSlotRecord(o, 0, func(r arenakernel.Offset, slot int) bool {
			if slot == 1 {
				arena.At[atomic.Uint64](a, r+eventRecordNameAt).Store(12345)
			}
			return true
		}))
		spare := arena.At[atomic.Uint64](a, o.Body+eventSpareAt)
		spare.Store(1)
		waits[0].must(t) // before this process closes the object, and looks after it
		eventually(t, "the token is used up", name, func() bool { return spare.Load() == 0 })
	})
	require.EqualValues(t, 2, y.do(t, "waiters", "-", off))
}

// A peer damages the list of records before the process that sets the Event has seen the record of one that waits. The
// token is handed out by a process that can record it.
func TestEventTokenForAShareThatIsNotFoundInC(t *testing.T) {
	name := newArena(t)
	sets, y := newAgent(t, "c", name, "sets"), newAgent(t, "c", name, "counts")
	off := sets.do(t, "event.open", "x", 1)
	x := newAgent(t, "c", name, "waits")
	x.do(t, "event.open", "x", 1)
	w := x.start(t, "event.wait", "x")
	eventually(t, "it is queued", name, func() bool { return y.do(t, "waiters", "-", off) == 1 })
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
		share := arena.At[[3]uint64](a, records[0]+eventRecordNameAt)
		eventually(t, "what is handed is what is acknowledged", name, func() bool {
			return atomic.LoadUint64(&share[1]) == 1 && atomic.LoadUint64(&share[2]) == 1
		})
	})
	sound(t, name)
}

// The word that says that an Event is auto-reset has to go with its size.
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
