//go:build linux

package arenakernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// reapedKind is the kind of an object whose Repair sends its result to reapedBy.
var (
	reapedKind = KindOf("rpd ")
	reapedBy   = make(chan error, 8)
)

func init() {
	RegisterKind(KindOps{Kind: reapedKind, Repair: func(a *Arena, o Object, dead ParticipantID) bool {
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("repair for %v: %v", dead, v)
			}
			reapedBy <- err
		}()
		_, err = TryAt[uint64](a, o.Body)
		return true
	}})
}

// TestReapingOutlivesTheOpeningThatMetTheDeath: a process finds a death through one of its two
// openings, and closes this opening before it has reaped. The reap still takes place, through the
// other opening.
func TestReapingOutlivesTheOpeningThatMetTheDeath(t *testing.T) {
	a := newMemfdArena(t, 4)
	dup, err := shm.FromFile(a.seg.File(), nil)
	require.NoError(t, err)
	other, err := FromSegment(dup, nil)
	require.NoError(t, err)
	_, _, err = a.OpenObject(ObjectSpec{Name: "x", Kind: reapedKind, Version: 1, Size: 8})
	require.NoError(t, err)

	// Slot 3 belongs to a participant that the kernel has marked dead.
	live := makeSlotWord(phaseLive, 5)
	a.u32(a.slot(3) + slotState).Store(uint32(live))
	a.u64(a.touchedWord(3, 0)).Store(^uint64(0)) // the dead participant had the object open
	a.u32(a.aliveWord(3, 0)).Store(shmsync.RobustOwnerDied)

	a.reapMu.Lock() // no goroutine can reap before the opening is closed
	dead := other.Dead(participantIn(3, live))
	closed := other.Close()
	a.reapMu.Unlock()
	require.True(t, dead)
	require.NoError(t, closed)
	pollFor(t, a, func() bool { return a.slotState(3).phase() == phaseFree })
	select {
	case err := <-reapedBy:
		require.NoError(t, err)
	default:
		require.Fail(t, "the slot is free, and the object was not repaired")
	}
}

// leaverAndPeer makes an arena with two participants. The first one has opened the object o.
func leaverAndPeer(t *testing.T) (a, peer *Arena, o Object) {
	seg, err := shm.CreateMemfd("test", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
	require.NoError(t, err)
	a, err = FromSegment(seg, &Options{Label: "leaves"})
	require.NoError(t, err)
	dup, err := shm.FromFile(seg.File(), nil)
	require.NoError(t, err)
	peer, err = JoinApart(dup, dup.Bytes(), &Options{Label: "peer"})
	require.NoError(t, err)
	o, _, err = a.OpenObject(ObjectSpec{Name: "x", Kind: KindBlock, Version: 1, Size: 256})
	require.NoError(t, err)
	return a, peer, o
}

// TestCloseObjectAfterTheOpenBitsAreCleared: a process that leaves clears its open bits, which say
// what objects it has open. A later CloseObject must change nothing, because the bytes of the bit
// may belong to another object after the process has cleared the bit.
func TestCloseObjectAfterTheOpenBitsAreCleared(t *testing.T) {
	a, peer, o := leaverAndPeer(t)

	a.background.Add(1) // Close clears the bits and then waits until the test calls Done
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	pollFor(t, peer, func() bool { return peer.Delete("x") == nil })
	off := o.Offset
	pollFor(t, peer, func() bool { // until peer gets the bytes of x, which Close may guard for a moment
		got, err := peer.Alloc(512, 0)
		require.True(t, err == nil || errors.Is(err, shmsync.ErrNoSpace), "%v", err)
		return err == nil && got == off
	})
	bytes := peer.slice(off, 512)
	for i := range bytes {
		bytes[i] = 0xff
	}
	a.CloseObject(o)
	for i := range bytes {
		require.Equal(t, byte(0xff), bytes[i], "byte %d of the block at %v", i, off)
	}
	a.background.Done()
	require.NoError(t, <-closed)
	require.NoError(t, peer.Close())
}

// TestLoopsEndWithClose: a loop goes over the objects or the participants of an arena, and another
// goroutine or the body of the loop closes the opening of the arena. The loop ends. After the last Close,
// it reads no bytes of the arena, because these bytes are unmapped some time later.
func TestLoopsEndWithClose(t *testing.T) {
	for _, last := range []bool{true, false} {
		for what, loop := range map[string]func(a *Arena, body func()) error{
			"objects": func(a *Arena, body func()) error {
				for range a.Objects() {
					body()
				}
				return nil
			},
			"objects and errors": func(a *Arena, body func()) (last error) {
				for _, err := range a.ObjectsAndErrors() {
					if last = err; err == nil {
						body()
					}
				}
				return last
			},
			"participants": func(a *Arena, body func()) error {
				for range a.Participants() {
					body()
				}
				return nil
			},
		} {
			t.Run(fmt.Sprint(what, ", last Close: ", last), func(t *testing.T) {
				seg, err := shm.CreateMemfd("test", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
				require.NoError(t, err)
				a, err := FromSegment(seg, nil)
				require.NoError(t, err)
				dup, err := shm.FromFile(a.seg.File(), nil)
				require.NoError(t, err)
				peer, err := JoinApart(dup, dup.Bytes(), &Options{Label: "peer"})
				require.NoError(t, err)
				defer peer.Close()
				again := a
				if !last {
					dup, err := shm.FromFile(a.seg.File(), nil)
					require.NoError(t, err)
					again, err = FromSegment(dup, nil)
					require.NoError(t, err)
				}
				for _, name := range []string{"x", "y"} {
					o, _, err := a.OpenObject(ObjectSpec{Name: name, Kind: KindBlock, Version: 1, Size: 256})
					require.NoError(t, err)
					a.CloseObject(o)
				}
				reads, bodies := 0, 0
				err = loop(a, func() {
					bodies++
					require.NoError(t, a.Close())
					if last {
						a.fetch = func(_, _ uint64) { reads++ }
					}
				})
				require.Equal(t, 1, bodies)
				require.Zero(t, reads, "the loop reads memory after the last Close")
				if what == "objects and errors" {
					require.ErrorIs(t, err, shmsync.ErrClosed)
				}
				require.NoError(t, peer.Delete("x"), "the loop keeps the object open")
				if !last {
					require.NoError(t, again.Close())
				}
			})
		}
	}
}
