//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// TestSpinWordTable checks the table of spinlock_word.go, for every kind of word and for extreme IDs.
func TestSpinWordTable(t *testing.T) {
	for kind := range spinKind(8) {
		for _, name := range wordNames {
			w, named := makeSpin(kind, name), name != 0
			require.Equal(t, kind, w.kind())
			require.Equal(t, name, w.participant())
			require.Equal(t, w == 0, w.free())
			valid := map[spinKind]bool{
				spinHeld: true, spinDraining: named, spinUpgrade: named, spinOwnerDead: named, spinRecovering: named,
				spinNotRecoverable: !named, spinUpgrading: named,
			}[kind]
			readers := kind == spinDraining || kind == spinUpgrade || kind == spinUpgrading
			valid = valid || w == spinOwnerGone
			require.Equal(t, valid, w.valid(true), "%d %v", kind, name)
			require.Equal(t, valid && !readers && w != spinOwnerGone, w.valid(false), "%d %v", kind, name)
			held := named && kind != spinOwnerDead && kind != spinNotRecoverable && kind != 7
			require.Equal(t, held, w.held(), "%v", w)
			if !valid {
				require.Contains(t, w.String(), "corrupt (0x")
			}
			for _, p := range []Policy{PolicyReport, PolicyRelease} {
				want := w
				switch {
				case !held:
				case kind == spinDraining, p == PolicyRelease && kind != spinRecovering:
					want = spinFree
				default:
					want = makeSpin(spinOwnerDead, name)
				}
				got := w.ownerDied(p)
				require.Equal(t, want, got, "%v by %v", w, p)
				require.Equal(t, got, got.ownerDied(p), "a second call changes nothing")
				require.False(t, got.held())
			}
		}
	}
}

func TestSpinWordString(t *testing.T) {
	const name = arena.ParticipantID(3 | 7<<11)
	for want, w := range map[string]spinWord{
		"free":        0,
		"held by 3.7": makeSpin(spinHeld, name),
		"claimed by 3.7, which waits for readers":        makeSpin(spinDraining, name),
		"held for upgrade by 3.7":                        makeSpin(spinUpgrade, name),
		"owner-dead, held by 3.7":                        makeSpin(spinOwnerDead, name),
		"owner-dead":                                     spinOwnerGone,
		"being recovered by 3.7":                         makeSpin(spinRecovering, name),
		"not recoverable":                                spinLost,
		"being upgraded by 3.7, which waits for readers": makeSpin(spinUpgrading, name),
		"corrupt (0xe0000001)":                           makeSpin(7, 1),
		"corrupt (0x40000000)":                           makeSpin(spinUpgrade, 0),
	} {
		require.Equal(t, want, w.String())
	}
}

// TestRWSpinCountTable checks the table of rwspinlock_word.go.
func TestRWSpinCountTable(t *testing.T) {
	const slot = 3
	me, before, after := arena.ParticipantID(slot|7<<11), arena.ParticipantID(slot|6<<11), arena.ParticipantID(slot|8<<11)
	other := arena.ParticipantID(4 | 7<<11)
	one := makeRWSpinCount(me, 1)
	for _, c := range []struct {
		w           rwSpinCount
		valid       bool
		plus, minus rwSpinCount // 0 for none
	}{
		{0, true, one, 0},
		{one, true, makeRWSpinCount(me, 2), 0},
		{makeRWSpinCount(me, 5), true, makeRWSpinCount(me, 6), makeRWSpinCount(me, 4)},
		{makeRWSpinCount(me, rwSpinMost-1), true, makeRWSpinCount(me, rwSpinMost), makeRWSpinCount(me, rwSpinMost-2)},
		{makeRWSpinCount(me, rwSpinMost), true, 0, makeRWSpinCount(me, rwSpinMost-1)},
		{makeRWSpinCount(before, 5), true, one, 0},
		{makeRWSpinCount(after, 5), true, 0, 0},
		{makeRWSpinCount(other, 5), false, 0, 0},
		{makeRWSpinCount(me, 0), false, 0, 0},
		{one | 1<<30, false, 0, 0},
		{one | 1<<31, false, 0, 0},
		{one | 1<<61, false, 0, 0},
		{one | 1<<63, false, 0, 0},
		{makeRWSpinCount(0, 1), false, 0, 0},
		{^rwSpinCount(0), false, 0, 0},
	} {
		require.Equal(t, c.valid, c.w.validIn(slot), "%#x", uint64(c.w))
		next, ok := c.w.plus(me)
		require.Equal(t, c.plus != 0, ok, "%#x", uint64(c.w))
		if ok {
			require.Equal(t, c.plus, next)
		}
		next, ok = c.w.minus(me)
		require.Equal(t, c.minus != 0 || c.w == one, ok, "%#x", uint64(c.w))
		if ok {
			require.Equal(t, c.minus, next)
			require.True(t, next.validIn(slot))
		}
	}
	require.Equal(t, "5 of 3.7", makeRWSpinCount(me, 5).String())
	require.Equal(t, "none", rwSpinCount(0).String())
}
