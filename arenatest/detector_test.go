//go:build linux

package arenatest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/race"
)

// go test -race reports an access to data in an arena without the lock, also between two
// participants, and none with the lock.
func TestRaceDetectorFindsAPlantedRace(t *testing.T) {
	if !race.Enabled {
		t.Skip("needs -race")
	}
	for name, racy := range map[string]bool{
		"TestTwoParticipantsOneWithoutTheLock": true,
		"TestTwoGoroutinesWithoutTheLock":      true,
		"TestTwoParticipantsWithTheLock":       false,
	} {
		cmd := exec.Command("go", "test", "-race", "-count=1", "-run", "^"+name+"$", "./testdata/planted")
		cmd.Env = append(os.Environ(), "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		if !racy {
			require.NoError(t, err, "%s:\n%s", name, out)
			continue
		}
		require.Error(t, err, "%s:\n%s", name, out)
		require.Contains(t, string(out), "WARNING: DATA RACE", name)
		require.Contains(t, string(out), "planted_test.go", name)
	}
}
