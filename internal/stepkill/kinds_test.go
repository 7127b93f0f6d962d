//go:build linux && amd64

package stepkill_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

type closer interface{ Close() error }

// kinds opens an object of each kind.
var kinds = map[string]func(a *arena.Arena, name string) (closer, error){
	"barrier":   func(a *arena.Arena, name string) (closer, error) { return prims.OpenBarrier(a, name, 2, nil) },
	"cond":      func(a *arena.Arena, name string) (closer, error) { return prims.OpenCond(a, name, &sync.Mutex{}, nil) },
	"event":     func(a *arena.Arena, name string) (closer, error) { return prims.OpenEvent(a, name, nil) },
	"fairmutex": func(a *arena.Arena, name string) (closer, error) { return prims.OpenFairMutex(a, name, nil) },
	"futex":     func(a *arena.Arena, name string) (closer, error) { return prims.OpenFutex(a, name, nil) },
	"future":    func(a *arena.Arena, name string) (closer, error) { return prims.OpenFuture(a, name, nil) },
	"latch":     func(a *arena.Arena, name string) (closer, error) { return prims.OpenLatch(a, name, 1, nil) },
	"multilock": func(a *arena.Arena, name string) (closer, error) {
		return prims.OpenMultiLock(a, name, &prims.MultiLockOptions{Buckets: 1})
	},
	"once":       func(a *arena.Arena, name string) (closer, error) { return prims.OpenOnce(a, name, nil) },
	"queue":      func(a *arena.Arena, name string) (closer, error) { return prims.OpenQueue[int64](a, name, 2, nil) },
	"rwmutex":    func(a *arena.Arena, name string) (closer, error) { return prims.OpenRWMutex(a, name, nil) },
	"rwspinlock": func(a *arena.Arena, name string) (closer, error) { return prims.OpenRWSpinLock(a, name, nil) },
	"semaphore":  func(a *arena.Arena, name string) (closer, error) { return prims.OpenSemaphore(a, name, 1, nil) },
	"sequencer":  func(a *arena.Arena, name string) (closer, error) { return prims.OpenSequencer(a, name, nil) },
	"signalwaker": func(a *arena.Arena, name string) (closer, error) {
		return prims.OpenSignalWaker(a, name, &prims.SignalWakerOptions{Signals: 1})
	},
	"spinlock": func(a *arena.Arena, name string) (closer, error) { return prims.OpenSpinLock(a, name, nil) },
	"synchronized": func(a *arena.Arena, name string) (closer, error) {
		return prims.OpenSynchronized(a, name, [3]int64{1, 2, 3}, nil)
	},
	"waitable": func(a *arena.Arena, name string) (closer, error) {
		return prims.OpenWaitable(a, name, pool{}, poolRules, nil)
	},
	"waitgroup": func(a *arena.Arena, name string) (closer, error) { return prims.OpenWaitGroup(a, name, nil) },
}

// init adds scenes for each kind of object: a process dies while it creates or closes the object.
func init() {
	for kind, open := range kinds {
		each("kinds/"+kind+", made and closed", func(a *arena.Arena) (part, error) {
			turn := func() error {
				x, err := open(a, "o")
				if err != nil {
					return err
				}
				return x.Close()
			}
			return part{
				op: func() { turn() },
				use: func() error {
					if err := turn(); err != nil {
						return err
					}
					return a.Delete("o")
				},
			}, nil
		}, 0)
	}
	eachFresh("kinds/value", func(a *arena.Arena) (part, error) {
		name := object
		use := func() error { _, err := arena.Value[[4]uint64](a, name); return err }
		return part{op: func() { use() }, use: use, close: func() error { return nil }}, nil
	}, 0)
	// In this scene, the operation creates another arena.
	each("kinds/arena", func(a *arena.Arena) (part, error) {
		name := filepath.Base(a.Path()) + "-beside"
		turn := func() error {
			b, err := arena.Open(name, &arenaOptions)
			if err != nil {
				return err
			}
			return errors.Join(b.Check(), b.Close())
		}
		remove := func() error {
			if err := shm.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
		return part{
			op:    func() { turn() },
			use:   func() error { return errors.Join(turn(), remove()) },
			close: remove,
		}, nil
	}, 0)
}

// TestScenesOfAllPrimitives checks that there are at least two scenes for each primitive, and that no two scenes have
// the same name.
func TestScenesOfAllPrimitives(t *testing.T) {
	api, err := os.ReadFile(filepath.Join("..", "..", "docs", "api", "prims.txt"))
	require.NoError(t, err)
	opens := regexp.MustCompile(`(?m)^func Open(\w+)`).FindAllStringSubmatch(string(api), -1)
	require.Greater(t, len(opens), 15)
	for _, m := range opens {
		kind := strings.ToLower(m[1])
		n := 0
		for _, s := range scenes {
			if name, _, _ := strings.Cut(s.name, "/"); slices.Contains(strings.Fields(name), kind) {
				n++
			}
		}
		require.Greater(t, n, 1, "scenes of %s", m[1])
	}
	names := map[string]bool{}
	for _, s := range scenes {
		require.False(t, names[s.name], "two scenes are called %q", s.name)
		names[s.name] = true
	}
}
