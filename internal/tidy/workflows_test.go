package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	workflowRun    = regexp.MustCompile(`(?m)^\s*(?:- )?run: *(\S.*)$`)
	workflowScript = regexp.MustCompile(`^(?:sudo --preserve-env=PATH,HOME )?(\.ci/[a-z]+)(?: [a-z -]+)?$`)
)

// TestWorkflowsOnlyCallScripts requires that each step of a workflow is a script of .ci with its arguments, so
// that every programmer can run the checks. .ci/lint checks the syntax of the workflows.
func TestWorkflowsOnlyCallScripts(t *testing.T) {
	root := filepath.Join("..", "..")
	names, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		runs := workflowRun.FindAllStringSubmatch(string(src), -1)
		require.NotEmpty(t, runs, name)
		for _, run := range runs {
			script := workflowScript.FindStringSubmatch(run[1])
			require.NotNil(t, script, "%s: %q is no call of a script in .ci", name, run[1])
			info, err := os.Stat(filepath.Join(root, filepath.FromSlash(script[1])))
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&0o111, "%s cannot be executed", script[1])
		}
	}
}
