//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func newSemaphore(t testing.TB, a *arena.Arena, name string, n int64, opts *prims.SemaphoreOptions) *prims.Semaphore {
	t.Helper()
	s, err := prims.OpenSemaphore(a, name, n, opts)
	require.NoError(t, err)
	return s
}

// semOrder is a call that another process makes on the semaphore "s".
type semOrder struct {
	ID   int
	Verb string // acquire, try, release
	N    int64
}

type semAnswer struct {
	ID    int
	OK    bool
	Err   string
	Panic string
}

func init() {
	proctest.Register("semaphore", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "other"})
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.AttachSemaphore(a, "s", nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			var o semOrder
			c.Recv(&o)
			go func() { c.Say(semAct(s, o)) }()
		}
	})
}

func semAct(s *prims.Semaphore, o semOrder) (r semAnswer) {
	r.ID = o.ID
	defer func() {
		if p := recover(); p != nil {
			r.Panic = fmt.Sprint(p)
		}
	}()
	switch o.Verb {
	case "acquire":
		if err := s.AcquireContext(context.Background(), o.N); err != nil {
			r.Err = err.Error()
		}
	case "try":
		r.OK = s.TryAcquire(o.N)
	case "release":
		s.Release(o.N)
	}
	return r
}

// semOther starts the other process.
func semOther(t *testing.T, a *arena.Arena) *proctest.Proc {
	p := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	return p
}

func semDo(t *testing.T, p *proctest.Proc, o semOrder) (r semAnswer) {
	t.Helper()
	p.Send(o)
	p.Recv(t, &r)
	require.Equal(t, o.ID, r.ID)
	return r
}

// semQueued waits until n waits are queued.
func semQueued(t *testing.T, a *arena.Arena, s *prims.Semaphore, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d queued", n), func() string { return words(a) }, func() bool { return s.Queued() == n })
}

// TestSemaphoreIsFIFO: the waits of two processes for different numbers of permits are granted in the order of
// arrival.
func TestSemaphoreIsFIFO(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 3, nil)
	p := semOther(t, a)
	require.NoError(t, s.AcquireContext(context.Background(), 3))
	wants := []int64{2, 1, 3, 1, 1, 3, 2, 1}
	got := make(chan int, len(wants))
	for i, n := range wants {
		if i%2 == 0 {
			p.Send(semOrder{ID: i, Verb: "acquire", N: n})
		} else {
			go func() {
				if s.AcquireContext(context.Background(), n) == nil {
					got <- i
				}
			}()
		}
		semQueued(t, a, s, i+1)
	}
	require.False(t, s.TryAcquire(1))
	early := map[int]semAnswer{} // answers that the test has received from p, by ID
	answer := func(id int) semAnswer {
		for {
			if r, ok := early[id]; ok {
				return r
			}
			var r semAnswer
			p.Recv(t, &r)
			early[r.ID] = r
		}
	}
	free := int64(3)
	s.Release(3)
	for i := 0; i < len(wants); {
		// Waits are granted in order, as long as there are enough permits for the first one.
		first := i
		for i < len(wants) && wants[i] <= free {
			free -= wants[i]
			i++
		}
		require.Greater(t, i, first)
		semQueued(t, a, s, len(wants)-i)
		require.Equal(t, free, s.State().Free)
		for k := first; k < i; k++ {
			if k%2 == 0 {
				r := answer(k)
				require.Empty(t, r.Err)
			} else {
				<-got
			}
		}
		require.False(t, i < len(wants) && s.TryAcquire(1), "TryAcquire takes no permit while a wait is queued")
		for k := first; k < i; k++ {
			free += wants[k]
			if k%2 == 0 {
				p.Send(semOrder{ID: 100 + k, Verb: "release", N: wants[k]})
				require.Empty(t, answer(100+k).Panic)
			} else {
				s.Release(wants[k])
			}
		}
	}
	require.Equal(t, int64(3), s.State().Free)
}

