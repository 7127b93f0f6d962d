package diagnose

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The title of a participant also has the pid that printed commands use, if it differs from the pid in the
// participant's own namespace.
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
