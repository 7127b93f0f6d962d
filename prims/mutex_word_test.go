//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// wordNames are participant IDs with extreme slots and generations. The first one, 0, means nobody.
var wordNames = []arena.ParticipantID{0, 1, 2047, 1 << 11, arenakernel.ParticipantIDMask}

// TestOwnerWordTable checks the table in the comment of ownerWord for every kind, with extreme participant IDs.
func TestOwnerWordTable(t *testing.T) {
	n := func(name arena.ParticipantID) bool { return name != 0 }
	for kind := range ownerKind(8) {
		for _, name := range wordNames {
			w := makeOwner(kind, name)
			require.Equal(t, kind, w.kind())
			require.Equal(t, name, w.participant())

			valid := map[ownerKind]bool{
				kindHeld: true, kindBiased: n(name), kindReserved: n(name), kindOwnerDead: n(name),
				kindRecovering: n(name), kindNotRecoverable: !n(name),
			}[kind]
			require.Equal(t, valid, w.valid(), "%d %v", kind, name)
			require.Equal(t, w == 0, w.free(), "%v", w)
			held := n(name) && (kind == kindHeld || kind == kindBiased || kind == kindRecovering)
			require.Equal(t, held, w.held(), "%v", w)
			if !valid {
				require.Contains(t, w.String(), "corrupt (0x")
			}

			// The policy decides which value the word gets after a death.
			for _, p := range []Policy{PolicyReport, PolicyRelease} {
				want := w
				switch {
				case kind == kindReserved:
					want = ownerFree
				case !held:
				case p == PolicyRelease && kind != kindRecovering:
					want = ownerFree
				default:
					want = makeOwner(kindOwnerDead, name)
				}
				got := w.ownerDied(p)
				require.Equal(t, want, got, "%v by %v", w, p)
				require.Equal(t, got, got.ownerDied(p), "a second call changes nothing")
				require.False(t, got.held())
				if valid {
					require.True(t, got.valid(), "%v by %v", w, p)
				}
			}
		}
	}
}

func TestOwnerWordString(t *testing.T) {
	const name = arena.ParticipantID(3 | 7<<11) // slot 3, generation 7
	for want, w := range map[string]ownerWord{
		"free":                          0,
		"held by 3.7":                   makeOwner(kindHeld, name),
		"held by 3.7, biased":           makeOwner(kindBiased, name),
		"reserved for 3.7":              makeOwner(kindReserved, name),
		"owner-dead, held by 3.7":       makeOwner(kindOwnerDead, name),
		"being recovered by 3.7":        makeOwner(kindRecovering, name),
		"not recoverable":               makeOwner(kindNotRecoverable, 0),
		"corrupt (0xa0000001)":          makeOwner(kindNotRecoverable, 1),
		"corrupt (0xc0000000)":          6 << ownerKindShift,
		"corrupt (0xffffffff)":          0xffffffff,
		"corrupt (0x20000000)":          makeOwner(kindBiased, 0),
		"held by " + maxName().String(): makeOwner(kindHeld, maxName()),
	} {
		require.Equal(t, want, w.String())
	}
}

func maxName() arena.ParticipantID { return arenakernel.ParticipantIDMask }

// TestMutexZero: ownerNever is no owner word. All-zero bytes are a lock that is free, with the
// default policy and an adaptive spin.
func TestMutexZero(t *testing.T) {
	require.False(t, ownerWord(ownerNever).valid())
	require.True(t, ownerWord(0).free())
	require.Equal(t, PolicyReport, policyOf(0))
	require.Zero(t, spinOf(0))
	require.Equal(t, uint32(0), Policy(0).stored())
	require.Equal(t, PolicyReport, policyOf(PolicyReport.stored()))
	require.Equal(t, PolicyRelease, policyOf(PolicyRelease.stored()))
	require.Equal(t, PolicyReport, policyOf(0xff), "a policy word that is not valid counts as PolicyReport")
	for p, want := range map[Policy]string{0: "default", PolicyReport: "report", PolicyRelease: "release", 9: "invalid"} {
		require.Equal(t, want, p.String())
	}
}
