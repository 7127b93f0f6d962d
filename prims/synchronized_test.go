//go:build linux

package prims_test

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// account is a value whose parts belong together: Twice is always 2*Once.
type account struct {
	Once, Twice int64
	Owner       [16]byte
}

func newSynchronized[T any](t testing.TB, a *arena.Arena, name string, initial T) *prims.Synchronized[T] {
	t.Helper()
	s, err := prims.OpenSynchronized(a, name, initial, nil)
	require.NoError(t, err)
	return s
}

func TestSynchronizedUpdateIsAllOrNothing(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{Once: 1, Twice: 2})
	add := func(v *account) error {
		v.Once++
		v.Twice += 2
		return nil
	}
	require.NoError(t, s.Update(add))
	require.Equal(t, account{Once: 2, Twice: 4}, s.Load())

	mistake := errors.New("mistake")
	half := func(after func() error) func(*account) error {
		return func(v *account) error {
			v.Once = 99
			return after()
		}
	}
	require.Equal(t, mistake, s.Update(half(func() error { return mistake })), "as f returned it")
	require.PanicsWithValue(t, "oops", func() { s.Update(half(func() error { panic("oops") })) })
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Update(half(func() error {
			runtime.Goexit()
			return nil
		}))
	})
	wg.Wait()
	require.Equal(t, account{Once: 2, Twice: 4}, s.Load())
	require.EqualValues(t, 1, s.State().Commits)
	require.False(t, s.State().Held)

	s.Store(account{Once: 5, Twice: 10})
	require.NoError(t, s.StoreContext(t.Context(), account{Once: 6, Twice: 12}))
	require.NoError(t, s.UpdateContext(t.Context(), add))
	require.NoError(t, s.View(func(v *account) error {
		require.EqualValues(t, 7, v.Once)
		require.True(t, s.State().Held)
		require.Equal(t, a.Self().Slot(), s.State().Owner.Slot)
		return nil
	}))
	require.Equal(t, mistake, s.ViewContext(t.Context(), func(*account) error { return mistake }))
	var v account
	s.LoadInto(&v)
	require.Equal(t, account{Once: 7, Twice: 14}, v)
	require.Equal(t, "synchronized s: 4 commits, free", s.String())
	sound(t, a)
}

