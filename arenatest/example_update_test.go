//go:build linux

package arenatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/prims"
)

type stats struct{ Requests, Bytes uint64 }

// count is the program under test. It calls interrupt in the middle of the Update, so that a test can kill the process
// there.
func count(s *prims.Synchronized[stats], bytes uint64, interrupt func()) error {
	return s.Update(func(v *stats) error {
		v.Requests++
		interrupt()
		v.Bytes += bytes
		return nil
	})
}

// An Update whose process dies in the middle has no effect, and other processes do not wait for it.
func TestUpdateOfADeadProcessHasNoEffect(t *testing.T) {
	w := arenatest.New(t, nil)
	victim, survivor := w.JoinVictim("victim"), w.Join("survivor")
	theirs, err := prims.OpenSynchronized(victim, "stats", stats{}, nil)
	require.NoError(t, err)
	mine, err := prims.OpenSynchronized(survivor, "stats", stats{}, nil)
	require.NoError(t, err)

	require.NoError(t, count(mine, 100, func() {}))
	count(theirs, 1000, func() { w.Kill(victim) })
	require.Equal(t, stats{1, 100}, mine.Load())

	require.NoError(t, count(mine, 100, func() {}))
	require.Equal(t, stats{2, 200}, mine.Load())
}
