//go:build linux

package prims_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// dataGuard is an object that gives the data to one process at a time.
type dataGuard struct {
	// enter returns when this process may use the data. If its error Is ErrOwnerDead, rescue takes
	// over the data and calls f.
	enter  func(context.Context) error
	leave  func()
	rescue func(ctx context.Context, f func() error) error
}

// dataGuards are the kinds of objects that guard the test's data, and that let another process use the data after a
// death. The name of a lock's entry includes the policy of the lock. The other objects have no policy.
var dataGuards = map[string]func(a *arena.Arena, name string) (dataGuard, error){
	"mutex, report": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenMutex(a, name, nil)
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"mutex, release": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenMutex(a, name, &prims.MutexOptions{Policy: prims.PolicyRelease})
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"cohortmutex, release": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenCohortMutex(a, name, &prims.CohortMutexOptions{Policy: prims.PolicyRelease, Nodes: cohortNodes})
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"fairmutex, report": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenFairMutex(a, name, nil)
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"fairmutex, release": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenFairMutex(a, name, &prims.FairMutexOptions{Policy: prims.PolicyRelease})
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"rwmutex, report": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenRWMutex(a, name, nil)
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"rwmutex, release": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenRWMutex(a, name, &prims.RWMutexOptions{Policy: prims.PolicyRelease})
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"spinlock, report": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenSpinLock(a, name, nil)
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"rwspinlock, release": func(a *arena.Arena, name string) (g dataGuard, err error) {
		m, err := prims.OpenRWSpinLock(a, name, &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
		return dataGuard{m.LockContext, m.Unlock, m.RecoverContext}, err
	},
	"multilock, report":  func(a *arena.Arena, name string) (dataGuard, error) { return keyGuard(a, name, prims.PolicyReport) },
	"multilock, release": func(a *arena.Arena, name string) (dataGuard, error) { return keyGuard(a, name, prims.PolicyRelease) },
	"semaphore": func(a *arena.Arena, name string) (g dataGuard, err error) {
		s, err := prims.OpenSemaphore(a, name, 1, nil)
		return dataGuard{func(ctx context.Context) error { return s.AcquireContext(ctx, 1) }, func() { s.Release(1) }, nil}, err
	},
	"synchronized": func(a *arena.Arena, name string) (dataGuard, error) {
		s, err := prims.OpenSynchronized(a, name, 0, nil)
		var out chan bool // guarded by: s
		return dataGuard{func(ctx context.Context) error {
			in, mine, ended := make(chan bool), make(chan bool), make(chan error, 1)
			go func() {
				ended <- s.ViewContext(ctx, func(*int) error {
					in <- true
					<-mine
					return nil
				})
			}()
			select {
			case <-in:
				out = mine
				return nil
			case err := <-ended:
				return err
			}
		}, func() { out <- true }, nil}, err
	},
	"queue lease": func(a *arena.Arena, name string) (g dataGuard, err error) {
		q, err := prims.OpenQueue[uint64](a, name, 1, nil)
		if err != nil {
			return g, err
		}
		q.TryPut(1) // the process that takes this item may use the data
		var l prims.Lease[uint64]
		return dataGuard{func(ctx context.Context) (err error) {
			l, err = q.LeaseContext(ctx)
			return err
		}, func() { l.Nack() }, nil}, err
	},
}

func keyGuard(a *arena.Arena, name string, p prims.Policy) (g dataGuard, err error) {
	x, err := prims.OpenMultiLock(a, name, &prims.MultiLockOptions{Policy: p})
	var h prims.Hold
	return dataGuard{func(ctx context.Context) (err error) {
		h, err = x.LockContext(ctx, 7)
		return err
	}, func() { h.Unlock() }, func(ctx context.Context, f func() error) error { return x.RecoverContext(ctx, 7, f) }}, err
}

type readerParams struct {
	Arena, File string
	Size        uint64
	Options     *arena.Options
}

func openGuards(a *arena.Arena, size uint64) (guards map[string]dataGuard, data map[string][]byte, err error) {
	guards, data = map[string]dataGuard{}, map[string][]byte{}
	for name, open := range dataGuards {
		if guards[name], err = open(a, "guard, "+name); err != nil {
			return nil, nil, err
		}
		if data[name], err = a.Block("data, "+name, size); err != nil {
			return nil, nil, err
		}
	}
	return guards, data, nil
}

func init() {
	proctest.Register("reader", func(c *proctest.Child) {
		var p readerParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, p.Options)
		if err != nil {
			c.Fatal(err)
		}
		guards, data, err := openGuards(a, p.Size)
		if err != nil {
			c.Fatal(err)
		}
		f, err := os.Open(p.File)
		if err != nil {
			c.Fatal(err)
		}
		var in sync.WaitGroup
		for name, g := range guards {
			in.Add(1)
			go func() {
				for first := true; ; first = false {
					if err := g.enter(context.Background()); err != nil {
						c.Fatal(err)
					}
					if first {
						in.Done()
					}
					// The kernel copies the file into the arena. It finishes the copy even if the
					// process is killed meanwhile.
					if _, err = f.ReadAt(data[name], 0); err != nil {
						c.Fatal(err)
					}
					g.leave()
				}
			}()
		}
		in.Wait()
		// Once this process is fenced, other processes notice its death before its threads have
		// ended.
		for !a.Fenced() {
			<-after(time.Millisecond)
		}
		c.Ready()
		c.Await()
	})
}