func TestSynchronizedIsOneObject(t *testing.T) {
	a := newArena(t, nil)
	_, err := prims.AttachSynchronized[account](a, "s", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	s := newSynchronized(t, a, "s", account{Once: 1})
	again := newSynchronized(t, a, "s", account{Once: 2})
	require.EqualValues(t, 1, again.Load().Once, "the initial value is for a new object")
	at, err := prims.SynchronizedAt[account](a, s.Offset())
	require.NoError(t, err)
	attached, err := prims.AttachSynchronized[account](a, "s", nil)
	require.NoError(t, err)
	at.Store(account{Once: 3})
	require.EqualValues(t, 3, attached.Load().Once)

	type other struct{ Once, Twice, Thrice int64 }
	_, err = prims.OpenSynchronized(a, "s", other{}, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.OpenSynchronized(a, "s", int64(0), nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.SynchronizedAt[[2]uint64](a, s.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "the type is struct in the arena, and [2]uint64 in this program")
	_, err = prims.OpenMutex(a, "s", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	m := newMutex(t, a, nil)
	_, err = prims.SynchronizedAt[account](a, m.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)

	require.Panics(t, func() { prims.OpenSynchronized(a, "x", new(int), nil) })
	require.Panics(t, func() { prims.OpenSynchronized(a, "x", [prims.SynchronizedMost + 1]byte{}, nil) })
	large := newSynchronized(t, a, "large", [prims.SynchronizedMost]byte{prims.SynchronizedMost - 1: 7})
	require.EqualValues(t, 7, large.Load()[prims.SynchronizedMost-1])
	empty := newSynchronized(t, a, "empty", struct{}{})
	require.NoError(t, empty.Update(func(*struct{}) error { return nil }))
	empty.Load()
	for _, h := range []interface{ Close() error }{s, again, at, attached, large, empty} {
		require.NoError(t, h.Close())
		require.ErrorIs(t, h.Close(), shmsync.ErrClosed)
	}
	require.NoError(t, a.Delete("s"))
	sound(t, a)
}

func TestSynchronizedClose(t *testing.T) {
	a := newArena(t, nil)
	s, others := newSynchronized(t, a, "s", account{}), []*prims.Synchronized[account]{}
	for range 3 {
		others = append(others, newSynchronized(t, a, "s", account{}))
	}
	in, out, closed, waited := make(chan bool), make(chan bool), make(chan error), make(chan error)
	go func() {
		waited <- s.Update(func(v *account) error {
			in <- true
			<-out
			v.Once = 1
			return nil
		})
	}()
	<-in
	go func() { waited <- s.Update(func(*account) error { return nil }) }()
	eventually(t, "the second waits", s.String, func() bool { return s.Lock().Waiters() == 1 })
	go func() { closed <- s.Close() }()
	require.ErrorIs(t, <-waited, shmsync.ErrClosed, "the call that waits")
	for _, h := range others {
		require.NoError(t, h.Close(), "another handle waits, but not for the Update")
	}
	select {
	case err := <-closed:
		t.Fatal("Close did not wait for the Update", err)
	default:
	}
	close(out)
	require.NoError(t, <-waited, "the Update that was under way")
	require.NoError(t, <-closed)
	for _, err := range []error{
		s.Update(func(*account) error { panic("called") }), s.View(func(*account) error { panic("called") }), s.StoreContext(t.Context(), account{}),
	} {
		require.ErrorIs(t, err, shmsync.ErrClosed)
		require.ErrorContains(t, err, "synchronized.")
	}
	require.Panics(t, func() { s.Load() })
	require.Panics(t, func() { s.Store(account{}) })
	require.EqualValues(t, 1, newSynchronized(t, a, "s", account{}).Load().Once)
}

func TestSynchronizedContext(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.UpdateContext(ctx, func(v *account) error {
		require.Equal(t, context.Canceled, s.UpdateContext(ctx, func(*account) error { panic("called") }), "a nested Update waits")
		require.Equal(t, context.Canceled, s.ViewContext(ctx, func(*account) error { panic("called") }))
		require.Equal(t, context.Canceled, s.StoreContext(ctx, account{}))
		v.Once = 3
		require.Zero(t, s.Load().Once, "a Load does not wait, and sees the value before the Update")
		return nil
	}), "a free lock is taken without a look at ctx")
	require.EqualValues(t, 3, s.Load().Once)
}

// TestSynchronizedLoadsAreWhole: Loads of 64 KiB return whole values while other goroutines call Update. So do
// the Loads that take the lock.
func TestSynchronizedLoadsAreWhole(t *testing.T) {
	a := newArena(t, nil)
	type block [8192]uint64
	s := newSynchronized(t, a, "s", block{})
	turns := 20_000
	if testing.Short() {
		turns = 2000
	}
	var wg sync.WaitGroup
	whole := func(v *block) {
		for _, x := range v {
			if x != v[0] {
				t.Errorf("a torn value: %d and %d", v[0], x)
				break
			}
		}
	}
	done := make(chan bool)
	for range 2 {
		wg.Go(func() {
			for last := uint64(0); ; {
				v := s.Load()
				whole(&v)
				if v[0] < last {
					t.Errorf("a Load gave %d after one had given %d", v[0], last)
				}
				last = v[0]
				if err := s.LoadLocked(&v); err != nil {
					t.Error(err)
				}
				whole(&v)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range uint64(turns) {
		require.NoError(t, s.Update(func(v *block) error {
			for i := range v {
				v[i] = n + 1
			}
			return nil
		}))
	}
	close(done)
	wg.Wait()
	require.EqualValues(t, turns, s.Load()[0])
}

// TestSynchronizedLoadGivesUpTheLock: a Load that waits for the lock gives up if the holder never commits, and
// reads without the lock.
func TestSynchronizedLoadGivesUpTheLock(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{Once: 1})
	require.NoError(t, s.Update(func(v *account) error {
		var now account
		v.Once = 2
		require.NoError(t, s.LoadLocked(&now))
		require.EqualValues(t, 1, now.Once)
		return nil
	}))
	require.EqualValues(t, 2, s.Load().Once)
	require.Zero(t, s.Lock().Waiters())
}

func TestSynchronizedAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := int64(0)
	var v account
	for name, f := range map[string]func(){
		"Update":        func() { s.Update(func(v *account) error { v.Once += n; return nil }) },
		"UpdateContext": func() { s.UpdateContext(ctx, func(v *account) error { v.Once += n; return nil }) },
		"View":          func() { s.View(func(v *account) error { n = v.Twice; return nil }) },
		"Store":         func() { s.Store(account{}) },
		"Load":          func() { v = s.Load() },
		"LoadInto":      func() { s.LoadInto(&v) },
		"with the lock": func() { s.LoadLocked(&v) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
}

// TestSynchronizedHostileBytes: a peer overwrites bytes. Then calls end with ErrCorrupt, or the bytes have no
// effect.
func TestSynchronizedHostileBytes(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{Once: 1})
	nothing := func(*account) error { return nil }

	require.ErrorIs(t, s.Update(func(v *account) error {
		v.Once = 9
		s.SetOwnerWord(0)
		return nil
	}), shmsync.ErrCorrupt, "a peer took the lock away")
	require.EqualValues(t, 1, s.Load().Once)
	require.NoError(t, s.Update(nothing))

	for word, is := range map[uint32]error{
		7 << 29:       shmsync.ErrCorrupt,          // no such kind
		5 << 29:       shmsync.ErrCorrupt,          // the kind not-recoverable, which a Synchronized never has
		3<<29 | 12345: nil, 3<<29 | 1<<28 | 5: nil, // owner-dead, but no process has this ID: repaired
	} {
		s.SetOwnerWord(word)
		err := s.Update(nothing)
		require.ErrorIs(t, err, is, "%#x", word)
		if is != nil {
			require.ErrorIs(t, s.State().Err, is)
			require.ErrorIs(t, s.View(nothing), is)
			require.ErrorIs(t, s.StoreContext(t.Context(), account{}), is)
			require.Panics(t, func() { s.Store(account{}) })
			require.Error(t, a.Check())
			if !race.Enabled {
				require.EqualValues(t, 1, s.Load().Once, "Load reads no lock")
			}
		}
		s.SetOwnerWord(0)
	}
	// Every value of this word is a valid number of commits.
	s.SetCommits(1<<64 - 1)
	s.Load()
	require.NoError(t, s.Update(func(v *account) error { v.Once = 4; return nil }))
	require.Zero(t, s.State().Commits)
	require.EqualValues(t, 4, s.Load().Once)
	sound(t, a)
}

// TestSynchronizedLoadEndsBesideAPeerThatWrites: a peer keeps changing the number of commits. Load still
// returns.
func TestSynchronizedLoadEndsBesideAPeerThatWrites(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", [8192]byte{})
	stop := make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := uint64(0); ; n++ {
			s.SetCommits(n)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 100 {
		s.Load()
	}
	close(stop)
	wg.Wait()
}

func TestSynchronizedInspection(t *testing.T) {
	a := newArena(t, nil)
	s := newSynchronized(t, a, "s", account{})
	s.Store(account{})
	require.NoError(t, s.View(func(*account) error {
		o, err := a.Object(s.Offset())
		require.NoError(t, err)
		i := a.Inspect(o)
		require.Contains(t, i.State, "1 commits, held by")
		require.Len(t, i.Holds, 1)
		require.Equal(t, a.Self(), i.Holds[0].Owner)
		return nil
	}))
}

// BenchmarkSynchronizedRatios runs all operations in turn, each for a short time, many times. Because the operations
// take turns, other programs on the host disturb all of them alike. The result for an operation is its fastest run.
func BenchmarkSynchronizedRatios(b *testing.B) {
	a := newArena(b, nil)
	m, err := prims.OpenMutex(a, "reference", nil)
	require.NoError(b, err)
	words, err := arena.Value[[2]uint64](a, "reference words")
	require.NoError(b, err)
	const turns = 2000
	slices := []benchSlice{{"reference", func() {
		for n := range uint64(turns) {
			m.Lock()
			words[0], words[1] = n, n
			m.Unlock()
		}
	}}}
	slices = append(slices, benchSynchronized[[2]uint64](b, a, turns, "16")...)
	slices = append(slices, benchSynchronized[[128]uint64](b, a, turns, "1Ki")...)
	slices = append(slices, benchSynchronized[[512]uint64](b, a, turns, "4Ki")...)
	slices = append(slices, benchSynchronized[[8192]uint64](b, a, turns/100, "64Ki")...)
	least := map[string]time.Duration{}
	for range 20 * b.N {
		for _, s := range slices {
			start := time.Now()
			s.run()
			if d := time.Since(start); least[s.name] == 0 || d < least[s.name] {
				least[s.name] = d
			}
		}
	}
	for name, d := range least {
		n := turns
		if strings.HasSuffix(name, "64Ki") {
			n = turns / 100
		}
		b.ReportMetric(float64(d)/float64(n), name+"-ns")
	}
	b.ReportMetric(0, "ns/op")
}

type benchSlice struct {
	name string
	run  func()
}

func benchSynchronized[T any](b *testing.B, a *arena.Arena, turns int, size string) []benchSlice {
	var v T
	dst := new([2]T)
	s := newSynchronized(b, a, size, v)
	return []benchSlice{{"memcpy-" + size, func() {
		for range turns {
			dst[0] = dst[1]
			sink(dst)
		}
	}}, {"update-" + size, func() {
		for range turns {
			s.Update(func(*T) error { return nil })
		}
	}}, {"load-" + size, func() {
		for range turns {
			s.LoadInto(&dst[0])
		}
	}}}
}

//go:noinline
func sink(any) {}
