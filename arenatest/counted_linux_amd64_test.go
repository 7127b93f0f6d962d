package arenatest

import (
	"os"
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestMain makes the tracer of a test that measures coverage write its coverage data.
func TestMain(m *testing.M) {
	if testing.CoverMode() != "" {
		tracerVariable = envTracer + "_COUNTED"
		if ran, code := runTracer(tracerVariable); ran {
			proctest.ExitCounted(m, code)
		}
	}
	os.Exit(m.Run())
}
