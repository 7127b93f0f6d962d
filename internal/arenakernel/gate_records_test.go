//go:build linux

package arenakernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// firstEpoch opens the arena as the first participant of an epoch, closes it, and returns the Epoch
// passed to OnFirst.
func firstEpoch(t *testing.T, ta *testArena) (got Epoch) {
	t.Helper()
	opts, firsts := ta.opts, 0
	opts.OnFirst = func(_ *Arena, e Epoch) error {
		firsts++
		got = e
		return nil
	}
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.Equal(t, 1, firsts)
	return got
}

// TestDeathRecordedAgainIsTold: a reaper is stopped before it records a death, so the first
// participant of the next epoch records this death. When the reaper continues, it may record the
// same death a second time. The epoch after that must not report the death again.
func TestDeathRecordedAgainIsTold(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "before").close(t)
	p, dead := ta.peek(t), makeParticipantID(3, 7)
	p.putDeathRecord(deathRecordsOfDead, dead, 0, 1, 2, "victim")
	e := firstEpoch(t, ta)
	require.False(t, e.Clean)
	require.Equal(t, []string{"victim"}, labels(e.Dead))
	p.putDeathRecord(deathRecordsOfDead, dead, 0, 1, 2, "victim")
	e = firstEpoch(t, ta)
	require.True(t, e.Clean)
	require.Empty(t, e.Dead)
}

// TestOverwrittenDeathRecordLeavesNoCleanArena: a process is stopped while it writes a death
// record. Meanwhile other records fill the whole ring. When the process continues, it overwrites
// the record of another death. An epoch with such an unreadable record must not be clean.
func TestOverwrittenDeathRecordLeavesNoCleanArena(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "before").close(t)
	p := ta.peek(t)
	hole := p.u64(hdrDeathRecordsTotal).Add(1) - 1
	for k := range uint32(deathRecordDeaths - 1) {
		p.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, 7+k), deathRecordPending, 1, 2, "pending")
	}
	require.True(t, firstEpoch(t, ta).Clean)
	p.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, 999), 0, 1, 2, "victim")
	o := p.deathRecord(deathRecordsOfDead, hole)
	p.u64(o + deathRecordSeq).Store(0)
	p.u32(o + deathRecordID).Store(uint32(makeParticipantID(3, 6)))
	p.u32(o + deathRecordFlags).Store(deathRecordPending)
	p.u64(o + deathRecordSeq).Store(hole + 1)
	require.False(t, firstEpoch(t, ta).Clean)
	require.True(t, firstEpoch(t, ta).Clean)
}

// TestEpochsAreCountedAnew: after the largest epoch number, counting continues with 2, because the
// number 1 means an arena that no participant has used.
func TestEpochsAreCountedAnew(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "before").close(t)
	p := ta.peek(t)
	p.u64(hdrEpoch).Store(uint64(makeEpochWord(epochOpen, math.MaxUint32, 0)))
	p.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, 7), 0, 1, 2, "told")
	p.epochDeaths(math.MaxUint32).Store(p.u64(hdrDeathRecordsTotal).Load())
	p.putDeathRecord(deathRecordsOfDead, makeParticipantID(3, 8), 0, 1, 2, "victim")
	e := firstEpoch(t, ta)
	require.EqualValues(t, 2, e.Number)
	require.Equal(t, []string{"victim"}, labels(e.Dead))
	require.EqualValues(t, makeEpochWord(epochOpen, 1, 0), makeEpochWord(epochClaiming, 2, 0).end(), "an ended claim")
	e = firstEpoch(t, ta)
	require.EqualValues(t, 3, e.Number)
	require.Empty(t, e.Dead)
}
