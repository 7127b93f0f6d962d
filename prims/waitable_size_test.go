//go:build linux

package prims_test

import (
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestObjectsAreSmall: an object of these kinds takes at most 512 bytes, and each participant that has opened it adds
// at most 256 bytes. The number of participants that the arena can have matters only for the open bits, one for each
// slot. The open bits beyond 512 slots are not counted here.
func TestObjectsAreSmall(t *testing.T) {
	closer := func(x io.Closer, err error) (io.Closer, error) { return x, err }
	for kind, open := range map[string]func(a *arena.Arena) (io.Closer, error){
		"Mutex":     func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenMutex(a, "", nil)) },
		"Futex":     func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenFutex(a, "", nil)) },
		"SpinLock":  func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenSpinLock(a, "", nil)) },
		"RWMutex":   func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenRWMutex(a, "", nil)) },
		"Semaphore": func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenSemaphore(a, "", 3, nil)) },
		"FairMutex": func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenFairMutex(a, "", nil)) },
		"Cond":      func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenCond(a, "", new(sync.Mutex), nil)) },
		"Barrier":   func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenBarrier(a, "", 3, nil)) },
		"Once":      func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenOnce(a, "", nil)) },
		"Future":    func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenFuture(a, "", nil)) },
		"Event":     func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenEvent(a, "", nil)) },
		"Waitable":  func(a *arena.Arena) (io.Closer, error) { return closer(shared(a, "")) },

		"Sequencer": func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenSequencer(a, "", nil)) },
		"CohortMutex": func(a *arena.Arena) (io.Closer, error) {
			return closer(prims.OpenCohortMutex(a, "", &prims.CohortMutexOptions{Nodes: 1}))
		},
		"RWSpinLock": func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenRWSpinLock(a, "", nil)) },
		"WaitGroup":  func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenWaitGroup(a, "", nil)) },
		"Latch":      func(a *arena.Arena) (io.Closer, error) { return closer(prims.OpenLatch(a, "", 3, nil)) },
	} {
		for _, slots := range []int{1, 8, 128, 256, 511} {
			a := newArena(t, &arena.Options{Size: 16 << 20, MaxParticipants: slots})
			before := a.Stats()
			x, err := open(a)
			require.NoError(t, err)
			records := a.Stats().SlotRecords - before.SlotRecords
			require.LessOrEqual(t, a.Stats().BytesUsed-before.BytesUsed, 512+256*uint64(records), "%s, %d slots", kind, slots)
			require.NoError(t, x.Close())
		}
	}
}

// TestWaitableSize: a Waitable with a small state takes 128 bytes beside what each object takes, and 256 for each slot
// that has opened it. If the state is larger, the Waitable takes the size of the state more, and each slot record takes
// twice that size more.
func TestWaitableSize(t *testing.T) {
	// The description of S and E, which is beside the name, is in the block of the object, too.
	for slots, want := range map[int]uint64{1: 256, 8: 256, 128: 256, 256: 384, 511: 384, 512: 384, 2047: 512} {
		a := newArena(t, &arena.Options{Size: 16 << 20, MaxParticipants: slots})
		before := a.Stats().BytesUsed
		x, err := shared(a, "")
		require.NoError(t, err)
		require.Equal(t, want+256, a.Stats().BytesUsed-before, "%d slots", slots)
		require.EqualValues(t, 128, bodySize(t, a, x.Offset()), "%d slots", slots)
		before = a.Stats().BytesUsed
		require.True(t, x.TryWait(true))
		x.Release(true)
		for range 3 {
			require.True(t, x.TryWait(false))
		}
		x.Update(func(s *sharedState) { s.Holders++ })
		require.Equal(t, before, a.Stats().BytesUsed, "a hold for one value of E is in the slot record")
	}
	a := newArena(t, &arena.Options{Size: 16 << 20, Counted: true})
	x, err := shared(a, "x")
	require.NoError(t, err)
	require.EqualValues(t, 128+64, bodySize(t, a, x.Offset()), "the counters follow")
	require.True(t, x.TryWait(true))
	require.Equal(t, sharedState{-1}, x.State())

	k, err := openStocked(a) // 16 bytes
	require.NoError(t, err)
	require.EqualValues(t, 128+64+64, bodySize(t, a, k.x.Offset()))
	for i := range 2 {
		before := a.Stats()
		other := newStockist(t, a)
		other.do(t, "free", fine)
		require.Equal(t, stockAnswer{ID: 2}, other.do(t, "wait", fine))
		if after := a.Stats(); i == 0 {
			require.EqualValues(t, 2, after.SlotRecords-before.SlotRecords, "of the Waitable, and of the Semaphore")
			require.EqualValues(t, 256+2*64+256, after.BytesUsed-before.BytesUsed)
		} else {
			require.Equal(t, before.SlotRecords, after.SlotRecords, "the next participant of a slot inherits the record")
		}
		other.Kill(t)
		alone(t, a, 1)
	}
	eventually(t, "undone", func() string { return words(a) }, func() bool { return k.x.State() == stock{2, 0} })
	sound(t, a)
}

