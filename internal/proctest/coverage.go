package proctest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// envCoverage is the environment variable that names the directory for the coverage data of helpers.
const envCoverage = "SHMSYNC_COVERAGE"

// tests is the argument of Main or of ExitCounted.
var tests *testing.M

// end ends a helper process. If the program measures coverage, as .ci/coverage does, end first writes the coverage
// data. The data of a helper that is killed is lost.
func end(code int) {
	if dir := os.Getenv(envCoverage); dir != "" && testing.CoverMode() != "" {
		writeCounts(dir)
	}
	os.Exit(code)
}

// ExitCounted ends a process of the test program that is not a helper. It first writes the coverage data, as the
// function end does.
func ExitCounted(m *testing.M, code int) {
	tests = m
	end(code)
}

// writeCounts writes the coverage data of this process into the directory dir. Only package testing can write this
// data, at the end of a run of tests, so writeCounts makes a run that selects no test. Such a run also reads all
// coverage data in its directory, so it gets a directory of its own. The data of a helper that may not write to
// dir, or that has another root directory, is lost.
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
