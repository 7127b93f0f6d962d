//go:build linux

package prims_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// pause is a place in a function at which the test lets the function block.
type pause struct{ entered, goOn, failed chan bool }

func newPause(t *testing.T) *pause {
	p := &pause{make(chan bool), make(chan bool), make(chan bool)}
	t.Cleanup(func() { close(p.failed) })
	return p
}

// enter blocks until the test has received from p.entered and has sent to p.goOn.
func (p *pause) enter() {
	select {
	case p.entered <- true:
	case <-p.failed:
	}
	select {
	case <-p.goOn:
	case <-p.failed:
	}
}

// finish lets each run of the function go on, until the parameter over is closed. It returns how many times the
// function has run.
func (p *pause) finish(over chan bool) (runs int) {
	p.goOn <- true
	for runs = 1; ; runs++ {
		select {
		case <-p.entered:
			p.goOn <- true
		case <-over:
			return runs
		}
	}
}

// TestWaitableFunctionThatBlocksDelaysNoOtherObject: the function of an Update or a rule blocks. Meanwhile another
// process, which holds a Mutex and a claim, dies. The goroutines of the first process that wait for other objects are
// still notified. While the function of an Update blocks, the claim of the dead process is undone, too. While a rule
// blocks, the claim stays.
func TestWaitableFunctionThatBlocksDelaysNoOtherObject(t *testing.T) {
	const blocks = 100 // the argument of a wait whose Release blocks
	for name, c := range map[string]struct {
		rule bool
		end  stock
	}{
		"function of Update": {false, stock{0, 2}},
		"rule":               {true, stock{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			k, err := openStocked(a)
			require.NoError(t, err)
			p, rules := newPause(t), failingRules
			rules.Release = func(s *stock, e int32) {
				failingRules.Release(s, e)
				if e == blocks {
					p.enter()
				}
			}
			x, err := prims.OpenWaitable(a, "stock", stock{}, rules, nil)
			require.NoError(t, err)
			x.Update(func(s *stock) { s.Free = 2 })
			require.NoError(t, x.Wait(blocks))
			victim, holder := newStockist(t, a), newStockist(t, a)
			require.Equal(t, stockAnswer{ID: 1}, victim.do(t, "wait", fine))
			require.Equal(t, stockAnswer{ID: 1}, holder.do(t, "lock", fine))
			waits, locks := make(chan error, 1), make(chan error, 8)
			go func() { waits <- x.Wait(fine) }()
			eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
			over := make(chan bool)
			go func() {
				defer close(over)
				if c.rule {
					x.Release(blocks)
				} else {
					x.Update(func(*stock) { p.enter() })
				}
			}()
			<-p.entered
			// Most of these goroutines do not sleep in the kernel, so the poller of this process has to wake them.
			const lockers = 8
			for range lockers {
				go func() { locks <- k.m.LockContext(context.Background()) }()
			}
			waiting(t, a, "mutex", lockers)
			holder.Stop(t) // so that this process is the one that reaps
			victim.Kill(t)
			alone(t, a, 2) // the first reap is over, even if a blocked rule has kept it from undoing the claim
			holder.Kill(t)
			for range lockers {
				select {
				case err := <-locks:
					require.ErrorIs(t, err, shmsync.ErrOwnerDead)
				case <-after(timeout()):
					t.Fatalf("a waiter of the Mutex is not notified\n%s", words(a))
				}
			}
			granted := func() {
				select {
				case err := <-waits:
					require.NoError(t, err)
				case <-after(timeout()):
					t.Fatalf("the claim of the dead process does not come back\n%s", words(a))
				}
			}
			if c.rule {
				require.Empty(t, waits)
			} else {
				granted()
			}
			p.finish(over)
			if c.rule {
				granted()
			}
			eventually(t, "the claim is undone", func() string { return words(a) }, func() bool { return x.State() == c.end })
		})
	}
}

// TestWaitableFunctionThatBlocksDelaysNoOtherCall: while the function of an Update blocks, the other calls of the same
// process succeed, through the same handle and through others. Then the function runs again, on the new state.
func TestWaitableFunctionThatBlocksDelaysNoOtherCall(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan error, 1)
	go func() { waits <- k.x.WaitContext(ctx, fine) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
	p, over := newPause(t), make(chan bool)
	go func() {
		defer close(over)
		k.x.Update(func(s *stock) {
			p.enter()
			s.Free *= 10
		})
	}()
	<-p.entered
	for _, call := range []struct {
		name string
		do   func()
	}{
		{"the end of a context ends a wait", func() {
			cancel()
			require.Equal(t, context.Canceled, <-waits)
		}},
		{"TryWait", func() { require.False(t, k.x.TryWait(fine)) }},
		{"the end of a context ends a new wait", func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.Equal(t, context.DeadlineExceeded, k.x.WaitContext(ctx, fine))
		}},
		{"Update", func() { k.x.Update(func(s *stock) { s.Free = 2 }) }},
		{"Wait", func() { require.NoError(t, k.x.Wait(fine)) }},
		{"Release", func() { k.x.Release(fine) }},
		{"Recover", func() {
			require.PanicsWithValue(t, "this claim fails", func() { k.x.TryWait(panicsInClaim) })
			require.NoError(t, k.x.Recover(func(s *stock) error { s.Free++; return nil }))
		}},
		{"Close of another handle", func() {
			other, err := openStocked(a)
			require.NoError(t, err)
			require.NoError(t, other.x.Close())
		}},
	} {
		done := make(chan bool)
		go func() {
			defer close(done)
			call.do()
		}()
		select {
		case <-done:
		case <-after(timeout()):
			t.Fatalf("%s waits for the function\n%s", call.name, words(a))
		}
	}
	require.Equal(t, stock{3, 0}, k.x.State())
	require.Equal(t, 2, p.finish(over), "runs of the function")
	require.Equal(t, stock{30, 0}, k.x.State())
}

// TestWaitableQueueChangesWhileAFunctionBlocks: a wait joins and leaves the queue while the function of an Update blocks.
// The state stays the same, so the function runs once.
func TestWaitableQueueChangesWhileAFunctionBlocks(t *testing.T) {
	a := newArena(t, nil)
	k, err := openStocked(a)
	require.NoError(t, err)
	p, over := newPause(t), make(chan bool)
	go func() {
		defer close(over)
		k.x.Update(func(s *stock) {
			p.enter()
			s.Free++
		})
	}()
	<-p.entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, k.x.WaitContext(ctx, fine))
	waits := make(chan error, 1)
	go func() { waits <- k.x.Wait(fine) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return k.x.Queued() == 1 })
	require.Equal(t, 1, p.finish(over), "runs of the function")
	require.NoError(t, <-waits)
	require.Equal(t, stock{0, 1}, k.x.State())
}
