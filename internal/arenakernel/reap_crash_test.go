//go:build linux && crashpoint

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestReaperRecordsTheDeathAfterAJoinerGaveUp: a joiner takes over the slot of a dead participant between
// two steps of the reaper, so the reaper cannot record the death. The joiner waits for the reaper, gives
// up, and gives the slot back. The reaper then records the death after all. Otherwise the slot would be
// freed, and nobody would ever learn of the death.
func TestReaperRecordsTheDeathAfterAJoinerGaveUp(t *testing.T) {
	a := newMemfdArena(t, 4)
	a.reapMu.Lock() // as if the death watcher waited
	defer a.reapMu.Unlock()
	dead := makeSlotWord(phaseDead, 5)
	state := a.u32(a.slot(3) + slotState)
	state.Store(uint32(dead))
	defer state.Store(0)
	b := &reapProgress{of: dead, words: true, data: true}
	crashpoint.ArmFunc("arena.act.published", 1, func() { state.Store(uint32(makeSlotWord(phaseJoining, 6))) })
	defer crashpoint.Disarm()
	a.finish(3, b)
	require.False(t, a.hasDeathRecord(participantIn(3, dead)), "the slot is not dead")
	require.Zero(t, a.u32(a.slot(3)+slotReaper).Load(), "the joiner waits until the slot names no reaper")
	state.Store(uint32(dead))
	a.finish(3, b)
	require.True(t, a.hasDeathRecord(participantIn(3, dead)))
}

// TestReapThatAnotherBeganIsFinished: two processes find the same death, which none of the watchers of the
// slot sees. One of the two marks the slot and is stopped. The death watcher of the other one finishes the
// reap.
func TestReapThatAnotherBeganIsFinished(t *testing.T) {
	a := newMemfdArena(t, 8)
	for slot := 2; slot <= 1+watchTargets; slot++ { // the participants that a watches
		a.u32(a.slot(slot) + slotState).Store(uint32(makeSlotWord(phaseLive, 1)))
	}
	const slot = 6
	live := makeSlotWord(phaseLive, 5)
	a.u32(a.slot(slot) + slotCaps).Store(makeCaps(capRobust, live.generation()))
	for k := range aliveWords {
		a.u32(a.aliveWord(slot, k)).Store(shmsync.RobustOwnerDied)
	}
	state := a.u32(a.slot(slot) + slotState)
	state.Store(uint32(live))
	crashpoint.ArmFunc("arena.reap.seen", 1, func() { state.Store(uint32(live.with(phaseDead))) })
	defer crashpoint.Disarm()
	a.reap(slot, live)
	a.goOn()
	pollFor(t, a, func() bool { return a.slotState(slot).phase() == phaseFree })
}
