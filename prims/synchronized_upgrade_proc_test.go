//go:build linux

package prims_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

type (
	hitsV1 struct{ Hits uint64 }
	hitsV2 struct {
		Hits, Misses uint64
		Log          [100]byte
	}
)

func upgradeHits(a *arena.Arena, in func()) error {
	return prims.UpgradeSynchronized(a, "hits", func(old arena.Stored, v *hitsV2) error {
		v1, err := arena.As[hitsV1](old)
		if err == nil {
			v.Hits = v1.Hits
		}
		in()
		return err
	}, nil)
}

func init() {
	proctest.Register("upgrade/first", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		_, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, _ arena.Epoch) error {
			return upgradeHits(a, func() {
				c.Ready()
				c.Await() // until the kill
			})
		}})
		c.Fatal(err)
	})
	proctest.Register("upgrade/old", func(c *proctest.Child) {
		var p [2]string
		c.Params(&p)
		a, err := arena.Open(p[0], &arena.Options{Label: p[1]})
		if err == nil {
			_, err = prims.OpenSynchronized(a, "hits", hitsV1{7}, nil)
		}
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await() // until the kill
	})
}

// first runs f in OnFirst of a new opening, and returns the arena.
func first(t *testing.T, name string, f func(a *arena.Arena)) *arena.Arena {
	t.Helper()
	ran := false
	a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, _ arena.Epoch) error { ran = true; f(a); return nil }})
	require.NoError(t, err)
	require.True(t, ran)
	return a
}

