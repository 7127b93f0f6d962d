//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// semOpens starts another process that acquires and releases until its share opens, so that it acquires and
// releases without a record. In the end that process has 2 permits in use and 1 spare permit.
func semOpens(t *testing.T, a *arena.Arena, s *prims.Semaphore) *proctest.Proc {
	t.Helper()
	if race.Enabled {
		t.Skip("needs a build without the race detector: with it, every call makes a record")
	}
	p := semOther(t, a)
	for range 3 {
		require.Empty(t, semDo(t, p, semOrder{Verb: "acquire", N: 3}).Err)
		require.Empty(t, semDo(t, p, semOrder{Verb: "release", N: 3}).Panic)
	}
	require.Empty(t, semDo(t, p, semOrder{Verb: "acquire", N: 2}).Err)
	require.Contains(t, words(a), "open, 2 used, 1 spare")
	require.Equal(t, s.State().Size-2, s.State().Free)
	return p
}

// TestSemaphoreGathersWhatIsSpare: a process that needs the spare permits of another process gets them at once.
// The permits that the other process uses remain its own.
func TestSemaphoreGathersWhatIsSpare(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 5, nil)
	p := semOpens(t, a, s)
	require.False(t, s.TryAcquire(4))
	require.True(t, s.TryAcquire(3))
	require.NotContains(t, words(a), "open,")
	require.False(t, semDo(t, p, semOrder{Verb: "try", N: 1}).OK)
	require.Contains(t, semDo(t, p, semOrder{Verb: "release", N: 3}).Panic, "more than are held")
	done := make(chan error, 1)
	go func() { done <- s.AcquireContext(context.Background(), 2) }()
	semQueued(t, a, s, 1)
	// The release serves the queued waiter, although the process acquired these permits without a record.
	require.Empty(t, semDo(t, p, semOrder{Verb: "release", N: 2}).Panic)
	require.NoError(t, <-done)
	s.Release(5)
	require.Equal(t, int64(5), s.State().Free)
}

// TestSemaphoreGathersFromTheStopped: other processes get the spare permits of a process even while that
// process is stopped.
func TestSemaphoreGathersFromTheStopped(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 3, nil)
	p := semOpens(t, a, s)
	p.Stop(t)
	require.NoError(t, s.AcquireContext(context.Background(), 1))
	p.Cont(t)
	require.Empty(t, semDo(t, p, semOrder{Verb: "release", N: 2}).Panic)
	require.NoError(t, s.AcquireContext(context.Background(), 2))
}

// TestSemaphoreTakesBackWhatIsOpen: when a process dies, the permits that it uses and its spare permits become
// free.
func TestSemaphoreTakesBackWhatIsOpen(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 3, nil)
	p := semOpens(t, a, s)
	p.Kill(t)
	eventually(t, "taken back", func() string { return words(a) }, func() bool { return s.State().Free == 3 })
	require.NotContains(t, words(a), "open,")
	require.NoError(t, s.AcquireContext(context.Background(), 3))
	s.Release(3)
	require.Equal(t, int64(3), s.State().Free)
}

// TestSemaphoreReleaseOfNothingOpensNothing: a process gets the slot of a dead process, and releases 0 permits
// many times. It does not get the permits of the dead process, and none of them is lost.
func TestSemaphoreReleaseOfNothingOpensNothing(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 4 << 20, MaxParticipants: 2})
	s := newSemaphore(t, a, "s", 5, nil)
	p := semOpens(t, a, s)
	p.Kill(t)
	alone(t, a, 1)
	p = semOther(t, a)
	for range 3 {
		require.Empty(t, semDo(t, p, semOrder{Verb: "release"}).Panic)
	}
	require.Contains(t, semDo(t, p, semOrder{Verb: "release", N: 2}).Panic, "more than are held")
	require.True(t, s.TryAcquire(5), words(a))
}

// semBurstTurns is how often each process runs its burst of calls.
const semBurstTurns = 3000

// TestSemaphoreFastNeverExceeded checks that two processes never use more permits than the Semaphore has, and that no
// permit is lost. The processes alternately keep spare permits.
func TestSemaphoreFastNeverExceeded(t *testing.T) {
	for _, opts := range []*prims.SemaphoreOptions{nil, {Mode: prims.SemaphoreTransferable}} {
		t.Run(fmt.Sprint("transferable ", opts != nil), func(t *testing.T) {
			a := newArena(t, nil)
			s := newSemaphore(t, a, "s", 2, opts)
			p := proctest.Start(t, "semaphore/bursts", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
			p.Await(t)
			require.NoError(t, semBursts(a, 1))
			p.WaitExit(t)
			require.Equal(t, int64(2), s.State().Free)
			board, err := arena.Value[semBoard](a, "in")
			require.NoError(t, err)
			require.Equal(t, int64(2), board.Most.Load())
		})
	}
}

func init() {
	proctest.Register("semaphore/bursts", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := semBursts(a, 2); err != nil {
			c.Fatal(err)
		}
	})
}

// semBursts acquires and releases one permit many times, then both permits of the Semaphore, and so on. Repeated
// releases open the share of this process. An acquire of both permits closes the share of the other process.
func semBursts(a *arena.Arena, seed uint64) error {
	s, err := prims.AttachSemaphore(a, "s", nil)
	if err != nil {
		return err
	}
	board, err := arena.Value[semBoard](a, "in")
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for turn := range semBurstTurns {
		n := int64(1 + turn&1)
		for range r.IntN(30) {
			if err := s.AcquireContext(context.Background(), n); err != nil {
				return err
			}
			in := board.In.Add(n)
			if in > 2 {
				return fmt.Errorf("%d permits are in use, and the semaphore has 2", in)
			}
			if in > board.Most.Load() {
				board.Most.Store(in)
			}
			board.In.Add(-n)
			s.Release(n)
		}
	}
	return s.Close()
}
