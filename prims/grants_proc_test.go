//go:build linux

package prims_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// granted is an object that gives a waiter something, such as a permit.
type granted struct {
	offset arena.Offset
	begin  func(t *testing.T) error    // makes the next wait block; runs in the process of the test
	wait   func(context.Context) error // waits until it is given something
	grant  func(t *testing.T) error
	take   func(context.Context) error // gets what a wait was given; if take is nil, wait is called again
}

// grantedKinds are the kinds of objects that can give something to a waiter before the waiter's
// process runs again.
var grantedKinds = map[string]func(a *arena.Arena) (granted, error){
	"semaphore": func(a *arena.Arena) (granted, error) { return grantedSemaphore(a, nil) },
	"transferable semaphore": func(a *arena.Arena) (granted, error) {
		return grantedSemaphore(a, &prims.SemaphoreOptions{Mode: prims.SemaphoreTransferable})
	},
	"event": func(a *arena.Arena) (granted, error) {
		e, err := prims.OpenEvent(a, "x", &prims.EventOptions{Mode: prims.EventAutoReset})
		return granted{e.Offset(), nil, e.WaitContext, func(*testing.T) error { e.Set(); return nil }, nil}, err
	},
	"event among others": func(a *arena.Arena) (granted, error) {
		e, err := prims.OpenEvent(a, "x", &prims.EventOptions{Mode: prims.EventAutoReset})
		never, err2 := prims.OpenEvent(a, "never", nil)
		return granted{e.Offset(), nil, func(ctx context.Context) error {
			_, err := prims.WaitAnyContext(ctx, never, e)
			return err
		}, func(*testing.T) error { e.Set(); return nil }, nil}, errors.Join(err, err2)
	},
	"waitable with Release": func(a *arena.Arena) (granted, error) {
		x, err := shared(a, "x")
		return granted{
			x.Offset(), func(*testing.T) error { return x.Wait(true) },
			func(ctx context.Context) error { return x.WaitContext(ctx, true) },
			func(*testing.T) error { x.Release(true); return nil }, nil,
		}, err
	},
	"waitable with Undo": func(a *arena.Arena) (granted, error) {
		x, err := autoReset(a, "x")
		return granted{
			x.Offset(), nil, func(ctx context.Context) error { return x.WaitContext(ctx, struct{}{}) },
			func(*testing.T) error { x.Update(func(set *bool) { *set = true }); return nil }, nil,
		}, err
	},
}

func grantedSemaphore(a *arena.Arena, opts *prims.SemaphoreOptions) (granted, error) {
	s, err := prims.OpenSemaphore(a, "x", 3, opts)
	return granted{
		s.Offset(), func(*testing.T) error { return s.AcquireContext(context.Background(), 3) },
		func(ctx context.Context) error { return s.AcquireContext(ctx, 2) },
		func(*testing.T) error { s.Release(2); return nil }, nil,
	}, err
}

func init() {
	proctest.Register("granted", func(c *proctest.Child) {
		var p struct{ Arena, Kind string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		g, err := grantedKinds[p.Kind](a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Fatal("the wait ended: ", g.wait(context.Background()))
	})
}

// TestGrantsToTheStoppedAndKilledPassOn: a stopped process is granted something, and is killed
// before its wait returns. The next waiter gets what was granted.
func TestGrantsToTheStoppedAndKilledPassOn(t *testing.T) {
	for kind, open := range grantedKinds {
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			g, err := open(a)
			require.NoError(t, err)
			if g.begin != nil {
				require.NoError(t, g.begin(t))
			}
			o, err := (*arenakernel.Arena)(a).ObjectAt(g.offset)
			require.NoError(t, err)
			victim := proctest.Start(t, "granted", proctest.Params(struct{ Arena, Kind string }{nameOf(a), kind}), proctest.Dump(func() string { return words(a) }))
			victim.Await(t)
			eventually(t, "queued", func() string { return words(a) }, func() bool { return prims.QueuedAt(a, o) == 1 })
			victim.Stop(t)
			require.NoError(t, g.grant(t))
			victim.Kill(t)
			ctx, cancel := context.WithTimeout(t.Context(), timeout())
			defer cancel()
			if g.take == nil {
				g.take = g.wait
			}
			require.NoError(t, g.take(ctx), "%s", words(a))
			sound(t, a)
		})
	}
}
