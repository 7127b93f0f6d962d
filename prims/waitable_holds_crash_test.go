//go:build linux && crashpoint

package prims_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// blockStep is a crash point that a call passes while it adds a block, or while it makes the claim that needs the block.
type blockStep struct {
	point  string
	hit    int32
	pushed bool // the block is on the list
	made   bool // the change has taken effect
}

// blockSteps returns the steps of a call that adds a block, and then makes a change of the given number of words.
func blockSteps(words int32) (steps []blockStep) {
	steps = []blockStep{
		{"arena.slotrecord.claimed", 1, false, false}, {"arena.slotrecord.before_push", 1, false, false}, {"arena.slotrecord.pushed", 1, true, false},
		{"waitable.block.pushed", 1, true, false}, {"record.commit.written", 1, true, false}, {"record.commit.named", 1, true, true},
		{"record.commit.completed", 1, true, true},
	}
	for i := range words {
		steps = append(steps, blockStep{"record.complete.begun", i + 1, true, true})
	}
	return steps
}

func (s blockStep) String() string { return fmt.Sprint(s.point, ":", s.hit) }

// No rule fails in a wait whose argument is firstValue or larger.
const firstValue = 100

// TestWaitableDiesAddingHolds: a process dies at each step of a claim that needs a block. The block is on the list, or
// it is free. The claims of the process are undone, even if no living process had opened the Waitable before the death.
func TestWaitableDiesAddingHolds(t *testing.T) {
	for _, at := range blockSteps(4) {
		for _, stranger := range []bool{false, true} {
			t.Run(fmt.Sprint(at, ", strangers only: ", stranger), func(t *testing.T) {
				a := newArena(t, nil)
				victim := newStockist(t, a)
				for range 3 {
					victim.do(t, "free", fine)
				}
				require.True(t, victim.do(t, "try", firstValue).OK)
				var k stocked
				var err error
				if !stranger {
					k, err = openStocked(a)
					require.NoError(t, err)
				}
				records := a.Stats().SlotRecords
				victim.do(t, "arm "+at.point, at.hit)
				victim.begin("try", firstValue+1)
				victim.WaitSignal(t, 9)
				alone(t, a, 1)
				if stranger {
					k, err = openStocked(a)
					require.NoError(t, err)
					records += 2 // of this process
				}
				if at.pushed {
					records++
				}
				require.EqualValues(t, records, a.Stats().SlotRecords)
				require.Zero(t, a.Stats().Claimed)
				eventually(t, "undone", func() string { return words(a) }, func() bool { return k.x.State() == stock{3, 0} })
				for e := range int32(3) {
					require.True(t, k.x.TryWait(firstValue+e))
				}
				require.Len(t, k.x.Blocks(), 1)
				sound(t, a)
			})
		}
	}
}

// TestWaitableStoppedAddingHolds: a process is stopped at each step of a claim that needs a block. Other processes do
// not wait for it: they add the block themselves, or use the block that it has added. The stopped process then goes on,
// or is killed. In both cases there is one block.
func TestWaitableStoppedAddingHolds(t *testing.T) {
	for _, at := range blockSteps(4) {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprint(at, ", killed: ", kill), func(t *testing.T) {
				a := newArena(t, nil)
				k, err := openStocked(a)
				require.NoError(t, err)
				victim := newStockist(t, a)
				k.x.Update(func(s *stock) { s.Free = 10 })
				require.True(t, victim.do(t, "try", firstValue).OK)
				victim.do(t, "stop at "+at.point, at.hit)
				id := victim.begin("try", firstValue+1)
				victim.AwaitStop(t)
				for e := range int32(4) { // in the slot record, and in the block
					require.NoError(t, k.x.Wait(firstValue+e))
				}
				require.Len(t, k.x.Blocks(), 1)
				taken := int64(5)
				if at.made {
					taken++
				}
				require.Equal(t, stock{10 - taken, taken}, k.x.State())
				if kill {
					victim.Kill(t)
					alone(t, a, 1)
					eventually(t, "undone", func() string { return words(a) }, func() bool { return k.x.State() == stock{6, 4} })
				} else {
					victim.Cont(t)
					require.True(t, victim.answer(t, id).OK)
					require.Equal(t, stock{4, 6}, k.x.State())
					require.Empty(t, victim.do(t, "release", firstValue+1).Panic)
					require.Empty(t, victim.do(t, "release", firstValue).Panic)
				}
				require.Len(t, k.x.Blocks(), 1)
				for e := range int32(4) {
					k.x.Release(firstValue + e)
				}
				require.Equal(t, stock{10, 0}, k.x.State())
				sound(t, a)
			})
		}
	}
}

