//go:build linux

package prims_test

import (
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

var recordRelease = flag.String("record.release", "", "write testdata/released/NAME.arena.gz; for a release, in the commit that is tagged")

// releasedPair is the type of a value in the arenas of earlier builds, which are files in recordedPath.
type releasedPair struct{ First, Second uint64 }

// releasedObjects has a function for each object in an arena of recordedPath. The function opens the object and returns
// its state as text. If fill is true, the object is new, and the function first stores values in it.
var releasedObjects = map[string]func(a *arena.Arena, fill bool) (string, error){
	"value": func(a *arena.Arena, fill bool) (string, error) {
		v, err := arena.Value[releasedPair](a, "value")
		if err == nil && fill {
			*v = releasedPair{1, 2}
		}
		return fmt.Sprint(v), err
	},
	"synchronized": func(a *arena.Arena, fill bool) (string, error) {
		v, err := prims.OpenSynchronized(a, "synchronized", releasedPair{}, nil)
		if err != nil {
			return "", err
		}
		if fill {
			err = v.Update(func(p *releasedPair) error { *p = releasedPair{3, 4}; return nil })
		}
		return fmt.Sprint(v.Load()), err
	},
	"queue": func(a *arena.Arena, fill bool) (string, error) {
		q, err := prims.OpenQueue[uint64](a, "queue", 8, nil)
		if err != nil {
			return "", err
		}
		if fill {
			_, err = q.PutBatch([]uint64{5, 6, 7})
			return "[5 6 7]", err
		}
		got := make([]uint64, 8)
		n, err := q.GetBatch(got)
		return fmt.Sprint(got[:n]), err
	},
	"event": func(a *arena.Arena, fill bool) (string, error) {
		e, err := prims.OpenEvent(a, "event", nil)
		if err != nil {
			return "", err
		}
		if fill {
			e.Set()
		}
		return fmt.Sprint(e.IsSet()), nil
	},
	"future": func(a *arena.Arena, fill bool) (string, error) {
		f, err := prims.OpenFuture(a, "future", nil)
		if err != nil {
			return "", err
		}
		if fill {
			f.Set(8)
		}
		result, set := f.IsSet()
		return fmt.Sprint(uint32(result), set), nil
	},
	"once": func(a *arena.Arena, fill bool) (string, error) {
		o, err := prims.OpenOnce(a, "once", nil)
		if err != nil {
			return "", err
		}
		if fill {
			o.Do(func() {})
		}
		return fmt.Sprint(o.Done()), nil
	},
	"sequencer": func(a *arena.Arena, fill bool) (string, error) {
		s, err := prims.OpenSequencer(a, "sequencer", nil)
		if err != nil {
			return "", err
		}
		if fill {
			s.Advance(9)
		}
		return fmt.Sprint(s.Value()), nil
	},
	"latch": func(a *arena.Arena, fill bool) (string, error) {
		l, err := prims.OpenLatch(a, "latch", 3, nil)
		if err != nil {
			return "", err
		}
		if fill {
			l.CountDown(1)
		}
		return l.String(), nil
	},
	"mutex": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenMutex(a, "mutex", &prims.MutexOptions{Policy: prims.PolicyRollback})
		return releasedLock(m, err)
	},
	"rwmutex": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenRWMutex(a, "rwmutex", nil)
		return releasedLock(m, err)
	},
	"fairmutex": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenFairMutex(a, "fairmutex", nil)
		return releasedLock(m, err)
	},
	"spinlock": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenSpinLock(a, "spinlock", nil)
		return releasedLock(m, err)
	},
	"rwspinlock": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenRWSpinLock(a, "rwspinlock", nil)
		return releasedLock(m, err)
	},
	"cohortmutex": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenCohortMutex(a, "cohortmutex", &prims.CohortMutexOptions{Nodes: 1})
		return releasedLock(m, err)
	},
	"multilock": func(a *arena.Arena, fill bool) (string, error) {
		m, err := prims.OpenMultiLock(a, "multilock", nil)
		if err != nil {
			return "", err
		}
		m.Lock(4711).Unlock()
		return "can be locked", nil
	},
	"semaphore": func(a *arena.Arena, fill bool) (string, error) {
		s, err := prims.OpenSemaphore(a, "semaphore", 3, nil)
		if err != nil {
			return "", err
		}
		s.Acquire(3)
		s.Release(3)
		return "has 3 permits", nil
	},
	"waitgroup": func(a *arena.Arena, fill bool) (string, error) {
		g, err := prims.OpenWaitGroup(a, "waitgroup", nil)
		if err != nil {
			return "", err
		}
		return g.String(), nil
	},
	"barrier": func(a *arena.Arena, fill bool) (string, error) {
		b, err := prims.OpenBarrier(a, "barrier", 3, nil)
		if err != nil {
			return "", err
		}
		return b.String(), nil
	},
}

