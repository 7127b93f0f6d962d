//go:build linux

package selftest

import (
	"os"
	"testing"
)

// TestMain lets the test binary run as an agent of a proof.
func TestMain(m *testing.M) {
	if args := os.Args[1:]; os.Getenv("SHMBENCH_WORKER") != "" && len(args) > 1 && args[0] == "selftest-worker" {
		if RunWorker(args[1], args[2:]) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a process would otherwise sleep for a second before it exits
	os.Exit(m.Run())
}
