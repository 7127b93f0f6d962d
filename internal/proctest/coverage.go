package proctest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// envCoverage names the directory for the counts of helpers, if their statements are counted.
const envCoverage = "SHMSYNC_COVERAGE"

// tests are those of the program, set by Main.
var tests *testing.M

// end ends a helper. If its statements are counted, as .ci/coverage has it, the counts are
// written first. The counts of a helper that is killed are lost.
func end(code int) {
	if dir := os.Getenv(envCoverage); dir != "" && testing.CoverMode() != "" {
		writeCounts(dir)
	}
	os.Exit(code)
}

// ExitCounted ends a process of the test program that is no helper, as end does.
func ExitCounted(m *testing.M, code int) {
	tests = m
	end(code)
}

// writeCounts writes the counts by a run without a test. Such a run reads all counts that are in
// its directory, so it gets one of its own. The counts of a helper that may not write there, or
// that has another root directory, are lost.
func writeCounts(dir string) {
	os.Stdout, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	os.Stderr = os.Stdout
	own, err := os.MkdirTemp(dir, "")
	if err != nil {
		return
	}
	flag.Set("test.run", "^$")
	flag.Set("test.gocoverdir", own)
	tests.Run()
	files, _ := filepath.Glob(filepath.Join(own, "*"))
	for _, file := range files {
		if err := os.Rename(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			panic(err)
		}
	}
	os.Remove(own)
}
