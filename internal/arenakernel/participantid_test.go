//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseParticipantID(t *testing.T) {
	for _, n := range []ParticipantID{makeParticipantID(1, 1), makeParticipantID(3, 12), makeParticipantID(MaxSlots, maxGeneration)} {
		got, err := ParseParticipantID(n.String())
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	for _, text := range []string{
		"", "3", "3.", ".1", "0.1", "3.0", "2048.1", "3.262144", "-3.1", "3.-1", "3.1 ", " 3.1", "3.1x", "3.1.1", "3.1\n", "+3.1", "03.1", "3.01", "3. 1", "3,1",
	} {
		_, err := ParseParticipantID(text)
		require.Error(t, err, "%q", text)
	}
}
