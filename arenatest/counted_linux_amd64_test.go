package arenatest

import (
	"os"
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestMain makes the tracer process write its coverage data, if the test measures coverage.
func TestMain(m *testing.M) {
	if testing.CoverMode() != "" {
		tracerVariable = envTracer + "_COUNTED"
		if ran, code := runTracer(tracerVariable); ran {
			proctest.ExitCounted(m, code)
		}
	}
	os.Exit(m.Run())
}
