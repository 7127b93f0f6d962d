//go:build linux

package arenakernel

import (
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

var (
	walkedKind = KindOf("WALK")
	walked     atomic.Pointer[func(*Arena, Object)]
)

func init() {
	hook := func(a *Arena, o Object) {
		if f := walked.Load(); f != nil {
			(*f)(a, o)
		}
	}
	RegisterKind(KindOps{
		Kind:   walkedKind,
		Repair: func(a *Arena, o Object, _ ParticipantID) bool { hook(a, o); return true },
		Wake:   func(a *Arena, o Object, _ Owed) { hook(a, o) },
		Check:  func(a *Arena, o Object) error { hook(a, o); return nil },
	})
}

// TestWalksDoNotKeepObjects: an object can be deleted while a walk reads it, in this process or in
// another one. The memory that the walk reads is not reused before the walk has left it.
func TestWalksDoNotKeepObjects(t *testing.T) {
	for name, walk := range map[string]func(a *Arena){
		"repair": func(a *Arena) { a.repairAll(makeParticipantID(3, 1), true) },
		"wake":   func(a *Arena) { a.wakeAll(makeParticipantID(3, 1), &concern{all: true}) },
		"check":  func(a *Arena) { a.Check() },
	} {
		for _, own := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				p := newNeighbours(3<<20, 8)
				a, b := p.join(1), p.join(2)
				deleter := b
				if own {
					deleter = a
				}
				s := spec("x")
				s.Kind = walkedKind
				o, _, err := a.OpenObject(s)
				require.NoError(t, err)
				a.CloseObject(o)
				calls := 0
				f := func(by *Arena, o Object) {
					calls++
					require.Same(t, a, by)
					require.NoError(t, deleter.Delete("x"))
					for range 100 {
						require.NotEqual(t, o.Offset, mustAlloc(t, deleter, 300, 0))
					}
				}
				walked.Store(&f)
				defer walked.Store(nil)
				walk(a)
				require.Equal(t, 1, calls)
				require.ErrorIs(t, deleter.Delete("x"), fs.ErrNotExist) // this also frees the deferred block
				require.Zero(t, a.Stats().Claimed+a.Stats().Objects)
				require.Zero(t, a.u64(a.slot(1)+slotWalking).Load())
			})
		}
	}
}

// TestClaimUsesWhatAPeerNoLongerGuards: an object is deleted while a peer guards it, so its block stays
// taken. When the guard has ended, a claim that finds no other room uses that block at once.
func TestClaimUsesWhatAPeerNoLongerGuards(t *testing.T) {
	for name, claim := range map[string]func(a *Arena) error{
		"block": func(a *Arena) error { _, err := a.Alloc(64, 0); return err },
		"span":  func(a *Arena) error { _, err := a.Alloc(2*chunkSize, 0); return err },
		"node":  func(a *Arena) error { _, err := a.ClaimNode(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			p := newNeighbours(3<<20, 8)
			a, v := p.join(1), p.join(2)
			s := spec("x")
			s.Size = chunkSize + 1 // two chunks, with the header
			o, _, err := a.OpenObject(s)
			require.NoError(t, err)
			a.CloseObject(o)
			v.guard(o.Offset) // v guards the object and is stopped
			require.NoError(t, a.Delete("x"))
			fillCommon(t, a)
			for err == nil {
				err = claim(a)
			}
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			v.unguard()
			require.NoError(t, claim(a))
			requireSound(t, a)
		})
	}
}
