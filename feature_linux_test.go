package shmsync_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func init() {
	proctest.Register("feature/disabled", func(c *proctest.Child) {
		missing := map[string]bool{}
		for _, f := range shmsync.Features() {
			missing[f.Name()] = !f.Have()
		}
		c.Say(missing)
	})
}

func TestFeaturesAreThereOnThisKernel(t *testing.T) {
	for _, f := range shmsync.Features() {
		if os.Getenv("SHMSYNC_DISABLE") != "" || os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
			t.Skip("needs SHMSYNC_DISABLE and SHMSYNC_EXEC_WRAP to be unset: with them, features are missing")
		}
		require.NoError(t, f.Check(), "the kernels that the tests run on have %s", f.Name())
		require.True(t, f.Have())
	}
}

func TestFeaturesCanBeSwitchedOff(t *testing.T) {
	p := proctest.Start(t, "feature/disabled", proctest.Env("SHMSYNC_DISABLE=robust, waitv"))
	var missing map[string]bool
	p.Recv(t, &missing)
	require.Equal(t, map[string]bool{
		"robust": true, "waitv": true, "membarrier": false, "ofd": false, "threads": true,
	}, missing)
}