// many is a Waitable whose waits are for numbers, and whose rules allow all of them. Its state is the number of claims.
func many(a *arena.Arena, name string) (*prims.Waitable[int64, int64], error) {
	return prims.OpenWaitable(a, name, 0, manyRules, &prims.WaitableOptions{Spin: -1})
}

var manyRules = prims.Rules[int64, int64]{
	Claim:   func(n *int64, _ int64) bool { *n++; return true },
	Release: func(n *int64, _ int64) { *n-- },
}

// TestWaitableHoldsGrow: a process makes claims for many values. The Waitable gets a block for each four of them, and
// uses the holds again when claims are released.
func TestWaitableHoldsGrow(t *testing.T) {
	a := newArena(t, nil)
	whole := a.Stats()
	x, err := many(a, "x")
	require.NoError(t, err)
	before := a.Stats()
	const n = 1001 // one of them in the slot record
	for range 2 {
		for e := range int64(n) {
			require.True(t, x.TryWait(e))
			require.True(t, x.TryWait(e))
		}
		require.EqualValues(t, 2*n, x.State())
		require.Equal(t, before.BytesUsed+256*(n-1)/4, a.Stats().BytesUsed)
		require.Len(t, x.Blocks(), (n-1)/4)
		for e := range int64(n) {
			x.Release(n - 1 - e)
			x.Release(n - 1 - e)
			require.Panics(t, func() { x.Release(n - 1 - e) }, "it has no such claim any more")
		}
		require.Zero(t, x.State())
	}
	again, err := many(a, "x")
	require.NoError(t, err)
	require.True(t, again.TryWait(n+1))
	x.Release(n + 1)
	require.Equal(t, before.BytesUsed+256*(n-1)/4, a.Stats().BytesUsed)
	require.NoError(t, again.Close())
	sound(t, a)
	require.NoError(t, x.Close())
	require.NoError(t, a.Delete("x"))
	require.Equal(t, whole.BytesUsed, a.Stats().BytesUsed, "the blocks are deleted, too")
	sound(t, a)
}

// TestWaitableDiesWithManyClaims: a process that has claims in its slot record and in blocks dies. All its claims are
// undone, and the next participant in its slot, and others, use the holds again.
func TestWaitableDiesWithManyClaims(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	const n, first = 30, 100 // no rule fails for a value of 100 or more
	k.x.Update(func(s *stock) { s.Free = n })
	for range 2 {
		victim := newStockist(t, a)
		for e := range int32(n) {
			require.True(t, victim.do(t, "try", first+e).OK)
		}
		require.Len(t, k.x.Blocks(), (n+2)/4)
		victim.Kill(t)
		alone(t, a, 1)
		eventually(t, "undone", func() string { return words(a) }, func() bool { return k.x.State() == stock{n, 0} })
	}
	for e := range int32(n) {
		require.True(t, k.x.TryWait(first+e))
	}
	require.Len(t, k.x.Blocks(), (n+2)/4)
	sound(t, a)
}

// withoutRoom fills the heap of the arena, except for as many blocks of 256 bytes as the parameter blocks says. It returns
// a function that makes room for one more.
func withoutRoom(t *testing.T, a *arena.Arena, blocks int) (room func()) {
	var all []arena.Offset
	for range blocks + 100 {
		off, err := a.Alloc(256, 0)
		require.NoError(t, err)
		all = append(all, off)
	}
	fill(t, a)
	room = func() {
		a.Free(all[0])
		all = all[1:]
	}
	for range blocks {
		room()
	}
	return room
}

// TestWaitableWithoutRoomForHolds: the arena has no room for a block. A claim that needs one is refused, and changes
// nothing. A wait that is queued stays in the queue until there is room.
func TestWaitableWithoutRoomForHolds(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	k, err := openStocked(a)
	require.NoError(t, err)
	other := newStockist(t, a)
	k.x.Update(func(s *stock) { s.Free = 20 })
	const first = 100 // no rule fails for a value of 100 or more
	require.Equal(t, stockAnswer{ID: 1}, other.do(t, "wait", first))
	k.x.Update(func(s *stock) { s.Free = 0 })
	waits := other.begin("wait", first) // so that the other process has the wait node that it needs
	eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
	k.x.Update(func(s *stock) { s.Free = 19 })
	require.Equal(t, stockAnswer{ID: waits}, other.answer(t, waits))
	require.Equal(t, stockAnswer{ID: waits + 1}, other.do(t, "release", first))
	room := withoutRoom(t, a, 1)
	require.True(t, k.x.TryWait(first))
	for e := range int32(4) {
		require.NoError(t, k.x.Wait(first+1+e), "in the block")
	}
	require.NoError(t, k.x.Wait(first+4), "the same once more")
	require.False(t, k.x.TryWait(first+5))
	require.ErrorIs(t, k.x.Wait(first+5), shmsync.ErrNoSpace)
	require.ErrorContains(t, k.x.Wait(first+5), "no room for the holds")
	require.NotEmpty(t, other.do(t, "wait", first+5).Err)
	require.Equal(t, stock{13, 7}, k.x.State())
	k.x.Release(first + 2)
	require.NoError(t, k.x.Wait(first+5), "the hold that is free now")

	k.x.Update(func(s *stock) { s.Free = 0 })
	waits = other.begin("wait", first+6)
	eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
	k.x.Update(func(s *stock) { s.Free = 1 })
	require.Equal(t, 1, k.x.Queued())
	require.Equal(t, stock{1, 7}, k.x.State())
	room()
	require.Equal(t, stockAnswer{ID: waits}, other.answer(t, waits))
	require.Equal(t, stock{0, 8}, k.x.State())
	require.Equal(t, stockAnswer{ID: waits + 1}, other.do(t, "release", first+6))
	other.Kill(t)
	alone(t, a, 1)
	eventually(t, "undone", func() string { return words(a) }, func() bool { return k.x.State() == stock{2, 6} })
	sound(t, a)
}

