//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// ownTrouble runs f and returns an error if f panics, with two exceptions. A panic with an error of the library is
// allowed. So is the panic of an Unlock that finds its lock overwritten by a peer.
func ownTrouble(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *shmsync.Error:
		case string:
			if !strings.Contains(r, "does not hold") {
				err = fmt.Errorf("panics: %v", r)
			}
		default:
			err = fmt.Errorf("panics: %v", r)
		}
	}()
	f()
	return nil
}

// condHostileRounds overwrites the words of an object, or of its nodes, while goroutines use the
// object. Whatever the goroutines find, their calls end when their contexts end.
func condHostileRounds(t *testing.T, a *arena.Arena, o arenakernel.Object, goroutines int, use func(ctx context.Context, r *rand.Rand)) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rounds := proctest.Rounds(60, 300)
	r := rand.New(rand.NewPCG(seed, 0))
	clean := prims.BodyOf(a, o)
	for n := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		var wg sync.WaitGroup
		errs := make(chan error, goroutines)
		for g := range goroutines {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(n*goroutines+g)))
				for ctx.Err() == nil {
					if err := ownTrouble(func() { use(ctx, r) }); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		for range 20 {
			prims.ScribbleAny(a, o, r)
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		// The peer may have written the ID of a living process into a word, as if that process held the object.
		// Calls then wait for that process. The peer can restore the word.
		select {
		case <-done:
		case <-after(50 * time.Millisecond):
			for limit := after(timeout()); ; {
				prims.Restore(a, o, clean)
				select {
				case <-done:
				case <-after(5 * time.Millisecond):
					continue
				case <-limit:
					t.Fatalf("round %d hangs: %s", n, words(a))
				}
				break
			}
		}
		cancel()
		prims.Restore(a, o, clean)
		select {
		case err := <-errs:
			t.Fatalf("round %d: %v", n, err)
		default:
		}
		prims.Describe(a, o)
		a.Check()
	}
}

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

func TestHostileCond(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 8 << 20})
	// After a panic the caller does not know whether it holds the lock. A noLock may be unlocked in
	// both cases.
	l := noLock{}
	c, err := prims.OpenCond(a, "", l, nil)
	require.NoError(t, err)
	condHostileRounds(t, a, c.Object(), 8, func(ctx context.Context, r *rand.Rand) {
		switch r.IntN(4) {
		case 0:
			c.Signal()
		case 1:
			c.Broadcast()
		default:
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			err := c.WaitContext(ctx)
			if err != nil && !gaveUp(err) && !errors.Is(err, shmsync.ErrCorrupt) {
				panic(err)
			}
		}
		c.State()
	})
	c.Signal()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.WaitContext(ctx), context.DeadlineExceeded)
}

func TestHostileFuture(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 8 << 20})
	f, err := prims.OpenFuture(a, "", nil)
	require.NoError(t, err)
	condHostileRounds(t, a, f.Object(), 8, func(ctx context.Context, r *rand.Rand) {
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		switch r.IntN(6) {
		case 0:
			f.Set(3)
		case 1:
			f.Claim()
		case 2:
			f.Reset()
		case 3:
			prims.WaitAnyContext(ctx, f, f)
		case 4:
			f.Subscribe(func(_ syscall.Errno, _ error) {}).Cancel()
		default:
			f.WaitContext(ctx)
		}
		f.State()
	})
	f.Reset()
	require.True(t, f.Set(5))
	e, err := f.Wait()
	require.NoError(t, err)
	require.EqualValues(t, 5, e)
}
