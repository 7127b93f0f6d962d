//go:build crashpoint && linux

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestCloseObjectBetweenTheStepsOfALeave: a goroutine still has an object open, for example in a loop over
// [Arena.Objects], while another goroutine closes the arena. As soon as another participant can delete the
// object, CloseObject must change nothing, because the bytes of the open bit may belong to another object.
func TestCloseObjectBetweenTheStepsOfALeave(t *testing.T) {
	for _, point := range []string{"arena.close.repaired", "arena.close.reclaimed", "arena.close.unregistered", "arena.close.freed"} {
		t.Run(point, func(t *testing.T) {
			a, peer, o := leaverAndPeer(t)
			var err error
			passed := crashpoint.HitCount(point)
			var gone bool
			var got Offset
			crashpoint.ArmFunc(point, 1, func() {
				gone = peer.Delete("x") == nil
				for gone && got != o.Offset && err == nil { // until peer gets the bytes of x
					got, err = peer.Alloc(512, 0)
				}
				if gone && err == nil {
					fill(peer.slice(got, 512))
				}
				a.CloseObject(o)
			})
			defer crashpoint.Disarm()
			require.NoError(t, a.Close())
			require.Equal(t, passed+1, crashpoint.HitCount(point))
			require.True(t, err == nil || errors.Is(err, shmsync.ErrNoSpace), "%v", err)
			require.Equal(t, point != "arena.close.repaired", gone, "whether the other participant could delete the object")
			if gone {
				require.NoError(t, err, "the bytes of x stayed in use")
				require.Equal(t, fill(make([]byte, 512)), peer.slice(got, 512), "CloseObject changed the block of another participant")
			}
			require.NoError(t, peer.Check())
			require.NoError(t, peer.Close())
		})
	}
}

// fill sets all bits of b, and returns b.
func fill(b []byte) []byte {
	for i := range b {
		b[i] = 0xff
	}
	return b
}
