package proctest

import (
	"os"
	"testing"
)

// envUnused makes this binary register a helper that no test starts.
const envUnused = "SHMSYNC_PROCTEST_SELFTEST_UNUSED"

func TestMain(m *testing.M) {
	if os.Getenv(envUnused) != "" {
		Register("never/started", func(*Child) {})
	}
	Main(m)
}
