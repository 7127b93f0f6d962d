//go:build linux

package arenatest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/race"
)

// TestRaceDetectorFindsAPlantedRace: go test -race reports an access without the lock to data in an arena, even if
// the two goroutines belong to different participants. It reports nothing if both goroutines hold the lock.
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
