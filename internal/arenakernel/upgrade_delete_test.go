//go:build linux

package arenakernel

import (
	"encoding/binary"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

func init() {
	agentOrders["open stats"] = func(s *agent, o order, a *answer) error {
		_, err := Value[statsV1](s.arena, "stats")
		return err
	}
}

// leftover makes one of the states that a death in an upgrade can leave. The table in upgrade.go lists
// them.
func leftover(t *testing.T, state string) *testArena {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) { makeStats(t, a, 7) })
	asFirst(t, ta, func(a *Arena) { makeSuccessor(t, a) })
	if state == "undecided" {
		return ta
	}
	asFirst(t, ta, func(a *Arena) { require.NoError(t, a.deleteAlone("stats")) })
	switch state {
	case "both":
		asFirst(t, ta, func(a *Arena) { makeStats(t, a, 8) })
	case "empty":
		asFirst(t, ta, func(a *Arena) {
			_, err := Value[statsV2](a, "stats")
			require.NoError(t, err)
		})
	case "done":
		asFirst(t, ta, func(a *Arena) {
			v, err := Value[statsV2](a, "stats")
			require.NoError(t, err)
			*v = statsV2{7, 1}
		})
	}
	return ta
}

// TestUpgradeKeepsContentsBesideAnEmptyObject: after an interrupted upgrade, a program of the new
// layout opens the object without an upgrade, and so makes an empty object. The next upgrade keeps the
// earlier contents and returns an error that says what to do.
func TestUpgradeKeepsContentsBesideAnEmptyObject(t *testing.T) {
	ta := leftover(t, "empty")
	asFirst(t, ta, func(a *Arena) {
		err := upgradeStats(a)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, `"stats (upgrade)" has the data of before`)
		require.EqualValues(t, 2, a.Stats().Objects)
	})
	asFirst(t, ta, func(a *Arena) { // this process has the empty object open
		_, err := Value[statsV2](a, "stats")
		require.NoError(t, err)
		require.ErrorIs(t, a.Delete("stats"), syscall.EBUSY)
		require.EqualValues(t, 2, a.Stats().Objects)
	})
	asFirst(t, ta, func(a *Arena) {
		h, _, err := a.openExisting("stats")
		require.NoError(t, err)
		a.CloseObject(h.Object)
		require.NoError(t, a.DeleteObject(h.Object))
	})
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, upgradeStats(a))
		requireUpgraded(t, a, 7)
	})
}

// TestDeleteOfASuccessorKeepsALaterBlock: a deletion has examined a successor. If a program has
// meanwhile made a block with the name of the successor, the deletion does not remove the block.
func TestDeleteOfASuccessorKeepsALaterBlock(t *testing.T) {
	ta := leftover(t, "undecided")
	asFirst(t, ta, func(a *Arena) {
		next := "stats" + successorSuffix
		s, made, err := a.openExisting(next)
		require.NoError(t, err)
		a.CloseObject(s.Object)
		require.NoError(t, a.deleteAlone(next))
		require.ErrorIs(t, a.deleteCreated(&s, made), fs.ErrNotExist)
		_, err = a.Block(next, s.Size) // the block may be at the same offset
		require.NoError(t, err)
		require.ErrorIs(t, a.deleteCreated(&s, made), fs.ErrNotExist)
		require.EqualValues(t, 2, a.Stats().Objects)
		require.NoError(t, a.Check())
	})
}

// TestDeleteAfterAnInterruptedUpgrade: a deletion of an object also removes the successor that an
// upgrade has left. So the next upgrade does not bring the object back.
func TestDeleteAfterAnInterruptedUpgrade(t *testing.T) {
	for _, state := range []string{"undecided", "decided", "both", "empty", "done"} {
		t.Run(state, func(t *testing.T) {
			ta := leftover(t, state)
			asFirst(t, ta, func(a *Arena) {
				require.NoError(t, a.Delete("stats"))
				require.Zero(t, a.Stats().Objects)
				require.ErrorIs(t, a.Delete("stats"), fs.ErrNotExist)
			})
			asFirst(t, ta, func(a *Arena) {
				require.NoError(t, upgradeStats(a))
				require.Zero(t, a.Stats().Objects, "the upgrade has brought the old contents back")
				makeStats(t, a, 9)
			})
			asFirst(t, ta, func(a *Arena) {
				require.NoError(t, upgradeStats(a))
				requireUpgraded(t, a, 9)
			})
		})
	}
}

