//go:build linux

package arenakernel

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

type (
	statsV1 struct{ Hits uint64 }
	statsV2 struct{ Hits, Misses uint64 }
	statsV3 struct{ Hits, Misses, Errors uint64 }
)

func upgradeStats(a *Arena) error {
	return UpgradeValue(a, "stats", func(old Stored, v *statsV2) error {
		v1, err := StoredAs[statsV1](old)
		if err == nil {
			v.Hits, v.Misses = v1.Hits, 1
		}
		return err
	})
}

// requireUpgraded checks that an upgrade of stats is complete and has left no other object.
func requireUpgraded(t *testing.T, a *Arena, hits uint64) {
	t.Helper()
	v, err := AttachValue[statsV2](a, "stats")
	require.NoError(t, err)
	require.Equal(t, statsV2{hits, 1}, *v)
	require.EqualValues(t, 1, a.Stats().Objects)
	require.Zero(t, a.Stats().Claimed)
}

// asFirst opens an arena, runs f in OnFirst and closes it.
func asFirst(t *testing.T, ta *testArena, f func(a *Arena)) {
	t.Helper()
	opts, ran := ta.opts, false
	opts.OnFirst = func(a *Arena, _ Epoch) error { ran = true; f(a); return nil }
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.True(t, ran)
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
}

func makeStats(t *testing.T, a *Arena, hits uint64) {
	t.Helper()
	v, err := Value[statsV1](a, "stats")
	require.NoError(t, err)
	v.Hits = hits
}

// makeSuccessor makes the state that remains if an upgrade dies after it has built the successor.
func makeSuccessor(t *testing.T, a *Arena) {
	t.Helper()
	h, created, err := a.openExisting("stats")
	require.NoError(t, err)
	a.CloseObject(h.Object)
	require.NoError(t, a.buildSuccessor(valueSpec[statsV2]("stats"), "stats"+successorSuffix, h.Object, created,
		func(body []byte) { putValue(body, &statsV2{7, 1}) }))
}

func TestUpgradeValue(t *testing.T) {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, upgradeStats(a), "there is no value")
		require.Zero(t, a.Stats().Objects)
	})
	asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
	no := errors.New("no")
	asFirst(t, ta, func(a *Arena) {
		err := UpgradeValue(a, "stats", func(Stored, *statsV2) error { return no })
		require.ErrorIs(t, err, no)
		require.Panics(t, func() { UpgradeValue(a, "stats", func(Stored, *statsV2) error { panic(no) }) })
		err = UpgradeValue(a, "stats", func(old Stored, _ *statsV2) error { _, err := StoredAs[statsV3](old); return err })
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
	})
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, upgradeStats(a))
		requireUpgraded(t, a, 7)
	})
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, upgradeStats(a), "the value is upgraded already")
		requireUpgraded(t, a, 7)
		require.ErrorIs(t, UpgradeValue(a, strings.Repeat("x", 250), func(Stored, *statsV2) error { return nil }), fs.ErrInvalid)
	})
}

func TestUpgradeIsRefused(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	makeStats(t, a, 7)
	require.PanicsWithValue(t, "shmsync: arena \""+a.label+"\": an upgrade of \"stats\" outside of OnFirst: other processes could have the object open",
		func() { upgradeStats(a) })
	require.NoError(t, a.Close())
	asFirst(t, ta, func(a *Arena) {
		_, err := Value[statsV1](a, "stats") // stays open during the upgrade
		require.NoError(t, err)
		require.ErrorIs(t, upgradeStats(a), syscall.EBUSY)
		require.EqualValues(t, 1, a.Stats().Objects)
	})
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, a.Delete("stats"))
		_, err := a.Block("stats", 8)
		require.NoError(t, err)
	})
	asFirst(t, ta, func(a *Arena) {
		require.ErrorIs(t, upgradeStats(a), shmsync.ErrIncompatible)
		require.EqualValues(t, 1, a.Stats().Objects)
	})
}

// TestUpgradeAfterAnOlderProgram checks an upgrade after a process died in an earlier upgrade, and an older program
// ran after the death. If the dead process had not deleted the old object, the older program has written into it, and
// the upgrade keeps these data. If the old object was deleted, the older program has made another object, and the
// upgrade returns an error.
func TestUpgradeAfterAnOlderProgram(t *testing.T) {
	t.Run("before the decision", func(t *testing.T) {
		ta := newTestArena(t, 4)
		asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
		asFirst(t, ta, func(a *Arena) { makeSuccessor(t, a) })
		asFirst(t, ta, func(a *Arena) { makeStats(t, a, 8) })
		asFirst(t, ta, func(a *Arena) {
			require.NoError(t, upgradeStats(a))
			requireUpgraded(t, a, 8)
		})
	})
	t.Run("after the decision", func(t *testing.T) {
		ta := newTestArena(t, 4)
		asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
		asFirst(t, ta, func(a *Arena) { makeSuccessor(t, a); require.NoError(t, a.deleteAlone("stats")) })
		asFirst(t, ta, func(a *Arena) { makeStats(t, a, 8) })
		asFirst(t, ta, func(a *Arena) {
			require.ErrorContains(t, upgradeStats(a), "\"stats (upgrade)\" has the data of before")
			require.EqualValues(t, 2, a.Stats().Objects)
			require.NoError(t, a.Delete("stats"+successorSuffix))
			require.NoError(t, upgradeStats(a))
			requireUpgraded(t, a, 8)
		})
	})
}

// TestUpgradeOfAnInterruptedUpgrade: an upgrade to the second version was interrupted. A process of a
// third version first completes it.
func TestUpgradeOfAnInterruptedUpgrade(t *testing.T) {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
	asFirst(t, ta, func(a *Arena) { makeSuccessor(t, a); require.NoError(t, a.deleteAlone("stats")) })
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, UpgradeValue(a, "stats", func(old Stored, v *statsV3) error {
			v2, err := StoredAs[statsV2](old)
			if err == nil {
				*v = statsV3{v2.Hits, v2.Misses, 3}
			}
			return err
		}))
		v, err := AttachValue[statsV3](a, "stats")
		require.NoError(t, err)
		require.Equal(t, statsV3{7, 1, 3}, *v)
		require.EqualValues(t, 1, a.Stats().Objects)
	})
}

func TestHostileSuccessor(t *testing.T) {
	for name, spoil := range map[string]func(body []byte){
		"kind":    func(b []byte) { binary.LittleEndian.PutUint32(b[32:], 7) },
		"version": func(b []byte) { binary.LittleEndian.PutUint32(b[36:], 1<<20) },
		"size":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestArena(t, 4)
			asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
			asFirst(t, ta, func(a *Arena) {
				if spoil == nil {
					_, err := a.Block("stats"+successorSuffix, 8)
					require.NoError(t, err)
					return
				}
				makeSuccessor(t, a)
				h, _, err := a.openExisting("stats" + successorSuffix)
				require.NoError(t, err)
				spoil(a.slice(h.Body, h.Size))
			})
			asFirst(t, ta, func(a *Arena) {
				require.ErrorIs(t, upgradeStats(a), shmsync.ErrCorrupt)
				require.EqualValues(t, 2, a.Stats().Objects)
			})
		})
	}
}
