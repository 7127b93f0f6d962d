//go:build linux

package arenatest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// fake is a testing.TB whose failures another test examines.
type fake struct {
	testing.TB
	cleanups []func()
	failures []string
	skipped  string
}

func (f *fake) Helper()             {}
func (f *fake) Cleanup(c func())    { f.cleanups = append(f.cleanups, c) }
func (f *fake) Failed() bool        { return len(f.failures) > 0 }
func (f *fake) Logf(string, ...any) {}
func (f *fake) Errorf(s string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(s, args...))
}
func (f *fake) Fatalf(s string, args ...any) { f.Errorf(s, args...); runtime.Goexit() }
func (f *fake) Skipf(s string, args ...any)  { f.skipped = fmt.Sprintf(s, args...); runtime.Goexit() }

// failures runs a test to its end, and returns what the test reported.
func failures(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	f := &fake{TB: t}
	run := func(part func()) {
		done := make(chan bool)
		go func() {
			defer close(done)
			part()
		}()
		<-done
	}
	run(func() { test(f) })
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		run(f.cleanups[i])
	}
	if f.skipped != "" {
		t.Skip(f.skipped)
	}
	return strings.Join(f.failures, "\n")
}