// TestWaitableGrantThatAddsHolds: a process grants a wait of another process, and adds the block that the claim
// needs. The granting process dies or is stopped at each step. The waiter gets its claim, in that block or in a block
// that its own process adds.
func TestWaitableGrantThatAddsHolds(t *testing.T) {
	for _, at := range blockSteps(8) {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprint(at, ", killed: ", kill), func(t *testing.T) {
				a := newArena(t, nil)
				k, err := openStocked(a)
				require.NoError(t, err)
				grants := newStockist(t, a)
				k.x.Update(func(s *stock) { s.Free = 2 })
				require.True(t, grants.do(t, "try", firstValue).OK)
				require.NoError(t, k.x.Wait(firstValue))
				waits := make(chan error, 1)
				go func() { waits <- k.x.Wait(firstValue + 1) }()
				eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
				hit := at.hit
				switch at.point {
				case "record.commit.written", "record.commit.named", "record.commit.completed":
					hit++ // the release comes first
				case "record.complete.begun":
					hit += 2
				}
				if kill {
					grants.do(t, "arm "+at.point, hit)
				} else {
					grants.do(t, "stop at "+at.point, hit)
				}
				id := grants.begin("release", firstValue)
				if kill {
					grants.WaitSignal(t, 9)
				} else {
					grants.AwaitStop(t)
				}
				select {
				case err := <-waits:
					require.NoError(t, err)
				case <-after(timeout()):
					t.Fatalf("the waiter waits for the other process\n%s", words(a))
				}
				require.Equal(t, stock{0, 2}, k.x.State())
				w, added := k.x.HoldOf(firstValue + 1)
				require.True(t, added)
				require.EqualValues(t, w.Granted.Load()>>32, w.Accepted.Load(), "the wait has accepted its claim")
				if kill {
					alone(t, a, 1)
				} else {
					grants.Cont(t)
					require.Equal(t, stockAnswer{ID: id}, grants.answer(t, id))
				}
				require.Len(t, k.x.Blocks(), 1)
				k.x.Release(firstValue + 1)
				k.x.Release(firstValue)
				require.Equal(t, stock{2, 0}, k.x.State())
				sound(t, a)
			})
		}
	}
}

// TestWaitableTextWhenItsBlockIsAdded: a rule panics in a process, which dies or is stopped while it adds the block for
// the text. The Waitable stays usable for the others, until the process goes on.
func TestWaitableTextWhenItsBlockIsAdded(t *testing.T) {
	for _, at := range blockSteps(1)[:5] {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprint(at, ", killed: ", kill), func(t *testing.T) {
				a := newArena(t, nil)
				k, err := openStocked(a)
				require.NoError(t, err)
				fails := newStockist(t, a)
				k.x.Update(func(s *stock) { s.Free = 1 })
				goOn := func() {
					require.NoError(t, k.x.Err())
					require.NoError(t, k.x.Wait(firstValue))
					k.x.Release(firstValue)
				}
				if kill {
					fails.do(t, "arm "+at.point, at.hit)
					fails.begin("try", panicsInClaim)
					fails.WaitSignal(t, 9)
					alone(t, a, 1)
					goOn()
				} else {
					fails.do(t, "stop at "+at.point, at.hit)
					id := fails.begin("try", panicsInClaim)
					fails.AwaitStop(t)
					goOn()
					fails.Cont(t)
					require.Equal(t, "this claim fails", fails.answer(t, id).Panic)
					isLost(t, k.x, "this claim fails", stock{1, 0}, fails)
				}
				if pushed := len(k.x.Blocks()); at.pushed || !kill {
					require.Equal(t, 1, pushed)
				} else {
					require.Zero(t, pushed)
				}
				sound(t, a)
			})
		}
	}
}

// TestWaitableOneBlock: two processes find at once that no hold is free. Only one of them adds a block.
func TestWaitableOneBlock(t *testing.T) {
	for _, point := range []string{"waitable.state.copied", "arena.slotrecord.claimed", "arena.slotrecord.before_push"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			k, err := openStocked(a)
			require.NoError(t, err)
			other := newStockist(t, a)
			k.x.Update(func(s *stock) { s.Free = 10 })
			require.True(t, k.x.TryWait(firstValue))
			require.True(t, other.do(t, "try", firstValue).OK)
			crashpoint.ArmFunc(point, 1, func() { require.True(t, other.do(t, "try", firstValue+1).OK) })
			defer crashpoint.Disarm()
			require.True(t, k.x.TryWait(firstValue+1))
			require.Len(t, k.x.Blocks(), 1)
			require.Equal(t, stock{6, 4}, k.x.State())
			sound(t, a)
		})
	}
}

// TestWaitableHoldIsTakenMeanwhile: two processes use the same free hold of a new block at once. The second one begins
// again, and takes another hold.
func TestWaitableHoldIsTakenMeanwhile(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	other := newStockist(t, a)
	k.x.Update(func(s *stock) { s.Free = 10 })
	require.True(t, k.x.TryWait(firstValue))
	require.True(t, other.do(t, "try", firstValue).OK)
	require.True(t, k.x.TryWait(firstValue+1))
	k.x.Release(firstValue + 1)
	crashpoint.ArmFunc("waitable.update.copied", 1, func() { require.True(t, other.do(t, "try", firstValue+2).OK) })
	defer crashpoint.Disarm()
	require.True(t, k.x.TryWait(firstValue+3))
	require.Equal(t, stock{6, 4}, k.x.State())
	mine, added := k.x.HoldOf(firstValue + 3)
	require.True(t, added)
	require.EqualValues(t, 1, mine.Count.Load()>>32)
	require.Empty(t, other.do(t, "release", firstValue+2).Panic)
	k.x.Release(firstValue + 3)
	require.Equal(t, stock{8, 2}, k.x.State())
	sound(t, a)
}