// TestSemaphoreTakesBackFromTheDead: when a process dies, its permits become free, and its waits leave the
// queue.
func TestSemaphoreTakesBackFromTheDead(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 10, nil)
	holder, waiter := semOther(t, a), semOther(t, a)
	require.Empty(t, semDo(t, holder, semOrder{Verb: "acquire", N: 6}).Err)
	require.NoError(t, s.AcquireContext(context.Background(), 2))
	waiter.Send(semOrder{Verb: "acquire", N: 10})
	semQueued(t, a, s, 1)
	done := make(chan error, 1)
	go func() { done <- s.AcquireContext(context.Background(), 2) }()
	semQueued(t, a, s, 2)
	// The process of the first wait dies. The permits suffice for the wait behind it.
	waiter.Kill(t)
	require.NoError(t, <-done)
	require.Equal(t, int64(0), s.State().Free)
	go func() { done <- s.AcquireContext(context.Background(), 6) }()
	semQueued(t, a, s, 1)
	holder.Kill(t)
	require.NoError(t, <-done)
	s.Release(10)
	require.Equal(t, int64(10), s.State().Free)
}

func TestSemaphoreStoppedHolderKeeps(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 1, nil)
	p := semOther(t, a)
	require.Empty(t, semDo(t, p, semOrder{Verb: "acquire", N: 1}).Err)
	p.Stop(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, s.AcquireContext(ctx, 1))
	require.False(t, s.TryAcquire(1))
	p.Cont(t)
	semDo(t, p, semOrder{ID: 1, Verb: "release", N: 1})
	require.True(t, s.TryAcquire(1))
}

func TestSemaphoreMistakes(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 4, nil)
	p := semOther(t, a)
	require.True(t, s.TryAcquire(2))
	require.PanicsWithValue(t, "shmsync: Release of 3 permits of semaphore s: more than are held", func() { s.Release(3) })
	require.Contains(t, semDo(t, p, semOrder{Verb: "release", N: 1}).Panic, "more than are held", "the permits belong to another process")
	for _, f := range []func(){
		func() { s.Release(-1) }, func() { s.TryAcquire(-1) }, func() { s.AcquireContext(context.Background(), -1) },
		func() { s.AcquireContext(context.Background(), 5) }, // could never succeed, and nothing would end the wait
		func() { s.Acquire(5) }, func() { s.Acquire(-1) },
		func() { prims.OpenSemaphore(a, "", 1, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable + 1}) },
		func() {
			prims.OpenSemaphore(a, "", 1, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: 2})
		},
	} {
		require.Panics(t, f)
	}
	require.Equal(t, int64(2), s.State().Free, "nothing has changed")
	s.Release(0)
	require.NoError(t, s.AcquireContext(context.Background(), 0))
	s.Release(2)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), shmsync.ErrClosed)
}

func TestSemaphoreContext(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 2, nil)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, context.Canceled, s.AcquireContext(ended, 1), "as in x/sync, a context that has ended wins")
	require.NoError(t, s.AcquireContext(context.Background(), 2))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, s.AcquireContext(ctx, 1))
	// A wait for more permits than there are ends with its context, and blocks no other wait.
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, s.AcquireContext(ctx, 3))
	require.Zero(t, s.Queued())
	// When the first waiter of the queue gives up, the waiters behind it can go on.
	s.Release(1)
	ctx, cancel = context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { first <- s.AcquireContext(ctx, 2) }()
	semQueued(t, a, s, 1)
	second := make(chan error, 1)
	go func() { second <- s.AcquireContext(context.Background(), 1) }()
	semQueued(t, a, s, 2)
	cancel()
	require.Equal(t, context.Canceled, <-first)
	require.NoError(t, <-second)
}

func TestSemaphoreTransferable(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 3, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: -1})
	p := semOther(t, a)
	require.False(t, s.TryAcquire(1))
	require.Empty(t, semDo(t, p, semOrder{Verb: "release", N: 2}).Panic)
	require.True(t, s.TryAcquire(1))
	require.Contains(t, semDo(t, p, semOrder{ID: 1, Verb: "release", N: 3}).Panic, "more than are held")
	require.Empty(t, semDo(t, p, semOrder{ID: 2, Verb: "acquire", N: 1}).Err)
	p.Kill(t)
	alone(t, a, 1)
	require.Equal(t, int64(0), s.State().Free, "no permit of the dead process comes back")
}

