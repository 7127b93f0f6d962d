//go:build linux && crashpoint

package arenakernel

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
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

// upgraderDies: a process dies at the n'th pass of a point in an upgrade. It reports false if the
// process has not come so far.
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

// A process dies at each point that it passes in an upgrade, each time that it passes it.
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
