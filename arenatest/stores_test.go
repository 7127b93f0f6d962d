//go:build linux

package arenatest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
)

// TestEveryPrefixOfTheStoresIsTried: check sees every prefix of the stores exactly once, in order.
func TestEveryPrefixOfTheStoresIsTried(t *testing.T) {
	type words [4]atomic.Uint64
	w := arenatest.New(t, nil)
	v, err := arena.Value[words](w.Join("writer"), "v")
	require.NoError(t, err)
	var seen [][4]uint64
	w.KillAtEveryStore(func() {
		v[2].Store(7)
		v[0].Store(8)
		v[0].Store(8) // changes nothing
		v[3].Add(1)
		v[2].Store(0)
	}, func(a *arena.Arena) error {
		v, err := arena.AttachValue[words](a, "v")
		if err != nil {
			return err
		}
		is := [4]uint64{v[0].Load(), v[1].Load(), v[2].Load(), v[3].Load()}
		// The library may also write to the slot of the writer meanwhile.
		if len(seen) == 0 || seen[len(seen)-1] != is {
			seen = append(seen, is)
		}
		return nil
	})
	require.Equal(t, [][4]uint64{{}, {0, 0, 7, 0}, {8, 0, 7, 0}, {8, 0, 7, 1}, {8, 0, 0, 1}}, seen)
}

// All bytes that one system call writes count as one store.
func TestSystemCallIsAStore(t *testing.T) {
	w := arenatest.New(t, nil)
	b, err := w.Join("reader").Block("b", 10_000)
	require.NoError(t, err)
	r, f, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer f.Close()
	_, err = f.Write(make([]byte, 5000))
	require.NoError(t, err)
	for i := range b {
		b[i] = 1
	}
	seen := map[int]bool{}
	w.KillAtEveryStore(func() {
		if n, err := r.Read(b[100:]); n != 5000 || err != nil {
			t.Error(n, err)
		}
	}, func(a *arena.Arena) error {
		b, err := a.AttachBlock("b")
		n := 0
		for _, x := range b {
			n += int(x)
		}
		seen[n] = true
		return err
	})
	require.Equal(t, map[int]bool{10_000: true, 5000: true}, seen)
}

// badBank is a bank with a wrong repair, which changes only the first of the two balances.
type badBank struct{ *bank }

func (b badBank) repair() error {
	if b.v.Moving.Load() == 1 {
		b.v.Balance[0] = b.v.To[0]
		b.v.Moving.Store(0)
	}
	return nil
}

// TestBadRepairIsFound: if a repair is wrong after one of the stores, KillAtEveryStore finds it and
// names the store. A test of the right repair is in example_repair_test.go.
func TestBadRepairIsFound(t *testing.T) {
	report := failures(t, func(t testing.TB) {
		w := arenatest.New(t, nil)
		b, err := openBank(w.Join("teller"))
		require.NoError(t, err)
		b.v.Balance[0] = 100
		w.KillAtEveryStore(func() { b.transfer(t.Context(), 10) }, func(a *arena.Arena) error {
			b, err := openBank(a)
			if err != nil {
				return err
			}
			if b.m.LockContext(t.Context()) != nil {
				if err := b.m.Recover(badBank{b}.repair); err != nil {
					return err
				}
				b.m.Lock()
			}
			defer b.m.Unlock()
			if v := b.v.Balance; v[0]+v[1] != 100 {
				return fmt.Errorf("the balances are %v", v)
			}
			return nil
		})
	})
	require.Equal(t, 1, strings.Count(report, "the balances are [90 0]"), report)
	require.Contains(t, report, "This is what a death right after store ")
	require.Contains(t, report, `Value "accounts"`)
	require.Contains(t, report, "(*bank).transfer")
	require.Contains(t, report, "example_repair_test.go:")
}

// TestFunctionsThatFail checks that KillAtEveryStore reports a failure of op or check, and that the failure ends only
// that function.
func TestFunctionsThatFail(t *testing.T) {
	nothing := func(a *arena.Arena) error { return nil }
	for name, c := range map[string]struct {
		op    func(t testing.TB)
		check func(a *arena.Arena) error
		want  []string
	}{
		"op panics":    {op: func(testing.TB) { panic("no money") }, check: nothing, want: []string{"the function panicked: no money"}},
		"op ends":      {op: func(t testing.TB) { t.Fatalf("stop") }, check: nothing, want: []string{"stop", "the function ended its goroutine"}},
		"check panics": {op: func(testing.TB) {}, check: func(*arena.Arena) error { panic("no money") }, want: []string{"panic: no money", "before the first of"}},
		"check fails":  {op: func(testing.TB) {}, check: func(*arena.Arena) error { return errors.New("lost") }, want: []string{"lost", "before the first of"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := failures(t, func(t testing.TB) {
				w := arenatest.New(t, nil)
				w.KillAtEveryStore(func() { c.op(t) }, c.check)
			})
			for _, want := range c.want {
				require.Contains(t, report, want)
			}
		})
	}
}

// TestOnFirstRunsInEveryCopy: the newcomer begins an epoch, so the OnFirst of the program is
// tested, too.
func TestOnFirstRunsInEveryCopy(t *testing.T) {
	type pair struct{ A, B atomic.Uint64 }
	firsts := 0
	w := arenatest.New(t, &arena.Options{OnFirst: func(a *arena.Arena, e arena.Epoch) error {
		firsts++
		v, err := arena.Value[pair](a, "v")
		if err == nil {
			v.B.Store(v.A.Load())
		}
		return err
	}})
	v, err := arena.Value[pair](w.Join("writer"), "v")
	require.NoError(t, err)
	require.Equal(t, 1, firsts)
	checks := 0
	w.KillAtEveryStore(func() {
		v.A.Store(5)
		v.B.Store(5)
	}, func(a *arena.Arena) error {
		checks++
		v, err := arena.Value[pair](a, "v")
		if err == nil && v.A.Load() != v.B.Load() {
			err = fmt.Errorf("%d and %d", v.A.Load(), v.B.Load())
		}
		return err
	})
	require.Equal(t, 1+checks, firsts)
}
