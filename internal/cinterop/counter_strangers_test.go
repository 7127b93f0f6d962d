//go:build linux

package cinterop

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// A process that owes a part of the count of a WaitGroup dies while the waiter is stopped. Only a stranger, a C program
// that has not opened the WaitGroup, notices the death. The stranger makes a slot record for itself, and folds the
// share of the dead process. If the arena has no room for that slot record, the waiter folds the share when it runs
// again.
func TestWaitGroupReapedByStrangers(t *testing.T) {
	for _, waits := range []string{"go", "c"} {
		for _, room := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/room %v", waits, room), func(t *testing.T) { waitGroupReapedByStranger(t, waits, room) })
		}
	}
}

func waitGroupReapedByStranger(t *testing.T, waits string, room bool) {
	name := newArena(t)
	stranger, b := newAgent(t, "c", name, "stranger"), newAgent(t, waits, name, "b")
	off := b.do(t, "wg.open", "g")
	b.do(t, "wg.add", "g", 1)
	x := newAgent(t, "c", name, "victim")
	x.mortal = true
	const slot, phaseFree = 3, 0 // the slot of the victim, and a phase of a slot
	x.do(t, "wg.open", "g")
	x.do(t, "wg.add", "g", 2)
	w := b.sleeps(t, off, "wg.wait", "g")
	b.stop(t)
	if !room {
		stranger.do(t, "room.take", "-")
	}
	x.kill(t)
	eventually(t, "the stranger has reaped", name, func() bool { return stranger.do(t, "gone.slot", "-", slot) == phaseFree })
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	records := map[bool]uint64{true: 3, false: 2}[room] // of the waiter, the victim and, if there is room, the stranger
	require.Equal(t, records, a.Stats().SlotRecords)
	if room {
		g, err := prims.AttachWaitGroup(a, "g", nil)
		require.NoError(t, err)
		require.ErrorIs(t, g.State().Err, shmsync.ErrOwnerDead)
	}
	require.NoError(t, b.cmd.Process.Signal(syscall.SIGCONT))
	w.fails(t, syscall.EOWNERDEAD)
	if !room {
		stranger.do(t, "room.give", "-")
	}
	b.do(t, "wg.reset", "g")
	require.EqualValues(t, 1, b.do(t, "wg.count", "g"))
	b.do(t, "wg.done", "g")
	b.do(t, "wg.wait", "g")
	sound(t, name)
}

// A peer damages the list of slot records of a WaitGroup. Calls of a C program end, with EPROTO if they need the list.
func TestWaitGroupTornListInC(t *testing.T) {
	name := newArena(t)
	x, y := newAgent(t, "c", name, "x"), newAgent(t, "c", name, "y")
	x.do(t, "wg.open", "g")
	x.do(t, "wg.add", "g", 2)
	off := y.do(t, "wg.open", "g")
	y.do(t, "wg.add", "g", 1)
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	records := (*arenakernel.Arena)(a).SlotRecords(arenakernel.Object{Offset: arenakernel.Offset(off)})
	head := records.Swap(1)
	y.start(t, "wg.wait", "g").fails(t, syscall.EPROTO)
	y.start(t, "wg.claim", "g", 1).fails(t, syscall.EPROTO)
	require.EqualValues(t, 3, y.do(t, "wg.count", "g"))
	y.do(t, "wg.add", "g", 1)
	y.do(t, "wg.add", "g", -4)
	y.do(t, "wg.wait", "g")
	records.Store(head)
	sound(t, name)
}
