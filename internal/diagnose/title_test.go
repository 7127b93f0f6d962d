package diagnose

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTitleHasThePidOfThisNamespace checks that a title shows two pids if they differ: the pid in the namespace of the
// participant, and the pid in the namespace of this process, which printed commands use.
func TestTitleHasThePidOfThisNamespace(t *testing.T) {
	s := Snapshot{
		Participants: []Participant{{Name: "1.1", Label: "a", PID: 1, HostPID: 4711}, {Name: "2.1", Label: "b", PID: 12, HostPID: 12}, {Name: "3.1", Label: "c", PID: 13}},
		who:          map[string]int{"1.1": 0, "2.1": 1, "3.1": 2},
	}
	require.Equal(t, "a (pid 1, here 4711, 1.1)", s.Title("1.1"))
	require.Equal(t, "b (pid 12, 2.1)", s.Title("2.1"))
	require.Equal(t, "c (pid 13, 3.1)", s.Title("3.1"))
	require.Equal(t, 1, s.Unseen())
}