// endingContext is a context whose Err calls a function.
type endingContext struct {
	context.Context
	ends func() error
}

func (c endingContext) Err() error { return c.ends() }

// TestSemaphoreCanceledAfterOthersReleased: a call has got permits of a transferable semaphore. Before it finds that its
// context has ended, another handle releases permits. If the call released its permits now, more permits than the size of
// the semaphore would be free. So the call succeeds. It does not panic, because its caller has made no mistake.
func TestSemaphoreCanceledAfterOthersReleased(t *testing.T) {
	a := newArena(t, nil)
	const size = 1 << 31 // too many for the fast path, so each call makes a record
	for _, released := range []int64{0, 1, 2} {
		t.Run(fmt.Sprint(released), func(t *testing.T) {
			s := newSemaphore(t, a, "", size, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable, Initial: size - 1})
			other, err := prims.SemaphoreAt(a, s.Offset())
			require.NoError(t, err)
			calls := 0
			ctx := endingContext{context.Background(), func() error {
				if calls++; calls == 1 {
					return nil
				}
				other.Release(released)
				return context.Canceled
			}}
			err = s.AcquireContext(ctx, 1)
			require.Equal(t, 2, calls)
			if free := s.State().Free; released < 2 {
				require.Equal(t, context.Canceled, err)
				require.Equal(t, size-1+released, free)
			} else {
				require.NoError(t, err)
				require.Equal(t, int64(size), free)
			}
		})
	}
}

