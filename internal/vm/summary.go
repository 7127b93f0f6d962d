package main

import (
	"fmt"
	"strings"
)

// counter counts the results of the tests of a program.
type counter struct {
	passed, skipped, failed int
	// verbose is set if the program is a test that prints a line at the beginning of each test.
	verbose bool
}

// line counts one line of the output of a test program, and reports whether the line is important enough to copy.
func (t *counter) line(s string) bool {
	switch {
	case strings.HasPrefix(s, "=== "):
		t.verbose = true
		return false // not important: the line about the end of the test names the test again
	case strings.HasPrefix(s, "--- PASS: "):
		t.passed++
	case strings.HasPrefix(s, "--- SKIP: "):
		t.skipped++
	case strings.HasPrefix(s, "--- FAIL: "):
		t.failed++
	}
	return s != ""
}

// String returns the counts as they are in a line RESULT.
func (t counter) String() string {
	if !t.verbose {
		return "no tests"
	}
	return fmt.Sprintf("%d passed, %d skipped, %d failed", t.passed, t.skipped, t.failed)
}