// TestDataIsHandedOverWhenTheDeadCannotWriteIt: a process is killed while the kernel copies from a
// file into the arena on its behalf. Once another process has got the data, the kernel writes no
// more of it.
func TestDataIsHandedOverWhenTheDeadCannotWriteIt(t *testing.T) {
	const kills, size = 6, 2 << 20
	a := newArena(t, nil)
	guards, data, err := openGuards(a, size)
	require.NoError(t, err)
	file := filepath.Join("/dev/shm", fmt.Sprintf("shmsync-test-%d-%s", os.Getpid(), randomName()))
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte{0xdd}, size), 0o600))
	t.Cleanup(func() { os.Remove(file) })
	ctx, cancel := context.WithTimeout(t.Context(), timeout())
	defer cancel()
	for k := range kills {
		p := proctest.Start(t, "reader", proctest.Dump(func() string { return words(a) }),
			proctest.Params(readerParams{nameOf(a), file, size, nil}))
		p.Await(t)
		<-after(rand.N(4 * time.Millisecond)) // then kill the process somewhere in a read
		start := time.Now()
		p.Signal(t, os.Kill)
		var all sync.WaitGroup
		for name, g := range guards {
			all.Go(func() {
				took, wrote, err := takeOver(ctx, g, data[name], byte(k+1))
				assert.NoError(t, err, "%s", name)
				assert.False(t, wrote, "%s: the dead process wrote after the data had been handed over, %v after its death", name, took.Sub(start))
			})
		}
		all.Wait()
		p.WaitSignal(t, syscall.SIGKILL)
	}
	sound(t, a)
}

// takeOver takes the data over from a process that was killed. It reports when it got the data and
// whether the data changed after that.
func takeOver(ctx context.Context, g dataGuard, data []byte, mark byte) (took time.Time, wrote bool, err error) {
	use := func() error {
		took = time.Now()
		paint(data, mark)
		for end := took.Add(10 * time.Millisecond); !wrote && time.Now().Before(end); {
			wrote = !painted(data, mark)
		}
		return nil
	}
	for err = g.enter(ctx); errors.Is(err, shmsync.ErrOwnerDead); err = g.enter(ctx) {
		if err := g.rescue(ctx, use); err != nil {
			return took, wrote, err
		}
	}
	if err != nil {
		return took, wrote, err
	}
	if took.IsZero() {
		use()
	}
	g.leave()
	return took, wrote, nil
}

func paint(b []byte, with byte) {
	b[0] = with
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func painted(b []byte, with byte) bool {
	return b[0] == with && bytes.Equal(b[1:], b[:len(b)-1])
}
