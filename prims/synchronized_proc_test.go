//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// page is the value of a Synchronized. All its numbers are equal whenever no Update runs.
type page [64]uint64

func (p *page) whole() error {
	for _, n := range p {
		if n != p[0] {
			return fmt.Errorf("an Update was made in part: %v", *p)
		}
	}
	return nil
}

// turn increments all numbers, one after the other.
func (p *page) turn() error {
	if err := p.whole(); err != nil {
		return err
	}
	for i := range p {
		p[i]++
	}
	return nil
}

func init() {
	addWorkload(workload{
		name:   "synchronized",
		points: []string{"synchronized.*", "mutex.lock.acquired", "mutex.unlock.before_release", "mutex.unlock.before_wake"},
		open: func(a *arena.Arena) (worker, error) {
			s, err := prims.OpenSynchronized(a, "s", page{}, nil)
			return &synchronizedWorker{s: s}, err
		},
	})
	// The process synchronized/updates calls Update in an endless loop.
	proctest.Register("synchronized/updates", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSynchronized(a, "s", page{}, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			if err := s.Update((*page).turn); err != nil {
				c.Fatal(err)
			}
		}
	})
}

type synchronizedWorker struct {
	s    *prims.Synchronized[page]
	last atomic.Uint64
}

var errGivenUp = errors.New("given up")

func (w *synchronizedWorker) turn(g int, r *rand.Rand) error {
	if g%2 == 0 {
		last := w.last.Load()
		v := w.s.Load()
		if v[0] < last {
			return fmt.Errorf("a Load gave %d after one had given %d", v[0], last)
		}
		for n := w.last.Load(); n < v[0] && !w.last.CompareAndSwap(n, v[0]); n = w.last.Load() {
		}
		runtime.Gosched()
		return v.whole()
	}
	err := ends(r, func(ctx context.Context) error {
		switch r.IntN(4) {
		case 0:
			return w.s.ViewContext(ctx, (*page).whole)
		case 1:
			return w.s.UpdateContext(ctx, func(v *page) error {
				if err := v.turn(); err != nil {
					return err
				}
				return errGivenUp
			})
		}
		return w.s.UpdateContext(ctx, (*page).turn)
	})
	if gaveUp(err) || err == errGivenUp {
		return nil
	}
	return err
}

func (w *synchronizedWorker) rest() error {
	v := w.s.Load()
	if err := v.whole(); err != nil {
		return err
	}
	if st := w.s.State(); st.Held || st.Commits != v[0] {
		return fmt.Errorf("the page says %d: %+v", v[0], st)
	}
	return w.s.Close()
}

// TestSynchronizedStoppedAtEachPoint: a process is stopped at a crash point of an Update, and then killed. The
// value is the one before the Update or the one after it. Loads do not wait for the process. Updates wait until
// it is dead.
func TestSynchronizedStoppedAtEachPoint(t *testing.T) {
	if !crashpoint.Enabled {
		proctest.Skip(t, "needs the build tag crashpoint", "synchronized/updates")
	}
	for point, committed := range map[string]uint64{
		"synchronized.update.copied": 0, "synchronized.update.written": 0, "synchronized.update.committed": 1,
	} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			s := newSynchronized(t, a, "s", page{})
			p := proctest.Start(t, "synchronized/updates", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT_STOP="+point+":3"),
				proctest.Dump(func() string { return words(a) }))
			p.Await(t)
			p.AwaitStop(t)
			if !race.Enabled {
				v := s.Load()
				require.NoError(t, v.whole())
				require.Equal(t, 2+committed, v[0])
			}
			require.True(t, s.State().Held)
			require.Equal(t, p.Pid(), s.State().Owner.PID)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Equal(t, context.Canceled, s.UpdateContext(ctx, (*page).turn), "it holds the lock, visibly")
			p.Signal(t, os.Kill)
			p.WaitSignal(t, syscall.SIGKILL)
			require.NoError(t, s.Update((*page).turn))
			require.Equal(t, 3+committed, s.Load()[0])
			sound(t, a)
		})
	}
}
