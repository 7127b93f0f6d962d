//go:build linux

package prims_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestSemaphoreSize: the size of a Semaphore does not depend on the number of participants that its arena can
// have, except for one bit for each slot of the arena. Each participant that uses the Semaphore adds 256 bytes,
// once.
func TestSemaphoreSize(t *testing.T) {
	requireSizes(t, 256, func(a *arena.Arena) (sized, error) { return prims.OpenSemaphore(a, "", 3, nil) })
	a := newArena(t, &arena.Options{Size: 16 << 20, Counted: true})
	s := newSemaphore(t, a, "s", 3, nil)
	require.EqualValues(t, 192, bodySize(t, a, s.Offset()), "the counters follow")
	s.Acquire(1)
	s.Release(1)
	one := a.Stats().SlotRecords
	for range 2 {
		p := semOther(t, a)
		semDo(t, p, semOrder{Verb: "try", N: 1})
		p.Kill(t)
		alone(t, a, 1)
		require.Equal(t, one+1, a.Stats().SlotRecords, "the next participant of a slot inherits the record")
		require.EqualValues(t, 3, s.State().Free)
	}
}

// sized is a handle on an object.
type sized interface{ Offset() arena.Offset }

// requireSizes requires that an object without a name takes 256 bytes, of which 128 are its body. In an arena with
// more than 511 slots it may take more, because of the open bits. The bytes of a slot record come on top.
func requireSizes(t *testing.T, record uint64, open func(a *arena.Arena) (sized, error)) {
	t.Helper()
	for slots, want := range map[int]uint64{1: 256, 8: 256, 128: 256, 256: 256, 511: 256, 512: 384, 2047: 512} {
		a := newArena(t, &arena.Options{Size: 16 << 20, MaxParticipants: slots})
		before := a.Stats().BytesUsed
		x, err := open(a)
		require.NoError(t, err)
		require.Equal(t, want+record, a.Stats().BytesUsed-before, "%d slots", slots)
		require.EqualValues(t, 128, bodySize(t, a, x.Offset()), "%d slots", slots)
	}
}

func bodySize(t *testing.T, a *arena.Arena, off arena.Offset) uint64 {
	t.Helper()
	o, err := a.Object(off)
	require.NoError(t, err)
	return o.Size
}

// TestSemaphoreRecordWithoutRoom: if there is no memory for the share of this process, the open fails and
// leaves nothing behind.
func TestSemaphoreRecordWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	named := newSemaphore(t, a, "named", 2, nil)
	require.NoError(t, named.Close())
	var blocks []arena.Offset
	for {
		off, err := a.Alloc(256, 0)
		if err != nil {
			break
		}
		blocks = append(blocks, off)
	}
	a.Free(blocks[len(blocks)-1]) // room for a Semaphore
	before := a.Stats()
	_, err := prims.OpenSemaphore(a, "", 2, nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, a.Stats(), "the anonymous object is deleted")
	named = newSemaphore(t, a, "named", 2, nil)
	require.True(t, named.TryAcquire(2), "the slot has its record")
	named.Release(2)
}

// TestSemaphoreOutlivesItsFirstParticipant: the participant that made the first slot record of a Semaphore dies. It has
// permits, and a wait in the queue. The waits of another participant are granted in the order of arrival. Then a new
// participant takes the slot, and can acquire permits.
func TestSemaphoreOutlivesItsFirstParticipant(t *testing.T) {
	for _, mode := range []prims.SemaphoreMode{prims.SemaphoreOwned, prims.SemaphoreTransferable} {
		t.Run(mode.String(), func(t *testing.T) {
			a := newArena(t, nil)
			first := proctest.Start(t, "semaphore/first", proctest.Params(semFirst{nameOf(a), mode}))
			first.Await(t)
			s, err := prims.AttachSemaphore(a, "s", nil)
			require.NoError(t, err)
			order := make(chan int, 2)
			for i := range 2 {
				go func() { s.Acquire(2); order <- i; s.Release(2) }()
				semQueued(t, a, s, i+2)
			}
			first.Kill(t)
			if mode == prims.SemaphoreTransferable {
				s.Release(2) // the permits that the dead participant has acquired stay acquired
			}
			require.Equal(t, 0, <-order)
			require.Equal(t, 1, <-order)
			alone(t, a, 1)
			other := semOther(t, a)
			require.Empty(t, semDo(t, other, semOrder{Verb: "acquire", N: 2}).Err)
			require.False(t, s.TryAcquire(1))
			sound(t, a)
		})
	}
}

// TestSemaphoreReapedByOther: a holder dies. Its reaper has not opened the Semaphore, and so has no slot record. If
// another process waits, this process gets the permits of the holder. Otherwise the next call gets them.
func TestSemaphoreReapedByOther(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			a := newArena(t, nil)
			first := proctest.Start(t, "semaphore/first", proctest.Params(semFirst{nameOf(a), prims.SemaphoreOwned}))
			first.Await(t)
			var waiter *proctest.Proc
			if waits {
				waiter = semOther(t, a)
				waiter.Send(semOrder{ID: 1, Verb: "acquire", N: 2})
				o, err := objectNamed(a, "s")
				require.NoError(t, err)
				eventually(t, "two wait", func() string { return words(a) }, func() bool { return len((*arenakernel.Arena)(a).WaitsOf(o)) == 2 })
				waiter.Stop(t)
			}
			first.Kill(t)
			if waits {
				alone(t, a, 2)
				waiter.Cont(t)
				var r semAnswer
				waiter.Recv(t, &r)
				require.Empty(t, r.Err)
				return
			}
			alone(t, a, 1)
			s, err := prims.AttachSemaphore(a, "s", nil)
			require.NoError(t, err)
			require.True(t, s.TryAcquire(2))
			sound(t, a)
		})
	}
}

// TestSemaphoreRemembersItsShares: a process reads the list of slot records before a peer damages or shortens the
// list. When a participant dies, the process still frees the permits of the participant.
func TestSemaphoreRemembersItsShares(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, a *arena.Arena, o arenakernel.Object) (undo func()){
		"damaged": damageRecords, "shorter": hideLatestRecord,
	} {
		t.Run(what, func(t *testing.T) {
			a := newArena(t, nil)
			s := newSemaphore(t, a, "s", 3, nil)
			other := semOther(t, a)
			require.Empty(t, semDo(t, other, semOrder{Verb: "acquire", N: 2}).Err)
			require.False(t, s.TryAcquire(2), "the permits are in use; the call also reads the list")
			o, err := objectNamed(a, "s")
			require.NoError(t, err)
			undo := change(t, a, o)
			other.Kill(t)
			eventually(t, "the permits are back", func() string { return words(a) }, func() bool { return s.TryAcquire(3) })
			s.Release(3)
			undo()
			sound(t, a)
		})
	}
}

type semFirst struct {
	Arena string
	Mode  prims.SemaphoreMode
}

func init() {
	proctest.Register("semaphore/first", func(c *proctest.Child) {
		var p semFirst
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSemaphore(a, "s", 2, &prims.SemaphoreOptions{Mode: p.Mode})
		if err != nil {
			c.Fatal(err)
		}
		s.Acquire(2)
		go s.Acquire(1)
		for s.Queued() != 1 {
			runtime.Gosched()
		}
		c.Ready()
		c.Await()
	})
}
