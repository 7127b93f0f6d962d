//go:build linux

package arenakernel

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	keptKind     = KindOf("KEPT")
	keptRepaired atomic.Bool // the result of Repair
)

func init() {
	RegisterKind(KindOps{Kind: keptKind, Repair: func(*Arena, Object, ParticipantID) bool { return keptRepaired.Load() }})
}

// TestDeathConcernsOpenersOfWhatIsNotRepaired: a participant dies that has no object open. It may have closed its
// handles and kept holds. If its reaper cannot repair an object, the participants that have the object open have to
// check it. If the reaper could repair all objects, no participant has to.
func TestDeathConcernsOpenersOfWhatIsNotRepaired(t *testing.T) {
	for _, c := range []struct {
		what      string
		kind      Kind
		repaired  bool
		concerned bool
	}{
		{"repaired", keptKind, true, false},
		{"not repaired", keptKind, false, true},
		{"nothing to repair", KindValue, false, false},
		{"unknown kind", KindOf("UNKN"), false, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			a := newMemfdArena(t, 4)
			_, _, err := a.OpenObject(ObjectSpec{Name: "x", Kind: c.kind, Version: 1, Size: 8})
			require.NoError(t, err)
			keptRepaired.Store(c.repaired)
			dead := makeParticipantID(3, 1)
			concern := a.repairAll(dead, true)
			require.Equal(t, c.concerned, concern.anything)
			require.Equal(t, c.concerned, concern.slots.has(a.mySlot))
			require.False(t, concern.slots.has(dead.Slot()))
		})
	}
}

// TestLeaveConcernsNobodyBecauseOfAnUnknownKind checks that a participant that leaves rings nobody because of an object
// whose kind it does not know, as it cannot hold anything in that object.
func TestLeaveConcernsNobodyBecauseOfAnUnknownKind(t *testing.T) {
	keptRepaired.Store(false)
	for kind, concerned := range map[Kind]bool{keptKind: true, KindOf("UNKN"): false} {
		a := newMemfdArena(t, 4)
		o, _, err := a.OpenObject(ObjectSpec{Name: "x", Kind: kind, Version: 1, Size: 8})
		require.NoError(t, err)
		a.CloseObject(o)
		require.Equal(t, concerned, a.repairAll(a.Self(), true).anything, kind)
	}
}
