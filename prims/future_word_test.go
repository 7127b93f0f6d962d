//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// TestFutureWord: each transition changes the fields that it should change, and no others.
func TestFutureWord(t *testing.T) {
	type parts struct {
		round                      futureRound
		over, abandoned, announced bool
		producer                   arenakernel.ParticipantID
	}
	read := func(s futureState) parts {
		return parts{s.round(), s.over(), s.abandoned(), s.announced(), s.producer()}
	}
	for _, round := range []futureRound{0, 1, 31, 32, 1<<31 - 1} {
		for _, n := range []arenakernel.ParticipantID{0, 5, arenakernel.ParticipantIDMask} {
			for _, announced := range []bool{false, true} {
				s := futureState(round) << 1
				if announced {
					s |= futureState(eventcountAnnounced)
				}
				s = s.claimedBy(n)
				require.Equal(t, parts{round, false, false, announced, n}, read(s))
				require.Equal(t, n != 0, s.claimed())
				set, died := s.ended(resultOf(round, 7)), s.ended(abandonedBy(round, 5))
				require.Equal(t, parts{round, true, false, false, n}, read(set))
				require.Equal(t, parts{round, true, true, false, n}, read(died))
				next := (round + 1) & (1<<31 - 1)
				require.Equal(t, parts{round: next}, read(set.reset()))
				require.Equal(t, parts{round: next}, read(died.reset()))
				require.EqualValues(t, uint64(next)<<1, (died | 1<<34).reset(), "every bit but those of the round is 0")
				require.Equal(t, round, next.before())
			}
		}
		v, w := resultOf(round, shmsync.Errno(0xffff_ffff)), abandonedBy(round, arenakernel.ParticipantIDMask)
		// The results of rounds that are one lap earlier or later use the same slot.
		for _, other := range []futureRound{round + futureRounds, round - futureRounds} {
			require.False(t, v.of(other&(1<<31-1)) || w.of(other&(1<<31-1)))
		}
		require.True(t, v.of(round) && w.of(round))
		require.True(t, !v.abandoned() && v.errno() == 0xffff_ffff)
		require.True(t, w.abandoned() && w.producer() == arenakernel.ParticipantIDMask)
	}
	for _, round := range []futureRound{0, 31, 1<<31 - 1} {
		require.False(t, futureResult(0).of(round), "all-zero memory has no result")
	}
}