// TestReplaceAfterAnInterruptedUpgrade: an older program deletes the object and makes it again. The
// next upgrade still works.
func TestReplaceAfterAnInterruptedUpgrade(t *testing.T) {
	ta := leftover(t, "undecided")
	asFirst(t, ta, func(a *Arena) { require.NoError(t, a.Delete("stats")); makeStats(t, a, 9) })
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, upgradeStats(a))
		requireUpgraded(t, a, 9)
	})
}

// TestDeleteObjectAfterAnInterruptedUpgrade: DeleteObject deletes an object together with the successor
// that an upgrade of this object has left. It keeps the successor of an earlier object with the same
// name.
func TestDeleteObjectAfterAnInterruptedUpgrade(t *testing.T) {
	for state, left := range map[string]uint64{"undecided": 0, "done": 0, "both": 1, "empty": 1} {
		t.Run(state, func(t *testing.T) {
			ta := leftover(t, state)
			asFirst(t, ta, func(a *Arena) {
				h, _, err := a.openExisting("stats")
				require.NoError(t, err)
				a.CloseObject(h.Object)
				require.NoError(t, a.DeleteObject(h.Object))
				require.Equal(t, left, a.Stats().Objects)
			})
			asFirst(t, ta, func(a *Arena) {
				require.NoError(t, upgradeStats(a))
				if left == 0 {
					require.Zero(t, a.Stats().Objects)
				} else {
					requireUpgraded(t, a, 7)
				}
			})
		})
	}
}

// TestRefusedDeleteKeepsASuccessorWithData: a deletion is refused because a process has the object
// open. The deletion must not remove the successor of another object with the same name.
func TestRefusedDeleteKeepsASuccessorWithData(t *testing.T) {
	ta := leftover(t, "both")
	other := ta.join(t, "other")
	other.must(t, order{Do: "open stats"})
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.ErrorIs(t, a.Delete("stats"), syscall.EBUSY)
	require.EqualValues(t, 2, a.Stats().Objects)
	other.close(t)
	makeStats(t, a, 8) // this process has the object open
	require.ErrorIs(t, a.Delete("stats"), syscall.EBUSY)
	require.EqualValues(t, 2, a.Stats().Objects)
	require.NoError(t, a.Close())
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, a.Delete("stats"))
		require.Zero(t, a.Stats().Objects)
	})
}

// TestDeleteKeepsABlockThatIsNoSuccessor: a program has made a block whose name happens to be that of a
// successor. A deletion of the object keeps the block.
func TestDeleteKeepsABlockThatIsNoSuccessor(t *testing.T) {
	ta := newTestArena(t, 4)
	asFirst(t, ta, func(a *Arena) {
		makeStats(t, a, 7)
		_, err := a.Block("stats"+successorSuffix, 64)
		require.NoError(t, err)
	})
	asFirst(t, ta, func(a *Arena) {
		require.NoError(t, a.Delete("stats"))
		require.EqualValues(t, 1, a.Stats().Objects)
		require.ErrorIs(t, a.Delete("stats"), fs.ErrNotExist)
	})
}

// TestSuccessorOfAnUnknownKind: this program does not know the kind that a successor becomes. The
// successor does not count as damage, and Delete removes it.
func TestSuccessorOfAnUnknownKind(t *testing.T) {
	ta := leftover(t, "decided")
	asFirst(t, ta, func(a *Arena) {
		h, _, err := a.openExisting("stats" + successorSuffix)
		require.NoError(t, err)
		binary.LittleEndian.PutUint32(a.slice(h.Body, h.Size)[32:], uint32(KindOf("none")))
	})
	asFirst(t, ta, func(a *Arena) {
		err := upgradeStats(a)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.NotErrorIs(t, err, shmsync.ErrCorrupt)
		require.ErrorContains(t, err, "it becomes an object of kind none, a kind that this program does not know")
		require.NoError(t, a.Delete("stats"))
		require.Zero(t, a.Stats().Objects)
	})
}
