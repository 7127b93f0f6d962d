//go:build linux

package cinterop

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// Many threads of a C program that wait for long become a crowd. They sleep longer, and the death watcher makes the
// periodic checks for them. If a stopped process owes a wake, the death watcher finds that as soon as the periodic
// checks of the threads would find it. A close of the arena ends the waits of a crowd at once.
func TestCrowds(t *testing.T) {
	bin := program(t, "crowd.c")
	out, err := exec.Command(bin, "kinds").Output()
	require.NoError(t, err)
	scenes := [][2]string{{"churn", "event"}, {"seldom", "mutex"}, {"seldom", "semaphore"}, {"close", "mutex"}, {"close", "semaphore"}, {"busy", "rwmutex"}, {"opened", "mutex"}, {"gate", "rwspinlock"}}
	for _, kind := range proctest.Sample(strings.Fields(string(out)), 4) {
		scenes = append(scenes, [2]string{"stopped", kind})
	}
	for _, scene := range scenes {
		t.Run(strings.Join(scene[:], " "), func(t *testing.T) {
			name := coreArena(t, 16<<20)
			out, err := exec.Command(bin, scene[0], scene[1], name).CombinedOutput()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == skipped {
				require.False(t, shmsync.FeatureWaitV.Have(), "the program does not find futex_waitv")
				t.Skip("needs futex_waitv, which Linux has since 5.16")
			}
			require.NoError(t, err, "%s", out)
			sound(t, name)
		})
	}
}
