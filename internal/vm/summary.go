package main

import (
	"fmt"
	"strings"
)

// counter counts what the tests of a program come to.
type counter struct {
	passed, skipped, failed int
	// verbose: it is a test program, and says when a test begins.
	verbose bool
}

// line counts one line of a test program's output, and reports whether it is
// worth reading.
func (t *counter) line(s string) bool {
	switch {
	case strings.HasPrefix(s, "=== "):
		t.verbose = true
		return false // a test that fails is named again later
	case strings.HasPrefix(s, "--- PASS: "):
		t.passed++
	case strings.HasPrefix(s, "--- SKIP: "):
		t.skipped++
	case strings.HasPrefix(s, "--- FAIL: "):
		t.failed++
	}
	return s != ""
}

// String is how a line RESULT has it.
func (t counter) String() string {
	if !t.verbose {
		return "no tests"
	}
	return fmt.Sprintf("%d passed, %d skipped, %d failed", t.passed, t.skipped, t.failed)
}
