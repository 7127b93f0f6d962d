//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// TestOnceWord: each transition changes the fields that it should change, and no others.
func TestOnceWord(t *testing.T) {
	type parts struct {
		done, announced bool
		runner          arenakernel.ParticipantID
		turn            uint32
	}
	read := func(w onceWord) parts { return parts{w.done(), w.announced(), w.runner(), w.turn()} }
	for _, p := range []parts{
		{}, {announced: true}, {runner: 5, turn: 1}, {announced: true, runner: arenakernel.ParticipantIDMask, turn: 1<<32 - 1},
		{done: true, turn: 7}, {done: true, announced: true, turn: 1 << 31},
	} {
		w := onceWord(p.turn)<<32 | onceWord(p.runner)<<onceIDShift
		if p.done {
			w |= onceDone
		}
		if p.announced {
			w |= onceAnnounced
		}
		require.Equal(t, p, read(w))
		require.Equal(t, parts{p.done, p.announced, 9, p.turn + 1}, read(w.takenBy(9)))
		require.Equal(t, parts{p.done, p.announced, 0, p.turn}, read(w.left()))
		require.Equal(t, parts{true, p.announced, 0, p.turn}, read(w.finished()))
		require.Equal(t, !p.done, w.runs(w&^onceAnnounced))
		require.False(t, w.takenBy(p.runner).runs(w), "the word is one of another turn")
		require.False(t, w.finished().runs(w))
		require.Equal(t, p.runner == 0 && !p.done, w.left().runs(w))
	}
	require.Equal(t, "run by 5.3, announced, turn 2", (onceWord(2)<<32 | onceWord(3<<11|5)<<onceIDShift | onceAnnounced).String())
}