func releasedLock(l interface {
	Lock()
	Unlock()
}, err error) (string, error) {
	if err != nil {
		return "", err
	}
	l.Lock()
	//lint:ignore SA2001 the test is that it can be locked
	l.Unlock()
	return "can be locked", nil
}

// recordedPath is the directory with the arenas of earlier builds.
const recordedPath = "testdata/released"

// TestArenasOfReleases: this build either can use an arena of an earlier build as if it had made the arena
// itself, or refuses the arena. If the layout of the arena differs, opening the arena fails. If the version of
// a kind of object differs, opening such an object fails. The error has both versions.
func TestArenasOfReleases(t *testing.T) {
	if *recordRelease != "" {
		recordArena(t, filepath.Join(recordedPath, *recordRelease+".arena.gz"))
	}
	files, err := filepath.Glob(filepath.Join(recordedPath, "*.arena.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "arena")
			unpack(t, file, path)
			if other, is := arenakernel.InspectOtherLayout(path); is {
				_, err := arena.Attach(path, nil)
				require.ErrorIs(t, err, shmsync.ErrIncompatible)
				require.ErrorContains(t, err, fmt.Sprintf("version %d", other.Version))
				require.ErrorContains(t, err, fmt.Sprint(arenakernel.LayoutVersion))
				return
			}
			a, err := arena.Attach(path, nil)
			require.NoError(t, err)
			defer a.Close()
			require.NoError(t, a.Check())
			fresh, err := arena.Create(arenaName(t), &arena.Options{Size: 1 << 20, MaxParticipants: 4})
			require.NoError(t, err)
			defer fresh.Close()
			for name, open := range releasedObjects {
				want, err := open(fresh, true)
				require.NoError(t, err, name)
				got, err := open(a, false)
				if err != nil {
					require.ErrorIs(t, err, shmsync.ErrIncompatible, name)
					require.Regexp(t, `version \d+.* \d+`, err.Error(), name)
					t.Log(err)
					continue
				}
				require.Equal(t, want, got, name)
			}
		})
	}
}

// recordArena makes an arena with an object of each kind, and writes it to a file.
func recordArena(t *testing.T, file string) {
	path := filepath.Join(t.TempDir(), "arena")
	a, err := arena.Create(path, &arena.Options{Size: 1 << 20, MaxParticipants: 4, Label: "recorder"})
	require.NoError(t, err)
	for name, open := range releasedObjects {
		_, err := open(a, true)
		require.NoError(t, err, name)
	}
	require.NoError(t, a.Close())
	from, err := os.Open(path)
	require.NoError(t, err)
	defer from.Close()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	to, err := os.Create(file)
	require.NoError(t, err)
	defer to.Close()
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	require.NoError(t, err)
	require.NoError(t, z.Close())
}

func unpack(t *testing.T, file, path string) {
	from, err := os.Open(file)
	require.NoError(t, err)
	defer from.Close()
	z, err := gzip.NewReader(from)
	require.NoError(t, err)
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer to.Close()
	_, err = io.Copy(to, z)
	require.NoError(t, err)
}
