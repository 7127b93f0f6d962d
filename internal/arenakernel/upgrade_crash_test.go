//go:build linux && crashpoint

package arenakernel

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

func init() {
	agentOrders["delete and exit"] = func(s *agent, o order, a *answer) error {
		err := s.arena.Delete(o.Text)
		if err == nil {
			err = s.arena.Close()
		}
		if err != nil {
			s.child.Fatal(err)
		}
		os.Exit(0)
		return nil
	}
	agentOrders["upgrade as first"] = func(s *agent, o order, a *answer) error {
		o.Opts.OnFirst = func(a *Arena, _ Epoch) error { return upgradeStats(a) }
		b, err := Open(o.Arena, o.Opts)
		if err == nil {
			err = b.Close()
		}
		if err != nil {
			s.child.Fatal(err)
		}
		os.Exit(0)
		return nil
	}
}

// upgraderDies kills a process when it passes a point in an upgrade for the n'th time. It returns false
// if the process passes the point less often.
func upgraderDies(t *testing.T, point string, n int) (died bool) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	old, err := Value[statsV1](a, "stats")
	require.NoError(t, err)
	old.Hits = 7
	require.NoError(t, a.Close())

	v := ta.start(t)
	v.must(t, order{Do: "arm", Text: point, N: n})
	v.Send(order{Do: "upgrade as first", Arena: ta.name, Opts: &ta.opts})
	end := v.Wait(t)
	died = end.Signal == unix.SIGKILL
	require.True(t, died || end.OK(), "%v", end)

	opts := ta.opts
	opts.OnFirst = func(a *Arena, _ Epoch) error { return upgradeStats(a) }
	a, err = Open(ta.name, &opts)
	require.NoError(t, err)
	requireUpgraded(t, a, 7)
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
	return died
}

// TestDeathInAnUpgrade: a process is killed at one of the crash points of an upgrade. If the upgrade
// passes this point several times, the test is repeated with a death at each of these times. The next
// process completes the upgrade.
func TestDeathInAnUpgrade(t *testing.T) {
	for _, point := range []string{
		"arena.object.before_place", "arena.object.placed", "arena.object.before_commit", "arena.object.committed",
		"arena.object.found", "arena.object.entered", "arena.object.bit_set",
		"arena.delete.before_mark", "arena.delete.marked", "arena.delete.before_decide", "arena.delete.decided",
		"arena.delete.freeing", "arena.delete.unlisted", "arena.upgrade.built", "arena.upgrade.deleted", "arena.upgrade.made",
	} {
		t.Run(point, func(t *testing.T) {
			n := 1
			for upgraderDies(t, point, n) {
				n++
			}
			t.Logf("%d deaths", n-1)
			require.Greater(t, n, 1, "the point was not passed")
		})
	}
}

// TestDeathInADeletionAfterAnUpgrade: an interrupted upgrade of an object has left a successor. A
// process that deletes the object is killed at each point that it passes. If the object was deleted,
// the next upgrade does not bring it back. Otherwise nothing was deleted, except a successor with the
// same data as the object.
func TestDeathInADeletionAfterAnUpgrade(t *testing.T) {
	for _, state := range []string{"undecided", "decided", "both", "done"} {
		for _, point := range []string{
			"arena.object.bit_set", "arena.delete.before_mark", "arena.delete.marked", "arena.delete.before_decide",
			"arena.delete.decided", "arena.delete.freeing", "arena.delete.unlisted", "arena.delete.nodes_freed",
		} {
			t.Run(state+"/"+point, func(t *testing.T) {
				n := 1
				for deleterDies(t, state, point, n) {
					n++
				}
				require.Greater(t, n, 1, "the point was not passed")
			})
		}
	}
}

func deleterDies(t *testing.T, state, point string, n int) (died bool) {
	ta := leftover(t, state)
	v := ta.join(t, "deleter")
	v.must(t, order{Do: "arm", Text: point, N: n})
	v.Send(order{Do: "delete and exit", Text: "stats"})
	end := v.Wait(t)
	died = end.Signal == unix.SIGKILL
	require.True(t, died || end.OK(), "%v", end)
	asFirst(t, ta, func(a *Arena) {
		object, err := has(a, "stats")
		require.NoError(t, err)
		successor, err := has(a, "stats"+successorSuffix)
		require.NoError(t, err)
		require.False(t, !died && (object || successor))
		err = upgradeStats(a)
		switch {
		case state == "both" && object && successor:
			require.ErrorIs(t, err, shmsync.ErrIncompatible)
			return
		case !object && !(state == "decided" && successor):
			require.NoError(t, err)
			require.Zero(t, a.Stats().Objects)
			return
		}
		require.NoError(t, err)
		hits := uint64(7)
		if state == "both" {
			hits = 8
		}
		requireUpgraded(t, a, hits)
	})
	return died
}

// has reports whether there is an object of that name.
func has(a *Arena, name string) (bool, error) {
	h, _, err := a.openExisting(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		a.CloseObject(h.Object)
	}
	return err == nil, err
}