// TestWaitableGrantWithoutRoom: the rules have neither Release nor OnDeath, so a claim ends when its wait has returned.
// The claim needs a hold only because the process may die before that. If the arena has no room for the hold, the wait
// is granted nevertheless.
func TestWaitableGrantWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	rules := prims.Rules[int64, int64]{
		Claim: func(n *int64, _ int64) bool { *n--; return *n >= 0 },
		Undo:  func(n *int64, _ int64) { *n++ },
	}
	x, err := prims.OpenWaitable(a, "x", 0, rules, &prims.WaitableOptions{Spin: -1})
	require.NoError(t, err)
	const n = 7
	ended := make(chan error, n)
	for round := range 2 { // in the first round the arena has room, and this process gets its wait nodes
		for e := range int64(n) {
			go func() { ended <- x.Wait(e) }()
		}
		eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == n })
		x.Update(func(s *int64) { *s = n })
		for range n {
			require.NoError(t, <-ended)
		}
		require.Zero(t, x.State())
		if round == 0 {
			require.NoError(t, x.Close())
			require.NoError(t, a.Delete("x"))
			x, err = prims.OpenWaitable(a, "x", 0, rules, &prims.WaitableOptions{Spin: -1})
			require.NoError(t, err)
			fill(t, a)
		}
	}
	sound(t, a)
}

// TestWaitableTextWithoutRoom: a rule panics, and the arena has no room for the text. The Waitable is not recoverable
// nevertheless, and Recover makes it usable.
func TestWaitableTextWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	k, err := openStocked(a)
	require.NoError(t, err)
	fill(t, a)
	for err == nil { // use up the free blocks that a text or a slot record could get
		_, err = a.Alloc(384, 0)
	}
	require.PanicsWithValue(t, "this claim fails", func() { k.x.TryWait(panicsInClaim) })
	require.ErrorIs(t, k.x.Err(), shmsync.ErrNotRecoverable)
	require.ErrorContains(t, k.x.Err(), "a rule did not return: the text of its panic was not stored")
	require.NoError(t, k.x.Recover(func(s *stock) error { s.Free = 1; return nil }))
	require.NoError(t, k.x.Err())
	require.True(t, k.x.TryWait(fine))
	sound(t, a)
}

// TestWaitableTextOfEachSlot: the text of a panic takes a block once for each slot, and each process shows the text of
// the last panic.
func TestWaitableTextOfEachSlot(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	other := newStockist(t, a)
	require.True(t, k.x.State() == stock{})
	fails := func(by string, e int32, text string) {
		t.Helper()
		if by == "other" {
			other.do(t, "try", e)
		} else {
			require.Panics(t, func() { k.x.TryWait(e) })
		}
		require.ErrorContains(t, k.x.Err(), "a rule did not return: "+text)
		require.Contains(t, other.do(t, "wait", fine).Err, "a rule did not return: "+text)
		require.NoError(t, k.x.Recover(func(*stock) error { return nil }))
	}
	fails("this", panicsInClaim, "this claim fails")
	require.Len(t, k.x.Blocks(), 1)
	fails("other", panicsInClaim, "this claim fails")
	require.Len(t, k.x.Blocks(), 2)
	before := a.Stats().BytesUsed
	k.x.Update(func(s *stock) { s.Free = 9 })
	require.True(t, k.x.TryWait(panicsInRelease))
	require.Panics(t, func() { k.x.Release(panicsInRelease) })
	require.ErrorContains(t, k.x.Err(), "this release fails")
	require.NoError(t, k.x.Recover(func(*stock) error { return nil }))
	fails("other", exitsInClaim, "runtime.Goexit")
	fails("other", panicsInClaim, "this claim fails")
	for e := range int32(8) {
		require.True(t, k.x.TryWait(100+e), "the blocks with a text have holds, too")
	}
	require.Equal(t, before, a.Stats().BytesUsed)
	other.Kill(t)
	alone(t, a, 1)
	other = newStockist(t, a)
	fails("other", panicsInClaim, "this claim fails")
	require.Equal(t, before, a.Stats().BytesUsed, "the next participant of a slot inherits the block")
	sound(t, a)
}