// TestUpgradeSynchronizedAfterADeath: a program of the next version dies during its migration, and a program of
// the old version goes on. Then another program of the next version upgrades the value that the old version has
// left.
func TestUpgradeSynchronizedAfterADeath(t *testing.T) {
	name := arenaName(t)
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	hits, err := prims.OpenSynchronized(a, "hits", hitsV1{7}, nil)
	require.NoError(t, err)
	hits.Store(hitsV1{8}) // a second commit, which writes the other copy
	require.NoError(t, a.Close())

	p := proctest.Start(t, "upgrade/first", proctest.Params(name))
	p.Await(t)
	p.Kill(t)
	a, err = arena.Attach(name, nil) // opened by the old version
	require.NoError(t, err)
	hits, err = prims.AttachSynchronized[hitsV1](a, "hits", nil)
	require.NoError(t, err)
	require.NoError(t, hits.Update(func(v *hitsV1) error { v.Hits++; return nil }))
	require.NoError(t, a.Close())

	a = first(t, name, func(a *arena.Arena) { require.NoError(t, upgradeHits(a, func() {})) })
	defer a.Close()
	next, err := prims.AttachSynchronized[hitsV2](a, "hits", nil)
	require.NoError(t, err)
	require.Equal(t, hitsV2{Hits: 9}, next.Load())
	require.Zero(t, next.State().Commits, "the count begins again")
	require.NoError(t, next.Update(func(v *hitsV2) error { v.Misses++; return nil }))
	require.Equal(t, hitsV2{Hits: 9, Misses: 1}, next.Load())
	_, err = prims.AttachSynchronized[hitsV1](a, "hits", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.EqualValues(t, 1, a.Stats().Objects)
	sound(t, a)
}

// upgradeSize upgrades a Synchronized of a T to one of a hitsV1. The value is v.
func upgradeSize[T comparable](t *testing.T, v T) {
	for commits := range 2 {
		name := arenaName(t)
		a, err := arena.Open(name, nil)
		require.NoError(t, err)
		s, err := prims.OpenSynchronized(a, "hits", v, nil)
		require.NoError(t, err)
		for range commits {
			var none T
			s.Store(none)
			s.Store(none)
			s.Store(v)
		}
		require.NoError(t, a.Close())
		a = first(t, name, func(a *arena.Arena) {
			require.NoError(t, prims.UpgradeSynchronized(a, "hits", func(old arena.Stored, to *hitsV1) error {
				was, err := arena.As[T](old)
				require.NoError(t, err)
				require.Equal(t, v, *was, "%d commits", 3*commits)
				to.Hits = 5
				return nil
			}, nil))
		})
		to, err := prims.AttachSynchronized[hitsV1](a, "hits", nil)
		require.NoError(t, err)
		require.Equal(t, hitsV1{5}, to.Load())
		require.NoError(t, a.Close())
	}
}

// TestUpgradeSynchronizedOfAnySize: an upgrade finds the valid copy, whatever the size of the value is.
func TestUpgradeSynchronizedOfAnySize(t *testing.T) {
	upgradeSize(t, [1]byte{1})
	upgradeSize(t, [63]byte{1, 62: 2})
	upgradeSize(t, [64]byte{1, 63: 2})
	upgradeSize(t, [65]byte{1, 64: 2})
	upgradeSize(t, [128]byte{1, 127: 2})
	upgradeSize(t, [4097]byte{1, 4096: 2})
}

// TestUpgradeSynchronizedFromValue: a Value, which has no lock, becomes a Synchronized.
func TestUpgradeSynchronizedFromValue(t *testing.T) {
	name := arenaName(t)
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	v, err := arena.Value[hitsV1](a, "hits")
	require.NoError(t, err)
	v.Hits = 7
	_, err = a.Block("block", 8)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	a = first(t, name, func(a *arena.Arena) {
		require.NoError(t, upgradeHits(a, func() {}))
		err := prims.UpgradeSynchronized(a, "block", func(arena.Stored, *hitsV1) error { return nil }, nil)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
	})
	defer a.Close()
	s, err := prims.AttachSynchronized[hitsV2](a, "hits", nil)
	require.NoError(t, err)
	require.Equal(t, hitsV2{Hits: 7}, s.Load())
}

// TestOpenOfAnotherTypeNamesTheProcessesThatAreIn: a process of the next version opens an object while processes of the
// old version are in the arena. The error names the processes that have to end first. It also says that
// UpgradeSynchronized, called in OnFirst, keeps the contents.
func TestOpenOfAnotherTypeNamesTheProcessesThatAreIn(t *testing.T) {
	name := arenaName(t)
	one := proctest.Start(t, "upgrade/old", proctest.Params([2]string{name, "hits-v1"}))
	one.Await(t)
	open := func() (*prims.Synchronized[hitsV2], *arena.Arena, error) {
		a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, _ arena.Epoch) error {
			return upgradeHits(a, func() {})
		}})
		require.NoError(t, err)
		s, err := prims.OpenSynchronized(a, "hits", hitsV2{}, nil)
		return s, a, err
	}
	_, a, err := open()
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "prims.UpgradeSynchronized in OnFirst keeps its contents")
	require.ErrorContains(t, err, fmt.Sprintf("OnFirst runs only while no other process is in, and hits-v1 (pid %d, slot 1.1) is in: end it and start again", one.Pid()))
	err = a.Delete("hits")
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, fmt.Sprintf("hits-v1 (pid %d, slot 1.1) has it open", one.Pid()))

	two := proctest.Start(t, "upgrade/old", proctest.Params([2]string{name, "hits-v1b"}))
	two.Await(t)
	_, err = prims.OpenSynchronized(a, "hits", hitsV2{}, nil)
	require.ErrorContains(t, err, fmt.Sprintf("hits-v1 (pid %d, slot 1.1), hits-v1b (pid %d, slot 3.1) are in: end them and start again", one.Pid(), two.Pid()))
	require.NoError(t, a.Close())

	one.Kill(t)
	two.Kill(t)
	s, a, err := open()
	require.NoError(t, err)
	require.EqualValues(t, 7, s.Load().Hits)
	require.NoError(t, a.Close())
}

// TestOpenOfAnotherTypeAdvisesByKind: a program opens objects with another type or kind in OnFirst. No other process is
// in the arena then, so the error names no process that has to end. Instead it says which call keeps or drops the
// contents of an object of this kind.
func TestOpenOfAnotherTypeAdvisesByKind(t *testing.T) {
	a := first(t, arenaName(t), func(a *arena.Arena) {
		_, err := arena.Value[hitsV1](a, "value")
		require.NoError(t, err)
		_, err = arena.Value[hitsV2](a, "value")
		require.ErrorContains(t, err, "otherwise arena.Upgrade in OnFirst keeps its contents, and arena.Replace drops them (arena")
		_, err = prims.OpenSynchronized(a, "value", hitsV1{}, nil)
		require.ErrorContains(t, err, "it is a Value, asked for a Synchronized: prims.UpgradeSynchronized in OnFirst keeps its contents")
		_, err = prims.OpenQueue[hitsV1](a, "queue", 4, nil)
		require.NoError(t, err)
		_, err = prims.OpenQueue[hitsV2](a, "queue", 4, nil)
		require.ErrorContains(t, err, "otherwise arena.Replace drops its contents, which you may copy in OnFirst before (arena")
		_, err = prims.OpenEvent(a, "queue", nil)
		require.ErrorContains(t, err, "it is a Queue, asked for an Event (arena")
	})
	require.NoError(t, a.Close())
}