func TestSemaphoreOpen(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 5, nil)
	same := newSemaphore(t, a, "s", 5, nil)
	require.NotSame(t, s, same)
	_, err := prims.OpenSemaphore(a, "s", 6, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "it has 5 permits and is owned; asked for 6")
	_, err = prims.OpenSemaphore(a, "s", 5, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	moves := newSemaphore(t, a, "moves", 5, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable})
	moves.Acquire(2)
	require.Equal(t, int64(3), moves.State().Free)
	_, err = prims.OpenSemaphore(a, "moves", 5, &prims.SemaphoreOptions{Mode: prims.SemaphoreOwned})
	require.ErrorContains(t, err, "it has 5 permits and is transferable; asked for 5, owned")
	_, err = prims.OpenMutex(a, "s", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	m := newMutex(t, a, nil)
	_, err = prims.SemaphoreAt(a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	at, err := prims.SemaphoreAt(a, s.Offset())
	require.NoError(t, err)
	require.Equal(t, s.Offset(), at.Offset())
	require.Contains(t, s.String(), "semaphore s: 5 of 5 permits free")
}

// TestSemaphoreWithoutRoom: there is no memory for as many wait nodes as there are waiters. Some waits fail
// with an error that says so, and no permit is lost.
func TestSemaphoreWithoutRoom(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	s := newSemaphore(t, a, "s", 1, nil)
	require.True(t, s.TryAcquire(1))
	for {
		if _, err := a.Alloc(64, 8); err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			break
		}
	}
	var refused, served atomic.Int64
	var wg sync.WaitGroup
	const waiters = 3000
	for range waiters {
		wg.Go(func() {
			switch err := s.AcquireContext(context.Background(), 1); {
			case err == nil:
				served.Add(1)
				s.Release(1)
			case errors.Is(err, shmsync.ErrNoSpace):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	eventually(t, "all queued or refused", func() string { return words(a) }, func() bool {
		return refused.Load()+int64(s.Queued()) == waiters
	})
	require.NotZero(t, refused.Load())
	s.Release(1)
	wg.Wait()
	require.Equal(t, int64(waiters), refused.Load()+served.Load())
	require.Equal(t, int64(1), s.State().Free)
}

// TestSemaphoreCancelAgainstGrant: the context of a wait ends while the wait is granted. Whichever comes first,
// the number of permits stays correct.
func TestSemaphoreCancelAgainstGrant(t *testing.T) {
	rounds := proctest.Rounds(5_000, 50_000)
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 1, nil)
	nodes := a.Stats().Nodes
	granted, i := 0, 0
	begun := time.Now()
	// On one CPU nearly always the same side wins. So the test runs until both sides have won.
	for ; i < rounds || granted == 0 || granted == i; i++ {
		require.False(t, i > rounds && time.Since(begun) > 3*timeout(), "%d of %d granted", granted, i)
		require.True(t, s.TryAcquire(1))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.AcquireContext(ctx, 1) }()
		for k := 0; i%4 != 0 && k < 1000 && s.Queued() == 0; k++ {
			runtime.Gosched()
		}
		first, second := cancel, func() { s.Release(1) }
		if i%2 == 0 {
			first, second = second, first
		}
		over := make(chan struct{})
		go func() {
			first()
			close(over)
		}()
		for range rand.IntN(3000) {
		}
		second()
		if err := <-done; err == nil {
			granted++
			s.Release(1)
		} else {
			require.Equal(t, context.Canceled, err)
		}
		<-over
	}
	t.Logf("%d of %d granted", granted, i)
	eventually(t, "queue empty", func() string { return words(a) }, func() bool { return s.Queued() == 0 })
	require.Equal(t, int64(1), s.State().Free)
	require.LessOrEqual(t, a.Stats().Nodes, nodes+8)
}

// TestSemaphoreNeverExceeded: many goroutines of two processes acquire permits. They never have more permits at
// a time than there are.
func TestSemaphoreNeverExceeded(t *testing.T) {
	a := newArena(t, nil)
	board, err := arena.Value[semBoard](a, "in")
	require.NoError(t, err)
	newSemaphore(t, a, "s", 100, nil)
	p := proctest.Start(t, "semaphore/crowd", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	require.NoError(t, semCrowd(a))
	p.WaitExit(t)
	require.LessOrEqual(t, board.Most.Load(), int64(100))
	require.Greater(t, board.Most.Load(), int64(50))
}

type semBoard struct{ In, Most atomic.Int64 }

func init() {
	proctest.Register("semaphore/crowd", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := semCrowd(a); err != nil {
			c.Fatal(err)
		}
	})
}

func semCrowd(a *arena.Arena) error {
	s, err := prims.AttachSemaphore(a, "s", nil)
	if err != nil {
		return err
	}
	board, err := arena.Value[semBoard](a, "in")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for g := range 5000 {
		wg.Go(func() {
			n := int64(1 + g%3)
			if err := s.AcquireContext(context.Background(), n); err != nil {
				panic(err)
			}
			in := board.In.Add(n)
			for most := board.Most.Load(); in > most && !board.Most.CompareAndSwap(most, in); most = board.Most.Load() {
			}
			for range 20 {
				runtime.Gosched()
			}
			board.In.Add(-n)
			s.Release(n)
		})
	}
	wg.Wait()
	return nil
}

func TestSemaphoreAllocatesNothing(t *testing.T) {
	s := newSemaphore(t, newArena(t, nil), "s", 2, nil)
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		s.AcquireContext(ctx, 1)
		s.TryAcquire(1)
		s.Release(2)
	}))
	if race.Enabled {
		return // with the race detector, a sync.Pool drops items at random
	}
	// A wait does not allocate either, once the process has wait nodes.
	s.AcquireContext(ctx, 2)
	turn := make(chan struct{})
	go func() {
		for range turn {
			s.AcquireContext(ctx, 1)
			s.Release(1)
		}
	}()
	waits := func() {
		turn <- struct{}{}
		for !s.State().Waiting {
			runtime.Gosched()
		}
		s.Release(2)
		s.AcquireContext(ctx, 2)
	}
	for range 100 {
		waits()
	}
	require.Less(t, testing.AllocsPerRun(200, waits), 0.5)
	close(turn)
}
